// The reduction engine: values, positions and moments over any dimensions of a tensor. A new
// reduction is four lines in kernels/reduce/ops.clh and an Op.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

#include <bitset>

namespace ocl::reduce {

/// The state of a reduction; numbered as in kernels/reduce/defaults.clh.
enum class State : uint8_t {
  value,    // one number, combined by a functor of kernels/reduce/ops.clh
  arg,      // an element and its position
  moments,  // mean and sum of squared deviations
};

/// The types that elements are loaded as, and accumulated in (float for half and bfloat16).
enum class Types : uint8_t {
  output,     // both in the output's dtype
  input,      // both in the input's dtype
  boolean,    // both as bool
  count,      // loaded as bool, accumulated in the output's dtype
  magnitude,  // as `output`; complex elements are loaded as they are
  mapped,     // loaded in the input's dtype, accumulated in the output's
};

struct Op {
  const char* functor;  // a literal
  State state = State::value;
  Types types = Types::output;
  bool index_only = false;  // arg: one output, the position; else value and position
  bool root = false;        // moments: standard deviation instead of variance
};

/// The functor's scalars s0 and s1.
struct Scalars {
  double s0 = 0, s1 = 0;
};

/// Enqueues the reduction of `self` over the dimensions in `reduced` into `out`, which has the
/// shape of the result (with reduced dimensions of size 1 if `keepdim`), any strides and the dtype
/// wanted. `second`: the positions (int64) of a value-and-position reduction, the means of a
/// moments reduction. Reducing nothing gives the functor's identity. Positions are those within the
/// single reduced dimension, or within a contiguous `self` if all its dimensions are reduced.
/// Throws NotImplementedError for a dtype no kernel knows, Error for a device failure.
void run(const Op& op, const at::Tensor& self, std::bitset<64> reduced, bool keepdim,
         const at::Tensor& out, const at::Tensor& second = {}, Scalars scalars = {});

/// As above for an iterator made by TensorIterator::reduce_op with one output.
void run(const Op& op, at::TensorIteratorBase& iter, Scalars scalars = {});

}  // namespace ocl::reduce
