// Pointwise functions over lists of tensors: whether a kernel takes the lists, and its launches.
#pragma once
#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <vector>

namespace ocl::native::foreach {

using Lists = std::initializer_list<at::TensorList>;

/// Arguments of a function beside the lists: nothing, numbers, or a tensor of one element.
struct Extra {
  Extra() = default;
  Extra(const c10::Scalar& number) : numbers(number) {}
  Extra(c10::ArrayRef<c10::Scalar> each) : numbers(each) {}
  Extra(const at::Tensor& one) : tensor(&one) {}
  c10::ArrayRef<c10::Scalar> numbers;
  const at::Tensor* tensor = nullptr;
};

/// Whether the engine's kernel gives what the function would tensor by tensor: the lists have one
/// floating dtype and equal shapes, and the numbers are in the dtype's range.
bool fits(Lists lists, const Extra& extra);

/// Runs a functor of kernels/multi_tensor over lists that fit, into `out`.
void run(const char* functor, at::TensorList out, Lists inputs, const Extra& extra);

/// Runs it into new tensors like those of the first list.
std::vector<at::Tensor> run(const char* functor, Lists inputs, const Extra& extra);

}  // namespace ocl::native::foreach
