#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/conv/conv.h"

#include <ATen/ops/empty.h>

#include <algorithm>

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

void run_forward(const at::Tensor& out, const at::Tensor& in, const at::Tensor& weight,
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

}  // namespace

void forward(const at::Tensor& out, const at::Tensor& in, const at::Tensor& weight,
             const at::Tensor& bias, const Window& window, const Precision& precision) {
  run_forward(out, in, weight, bias, window, precision, nullptr);
}

void forward_into(const MatrixEpilogue& epilogue, at::IntArrayRef sizes, const at::Tensor& in,
                  const at::Tensor& weight, const at::Tensor& bias, const Window& window,
                  const Precision& precision) {
  at::Tensor result;
  if (epilogue.channels_last) {
    at::DimVector last(sizes);
    std::rotate(last.begin() + 1, last.begin() + 2, last.end());
    result = at::empty(last, in.options()).movedim(-1, 1);
  } else {
    result = at::empty(sizes, in.options());
  }
  run_forward(result, in, weight, bias, window, precision, &epilogue);
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
