// Linear combinations of tensors, the terms of a matrix polynomial.
//
// Compile parameter: C (matrix.clh).
#include "include/indexing.clh"
#include "linalg/combine_arguments.clh"
#include "linalg/matrix.clh"

/// out += sum over the terms of coefficient * in. Global size: n or more.
kernel void linear_combination(global char* out, const ulong out_offset, global const char* in,
                               const ulong in_offset, global const char* coefficients,
                               const ulong coefficients_offset, const CombineArguments arguments) {
  out += out_offset;
  in += in_offset;
  coefficients += coefficients_offset;
  const size_t i = get_global_id(0);
  if (i >= arguments.n) return;
  uint at[3] = {0};
  DECODE_OFFSETS(at, 3, (uint)i, arguments.dims, arguments.size, arguments.stride);
  global T* to = (global T*)(out + at[0]);
  global const T* from = (global const T*)(in + at[1]);
  global const T* factor = (global const T*)(coefficients + at[2]);
  T sum = *to;
  for (uint k = 0; k < arguments.terms; k++)
    sum = MAD(from[k * arguments.in_step], factor[k * arguments.term_step], sum);
  *to = sum;
}
