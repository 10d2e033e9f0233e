// Weight normalisation: a direction v of its own length g, and its gradient.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/norm_except_dim.h>

#include "ops/_weight_norm_interface.h"
#include "ops/_weight_norm_interface_backward.h"

namespace ocl::native {

namespace {

void check_dim(const char* op, const at::Tensor& v, int64_t dim) {
  TORCH_CHECK(dim == 0 || dim == v.dim() - 1, op, ": only the first or last dimension, got ", dim);
}

/// The dimensions that a norm or sum goes over.
c10::SmallVector<int64_t, 5> others(const at::Tensor& v, int64_t dim) {
  c10::SmallVector<int64_t, 5> dims;
  for (int64_t d = 0; d < v.dim(); ++d) {
    if (d != dim) dims.push_back(d);
  }
  return dims;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> _weight_norm_interface(const at::Tensor& v, const at::Tensor& g,
                                                          int64_t dim) {
  check_dim("_weight_norm_interface", v, dim);
  // The norms are kept in no less than float, for the gradient.
  const at::ScalarType dtype = v.scalar_type();
  const at::ScalarType kept = dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
  const at::Tensor norms = at::norm_except_dim(v.to(kept), 2, dim);
  return {v.mul(g.div(norms)).to(dtype), norms};
}

std::tuple<at::Tensor, at::Tensor> _weight_norm_interface_backward(const at::Tensor& grad_w,
                                                                   const at::Tensor& saved_v,
                                                                   const at::Tensor& saved_g,
                                                                   const at::Tensor& saved_norms,
                                                                   int64_t dim) {
  check_dim("_weight_norm_interface_backward", saved_v, dim);
  const at::ScalarType dtype = saved_v.scalar_type(), kept = saved_norms.scalar_type();
  const at::Tensor grad = grad_w.to(kept), v = saved_v.to(kept);
  const auto dims = others(saved_v, dim);
  const at::Tensor products =
      dims.empty() ? grad.mul(v) : grad.mul(v).sum(at::OptionalIntArrayRef(dims), true);
  const at::Tensor grad_v =
      saved_g.to(kept).div(saved_norms).mul(grad.sub(v.mul(products.div(saved_norms.square()))));
  return {grad_v.to(dtype), products.div(saved_norms).to(saved_g.scalar_type())};
}

}  // namespace ocl::native
