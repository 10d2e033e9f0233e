#include "engine/reduce/operands.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "engine/device_table.h"
#include "engine/dtype.h"

namespace ocl::reduce {

using c10::ScalarType;

namespace {

ScalarType load_dtype(const Op& op, ScalarType in, ScalarType out) {
  switch (op.types) {
    case Types::input:
    case Types::mapped:
      return compute_dtype(in);
    case Types::boolean:
    case Types::count:
      return ScalarType::Bool;
    case Types::magnitude:
      return c10::isComplexType(in) ? compute_dtype(in) : compute_dtype(out);
    case Types::output:
      return compute_dtype(out);
  }
  return out;
}

ScalarType acc_dtype(const Op& op, const Device& device, ScalarType in, ScalarType out) {
  if (op.types == Types::boolean) return ScalarType::Bool;
  // Squares of what float and bfloat16 hold are infinite in float. GPUs have bfloat16's in float
  // anyway, and all where double precision is slow.
  const bool wide = out == ScalarType::Float || (out == ScalarType::BFloat16 && device.is_cpu());
  if (op.state == State::moments && wide && has_fast_fp64(device)) return ScalarType::Double;
  return compute_dtype(op.types == Types::input ? in : out);
}

}  // namespace

Operands describe(const Op& op, const Device& device, ScalarType in, ScalarType out) {
  Operands operands{};
  const ScalarType load = load_dtype(op, in, out);
  const ScalarType acc = acc_dtype(op, device, in, out);
  TORCH_CHECK_NOT_IMPLEMENTED(op.types != Types::input || !c10::isComplexType(in), '"', op.functor,
                              "\" not implemented for '", in, "'");
  operands.in_tag = op.types == Types::boolean ? storage_tag(in) : tag(in);
  operands.in_float8 = c10::isFloat8Type(in);
  operands.out_tag = tag(out);
  operands.load_tag = tag(load);
  operands.acc_tag = tag(acc);
  operands.scalar_tag =
      acc == ScalarType::Double || acc == ScalarType::ComplexDouble ? "f64" : "f32";
  operands.in_size = c10::elementSize(in);
  operands.out_size = c10::elementSize(out);
  operands.load_size = c10::elementSize(load);
  operands.acc_size = c10::elementSize(acc);
  // Kernels have no vectors of complex numbers, be it only to take their real parts.
  if (c10::isComplexType(load) || c10::isComplexType(in)) {
    operands.max_width = 1;
  } else {
    const bool by_load = op.state == State::arg || (op.state == State::moments && !device.is_cpu());
    const int64_t widest =
        by_load ? operands.load_size : std::max(operands.load_size, operands.acc_size);
    operands.max_width = static_cast<int>(vector_lanes(device, static_cast<size_t>(widest)));
  }
  return operands;
}

}  // namespace ocl::reduce
