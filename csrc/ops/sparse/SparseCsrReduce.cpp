// Reductions of compressed sparse matrices: torch.sparse.mm(reduce=...) with its gradients, sums
// and products along dimensions.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/ReductionType.h>
#include <ATen/ops/_sparse_csr_tensor_unsafe.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <tuple>

#include "ops/sparse/Compressed.h"

namespace ocl::native {

using at::Tensor;
using at::native::ReductionType;
using sparse::Reduction;

namespace {

Reduction reduction_of(std::string_view name) {
  switch (at::native::get_reduction_enum(name)) {
    case ReductionType::SUM:
      return Reduction::sum;
    case ReductionType::MEAN:
      return Reduction::mean;
    case ReductionType::MAX:
      return Reduction::max;
    case ReductionType::MIN:
      return Reduction::min;
    default:
      TORCH_CHECK(false, "sparse_mm_reduce: reduce type of ", name, " has not been enabled.");
  }
}

void check_reduced(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.layout() == at::kSparseCsr,
              "sparse_mm_reduce: expect self to be SparseCsr, got ", self.layout());
  TORCH_CHECK(self.dense_dim() == 0, "sparse_mm_reduce: expected non-hybrid self tensor.");
  TORCH_CHECK(self.dim() == 2, "sparse_mm_reduce: expected self to be a 2-D tensor, got ",
              self.dim(), "-D tensor.");
  TORCH_CHECK(other.dim() == 2 && other.size(0) == self.size(1),
              "Expected a tensor of dimension 2 and tensor.size[0] == ", self.size(1),
              " but got: dimension ", other.dim(), " and tensor.size[0] = ", other.size(0));
  TORCH_CHECK(self.scalar_type() == other.scalar_type(),
              "Expected tensor for argument #1 'other' to have scalar type ", self.scalar_type(),
              "; but got ", other.toString(),
              " instead (while checking arguments for sparse_mm_reduce)");
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()),
                              "\"spmm_reduce_kernel\" not implemented for '", self.scalar_type(),
                              "'");
}

bool is_extreme(Reduction reduction) {
  return reduction == Reduction::max || reduction == Reduction::min;
}

std::tuple<Tensor, Tensor> mm_reduce(const Tensor& self, const Tensor& other,
                                     std::string_view reduce) {
  check_reduced(self, other);
  const Reduction reduction = reduction_of(reduce);
  const sparse::Rows matrix = sparse::rows_of_compressed(self);
  const Tensor out = at::empty({self.size(0), other.size(1)}, other.options());
  const bool wanted = at::GradMode::is_enabled() && (self.requires_grad() || other.requires_grad());
  Tensor positions = at::empty({0}, matrix.columns.options());
  if (!is_extreme(reduction)) {
    sparse::reduced_product(matrix, other, reduction, out, {});
    return {out, positions};
  }
  if (wanted) positions.resize_(out.sizes());
  sparse::reduced_product(matrix, other, reduction, out, wanted ? positions : Tensor());
  return {out, positions};
}

/// The matrix with other values.
Tensor with_values(const Tensor& like, const Tensor& values) {
  return at::_sparse_csr_tensor_unsafe(like.crow_indices(), like.col_indices(), values,
                                       like.sizes(), values.options().layout(at::kSparseCsr));
}

/// values / entries of their row.
Tensor over_row_length(const Tensor& self, const Tensor& values) {
  const Tensor offsets = self.crow_indices().contiguous();
  const Tensor rows = at::empty({self._nnz()}, offsets.options());
  sparse::expand_rows(offsets, rows);
  return values.div(offsets.diff().index_select(0, rows));
}

std::tuple<Tensor, Tensor> mm_reduce_backward(const Tensor& self, const Tensor& grad_out_,
                                              const Tensor& weight, std::string_view reduce,
                                              const Tensor& arg_out,
                                              std::array<bool, 2> output_mask) {
  TORCH_CHECK(self.layout() == at::kSparseCsr,
              "sparse_mm_reduce: expect self to be SparseCsr, got ", self.layout());
  const Reduction reduction = reduction_of(reduce);
  const Tensor grad_out = grad_out_.contiguous();
  const sparse::Rows matrix = sparse::rows_of_compressed(self);
  // Products and means of half types are rounded once.
  const at::ScalarType dtype = grad_out.scalar_type();
  const at::ScalarType summed_in = at::isReducedFloatingType(dtype) ? at::kFloat : dtype;
  Tensor grad_self, grad_weight;
  if (is_extreme(reduction)) {
    const Tensor grad = grad_out.to(summed_in);
    // One more entry stands for rows that have none.
    const Tensor entry = arg_out.to(at::kLong);
    const Tensor column =
        at::constant_pad_nd(matrix.columns, {0, 1}).to(at::kLong).index_select(0, entry.view({-1}));
    const Tensor columns = column.view(entry.sizes());
    if (output_mask[0]) {
      const Tensor share =
          weight.size(0) == 0 ? grad : weight.gather(0, columns).to(summed_in).mul_(grad);
      const Tensor sums = at::zeros({self._nnz() + 1}, grad.options())
                              .scatter_add_(0, entry.view({-1}), share.view({-1}));
      grad_self = with_values(self, sums.narrow(0, 0, self._nnz()).to(dtype));
    }
    if (output_mask[1]) {
      const Tensor value = at::constant_pad_nd(matrix.values, {0, 1})
                               .index_select(0, entry.view({-1}))
                               .view(entry.sizes())
                               .to(summed_in);
      grad_weight = at::zeros(weight.sizes(), grad.options());
      if (weight.size(0) != 0) grad_weight.scatter_add_(0, columns, value.mul_(grad));
      grad_weight = grad_weight.to(dtype);
    }
    return {grad_self, grad_weight};
  }
  const bool mean = reduction == Reduction::mean;
  if (output_mask[0]) {
    const at::ScalarType wide = mean ? summed_in : dtype;
    Tensor values = at::empty({self._nnz()}, grad_out.options().dtype(wide));
    sparse::sampled_product({matrix.offsets, matrix.columns, values}, grad_out.to(wide),
                            weight.t().to(wide), 0, 1);
    grad_self = with_values(self, mean ? over_row_length(self, values).to(dtype) : values);
  }
  if (output_mask[1]) {
    const Tensor shares =
        mean ? with_values(self, over_row_length(self, matrix.values)) : self.detach();
    grad_weight = at::empty(weight.sizes(), grad_out.options());
    sparse::product(sparse::rows_of_compressed(shares.transpose(0, 1)), grad_out, 0, 1,
                    grad_weight);
  }
  return {grad_self, grad_weight};
}

