#include "ops/linalg/Float32Precision.h"

#include <ATen/Context.h>

#include <array>
#include <atomic>

#include "opencl/platform.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

std::atomic<Float32Precision>& setting(Float32Use use) {
  static std::array<std::atomic<Float32Precision>, 2> settings{};
  return settings[static_cast<size_t>(use)];
}

}  // namespace

Float32Precision float32_precision(Float32Use use) {
  return setting(use).load(std::memory_order_relaxed);
}

void set_float32_precision(Float32Use use, Float32Precision precision) {
  setting(use).store(precision, std::memory_order_relaxed);
}

Float32Precision allowed_precision(Float32Use use) {
  const DeviceProperties& has = device(current_device()).properties();
  const bool matrix_gpu = has.has_tensor_cores || has.subgroup_matrix_size != 0;
  const bool brain = matrix_gpu || has.has_bf16_dot;
  const Float32Precision own = float32_precision(use);
  if (own == Float32Precision::tf32) return has.has_tensor_cores ? own : Float32Precision::ieee;
  if (own == Float32Precision::bf16 || own == Float32Precision::bf16x3) {
    return brain ? own : Float32Precision::ieee;
  }
  if (own == Float32Precision::ieee) return own;
  // The getter goes from an op's setting to its backend's, and to that of all.
  using Backend = at::Float32Backend;
  using Op = at::Float32Op;
  using Allowed = at::Float32Precision;
  const at::Context& context = at::globalContext();
  const bool matmul = use == Float32Use::matmul;
  if (has.has_tensor_cores) {
    const Allowed word = context.float32Precision(Backend::CUDA, matmul ? Op::MATMUL : Op::CONV);
    // TF32 is what the op "conv" says by itself, until a wider setting says anything.
    const bool said = matmul || context.float32Precision(Backend::CUDA, Op::ALL) != Allowed::NONE;
    return word == Allowed::TF32 && said ? Float32Precision::tf32 : Float32Precision::ieee;
  }
  const Allowed word = context.float32Precision(Backend::MKLDNN, matmul ? Op::MATMUL : Op::CONV);
  if (word == Allowed::BF16 && brain) return Float32Precision::bf16;
  if (word == Allowed::TF32 && matrix_gpu) return Float32Precision::bf16x3;
  return Float32Precision::ieee;
}

}  // namespace ocl::native
