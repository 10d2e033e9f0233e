// Tables of roots of unity on the device, made once and kept.
#pragma once

#include <ATen/core/Tensor.h>

#include "opencl/queue.h"

namespace ocl::fft {

enum class TableKind : uint8_t {
  passes,  // a: a line's length; twiddle factors of its passes, in their order
  cross,   // a: length of a step, b: product of those before; twiddle factors between steps
  // Factors for the passes of register_schedule(), as lines in registers read them.
  register_passes,
  register_cross,
  half,    // exp(-2 pi i k / a), k <= a / 2
  chirp,   // a: n; exp(-pi i k^2 / n), k < n
  filter,  // a: n, b: m; the transform, of m elements, of the chirp's conjugate, over m
};

/// The table in the real dtype `precision`, as pairs of real and imaginary part. The first use
/// computes it on the device and waits; the cache forgets what was used longest ago. Keep the
/// result until the work that reads it is enqueued on `queue`.
at::Tensor table(Queue& queue, c10::ScalarType precision, TableKind kind, uint32_t a,
                 uint32_t b = 0);

}  // namespace ocl::fft
