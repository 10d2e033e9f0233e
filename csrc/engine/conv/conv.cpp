#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/conv/conv.h"

#include "engine/conv/description.h"
#include "engine/conv/phase.h"

namespace ocl::conv {

namespace {

/// A sum of nothing gives the bias.
void fill_channels(const at::Tensor& tensor, const at::Tensor& bias) {
  if (!bias.defined()) {
    tensor.zero_();
    return;
  }
  at::DimVector shape(static_cast<size_t>(tensor.dim()), 1);
  shape[1] = -1;
  tensor.copy_(bias.reshape(shape));
}

}  // namespace

void forward(const at::Tensor& out, const at::Tensor& in, const at::Tensor& weight,
             const at::Tensor& bias, const Window& window, const Precision& precision,
             const MatrixEpilogue* epilogue) {
  if (out.numel() == 0) return;
  if (weight.numel() == 0) {
    fill_channels(out, bias);
    if (epilogue != nullptr) apply(*epilogue, out);
    return;
  }
  Description description(Pass::forward, in, out, weight, bias, window, precision, epilogue);
  run_convolution(description);
}

void input_gradient(const at::Tensor& in, const at::Tensor& out, const at::Tensor& weight,
                    const at::Tensor& bias, const Window& window, const Precision& precision) {
  if (in.numel() == 0) return;
  if (out.numel() == 0 || !covers_all(window)) fill_channels(in, bias);
  if (out.numel() == 0) return;
  Description description(Pass::input_gradient, in, out, weight, bias, window, precision);
  run_convolution(description);
}

void weight_gradient(const at::Tensor& weight, const at::Tensor& in, const at::Tensor& out,
                     const Window& window, const Precision& precision) {
  if (weight.numel() == 0) return;
  if (in.numel() == 0 || out.numel() == 0) {
    weight.zero_();
    return;
  }
  Description description(Pass::weight_gradient, in, out, weight, {}, window, precision);
  run_convolution(description);
}

}  // namespace ocl::conv
