// Checks that the normalisations share: the mixes of dtypes they take, and shapes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/native/cpu/mixed_data_type.h>
#include <c10/util/Exception.h>

#include "ops/DtypeChecks.h"

namespace ocl::native {

inline const at::Tensor& or_undefined(const std::optional<at::Tensor>& tensor) {
  static const at::Tensor undefined;
  return tensor ? *tensor : undefined;
}

/// `tensor` where it is defined, contiguous.
inline at::Tensor contiguous_or_undefined(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.contiguous() : tensor;
}

/// The dtype that parameters and statistics of a floating `input` have: the input's, or float where
/// parameters of a half or bfloat16 input are float. Throws RuntimeError for any other mix, and
/// NotImplementedError for an input that is not floating.
template <class... Parameters>
c10::ScalarType parameter_dtype(const char* name, const at::Tensor& input,
                                const Parameters&... parameters) {
  const bool mixed = at::native::is_mixed_type(input, parameters...);
  if (mixed) at::native::check_mixed_data_type(input, parameters...);
  check_floating(name, input);
  const c10::ScalarType dtype = at::native::param_scalar_type(input, mixed);
  (check_same_dtype(parameters, dtype), ...);
  return dtype;
}

inline void check_elements(const char* name, const at::Tensor& tensor, int64_t expected) {
  TORCH_CHECK(!tensor.defined() || tensor.numel() == expected, name, " should contain ", expected,
              " elements not ", tensor.defined() ? tensor.numel() : 0);
}

}  // namespace ocl::native