/// Sums (or products) of values by the number in `of` [entries], of which there are `count`.
Tensor combined(const Tensor& values, const Tensor& of, int64_t count, bool multiply) {
  if (!multiply) return at::zeros({count}, values.options()).index_add_(0, of, values);
  return at::ones({count}, values.options()).scatter_reduce_(0, of, values, "prod");
}

Tensor reduced(const Tensor& self, at::IntArrayRef dims, bool keepdim,
               std::optional<at::ScalarType> dtype, bool multiply) {
  TORCH_INTERNAL_ASSERT(self.is_sparse_csr());
  TORCH_CHECK(keepdim, "reduction operations on CSR tensors with keepdim=False is unsupported");
  at::ScalarType type = dtype.value_or(self.scalar_type());
  if (!dtype && c10::isIntegralType(type, /*includeBool=*/false)) type = at::kLong;
  TORCH_CHECK_NOT_IMPLEMENTED(type != at::kBool, "\"_sparse_csr_",
                              multiply ? "prod_cpu" : "sum_cpu", "\" not implemented for 'Bool'");
  const Tensor values = self.values().to(type);
  const auto index_options = self.crow_indices().options();
  const auto csr = [&](const Tensor& offsets, const Tensor& columns, const Tensor& of_values,
                       at::IntArrayRef sizes) {
    return at::_sparse_csr_tensor_unsafe(offsets, columns, of_values, sizes,
                                         of_values.options().layout(at::kSparseCsr));
  };
  const int64_t entries = self._nnz();
  bool over[2] = {dims.empty(), dims.empty()};
  for (const int64_t dim : dims) over[c10::maybe_wrap_dim(dim, self.dim())] = true;
  if (over[0] && over[1]) {
    const int64_t count = std::min<int64_t>(entries, 1);
    const Tensor offsets = at::empty({2}, index_options);
    offsets.select(0, 0).fill_(0);
    offsets.select(0, 1).fill_(count);
    const Tensor all = (multiply ? values.prod() : values.sum()).to(type).expand({count});
    return csr(offsets, at::zeros({count}, index_options), all.contiguous(), {1, 1});
  }
  if (over[0]) {
    const auto [columns, column_of, counts] =
        at::_unique2(self.col_indices().contiguous(), true, true);
    const Tensor offsets = at::empty({2}, index_options);
    offsets.select(0, 0).fill_(0);
    offsets.select(0, 1).fill_(columns.size(0));
    return csr(offsets, columns, combined(values, column_of, columns.size(0), multiply),
               {1, self.size(1)});
  }
  const Tensor crow = self.crow_indices().contiguous();
  // The rows that have entries, each with one.
  const Tensor has_entries = crow.diff().gt(0);
  const Tensor offsets =
      at::constant_pad_nd(has_entries.cumsum(0, index_options.dtype().toScalarType()), {1, 0});
  const Tensor rows = at::empty({entries}, index_options);
  sparse::expand_rows(crow, rows);
  const Tensor of = offsets.index_select(0, rows).to(at::kLong);
  const int64_t count = has_entries.sum().item<int64_t>();
  return csr(offsets, at::zeros({count}, index_options), combined(values, of, count, multiply),
             {self.size(0), 1});
}

Tensor csr_sum(const Tensor& self, at::IntArrayRef dim, bool keepdim,
               std::optional<at::ScalarType> dtype) {
  return reduced(self, dim, keepdim, dtype, false);
}

Tensor csr_prod(const Tensor& self, at::IntArrayRef dim, bool keepdim,
                std::optional<at::ScalarType> dtype) {
  return reduced(self, dim, keepdim, dtype, true);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("_sparse_csr_prod.dim_dtype", TORCH_FN(csr_prod));
  m.impl("_sparse_csr_sum.dim_dtype", TORCH_FN(csr_sum));
  m.impl("_sparse_mm_reduce_impl", TORCH_FN(mm_reduce));
  m.impl("_sparse_mm_reduce_impl_backward", TORCH_FN(mm_reduce_backward));
}

}  // namespace

}  // namespace ocl::native
