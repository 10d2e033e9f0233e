// softmax and log_softmax, forward and backward.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/softmax.h"

#include <ATen/TensorMeta.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "ops/_log_softmax.h"
#include "ops/_log_softmax_backward_data.h"
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
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()), '"', name,
                              "\" not implemented for '", self.scalar_type(), "'");
  const int64_t wrapped = at::maybe_wrap_dim(dim, self.dim());
  const at::Tensor input = self.contiguous();
  with_contiguous(out, [&](const at::Tensor& t) { softmax(input, wrapped, log, t); });
}

void backward(const at::Tensor& grad, const at::Tensor& output, int64_t dim, bool log,
              const at::Tensor& grad_input) {
  const int64_t wrapped = at::maybe_wrap_dim(dim, output.dim());
  const at::Tensor grad_ = grad.contiguous(), output_ = output.contiguous();
  with_contiguous(grad_input,
                  [&](const at::Tensor& t) { softmax_backward(grad_, output_, wrapped, log, t); });
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

}  // namespace ocl::native
