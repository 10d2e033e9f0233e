#include "engine/dtype.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e4m3fnuz.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Float8_e5m2fnuz.h>
#include <c10/util/Float8_e8m0fnu.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>

#include <cstring>

namespace ocl {

using c10::ScalarType;

// The 8-bit floating types: c10's type, which is also the dtype's name, and the kernels' tag.
#define OCL_FOR_FLOAT8(_)        \
  _(Float8_e4m3fn, "f8e4m3")     \
  _(Float8_e5m2, "f8e5m2")       \
  _(Float8_e4m3fnuz, "f8e4m3uz") \
  _(Float8_e5m2fnuz, "f8e5m2uz") \
  _(Float8_e8m0fnu, "f8e8m0")

const char* detail::refuse_tag(ScalarType dtype) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "ocl: no kernel takes dtype ", dtype);
}

const char* storage_tag(ScalarType dtype) {
  switch (dtype) {
#define OCL_CASE(type, tag) \
  case ScalarType::type:    \
    return tag;
    OCL_FOR_FLOAT8(OCL_CASE)
#undef OCL_CASE
    default:
      return tag(dtype);
  }
}

int e4m3_above() { return c10::Float8_e4m3fn(1e30f).x; }

const char* bits_tag(size_t element_size) {
  switch (element_size) {
    case 1:
      return "u8";
    case 2:
      return "u16";
    case 4:
      return "u32";
    case 8:
      return "u64";
    case 16:
      return "c128";
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "ocl: elements of ", element_size, " bytes");
  }
}

ScalarType compute_dtype(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Half:
    case ScalarType::BFloat16:
#define OCL_CASE(type, tag) case ScalarType::type:
      OCL_FOR_FLOAT8(OCL_CASE)
#undef OCL_CASE
      return ScalarType::Float;
    case ScalarType::ComplexHalf:
      return ScalarType::ComplexFloat;
    default:
      return dtype;
  }
}

void check_dtype(const Device& device, ScalarType dtype) {
  if (dtype != ScalarType::Double && dtype != ScalarType::ComplexDouble) return;
  TORCH_CHECK_TYPE(device.properties().has_fp64, "ocl:", device.index(), " (", device.description(),
                   ") has no double precision (cl_khr_fp64), so it can't hold ", dtype,
                   " tensors; use float32");
}

namespace {

template <class T>
ScalarArgument pack(T value) {
  ScalarArgument argument{};
  std::memcpy(argument.bytes, &value, sizeof value);
  argument.size = sizeof value;
  return argument;
}

// `convert` turns the source into the C++ type it is asked for.
template <class Convert>
ScalarArgument pack_as(ScalarType dtype, const Convert& convert) {
  switch (dtype) {
    case ScalarType::Float:
      return pack(convert.template operator()<float>());
    case ScalarType::Double:
      return pack(convert.template operator()<double>());
    case ScalarType::Char:
      return pack(convert.template operator()<int8_t>());
    case ScalarType::Short:
      return pack(convert.template operator()<int16_t>());
    case ScalarType::Int:
      return pack(convert.template operator()<int32_t>());
    case ScalarType::Long:
      return pack(convert.template operator()<int64_t>());
    case ScalarType::Byte:
      return pack(convert.template operator()<uint8_t>());
    case ScalarType::UInt16:
      return pack(convert.template operator()<uint16_t>());
    case ScalarType::UInt32:
      return pack(convert.template operator()<uint32_t>());
    case ScalarType::UInt64:
      return pack(convert.template operator()<uint64_t>());
    case ScalarType::Bool:
      return pack<uint8_t>(convert.template operator()<bool>());
    case ScalarType::ComplexFloat:
      return pack(convert.template operator()<c10::complex<float>>());
    case ScalarType::ComplexDouble:
      return pack(convert.template operator()<c10::complex<double>>());
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "ocl: no kernel computes in dtype ", dtype);
  }
}

template <class From>
ScalarArgument convert_from(ScalarType dtype, const void* data) {
  From value;
  std::memcpy(&value, data, sizeof value);
  return pack_as(dtype, [&]<class To>() { return c10::convert<To>(value); });
}

