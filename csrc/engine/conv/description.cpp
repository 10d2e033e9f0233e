#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/conv/description.h"

#include <cstddef>
#include <optional>

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

int64_t position_stride(const Operand& tensor) {
  std::optional<int64_t> stride;
  int64_t next = 0;
  for (size_t d = 4; d >= 2; --d) {
    if (tensor.size[d] == 1) continue;
    if (!stride) {
      stride = tensor.stride[d];
    } else if (tensor.stride[d] != next) {
      return 0;
    }
    next = tensor.stride[d] * tensor.size[d];
  }
  return stride.value_or(1);
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

}  // namespace ocl::conv
