// Convolutions' ops check their arguments here, and make a window and a precision of them.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/conv/dtype.h"
#include "engine/conv/window.h"

namespace ocl::native {

/// The number of an axis in a list of one for each axis, or of one for all.
int64_t of_axis(at::IntArrayRef list, size_t axis);

/// Upstream's convolution has seen to this, where it calls these ops.
void check_window(const at::Tensor& weight, at::IntArrayRef stride, int64_t groups);
/// Upstream leaves this to its kernels for the CPU.
void check_weight(const at::Tensor& weight, bool transposed);
void check_dilation(at::IntArrayRef dilation);

/// A result's: CPU torch's has the format of either operand that has one of its own.
at::MemoryFormat convolution_format(const at::Tensor& input, const at::Tensor& weight);

conv::Window window_of(const at::Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding,
                       at::IntArrayRef dilation, int64_t groups);
/// The precision that the user allows.
conv::Precision precision_of(at::ScalarType dtype);

}  // namespace ocl::native
