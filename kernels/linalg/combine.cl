// Linear combinations of tensors, the terms of a matrix polynomial.
//
// Compile parameter: C (matrix.clh).
#include "include/indexing.clh"
#include "linalg/matrix.clh"

typedef struct {
  ulong offset[3];          // bytes: out, in, coefficients
  long in_step, term_step;  // elements from one term's tensor, and coefficient, to the next's
  uint terms;
  uint n;
  uint dims, unused;
  uint size[16];
  uint stride[3][16];  // bytes
} CombineLayout;

/// out += sum over the terms of coefficient * in. Global size: n or more.
kernel void linear_combination(global char* out, global const char* in,
                               global const char* coefficients, const CombineLayout layout) {
  const size_t i = get_global_id(0);
  if (i >= layout.n) return;
  uint at[3] = {0};
  DECODE_OFFSETS(at, 3, (uint)i, layout.dims, layout.size, layout.stride);
  global T* to = (global T*)(out + layout.offset[0] + at[0]);
  global const T* from = (global const T*)(in + layout.offset[1] + at[1]);
  global const T* factor = (global const T*)(coefficients + layout.offset[2] + at[2]);
  T sum = *to;
  for (uint k = 0; k < layout.terms; k++)
    sum = MAD(from[k * layout.in_step], factor[k * layout.term_step], sum);
  *to = sum;
}
