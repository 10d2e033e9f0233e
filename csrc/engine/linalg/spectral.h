// Eigenvalues of Hermitian matrices and singular values of square ones, with their vectors.
#pragma once

#include "engine/linalg/linalg.h"

namespace ocl::linalg {

/// Rows of the largest matrices that these take. One work-group reduces a matrix to two diagonals,
/// one work-item iterates on those: past this, LAPACK and two copies are clearly faster.
constexpr int64_t kMostSpectral = 256;

/// a = V diag(values) V^H of Hermitian matrices, of which only the upper (or lower) triangle is
/// read. values: [batch, n] in a's real dtype, contiguous, rising; vectors: columns of [batch, n,
/// n], may be a itself; null leaves them out. info: [batch] ints in device memory, not 0 where a
/// matrix isn't finite or the iteration did not converge.
void hermitian_eigen(const MatrixBatch& a, bool upper, void* values, const MatrixBatch* vectors,
                     int32_t* info);

/// a = U diag(values) V^H of square matrices. values: as above, falling and not negative; u and vh:
/// [batch, n, n], both or none. info: as above; -4 where a matrix isn't finite.
void square_svd(const MatrixBatch& a, void* values, const MatrixBatch* u, const MatrixBatch* vh,
                int32_t* info);

}  // namespace ocl::linalg
