#include "ops/Float32Precision.h"

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
  const Device& device = ocl::device(current_device());
  const DeviceProperties& has = device.properties();
  const bool matrix_gpu = has.subgroup_matrix_size != 0;
  const Float32Precision own = float32_precision(use);
  if (own == Float32Precision::tf32) return has.has_tensor_cores ? own : Float32Precision::ieee;
  if (own == Float32Precision::bf16 || own == Float32Precision::bf16x3) {
    return matrix_gpu || has.has_bf16_dot ? own : Float32Precision::ieee;
  }
  if (own == Float32Precision::ieee) return own;
  const at::Context& context = at::globalContext();
  const auto word = use == Float32Use::matmul ? context.float32MatmulPrecision()
                                              : at::Float32MatmulPrecision::HIGHEST;
  if (has.has_tensor_cores) {
    const bool allowed = word != at::Float32MatmulPrecision::HIGHEST ||
                         context.float32Precision(at::Float32Backend::GENERIC,
                                                  at::Float32Op::ALL) == at::Float32Precision::TF32;
    return allowed ? Float32Precision::tf32 : Float32Precision::ieee;
  }
  if (word == at::Float32MatmulPrecision::MEDIUM && (matrix_gpu || has.has_bf16_dot)) {
    return Float32Precision::bf16;
  }
  if (word == at::Float32MatmulPrecision::HIGH && matrix_gpu) return Float32Precision::bf16x3;
  return Float32Precision::ieee;
}

}  // namespace ocl::native
