// Conversions among sparse layouts, where upstream's need a kernel or the CPU: row numbers and
// offsets of rows, matrices of blocks.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_to_sparse_bsc_native.h>
#include <ATen/ops/_to_sparse_bsr_native.h>
#include <ATen/ops/_to_sparse_csc_native.h>
#include <ATen/ops/_to_sparse_csr_native.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "ops/_convert_indices_from_coo_to_csr.h"
#include "ops/_convert_indices_from_csr_to_coo.h"
#include "ops/_validate_compressed_sparse_indices.h"
#include "ops/sparse/Compressed.h"

namespace ocl::native {

using at::Tensor;

TORCH_IMPL_FUNC(_convert_indices_from_coo_to_csr_out)(const Tensor& input, int64_t size,
                                                      bool /*out_int32*/, const Tensor& result) {
  const bool direct = result.is_contiguous();
  const Tensor offsets = direct ? result : at::empty(result.sizes(), result.options());
  sparse::compress_rows(input.contiguous(), size, offsets);
  if (!direct) result.copy_(offsets);
}

TORCH_IMPL_FUNC(_convert_indices_from_csr_to_coo_out)(const Tensor& crow_indices,
                                                      const Tensor& col_indices, bool /*out_int32*/,
                                                      bool transpose, const Tensor& result) {
  const int64_t batches = crow_indices.dim() - 1, entries = col_indices.numel();
  if (entries == 0) return;
  const Tensor to = result.select(0, batches + (transpose ? 1 : 0));
  const Tensor rows = to.is_contiguous() ? to : at::empty({entries}, result.options());
  sparse::expand_rows(crow_indices.contiguous(), rows);
  if (!rows.is_same(to)) to.copy_(rows);
  result.select(0, batches + (transpose ? 0 : 1)).copy_(col_indices.reshape({-1}));
  // The entries of a matrix lie together: each batch dimension changes slower than the next.
  int64_t below = entries;
  for (int64_t d = 0; d < batches; ++d) {
    const int64_t size = col_indices.size(d);
    below /= size;
    const Tensor numbers = at::arange(size, result.options()).view({1, size, 1});
    result.select(0, d).view({-1, size, below}).copy_(numbers);
  }
}

void _validate_compressed_sparse_indices(bool is_crow, const Tensor& compressed_idx,
                                         const Tensor& plain_idx, int64_t cdim, int64_t dim,
                                         int64_t /*nnz*/) {
  const int broken = sparse::broken_rules(compressed_idx, plain_idx, cdim, dim);
  const char* compressed = is_crow ? "crow_indices" : "ccol_indices";
  const char* plain = is_crow ? "col_indices" : "row_indices";
  const char* others = is_crow ? "ncols" : "nrows";
  const char* lines = is_crow ? "nrows" : "ncols";
  TORCH_CHECK((broken & 1) == 0, "`", compressed, "[..., 0] == 0` is not satisfied.");
  TORCH_CHECK((broken & 2) == 0, "`", compressed, "[..., -1] == nnz` is not satisfied.");
  TORCH_CHECK((broken & 4) == 0, "`0 <= ", compressed, "[..., 1:] - ", compressed,
              "[..., :-1] <= ", others, "` is not satisfied.");
  TORCH_CHECK((broken & 8) == 0, "`0 <= ", plain, " < ", others, "` is not satisfied.");
  TORCH_CHECK((broken & 16) == 0, "`", plain, "[..., ", compressed, "[..., i - 1]:", compressed,
              "[..., i]] for all i = 1, ..., ", lines,
              " are sorted and distinct along the last dimension values` is not satisfied.");
}

namespace {

void check_block(const char* name, const Tensor& self, at::IntArrayRef block, at::Layout to) {
  TORCH_CHECK(block.size() == 2, name, ": blocksize needs to be a tuple of size 2, but got ",
              block.size());
  TORCH_CHECK(block[0] > 0 && block[1] > 0, name, ": blocksize needs to be positive, but got ",
              block);
  const int64_t batches = self.dim() - self.sparse_dim() - self.dense_dim();
  const int64_t rows = self.size(batches), columns = self.size(batches + 1);
  TORCH_CHECK(rows % block[0] == 0 && columns % block[1] == 0, name, ": tensor sparse size (", rows,
              ",", columns, ") must be divisible by given blocksize (", block[0], ",", block[1],
              ")");
  TORCH_CHECK(batches == 0, name, ": conversion from ", self.layout(), " to ", to,
              " for batched inputs is not supported");
}

/// A CSR or CSC matrix in blocks: BSR, or BSC with the columns of blocks compressed.
Tensor in_blocks(const Tensor& self, at::IntArrayRef block, bool by_rows) {
  const Tensor entries = self.to_sparse();
  const Tensor rows = entries._indices().select(0, 0), columns = entries._indices().select(0, 1);
  const Tensor values = entries._values();
  const Tensor block_row = rows.floor_divide(block[0]);
  const Tensor block_column = columns.floor_divide(block[1]);
  const int64_t down = self.size(0) / block[0], across = self.size(1) / block[1];
  const Tensor& major = by_rows ? block_row : block_column;
  const Tensor& minor = by_rows ? block_column : block_row;
  const int64_t majors = by_rows ? down : across, minors = by_rows ? across : down;
  const auto [blocks, block_of, counts] = at::_unique2(major.mul(minors).add_(minor), true, true);
  const int64_t elements = block[0] * block[1];
  // Where an entry lies within all blocks.
  const Tensor place = block_of.mul(elements)
                           .add_(rows.remainder(block[0]).mul_(block[1]))
                           .add_(columns.remainder(block[1]));
  c10::DimVector sizes(values.sizes());
  sizes[0] = blocks.size(0) * elements;
  const Tensor filled = at::zeros(sizes, values.options()).index_copy_(0, place, values);
  c10::DimVector block_sizes{blocks.size(0), block[0], block[1]};
  for (int64_t d = 1; d < values.dim(); ++d) block_sizes.push_back(values.size(d));
  const at::ScalarType index =
      (self.layout() == at::kSparseCsr ? self.crow_indices() : self.ccol_indices()).scalar_type();
  const auto index_options = values.options().dtype(index);
  const Tensor compressed = at::empty({majors + 1}, index_options);
  const int64_t divisor = std::max<int64_t>(minors, 1);
  sparse::compress_rows(blocks.floor_divide(divisor), majors, compressed);
  return at::_sparse_compressed_tensor_unsafe(
      compressed, blocks.remainder(divisor).to(index), filled.view(block_sizes), self.sizes(),
      values.options().layout(by_rows ? at::kSparseBsr : at::kSparseBsc));
}

bool has_blocks(const Tensor& self) {
  return self.layout() == at::kSparseBsr || self.layout() == at::kSparseBsc;
}

Tensor to_sparse_bsr(const Tensor& self, at::IntArrayRef blocksize,
                     std::optional<int64_t> dense_dim) {
  if (has_blocks(self) || dense_dim) {
    return at::native::sparse_compressed_to_sparse_bsr(self, blocksize, dense_dim);
  }
  check_block("sparse_compressed_to_sparse_bsr", self, blocksize, at::kSparseBsr);
  return in_blocks(self, blocksize, true);
}

Tensor to_sparse_bsc(const Tensor& self, at::IntArrayRef blocksize,
                     std::optional<int64_t> dense_dim) {
  if (has_blocks(self) || dense_dim) {
    return at::native::sparse_compressed_to_sparse_bsc(self, blocksize, dense_dim);
  }
  check_block("sparse_compressed_to_sparse_bsc", self, blocksize, at::kSparseBsc);
  return in_blocks(self, blocksize, false);
}

/// CSR as CSC and the reverse, of one matrix: its entries sorted by what wasn't compressed.
Tensor flipped(const Tensor& self) {
  const bool by_rows = self.layout() == at::kSparseCsr;
  const Tensor offsets = (by_rows ? self.crow_indices() : self.ccol_indices()).contiguous();
  const Tensor plain = (by_rows ? self.col_indices() : self.row_indices()).contiguous();
  const Tensor lines = at::empty(plain.sizes(), offsets.options());
  sparse::expand_rows(offsets, lines);
  const auto [sorted, order] = plain.sort(std::optional<bool>(true), 0, false);
  const int64_t size = self.size(by_rows ? 1 : 0);
  const Tensor compressed = at::empty({size + 1}, offsets.options());
  sparse::compress_rows(sorted, size, compressed);
  return at::_sparse_compressed_tensor_unsafe(
      compressed, lines.index_select(0, order), self.values().index_select(0, order), self.sizes(),
      self.values().options().layout(by_rows ? at::kSparseCsc : at::kSparseCsr));
}

bool is_flippable(const Tensor& self, at::Layout from, std::optional<int64_t> dense_dim) {
  return self.layout() == from && !dense_dim && self.dim() - self.dense_dim() == 2;
}

Tensor to_sparse_csr(const Tensor& self, std::optional<int64_t> dense_dim) {
  if (is_flippable(self, at::kSparseCsc, dense_dim)) return flipped(self);
  return at::native::sparse_compressed_to_sparse_csr(self, dense_dim);
}

Tensor to_sparse_csc(const Tensor& self, std::optional<int64_t> dense_dim) {
  if (is_flippable(self, at::kSparseCsr, dense_dim)) return flipped(self);
  return at::native::sparse_compressed_to_sparse_csc(self, dense_dim);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("_to_sparse_bsc", TORCH_FN(to_sparse_bsc));
  m.impl("_to_sparse_bsr", TORCH_FN(to_sparse_bsr));
  m.impl("_to_sparse_csc", TORCH_FN(to_sparse_csc));
  m.impl("_to_sparse_csr", TORCH_FN(to_sparse_csr));
}

}  // namespace

/// The number of each index [dims, n] in a tensor of `sizes`, in row-major order.
Tensor flatten_indices(const Tensor& indices, at::IntArrayRef sizes) {
  Tensor number = at::zeros({indices.size(1)}, indices.options().dtype(at::kLong));
  for (size_t d = 0; d < sizes.size(); ++d) {
    number.mul_(sizes[d]).add_(indices.select(0, static_cast<int64_t>(d)));
  }
  return number;
}

}  // namespace ocl::native

// Upstream's conversions of batches and blocks run this stub, whose header isn't installed.
namespace at::native {
DECLARE_DISPATCH(Tensor (*)(const Tensor&, IntArrayRef), flatten_indices_stub)
REGISTER_PRIVATEUSE1_DISPATCH(flatten_indices_stub, &ocl::native::flatten_indices)
}  // namespace at::native
