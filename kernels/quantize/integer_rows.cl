// Rows as integers of 8 bits with a scale each, and what sums of products of such rows stand for:
// bitsandbytes' LLM.int8() (T. Dettmers et al., 2022).
//
// Compile parameters: E (tag of the elements), GROUP (work-items that share a row; 1 on CPUs), BIAS
// (tag of the bias, where there is one).
#include "include/dtype.clh"
#include "include/item_by_item.clh"

#ifndef E
#define E f32
#endif
#ifndef GROUP
#define GROUP 1
#endif
#include "quantize/largest.clh"

/// out[row, i] = rint(x[row, i] * 127 / scale), with the scale of a row its largest magnitude whose
/// bits are below the limit. Elements from it on, and columns that `skip` (or null) says, become 0.
/// A group for each row.
kernel ITEM_BY_ITEM void encode_rows(global const char* in_base, const ulong in_offset,
                                     global const uchar* skip, const ulong skip_offset,
                                     global char* scales_base, const ulong scales_offset,
                                     global char* out_base, const ulong out_offset,
                                     const uint columns, const uint limit) {
  DECLARE_SHARED;
  const uint item = get_local_id(0);
  const ulong row = get_group_id(0);
  global const char* in = in_base + in_offset + row * columns * STORAGE_SIZE(E);
  const float largest = largest_below(limit, in, columns, item SHARED);
  if (item == 0) ((global float*)(scales_base + scales_offset))[row] = largest;
  const float inverse = largest > 0 ? 127.0f / largest : 0;
  global char* out = out_base + out_offset + row * columns;
  uint i = item;
#if GROUP == 1
  for (; i < columns / 16; i++) {
    const float16 x = LOADV_AS(f32, E, 16, in, i);
    int16 bits = convert_int16_sat(rint(x * inverse));
    bits = MAGNITUDES(x) < (uint16)(limit) ? bits : (int16)(0);
    if (skip) {
      bits = convert_int16(vload16(i, skip + skip_offset)) != (int16)(0) ? (int16)(0) : bits;
    }
    vstore16(convert_char16_sat(bits), i, out);
  }
  i *= 16;
#endif
  for (; i < columns; i += GROUP) {
    const float x = LOAD_AS(f32, E, in, i);
    const bool is_out = MAGNITUDE(x) >= limit || (skip && skip[skip_offset + i]);
    out[i] = is_out ? 0 : convert_char_sat(rint(x * inverse));
  }
}

/// out[row, i] = sums[row, i] * row_scale * column_scale / 127^2 + bias[i]. Global size: [columns,
/// rows] or more.
kernel void decode_sums(global const char* in_base, const ulong in_offset,
                        global const char* rows_base, const ulong rows_offset,
                        global const char* columns_base, const ulong columns_offset,
                        global const char* bias_base, const ulong bias_offset,
                        global char* out_base, const ulong out_offset, const uint rows,
                        const uint columns) {
  const uint row = get_global_id(1), column = get_global_id(0);
  if (row >= rows || column >= columns) return;
  const ulong i = (ulong)row * columns + column;
  const float scale = ((global const float*)(rows_base + rows_offset))[row] *
                      ((global const float*)(columns_base + columns_offset))[column];
  // As bitsandbytes has 1 / 127^2.
  float sum = ((global const int*)(in_base + in_offset))[i] * scale * 6.200124e-05f;
#ifdef BIAS
  sum += LOAD_AS(f32, BIAS, bias_base + bias_offset, column);
#endif
  STORE_FROM(E, f32, out_base + out_offset, i, sum);
}
