// softmax, log_softmax and the masked softmax, forward and backward.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/softmax/softmax.h"

#include <ATen/TensorMeta.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "ops/DtypeChecks.h"
#include "ops/_log_softmax.h"
#include "ops/_log_softmax_backward_data.h"
#include "ops/_masked_softmax.h"
#include "ops/_masked_softmax_backward.h"
#include "ops/_softmax.h"
#include "ops/_softmax_backward_data.h"

namespace ocl::native {

namespace {

/// Calls compute(t) with a contiguous t whose values end up in `out`.
template <class Compute>
void with_contiguous(const at::Tensor& out, const Compute& compute) {
  if (out.is_contiguous()) {
    compute(out);
    return;
  }
  const at::Tensor contiguous = at::empty(out.sizes(), out.options());
  compute(contiguous);
  out.copy_(contiguous);
}

void forward(const char* name, const at::Tensor& self, int64_t dim, bool log,
             const at::Tensor& out) {
  if (out.numel() == 0) return;
  check_floating(name, self);
  const int64_t wrapped = at::maybe_wrap_dim(dim, self.dim());
  const at::Tensor input = self.contiguous();
  with_contiguous(out, [&](const at::Tensor& t) { softmax::forward(input, wrapped, log, t); });
}

void backward(const at::Tensor& grad, const at::Tensor& output, int64_t dim, bool log,
              const at::Tensor& grad_input) {
  check_floating(log ? "log_softmax_backward" : "softmax_backward", grad);
  const int64_t wrapped = at::maybe_wrap_dim(dim, output.dim());
  const at::Tensor grad_ = grad.contiguous(), output_ = output.contiguous();
  with_contiguous(grad_input,
                  [&](const at::Tensor& t) { softmax::backward(grad_, output_, wrapped, log, t); });
}

}  // namespace

TORCH_IMPL_FUNC(_softmax_out)(const at::Tensor& self, int64_t dim, bool, const at::Tensor& out) {
  forward("softmax", self, dim, false, out);
}

TORCH_IMPL_FUNC(_log_softmax_out)(const at::Tensor& self, int64_t dim, bool,
                                  const at::Tensor& out) {
  forward("log_softmax", self, dim, true, out);
}

TORCH_IMPL_FUNC(_softmax_backward_data_out)(const at::Tensor& grad_output, const at::Tensor& output,
                                            int64_t dim, at::ScalarType,
                                            const at::Tensor& grad_input) {
  backward(grad_output, output, dim, false, grad_input);
}

TORCH_IMPL_FUNC(_log_softmax_backward_data_out)(const at::Tensor& grad_output,
                                                const at::Tensor& output, int64_t dim,
                                                at::ScalarType, const at::Tensor& out) {
  backward(grad_output, output, dim, true, out);
}

// Elements under the mask have no part in a row; a row that is covered whole is NaN.
at::Tensor _masked_softmax(const at::Tensor& self, const at::Tensor& mask,
                           std::optional<int64_t> dim, std::optional<int64_t> mask_type) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Mask should be a boolean tensor");
  check_floating("masked_softmax", self);
  at::Tensor full = mask;
  if (mask.dim() != 2 || self.dim() != 4) mask_type = 2;
  TORCH_CHECK(mask_type.has_value(), "Mask Type should be defined");
  TORCH_CHECK(*mask_type >= 0 && *mask_type <= 2,
              "Mask Type should be 0 (src_mask), 1 (src_key_padding_mask), or 2 (default_mask)");
  if (*mask_type == 2) {
    TORCH_CHECK(self.sizes() == mask.sizes(),
                "For mask_type == 2 mask shape should match input shape");
  } else if (*mask_type == 1) {
    TORCH_CHECK(self.size(0) == mask.size(0) && self.size(2) == mask.size(1),
                "For mask_type == 1 mask shape should be (B, L)");
    full = mask.view({self.size(0), 1, 1, self.size(2)});
  } else {
    TORCH_CHECK(self.size(2) == mask.size(0) && self.size(2) == mask.size(1),
                "For mask_type == 0 mask shape should be (L, L)");
  }
  const at::Tensor input = self.masked_fill(full, -std::numeric_limits<double>::infinity());
  return at::_softmax(input, dim.value_or(self.dim() - 1), false);
}

at::Tensor _masked_softmax_backward(const at::Tensor& grad_output, const at::Tensor& output,
                                    const at::Tensor& mask, std::optional<int64_t> dim) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Mask should be a boolean tensor");
  TORCH_CHECK(grad_output.sizes() == mask.sizes(),
              "_masked_softmax_backward: mask shape should match grad shape");
  const at::Tensor grad = grad_output.masked_fill(mask, 0);
  return at::_softmax_backward_data(grad, output.masked_fill(mask, 0),
                                    dim.value_or(output.dim() - 1), output.scalar_type())
      .masked_fill_(mask, 0);
}

}  // namespace ocl::native
