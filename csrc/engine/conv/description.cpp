#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/conv/description.h"

#include <cstddef>

namespace ocl::conv {

Operand::Operand(const at::Tensor& tensor)
    : tensor(tensor),
      data(static_cast<char*>(const_cast<void*>(tensor.const_data_ptr()))),
      dtype(tensor.scalar_type()) {
  const int64_t missing = kAxes + 2 - tensor.dim();
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    const auto to = static_cast<size_t>(d < 2 ? d : d + missing);
    size[to] = tensor.size(d);
    stride[to] = tensor.stride(d);
  }
}

Description::Description(Pass pass, const at::Tensor& in, const at::Tensor& out,
                         const at::Tensor& weight, const at::Tensor& bias, const Window& window,
                         const Precision& precision, const MatrixEpilogue* epilogue)
    : device(current_queue(current_device()).device()),
      queue(current_queue(current_device())),
      pass(pass),
      in(in),
      out(out),
      weight(weight),
      bias(bias),
      window(window),
      precision(precision),
      epilogue(epilogue) {}

bool lie_side_by_side(const Description& description) {
  const Window& w = description.window;
  for (size_t axis = 0; axis < kAxes; ++axis) {
    if (w.kernel[axis] != w.stride[axis] || w.pad[axis] != 0) return false;
    if (w.kernel[axis] > 1 && w.dilation[axis] != 1) return false;
    if (description.in.size[2 + axis] != description.out.size[2 + axis] * w.stride[axis])
      return false;
  }
  return w.groups == 1;
}

}  // namespace ocl::conv
