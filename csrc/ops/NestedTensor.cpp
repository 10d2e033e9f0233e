// Nested tensors of strided layout by upstream's functions, which compute with a buffer, and what
// jagged ones are padded by.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/searchsorted.h>
#include <torch/library.h>

#include <string>
#include <unordered_set>

#include "ops/_jagged_to_padded_dense_forward.h"
#include "ops/_nested_tensor_from_mask_left_aligned.h"
#include "ops/_padded_dense_to_jagged_forward.h"

namespace ocl::native {

namespace {

using at::Tensor;

/// Where upstream's function suits this device, which computes with the buffer by functions of
/// ATen. Those that it registers for devices beside CPU and CUDA do, and a few that have a faster
/// one for CUDA alone.
c10::DispatchKey key_of_upstream(const c10::OperatorHandle& op) {
  constexpr auto kAnyDevice = c10::DispatchKey::NestedTensorHPU;
  if (op.hasKernelForDispatchKey(kAnyDevice)) return kAnyDevice;
  static const std::unordered_set<std::string> also = {"aten::_nested_tensor_storage_offsets",
                                                       "aten::bmm", "aten::to_padded_tensor",
                                                       "aten::value_selecting_reduction_backward"};
  const bool safe = also.count(op.operator_name().name) != 0;
  return safe ? c10::DispatchKey::NestedTensorCPU : c10::DispatchKey::Undefined;
}

void run_upstreams(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(key_of_upstream(op)), stack);
}

void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "The operator '", c10::toString(op.operator_name()),
      "' has no kernel for nested tensors of strided layout on the ocl device; those of "
      "layout=torch.jagged have more.");
}

// Upstream's layer norm of nested tensors calls the kernel behind the dense op's, for rows.
void layer_norm(const Tensor& X, const Tensor& gamma, const Tensor& beta, int64_t M, int64_t N,
                double eps, Tensor* Y, Tensor* mean, Tensor* rstd) {
  const auto [y, m, r] = at::native_layer_norm(X.view({M, N}), {N}, gamma, beta, eps);
  *Y = y.view_as(*Y);
  *mean = m.view_as(*mean);
  *rstd = r.view_as(*rstd);
}

void layer_norm_backward(const Tensor& dY, const Tensor& X, const Tensor& mean, const Tensor& rstd,
                         const Tensor& gamma, int64_t M, int64_t N, Tensor* dX, Tensor* dgamma,
                         Tensor* dbeta) {
  const auto [dx, dg, db] = at::native_layer_norm_backward(
      dY.view({M, N}), X.view({M, N}), {N}, mean.view({M, 1}), rstd.view({M, 1}), gamma, gamma,
      {dX->defined(), dgamma->defined(), dbeta->defined()});
  if (dX->defined()) *dX = dx.view_as(*dX);
  if (dgamma->defined()) *dgamma = dg;
  if (dbeta->defined()) *dbeta = db;
}

const Tensor& single(at::TensorList offsets) {
  TORCH_CHECK_NOT_IMPLEMENTED(offsets.size() == 1, "ocl: one jagged dimension, got ",
                              offsets.size());
  return offsets[0];
}

}  // namespace

/// Whether nn.TransformerEncoder may turn padded sequences into a nested tensor. Its layers have no
/// kernels for those here: it goes on with padded ones.
bool _nested_tensor_from_mask_left_aligned(const Tensor&, const Tensor&) { return false; }

// Row b of the result holds values[offsets[b]] to values[offsets[b + 1]], cut off after max_length.
Tensor _jagged_to_padded_dense_forward(const Tensor& values, at::TensorList offsets,
                                       at::IntArrayRef max_lengths, double padding_value) {
  const Tensor& bounds = single(offsets);
  TORCH_CHECK(max_lengths.size() == 1, "ocl: one jagged dimension, got ", max_lengths.size());
  const int64_t rows = bounds.numel() - 1, length = max_lengths[0];
  c10::DimVector sizes{rows, length};
  for (const int64_t size : values.sizes().slice(1)) sizes.push_back(size);
  if (values.size(0) == 0) return at::empty(sizes, values.options()).fill_(padding_value);
  const Tensor start = bounds.narrow(0, 0, rows).unsqueeze(1);
  const Tensor end = bounds.narrow(0, 1, rows).unsqueeze(1);
  const Tensor place = start.add(at::arange(length, bounds.options()).unsqueeze(0));
  const Tensor padded = values.index_select(0, place.clamp_max(values.size(0) - 1).flatten());
  Tensor beyond = place.ge(end).flatten();
  while (beyond.dim() < values.dim()) beyond = beyond.unsqueeze(-1);
  return padded.masked_fill(beyond, padding_value).view(sizes);
}

// The values that lie before each row's padding; zeros where rows are too short.
Tensor _padded_dense_to_jagged_forward(const Tensor& dense, at::TensorList offsets,
                                       std::optional<int64_t> total_L) {
  const Tensor& bounds = single(offsets);
  const int64_t rows = bounds.numel() - 1, length = dense.size(1);
  const int64_t total = total_L ? *total_L : bounds.select(0, rows).item().toLong();
  c10::DimVector sizes{total};
  for (const int64_t size : dense.sizes().slice(2)) sizes.push_back(size);
  if (total == 0 || dense.numel() == 0) return at::empty(sizes, dense.options()).zero_();
  const Tensor place = at::arange(total, bounds.options());
  const Tensor row = at::searchsorted(bounds.narrow(0, 1, rows), place, false, /*right=*/true);
  const Tensor column = place.sub(bounds.index_select(0, row));
  const Tensor from = row.mul(length).add_(column.clamp_max(length - 1));
  Tensor missing = column.ge(length);
  while (missing.dim() < dense.dim() - 1) missing = missing.unsqueeze(-1);
  return dense.flatten(0, 1).index_select(0, from).masked_fill_(missing, 0);
}

// One by one, since composite functions, which don't know nested tensors, come before a fallback.
TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || key_of_upstream(*op) == c10::DispatchKey::Undefined) continue;
    m.impl(c10::toString(name).c_str(),
           torch::CppFunction::makeFromBoxedFunction<&run_upstreams>());
  }
}

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

}  // namespace ocl::native

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(LayerNormKernel, &ocl::native::layer_norm)
REGISTER_PRIVATEUSE1_DISPATCH(LayerNormBackwardKernel, &ocl::native::layer_norm_backward)
}  // namespace at::native
