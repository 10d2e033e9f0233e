// The launches of sparse matrices' ops: conversions of their indices, and products.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ocl::sparse {

/// The offsets [size + 1] of rows whose entries' row numbers [entries] ascend, into `offsets`.
/// Both are contiguous.
void compress_rows(const at::Tensor& rows, int64_t size, const at::Tensor& offsets);

/// The row numbers [entries] of the matrices whose rows' offsets are [..., size + 1], one matrix
/// after the other, into `rows`. Both are contiguous.
void expand_rows(const at::Tensor& offsets, const at::Tensor& rows);

/// A matrix of rows that lie one after the other: contiguous tensors of one device.
struct Rows {
  at::Tensor offsets;  // [rows + 1]
  at::Tensor columns;  // [entries], of the dtype of offsets
  at::Tensor values;   // [entries]
};

/// The rows of a sparse COO matrix with two sparse dimensions and none that is dense. Entries
/// needn't be coalesced: they are sorted by rows then.
Rows rows_of_coo(const at::Tensor& sparse);
/// Those of a matrix of any compressed layout without dense dimensions.
Rows rows_of_compressed(const at::Tensor& sparse);

enum class Reduction : int { sum = 0, mean = 1, max = 2, min = 3 };

/// out = beta * out + alpha * matrix @ dense, all of one dtype. `dense` [columns, n] may have any
/// strides, `out` [rows, n] too; what it holds isn't read if beta is 0.
void product(const Rows& matrix, const at::Tensor& dense, const at::Scalar& beta,
             const at::Scalar& alpha, const at::Tensor& out);
/// The mean, maximum or minimum of the products instead, 0 of a row without entries, into the
/// contiguous `out`. `positions`, if defined: the entries of maxima and minima, in the dtype of
/// indices; the number of all entries where a row has none.
void reduced_product(const Rows& matrix, const at::Tensor& dense, Reduction reduction,
                     const at::Tensor& out, const at::Tensor& positions);

/// matrix.values = beta * matrix.values + alpha * (a @ b), at the matrix's entries: a [rows, k], b
/// [k, columns], of any strides. Values aren't read if beta is 0.
void sampled_product(const Rows& matrix, const at::Tensor& a, const at::Tensor& b,
                     const at::Scalar& beta, const at::Scalar& alpha);

/// The product a @ b of sparse matrices, row by row.
struct Entries {
  at::Tensor indices, values;  // [2, entries] ascending, [entries]
};
/// Whether rows_by_rows() takes them: on CPUs, where workspaces have room and rows aren't so empty
/// that looking for their entries would take longer than sorting them.
bool takes_rows_by_rows(const Rows& a, const Rows& b, int64_t columns);
/// `columns` are the result's. Waits for the number of entries.
Entries rows_by_rows(const Rows& a, const Rows& b, int64_t columns);

/// A bit for each rule that compressed indices [..., rows + 1] and [..., entries] break: see
/// indices_check in kernels/sparse/indices.cl. Waits for the device.
int broken_rules(const at::Tensor& offsets, const at::Tensor& columns, int64_t size,
                 int64_t others);

}  // namespace ocl::sparse
