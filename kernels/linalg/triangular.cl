// Solves a * x = b in place of b for triangles of at most SIZE rows: what the recursion of
// csrc/engine/linalg/linalg.cpp ends with. A work-item per column of b.
//
// Compile parameters: C (matrix.clh), SIZE.
#include "linalg/matrix.clh"

#ifndef SIZE
#define SIZE 16
#endif

/// a: [batch, n, n], b: [batch, n, columns]. Work-groups: see COLUMN_OF_GROUP.
kernel void triangular_solve(global const char* a, ulong a_offset, global char* b, ulong b_offset,
                             const Strides sa, const Strides sb, uint n, uint columns, uint flags) {
  const uint lane = get_local_id(0), lanes = get_local_size(0);
  COLUMN_OF_GROUP(z, column, columns);
  global const T* from = (global const T*)(a + a_offset) + z * sa.batch;
  global T* to = MATRIX(b, b_offset, sb, z);
  // An upper triangle read backwards is a lower one. Past n it is the identity.
  const uint upper = flags & kUpper;
  local T triangle[SIZE * SIZE];
  for (uint e = lane; e < SIZE * SIZE; e += lanes) {
    const uint i = e % SIZE, j = e / SIZE;
    T value = FROM_REAL((R)(i == j));
    if (i < n && j <= i && !(i == j && (flags & kUnit))) {
      value = AT(from, sa, upper ? n - 1 - i : i, upper ? n - 1 - j : j);
      if (flags & kConjugate) value = CONJ(value);
    }
    triangle[j * SIZE + i] = value;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (column >= columns) return;
  T x[SIZE];
  for (uint i = 0; i < SIZE; i++)
    x[i] = i < n ? AT(to, sb, upper ? n - 1 - i : i, column) : FROM_REAL((R)0);
  for (uint j = 0; j < SIZE; j++) {
    if (!(flags & kUnit)) x[j] = DIV(x[j], triangle[j * SIZE + j]);
    const T known = -x[j];
    for (uint i = j + 1; i < SIZE; i++) x[i] = MAD(triangle[j * SIZE + i], known, x[i]);
  }
  for (uint i = 0; i < SIZE; i++) {
    if (i < n) AT(to, sb, upper ? n - 1 - i : i, column) = x[i];
  }
}
