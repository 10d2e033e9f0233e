#include "engine/conv/dtype.h"

#include <c10/util/Exception.h>

#include "engine/dtype.h"

namespace ocl::conv {

c10::ScalarType computed_in(c10::ScalarType dtype) {
  const c10::ScalarType compute = compute_dtype(dtype);
  TORCH_CHECK_NOT_IMPLEMENTED(compute == c10::ScalarType::Float ||
                                  compute == c10::ScalarType::Double ||
                                  compute == c10::ScalarType::Long,
                              "ocl: convolution not implemented for '", c10::toString(dtype), "'");
  return compute;
}

const char* sums_tag(c10::ScalarType compute) {
  // Integers wrap, which unsigned ones do by definition.
  return compute == c10::ScalarType::Long ? "u64" : tag(compute);
}

}  // namespace ocl::conv
