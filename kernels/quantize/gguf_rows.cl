// Rows of a matrix in a format of GGUF files, as numbers: all of them, or those that indices name.
//
// Compile parameters: FORMAT_<name> (gguf.clh), E (tag of the numbers), INDEX (tag of the indices;
// none: all rows).
#include "include/assert.clh"
#include "quantize/gguf.clh"

/// out[i, :] = matrix[indices[i], :]; without indices out[i, :] = matrix[i, :]. A work-item has
/// STEP elements. Global size: [steps, rows of out] or more; `steps` are those of a row.
kernel ITEM_BY_ITEM void gguf_rows(global const char* matrix_base, const ulong matrix_offset,
                                   global const char* indices_base, const ulong indices_offset,
                                   global char* out_base, const ulong out_offset, const ulong rows,
                                   const ulong matrix_rows, const uint steps, global int* asserts,
                                   const uint site) {
  const ulong i = get_global_id(1);
  const uint step = get_global_id(0);
  if (i >= rows || step >= steps) return;
#ifdef INDEX
  const long row = LOAD_AS(i64, INDEX, indices_base + indices_offset, i);
  if (!check_index(row, (long)matrix_rows, asserts, site)) return;
#else
  const ulong row = i;
#endif
  const uint first = step % (BLOCK / STEP) * PARTS;
  global const char* block =
      matrix_base + matrix_offset +
      ((ulong)row * (steps / (BLOCK / STEP)) + step / (BLOCK / STEP)) * BYTES;
  global char* out = AT(out_base + out_offset, (i * steps + step) * STEP);
  const Scales scales = scales_of(block, first);
#pragma unroll
  for (uint part = 0; part < PARTS; part++) {
    STOREV_FROM(E, f32, 16, out, part, unpack(block, scales, first, part));
  }
}