template <class Float8>
ScalarArgument convert_from_float8(ScalarType dtype, const void* data) {
  Float8 value;
  std::memcpy(&value, data, sizeof value);
  const float wide = value;
  return convert_from<float>(dtype, &wide);
}

template <class Narrow>
void round_to(ScalarArgument& argument) {
  float value;
  std::memcpy(&value, argument.bytes, sizeof value);
  value = static_cast<float>(Narrow(value));
  std::memcpy(argument.bytes, &value, sizeof value);
}

}  // namespace

ScalarArgument scalar_argument(ScalarType dtype, const c10::Scalar& value) {
  // As in C, a double past float's range becomes infinite: x ** 1e300 is no error.
  if (dtype == ScalarType::Float && !value.isComplex()) {
    return pack(static_cast<float>(value.to<double>()));
  }
  return pack_as(dtype, [&]<class To>() { return value.to<To>(); });
}

void check_scalar(ScalarType dtype, const c10::Scalar& value) {
  switch (dtype) {
    case ScalarType::Half:
      (void)value.to<c10::Half>();
      break;
    case ScalarType::BFloat16:
      (void)value.to<c10::BFloat16>();
      break;
#define OCL_CASE(type, tag)      \
  case ScalarType::type:         \
    (void)value.to<c10::type>(); \
    break;
      OCL_FOR_FLOAT8(OCL_CASE)
#undef OCL_CASE
    case ScalarType::Float:
      (void)value.to<float>();
      break;
    case ScalarType::ComplexFloat:
      (void)value.to<c10::complex<float>>();
      break;
    default:
      break;  // scalar_argument checks the others
  }
}

ScalarArgument scalar_argument(ScalarType dtype, ScalarType data_dtype, const void* data) {
  switch (data_dtype) {
#define OCL_CASE(cpp_type, name) \
  case ScalarType::name:         \
    return convert_from<cpp_type>(dtype, data);
    OCL_CASE(float, Float)
    OCL_CASE(double, Double)
    OCL_CASE(int64_t, Long)
    OCL_CASE(int32_t, Int)
    OCL_CASE(int16_t, Short)
    OCL_CASE(int8_t, Char)
    OCL_CASE(uint8_t, Byte)
    OCL_CASE(uint16_t, UInt16)
    OCL_CASE(uint32_t, UInt32)
    OCL_CASE(uint64_t, UInt64)
    OCL_CASE(bool, Bool)
    OCL_CASE(c10::Half, Half)
    OCL_CASE(c10::BFloat16, BFloat16)
    OCL_CASE(c10::complex<c10::Half>, ComplexHalf)
    OCL_CASE(c10::complex<float>, ComplexFloat)
    OCL_CASE(c10::complex<double>, ComplexDouble)
#undef OCL_CASE
#define OCL_CASE(type, tag) \
  case ScalarType::type:    \
    return convert_from_float8<c10::type>(dtype, data);
    OCL_FOR_FLOAT8(OCL_CASE)
#undef OCL_CASE
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "ocl: no kernel takes dtype ", data_dtype);
  }
}

void round_argument(ScalarType narrow, ScalarArgument& argument) {
  switch (narrow) {
    case ScalarType::Half:
      return round_to<c10::Half>(argument);
    case ScalarType::BFloat16:
      return round_to<c10::BFloat16>(argument);
#define OCL_CASE(type, tag) \
  case ScalarType::type:    \
    return round_to<c10::type>(argument);
      OCL_FOR_FLOAT8(OCL_CASE)
#undef OCL_CASE
    default:
      TORCH_INTERNAL_ASSERT(false, "no narrow floating type: ", narrow);
  }
}

ScalarArgument storage_argument(ScalarType data_dtype, const void* data) {
  ScalarArgument argument{};
  argument.size = static_cast<uint32_t>(c10::elementSize(data_dtype));
  std::memcpy(argument.bytes, data, argument.size);
  return argument;
}

}  // namespace ocl
