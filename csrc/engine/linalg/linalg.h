// Factorisations and triangular systems of batches of matrices, in place. The recursion turns
// nearly all work into products for the matrix product engine; kernels/linalg does the small ends.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace ocl::linalg {

/// A batch of matrices in device memory, of float32, float64, complex64 or complex128. Strides are
/// in elements.
struct MatrixBatch {
  char* data = nullptr;
  c10::ScalarType dtype = c10::ScalarType::Float;
  c10::DeviceIndex device = 0;
  int64_t rows = 0, columns = 0, batch = 1;
  int64_t row_stride = 0, column_stride = 0, batch_stride = 0;
  bool conjugate = false;  // only for operands that are read: the conjugate is meant

  /// The rows x columns submatrices at (row, column).
  MatrixBatch block(int64_t row, int64_t column, int64_t rows, int64_t columns) const;
  MatrixBatch transposed() const;
  MatrixBatch conjugated() const;
  bool empty() const { return rows == 0 || columns == 0 || batch == 0; }
};

/// c -= a @ b. a and b must not overlap c.
void subtract_product(const MatrixBatch& c, const MatrixBatch& a, const MatrixBatch& b);

/// Solves a @ x = b for x, which replaces b. Only a's upper (or lower) triangle is read; with
/// `unit` its diagonal is taken for ones. A zero on the diagonal gives infinities and NaNs. a:
/// [batch, n, n], b: [batch, n, k].
void solve_triangular(const MatrixBatch& a, const MatrixBatch& b, bool upper, bool unit);

/// a = L L^H of Hermitian matrices: L replaces the lower triangle, the only one read; above it
/// there are remains afterwards. info: [batch] ints in device memory that are 0, the number of the
/// first leading minor that isn't positive definite afterwards.
void cholesky(const MatrixBatch& a, int32_t* info);

/// Row swaps as LAPACK gives them: row i with row data[i] - 1, one after the other. `stride` from
/// one matrix's to the next's.
struct Pivots {
  int32_t* data;
  int64_t stride;
};

/// a = P L U: L (its unit diagonal isn't stored) and U replace a. pivots: min(rows, columns) per
/// matrix; without `pivot` no rows are swapped. info: [batch] ints in device memory that are 0, the
/// number of the first zero on U's diagonal afterwards.
void lu_factor(const MatrixBatch& a, const Pivots& pivots, int32_t* info, bool pivot);

/// Applies swaps [first, first + count) to the rows of b, or undoes them.
void swap_rows(const MatrixBatch& b, const Pivots& pivots, int64_t first, int64_t count, bool undo);

/// The QR factors of few columns by Householder reflections, as LAPACK's geqr2 leaves them in a and
/// tau. tau: min(rows, columns) elements of a's dtype per matrix, tau_stride apart.
void householder_panel(const MatrixBatch& a, void* tau, int64_t tau_stride);

/// Whether reflect_columns() serves: on CPUs, real numbers whose columns' elements are adjacent.
bool reflects_columns(const MatrixBatch& v, const MatrixBatch& c);

/// c = H(1) ... H(k) c, or H(k) ... H(1) c with `adjoint`, of the k reflections that
/// householder_panel() left in v and tau, one after the other. `triangle`: c is 0 below its
/// diagonal (without `adjoint`).
void reflect_columns(const MatrixBatch& v, const void* tau, int64_t tau_stride,
                     const MatrixBatch& c, bool adjoint, bool triangle);

/// Rows of the largest matrix that ldl_factor() takes: one work-group factors it, row by row. Past
/// this LAPACK and two copies are clearly faster.
constexpr int64_t kMostLdl = 256;

/// a = L D L^T, or L D L^H with `hermitian` (complex dtypes), with blocks of one or two rows on D's
/// diagonal and rows swapped, as LAPACK's sytf2 leaves it. Only the lower triangle is read or
/// written. pivots: [batch, n], contiguous, LAPACK's; info: [batch] ints, the number of the first
/// zero on D's diagonal, or 0.
void ldl_factor(const MatrixBatch& a, int32_t* pivots, int32_t* info, bool hermitian);

/// Solves with these factors for x, which replaces b. b: [batch, n, k].
void ldl_solve(const MatrixBatch& a, const int32_t* pivots, const MatrixBatch& b, bool hermitian);

}  // namespace ocl::linalg
