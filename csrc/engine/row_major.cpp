#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/row_major.h"

#include <limits>

namespace ocl {

RowMajor row_major(c10::IntArrayRef sizes, std::initializer_list<at::TensorBase> tensors,
                   bool merge) {
  RowMajor layout;
  const at::TensorBase* operand = tensors.begin();
  const int operands = static_cast<int>(tensors.size());
  for (int64_t d = static_cast<int64_t>(sizes.size()) - 1; d >= 0; --d) {
    layout.n *= sizes[d];
    if (merge && sizes[d] == 1) continue;
    const int last = layout.dims - 1;
    bool merges = merge && last >= 0;
    for (int k = 0; merges && k < operands; ++k) {
      const int64_t bytes = operand[k].stride(d) * operand[k].itemsize();
      merges = bytes == layout.stride[k][last] * layout.size[last];
    }
    if (merges) {
      layout.size[last] *= sizes[d];
      continue;
    }
    layout.size[layout.dims] = sizes[d];
    for (int k = 0; k < operands; ++k) {
      layout.stride[k][layout.dims] = operand[k].stride(d) * operand[k].itemsize();
    }
    ++layout.dims;
  }
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  layout.fits = layout.dims <= RowMajor::kMaxKernelDims && layout.n <= kMax;
  for (int k = 0; k < operands; ++k) {
    layout.contiguous &= operand[k].is_contiguous();
    int64_t extent = 0;
    for (int d = 0; d < layout.dims; ++d) extent += layout.stride[k][d] * (layout.size[d] - 1);
    layout.fits &= extent <= kMax;
  }
  return layout;
}

}  // namespace ocl
