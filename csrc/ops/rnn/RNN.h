// The point-wise part of an LSTM's step, for the cell's op and for whole layers.
#pragma once

#include <ATen/core/Tensor.h>

#include "opencl/kernel.h"

namespace ocl::native {

/// A kernel argument; null for an undefined tensor.
inline Pointer pointer(const at::Tensor& tensor) {
  return Pointer{tensor.defined() ? tensor.const_data_ptr() : nullptr};
}

/// Tensors that a step reads besides its input gates [rows, 4 * size]; undefined: there is none.
struct LstmAddends {
  at::Tensor hidden_gates, input_bias, hidden_bias;
};

/// Writes the activated gates (which may be `input_gates` itself), the state and the output.
/// Contiguous tensors of one floating dtype.
void lstm_cell(const at::Tensor& input_gates, const LstmAddends& addends, const at::Tensor& cx,
               const at::Tensor& gates, const at::Tensor& cy, const at::Tensor& hy);

/// From the gradients of output and state (either may be undefined) to those of the gates' sums and
/// of the old state, which may be `grad_cy` itself.
void lstm_cell_backward(const at::Tensor& grad_hy, const at::Tensor& grad_cy, const at::Tensor& cx,
                        const at::Tensor& cy, const at::Tensor& gates, const at::Tensor& grad_gates,
                        const at::Tensor& grad_cx);

}  // namespace ocl::native
