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

bool allows_tf32(Float32Use use) {
  if (!device(current_device()).properties().has_tensor_cores) return false;
  const Float32Precision own = float32_precision(use);
  if (own != Float32Precision::none) return own == Float32Precision::tf32;
  const at::Context& context = at::globalContext();
  if (use == Float32Use::matmul &&
      context.float32MatmulPrecision() != at::Float32MatmulPrecision::HIGHEST) {
    return true;
  }
  return context.float32Precision(at::Float32Backend::GENERIC, at::Float32Op::ALL) ==
         at::Float32Precision::TF32;
}

}  // namespace ocl::native
