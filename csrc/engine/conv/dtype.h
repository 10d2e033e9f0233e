// The dtypes that a convolution is computed in.
#pragma once

#include <c10/core/ScalarType.h>

namespace ocl::conv {

/// Factors of single precision may become these, as gemm::Description has it.
struct Precision {
  bool tf32 = false;
  int rounded_terms = 0;
};

/// The dtype that a convolution of `dtype` is summed in. Throws NotImplementedError for others.
c10::ScalarType computed_in(c10::ScalarType dtype);

/// The tag of sums computed in that dtype.
const char* sums_tag(c10::ScalarType compute);

}  // namespace ocl::conv
