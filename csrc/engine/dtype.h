// dtypes as the kernels name them, and scalars as the kernels take them.
#pragma once

#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "opencl/device.h"

namespace ocl {

namespace detail {
inline constexpr auto kTags = [] {
  using c10::ScalarType;
  std::array<const char*, static_cast<size_t>(ScalarType::NumOptions)> tags{};
  const auto set = [&](ScalarType dtype, const char* tag) {
    tags[static_cast<size_t>(dtype)] = tag;
  };
  set(ScalarType::Float, "f32");
  set(ScalarType::Double, "f64");
  set(ScalarType::Half, "f16");
  set(ScalarType::BFloat16, "bf16");
  set(ScalarType::Char, "i8");
  set(ScalarType::Short, "i16");
  set(ScalarType::Int, "i32");
  set(ScalarType::Long, "i64");
  set(ScalarType::Byte, "u8");
  set(ScalarType::UInt16, "u16");
  set(ScalarType::UInt32, "u32");
  set(ScalarType::UInt64, "u64");
  set(ScalarType::Bool, "b8");
  set(ScalarType::ComplexHalf, "c32");
  set(ScalarType::ComplexFloat, "c64");
  set(ScalarType::ComplexDouble, "c128");
  return tags;
}();
[[noreturn]] const char* refuse_tag(c10::ScalarType dtype);
}  // namespace detail

/// The storage tag of a dtype in kernels/include/dtype.clh ("f32", "bf16", "b8", ...): a literal,
/// so that its address is a key. Throws NotImplementedError for a dtype no kernel knows.
inline const char* tag(c10::ScalarType dtype) {
  const char* name = detail::kTags[static_cast<size_t>(dtype)];
  return __builtin_expect(name != nullptr, 1) ? name : detail::refuse_tag(dtype);
}

/// The tag, also of the float8 types, which kernels know only with -DNEED_FLOAT8.
const char* storage_tag(c10::ScalarType dtype);

/// -DE4M3_ABOVE of kernels that store float8_e4m3fn: past the largest value torch versions differ.
int e4m3_above();

/// The unsigned tag of elements of that many bytes (1, 2, 4, 8; 16 gives "c128"), for kernels that
/// only move bits.
const char* bits_tag(size_t element_size);

/// The dtype arithmetic is done in: float for half, bfloat16 and float8, complex64 for complex32,
/// else the dtype itself.
c10::ScalarType compute_dtype(c10::ScalarType dtype);

/// Whether upstream's cast to a half type before an operation is lossy, so that computing in float
/// with what `from` holds would give something else. Eight bits fit into all of them.
inline bool narrows_to_half(c10::ScalarType from, c10::ScalarType to) {
  return c10::isReducedFloatingType(to) && from != to && c10::elementSize(from) > 1;
}

/// Throws TypeError naming the device if it can't hold the dtype (float64, complex128 without
/// fp64).
void check_dtype(const Device& device, c10::ScalarType dtype);

/// A scalar in the layout of a kernel argument of type TYPE(tag(dtype)).
struct ScalarArgument {
  alignas(16) unsigned char bytes[16];
  uint32_t size;
};

/// Converts with at::Scalar's own checks (a value that overflows an integer dtype raises
/// RuntimeError, one past float's range becomes infinite). `dtype` must be a compute dtype.
ScalarArgument scalar_argument(c10::ScalarType dtype, const c10::Scalar& value);

/// Throws RuntimeError if a floating dtype can't hold the value, as filling a tensor with it does.
void check_scalar(c10::ScalarType dtype, const c10::Scalar& value);

/// Converts the 0-dim host value at `data` as c10::convert does: wraps and truncates, no checks.
ScalarArgument scalar_argument(c10::ScalarType dtype, c10::ScalarType data_dtype, const void* data);

/// Rounds a float argument to a half type or float8, as it would come back from memory.
void round_argument(c10::ScalarType narrow, ScalarArgument& argument);

/// The stored bits of the 0-dim host value at `data`, for kernels that only move bits.
ScalarArgument storage_argument(c10::ScalarType data_dtype, const void* data);

}  // namespace ocl
