// One launch of a pointwise kernel: its operands, and the kernels by access mode.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>

#include "engine/dtype.h"
#include "engine/pointwise/pointwise.h"
#include "opencl/queue.h"

namespace ocl::pointwise {

inline constexpr int kMaxOperands = 7;
inline constexpr int kMaxScalars = 4;
inline constexpr int kMaxTensorDims = 64;  // what ATen allows

/// The operands of one launch; outputs first. Inputs that are host scalars hold no address.
struct Operands {
  int count = 0;
  int outputs = 0;
  int inputs = 0;            // scalar inputs included
  uint32_t scalar_mask = 0;  // bit i: input i is a kernel argument
  std::array<const char*, kMaxOperands> tags;
  std::array<size_t, kMaxOperands> element_size;
  std::array<char*, kMaxOperands> data;
  std::array<int, kMaxOperands> input_number;  // of the functor's inputs; unused for outputs
  const char* compute_tag = nullptr;
  c10::ScalarType dtype = c10::ScalarType::Undefined;  // before it is widened to compute in
  size_t compute_size = 0;
  bool complex = false;      // the functor computes with complex numbers
  bool has_float8 = false;   // an operand is stored as float8
  bool has_complex = false;  // an operand is complex: no vector of them is loaded or stored
  std::array<ScalarArgument, kMaxScalars + kMaxOperands> scalars;
  int op_scalars = 0;
  int total_scalars = 0;
  bool checked = false;        // the kernel makes the op's check
  bool wide_quotient = false;  // a half quotient by one element is not rounded before truncation
  // Bit i: input i is rounded to dtype, a half type, first; and kRoundedResult.
  uint32_t rounded_mask = 0;
};

/// In a rounded_mask: the result is rounded to dtype before it is stored as something wider.
inline constexpr uint32_t kRoundedResult = 1u << 7;

/// Shape and byte strides, innermost dimension first.
struct Geometry {
  int dims = 0;
  std::array<int64_t, kMaxTensorDims> size;
  std::array<std::array<int64_t, kMaxTensorDims>, kMaxOperands> stride;
};

/// A launch that an implementation takes or refuses.
struct Plan {
  Queue& queue;
  const Operands& operands;
  const Op& op;
  int64_t n;
  bool contiguous;           // all operands lie in memory in the order of iteration
  const Geometry* geometry;  // null if not needed: contiguous, and nothing is forced
};

/// Whether a plan of contiguous operands needs its geometry.
bool is_forced();
/// Runs the first implementation that takes the plan.
void launch(Plan& plan);
/// Any strides; geometry is left as it was.
void launch_geometry(Queue& queue, Operands operands, const Op& op, Geometry& geometry,
                     bool contiguous);

}  // namespace ocl::pointwise
