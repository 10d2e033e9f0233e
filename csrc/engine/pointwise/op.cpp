// Facts about a functor before it runs: its names, the dtypes it refuses, the check it makes.
#include <algorithm>
#include <string>
#include <utility>

#include "engine/pointwise/pointwise.h"
#include "opencl/device_assert.h"

namespace ocl::pointwise {

namespace {

const char* intern(const std::string& text) {
  // Leaked on purpose: compile parameters are compared by address for the life of the process.
  return (new std::string(text))->c_str();
}

Check division_check(const std::string& functor) {
  const std::string name = functor == "div_floor"   ? "floor_divide"
                           : functor == "div_trunc" ? "div(rounding_mode='trunc')"
                                                    : functor;
  return {"fails_division", "ZeroDivisionError: " + name + " of integers by 0"};
}

/// The flags that keep an op from the dtype.
uint32_t refusals_of(c10::ScalarType dtype) {
  if (dtype == c10::ScalarType::Bool) return flag::no_bool;
  if (c10::isComplexType(dtype)) return flag::no_complex;
  if (!c10::isFloatingType(dtype)) return flag::no_integer;
  return c10::isReducedFloatingType(dtype) ? flag::no_floating | flag::no_half : flag::no_floating;
}

}  // namespace

Op::Op(const char* functor, int scalars, uint32_t flags, Check check)
    : name(functor),
      real_macro(intern(std::string(flags & flag::two_outputs ? "op2_" : "op_") + functor)),
      complex_macro(intern(std::string(flags & flag::two_outputs ? "cop2_" : "cop_") + functor)),
      scalars(scalars),
      flags(flags),
      check(flags & flag::divides ? division_check(functor) : std::move(check)),
      check_site(this->check.macro ? message_site(this->check.message) : 0) {}

bool Op::refuses(c10::ScalarType dtype) const { return (flags & refusals_of(dtype)) != 0; }

void Op::raise_refusal(c10::ScalarType dtype, const Device& device) const {
  C10_THROW_ERROR(NotImplementedError, c10::str('"', name, "\" not implemented for '", dtype,
                                                "' on ", device.description()));
}

bool Op::needs_check(c10::ScalarType compute, const ScalarArgument* last) const {
  if (check_site == 0) return false;
  if (!(flags & flag::divides)) return true;
  if (!c10::isIntegralType(compute, /*includeBool=*/false)) return false;
  if (last == nullptr) return true;
  const unsigned char* const end = last->bytes + last->size;
  TORCH_CHECK(std::any_of(last->bytes, end, [](unsigned char byte) { return byte != 0; }),
              check.message);
  return false;
}

}  // namespace ocl::pointwise
