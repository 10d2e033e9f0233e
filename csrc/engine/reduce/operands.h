// The dtypes of a reduction: what its elements are loaded as and what is accumulated in.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "engine/reduce/reduce.h"
#include "opencl/device.h"

namespace ocl::reduce {

/// The dtypes of a reduction, and the compile parameters that follow from them.
struct Operands {
  const char *in_tag, *out_tag, *load_tag, *acc_tag, *scalar_tag;
  void *in, *out, *second;
  int64_t in_size, out_size, load_size, acc_size;
  int max_width;
  bool has_second;
  bool in_float8;
};

/// All but the addresses and `has_second`, for an input and an output of these dtypes. Throws
/// NotImplementedError where the op has no meaning for them.
Operands describe(const Op& op, const Device& device, c10::ScalarType in, c10::ScalarType out);

}  // namespace ocl::reduce
