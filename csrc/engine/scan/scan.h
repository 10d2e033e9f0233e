// The scan engine: running reductions along one dimension (cumsum, cumprod, cummax, logcumsumexp,
// ...). A new one is two lines in kernels/scan/ops.clh and an Op.
#pragma once

#include <ATen/core/Tensor.h>

namespace ocl::scan {

/// The state of a scan; numbered as in kernels/scan/ops.clh.
enum class State : uint8_t {
  value,  // one number
  arg,    // an element and its position
};

struct Op {
  const char* functor;  // a literal: sum, prod, logaddexp; last_max, last_min (arg)
  State state = State::value;
  /// Whether a CPU combines neighbours before the running value comes in: cheap arithmetic,
  /// and nothing overflows that would not overflow one by one.
  enum Regroup : uint8_t { never, real_doubles, always } regroup = never;
};

/// Enqueues the scan of `self` along `dim` into `out`: same shape, any strides, the dtype wanted.
/// `out` may be `self`. `positions` (int64, same shape) for State::arg. Elements are converted to
/// out's dtype first; half and bfloat16 accumulate in float, float in double where the device has
/// it, as CPU torch does. Throws NotImplementedError for a dtype no kernel knows, Error for a
/// device failure.
void run(const Op& op, const at::Tensor& self, int64_t dim, const at::Tensor& out,
         const at::Tensor& positions = {});

}  // namespace ocl::scan
