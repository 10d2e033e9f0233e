// The pointwise engine: runs a functor of kernels/pointwise/ops over a TensorIterator.
#pragma once

#include <ATen/TensorIterator.h>
#include <c10/core/Scalar.h>

#include <optional>
#include <span>
#include <string>

#include "engine/dtype.h"
#include "opencl/device.h"

namespace ocl::pointwise {

namespace flag {
/// The functor moves bits: one program serves every dtype of a size (inputs and output of one
/// dtype).
inline constexpr uint32_t bits = 1u << 0;
/// The functor stands in ops/special.clh, which is compiled only where it is needed.
inline constexpr uint32_t special = 1u << 1;
/// Computed in float on a CPU the functor is that of ops/special_float.clh, which takes vectors.
inline constexpr uint32_t special_float = 1u << 17;
/// There is a functor of vectors of complex numbers, too: `vcop_<name>`.
inline constexpr uint32_t complex_vectors = 1u << 18;
/// Compute in the output's dtype, not in the inputs' (a cast to complex, say).
inline constexpr uint32_t compute_in_output = 1u << 2;
/// The functor has two results.
inline constexpr uint32_t two_outputs = 1u << 3;
/// The last input divides: an integer 0 there is an error (ZeroDivisionError). A host scalar is
/// checked at once, elements of a tensor by the kernel, which reports at the next wait.
inline constexpr uint32_t divides = 1u << 4;
/// Computed in these dtypes the op raises NotImplementedError, since CPU torch does: bool, the
/// other integers, float16 and bfloat16, all floating dtypes, complex dtypes.
inline constexpr uint32_t no_bool = 1u << 5;
inline constexpr uint32_t no_integer = 1u << 6;
inline constexpr uint32_t no_half = 1u << 7;
inline constexpr uint32_t no_floating = 1u << 8;
inline constexpr uint32_t no_complex = 1u << 9;
/// In half and bfloat16 a last input of one element is not rounded to the common dtype: upstream's
/// kernels take it in the type they compute in.
inline constexpr uint32_t opmath_scalar = 1u << 10;
/// Also for the float8 types, which all others raise NotImplementedError for, unless they move
/// bits.
inline constexpr uint32_t float8 = 1u << 11;
/// The scalars must fit the output's dtype where that is half or bfloat16: else RuntimeError.
inline constexpr uint32_t scalars_fit = 1u << 12;
/// The scalars must fit the output's dtype where that is float or complex64: else RuntimeError.
inline constexpr uint32_t scalars_fit_single = 1u << 13;
/// The scalars must fit the floating type that is computed in (float for half and bfloat16): else
/// RuntimeError.
inline constexpr uint32_t scalars_fit_compute = 1u << 14;
/// The result is the input's value: nothing is computed that could be rounded.
inline constexpr uint32_t moves_value = 1u << 15;
/// All float8 types but float8_e8m0fnu.
inline constexpr uint32_t no_e8m0 = 1u << 16;
inline constexpr uint32_t any_refusal = no_bool | no_integer | no_half | no_floating | no_complex;
}  // namespace flag

/// A condition that no element's inputs may meet: the macro `fails_<name>` over the functor's
/// arguments, and what the next wait raises (RuntimeError) where it holds.
struct Check {
  const char* macro = nullptr;  // a literal; null: no check
  std::string message;
};

/// A functor: `op_<name>` in kernels/pointwise/ops, `cop_<name>` for complex, `op2_<name>` with two
/// results. Objects are static.
struct Op {
  explicit Op(const char* functor, int scalars = -1, uint32_t flags = 0, Check check = {});

  bool refuses(c10::ScalarType dtype) const;
  /// Throws NotImplementedError naming the op, the dtype and the device.
  [[noreturn]] void raise_refusal(c10::ScalarType dtype, const Device& device) const;
  /// Whether the kernel has to make the check when it computes in this dtype. `last` is the last
  /// input where that is a host scalar: as an integer divisor it is looked at here, and
  /// RuntimeError thrown if it is 0.
  bool needs_check(c10::ScalarType compute, const ScalarArgument* last) const;

  const char* name;
  const char* real_macro;  // interned: compared by address on the warm path
  const char* complex_macro;
  int scalars;  // -1: as many as the caller passes
  uint32_t flags;
  Check check;
  uint32_t check_site;  // of check.message; 0: no check
};

/// Enqueues the functor over `iter`, whose operands may have any mix of dtypes and strides; scalars
/// come after the inputs in the functor's arguments. 0-dim CPU inputs become kernel arguments.
/// Computes in iter's common dtype (float for half and bfloat16) or, without one, in the dtype of
/// the last input. Iterators past 32-bit indexing are split. Throws NotImplementedError for a dtype
/// no kernel knows, RuntimeError for a host scalar 0 that divides integers, Error for a device
/// failure.
void run(at::TensorIteratorBase& iter, const Op& op, std::span<const c10::Scalar> scalars = {});

namespace detail {
inline c10::Scalar to_scalar(const c10::Scalar& value) { return value; }
inline c10::Scalar to_scalar(double value) { return value; }
inline c10::Scalar to_scalar(bool value) { return value; }
inline c10::Scalar to_scalar(int64_t value) { return value; }
}  // namespace detail

/// Stub<op, FnPtr>::call has the type of the stub's function pointer; its numeric arguments become
/// the functor's scalars.
template <const Op& op, class FnPtr>
struct Stub;

template <const Op& op, class Iterator, class... Arguments>
struct Stub<op, void (*)(Iterator&, Arguments...)> {
  static void call(Iterator& iter, Arguments... arguments) {
    if constexpr (sizeof...(Arguments) == 0) {
      run(iter, op);
    } else {
      const c10::Scalar scalars[] = {detail::to_scalar(arguments)...};
      run(iter, op, scalars);
    }
  }
};

}  // namespace ocl::pointwise
