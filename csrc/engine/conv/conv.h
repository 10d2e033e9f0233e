// The convolution engine: any number of groups, strides, dilations and paddings in up to three
// dimensions, any strides of the tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/conv/dtype.h"
#include "engine/conv/epilogue.h"
#include "engine/conv/window.h"

namespace ocl::conv {

/// out = the convolution of `in` with `weight`, plus `bias` (a contiguous vector; may be
/// undefined).
///
/// Tensors have two dimensions and then up to three spatial ones, one dtype (floating or int64;
/// half types are summed in float) and the sizes that belong together, which may be 0. An axis of
/// `in` may have elements that no window covers. Enqueues on the current stream. Throws
/// NotImplementedError for other dtypes, Error for a device failure.
///
/// The first implementation in implementations.cpp that does not refuse runs.
/// TORCH_OCL_VERBOSE=dispatch prints the reasons, TORCH_OCL_CONVOLUTION=<name> asks for one.
void forward(const at::Tensor& out, const at::Tensor& in, const at::Tensor& weight,
             const at::Tensor& bias, const Window& window, const Precision& precision);

/// forward() of a result of those sizes, whose elements the epilogue sees. Kernels that have no
/// place for an epilogue store to memory of their own, and another applies it.
void forward_into(const MatrixEpilogue& epilogue, at::IntArrayRef sizes, const at::Tensor& in,
                  const at::Tensor& weight, const at::Tensor& bias, const Window& window,
                  const Precision& precision);

/// Makes relu(it + alpha * addend) of each element. The addend lies as the result does; it may be
/// undefined.
struct Relu {
  at::Tensor addend;
  double alpha = 1;
  bool channels_last = false;  // the result
};

/// forward(), and then that. out is dense.
void forward(const at::Tensor& out, const at::Tensor& in, const at::Tensor& weight,
             const at::Tensor& bias, const Window& window, const Precision& precision,
             const Relu& relu);

/// `in` = the gradient of forward()'s input (or a transposed convolution, which is the same), plus
/// `bias`, one number for each channel of `in`.
void input_gradient(const at::Tensor& in, const at::Tensor& out, const at::Tensor& weight,
                    const at::Tensor& bias, const Window& window, const Precision& precision);

/// `weight` = the gradient of forward()'s weight, where `out` holds the gradient of its result.
void weight_gradient(const at::Tensor& weight, const at::Tensor& in, const at::Tensor& out,
                     const Window& window, const Precision& precision);

}  // namespace ocl::conv
