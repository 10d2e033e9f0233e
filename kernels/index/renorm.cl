// embedding_renorm_: rows named by indices whose norm is above a limit are scaled down to it.
//
// Compile parameters: E (tag of the weights), C (computed with), INDEX, NORM (1, 2: those norms; 0:
// the maximum; -1: by pow).
#ifndef E
#define E f32
#endif
#ifndef C
#define C f32
#endif
#ifndef INDEX
#define INDEX i64
#endif
#ifndef NORM
#define NORM 2
#endif
#include "include/dtype.clh"
#include "include/assert.clh"
#include "index/renorm_arguments.clh"

/// owner[row] = one of the indices that name the row: an index named twice must scale once. Any of
/// the concurrent writes may stay; they are atomic, since OpenCL gives a race no meaning.
kernel void renorm_claim(global const char* index, const ulong index_offset, global char* owner,
                         const ulong owner_offset, const RenormArguments layout,
                         global int* asserts, uint site) {
  const uint i = get_global_id(0);
  if (i >= layout.n) return;
  const long row = LOAD_AS(i64, INDEX, index + index_offset, i);
  if (!check_index(row, layout.rows, asserts, site)) return;
  atomic_xchg((volatile global uint*)(owner + owner_offset) + row, i);
}

kernel void renorm_scale(global char* weight, const ulong weight_offset, global const char* index,
                         const ulong index_offset, global const char* owner,
                         const ulong owner_offset, const RenormArguments layout, TYPE(C) max_norm,
                         TYPE(C) power) {
  const uint i = get_global_id(0);
  if (i >= layout.n) return;
  const long row = LOAD_AS(i64, INDEX, index + index_offset, i);
  if ((ulong)row >= (ulong)layout.rows) return;
  if (((global const uint*)(owner + owner_offset))[row] != i) return;
  global char* values = weight + weight_offset + row * layout.row_step;
  TYPE(C) norm = 0;
  for (uint j = 0; j < layout.columns; j++) {
    const TYPE(C) x = fabs(LOAD_AS(C, E, values + j * layout.column_step, 0));
#if NORM == 2
    norm = fma(x, x, norm);
#elif NORM == 1
    norm += x;
#elif NORM == 0
    norm = fmax(norm, x);
#else
    norm += pow(x, power);
#endif
  }
#if NORM == 2
  norm = sqrt(norm);
#elif NORM == -1
  norm = pow(norm, 1 / power);
#endif
  if (!(norm > max_norm)) return;
  // The small number upstream adds against a division by zero.
  const TYPE(C) scale = max_norm / (norm + (TYPE(C))1e-7f);
  for (uint j = 0; j < layout.columns; j++) {
    const TYPE(C) x = LOAD_AS(C, E, values + j * layout.column_step, 0);
    STORE_FROM(E, C, values + j * layout.column_step, 0, x * scale);
  }
}
