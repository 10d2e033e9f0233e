// Checks of dtypes, with the exceptions that CPU torch raises.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace ocl::native {

inline void check_same_dtype(const at::Tensor& tensor, c10::ScalarType dtype) {
  TORCH_CHECK(!tensor.defined() || tensor.scalar_type() == dtype, "expected scalar type ", dtype,
              " but found ", tensor.scalar_type());
}

/// Throws NotImplementedError unless `supported`.
inline void check_supported(const char* name, at::ScalarType dtype, bool supported) {
  TORCH_CHECK_NOT_IMPLEMENTED(supported, '"', name, "\" not implemented for '", dtype, "'");
}

inline void check_floating(const char* name, const at::Tensor& input) {
  check_supported(name, input.scalar_type(), at::isFloatingType(input.scalar_type()));
}

/// For a result computed in self's dtype and stored in out's.
inline void check_can_cast(const at::Tensor& self, const at::Tensor& out) {
  TORCH_CHECK(at::canCast(self.scalar_type(), out.scalar_type()), "result type ",
              self.scalar_type(), " can't be cast to the desired output type ", out.scalar_type());
}

}  // namespace ocl::native
