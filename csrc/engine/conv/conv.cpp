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

/// Applies the epilogue to a whole result.
void apply(const MatrixEpilogue& epilogue, const at::Tensor& out) {
  const int64_t channels = out.size(1);
  const int64_t columns =
      epilogue.channels_last ? channels : out.numel() / (out.size(0) * channels);
  apply(epilogue, out.const_data_ptr(), out.scalar_type(), 0, out.numel() / columns, columns);
}

}  // namespace

void forward(const at::Tensor& out, const at::Tensor& in, const at::Tensor& weight,
             const at::Tensor& bias, const Window& window, const MatrixEpilogue* epilogue) {
  if (out.numel() == 0) return;
  bool applied = false;
  if (weight.numel() == 0) {
    fill_channels(out, bias);
  } else {
    Description description(Pass::forward, in, out, weight, bias, window, epilogue);
    run_convolution(description);
    applied = description.epilogue_taken;
  }
  if (epilogue != nullptr && !applied) apply(*epilogue, out);
}

void input_gradient(const at::Tensor& in, const at::Tensor& out, const at::Tensor& weight,
                    const at::Tensor& bias, const Window& window) {
  if (in.numel() == 0) return;
  if (out.numel() == 0 || !covers_all(window)) fill_channels(in, bias);
  if (out.numel() == 0) return;
  Description description(Pass::input_gradient, in, out, weight, bias, window);
  run_convolution(description);
}

void weight_gradient(const at::Tensor& weight, const at::Tensor& in, const at::Tensor& out,
                     const Window& window) {
  if (weight.numel() == 0) return;
  if (in.numel() == 0 || out.numel() == 0) {
    weight.zero_();
    return;
  }
  const at::Tensor none;
  Description description(Pass::weight_gradient, in, out, weight, none, window);
  run_convolution(description);
}

}  // namespace ocl::conv
