// The Cholesky factor of blocks of at most a work-group's size, lower triangle in place: what the
// recursion of csrc/engine/linalg/factor.cpp ends with.
//
// Compile parameter: C (matrix.clh).
#include "linalg/matrix.clh"

/// a: [batch, n, n]; nothing above its diagonals is read or written, nor what is imaginary on them.
/// info: [batch] ints; the first pivot that isn't positive stops a matrix and leaves its number
/// there, counted from 1 and from `first`. A work-group per matrix, a work-item per row.
kernel void cholesky_block(global char* a, ulong a_offset, global char* info, ulong info_offset,
                           const Strides sa, uint n, uint first) {
  const ulong z = get_group_id(0);
  const uint i = get_local_id(0);
  global T* block = MATRIX(a, a_offset, sa, z);
  global int* failed = (global int*)(info + info_offset) + z;
  local int stop;
  if (i == 0) stop = *failed;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint j = 0; j < n && !stop; j++) {
    // Row i of column j, less what the columns before account for.
    T value = FROM_REAL((R)0);
    if (i >= j && i < n) {
      value = AT(block, sa, i, j);
      for (uint k = 0; k < j; k++)
        value = MAD(-AT(block, sa, i, k), CONJ(AT(block, sa, j, k)), value);
    }
    if (i == j) {
      const R pivot = REAL_OF(value);
      // Not `pivot <= 0`: a NaN fails too.
      if (!(pivot > 0)) {
        stop = 1;
        *failed = (int)(first + j + 1);
      } else {
        AT(block, sa, j, j) = FROM_REAL(sqrt(pivot));
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (i > j && i < n && !stop) AT(block, sa, i, j) = value / REAL_OF(AT(block, sa, j, j));
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  }
}
