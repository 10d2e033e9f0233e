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
  const DeviceProperties& has = device(current_device()).properties();
  const bool matrix_gpu = has.subgroup_matrix_size != 0;
  const Float32Precision own = float32_precision(use);
  if (own == Float32Precision::tf32) return has.has_tensor_cores ? own : Float32Precision::ieee;
  if (own == Float32Precision::bf16 || own == Float32Precision::bf16x3) {
    return matrix_gpu || has.has_bf16_dot ? own : Float32Precision::ieee;
  }
  if (own == Float32Precision::ieee) return own;
  // torch.set_float32_matmul_precision() sets what these two backends have for products ("medium"
  // is TF32 and bfloat16). Its own getter throws where a program used both kinds of settings.
  using Backend = at::Float32Backend;
  using Op = at::Float32Op;
  using Allowed = at::Float32Precision;
  const at::Context& context = at::globalContext();
  const bool matmul = use == Float32Use::matmul;
  const Allowed generic = context.float32Precision(Backend::GENERIC, Op::ALL);
  const Allowed gpu = matmul ? context.float32Precision(Backend::CUDA, Op::MATMUL) : generic;
  const Allowed cpu = matmul ? context.float32Precision(Backend::MKLDNN, Op::MATMUL) : generic;
  const bool high = gpu == Allowed::TF32 || cpu == Allowed::TF32 || generic == Allowed::TF32;
  if (has.has_tensor_cores) return high ? Float32Precision::tf32 : Float32Precision::ieee;
  if (cpu == Allowed::BF16 && (matrix_gpu || has.has_bf16_dot)) return Float32Precision::bf16;
  if (matmul && high && matrix_gpu) return Float32Precision::bf16x3;
  return Float32Precision::ieee;
}

}  // namespace ocl::native
