// Numbers of 8 and 4 bits with a scale for each block of elements: to them, and back.
//
// A block's scale is its largest magnitude. An element divided by it becomes the nearest number of
// a table, of two the lower one; NaN becomes the largest. Tables are four_bits.clh's, or an operand
// of 256 ascending floats.
//
// Compile parameters: E (tag of the elements), GROUP (work-items that share a block; 1 on CPUs),
// TABLE and NESTED (four_bits.clh).
#include "include/dtype.clh"
#include "include/item_by_item.clh"

#ifndef E
#define E f32
#endif
#ifndef GROUP
#define GROUP 1
#endif
#include "quantize/four_bits.clh"
#include "quantize/largest.clh"

#define AT(p, element) ((p) + (ulong)(element) * STORAGE_SIZE(E))
// bitsandbytes takes this for 0, as a divisor.
#define TINY 1e-38f
// Its blocks are multiplied by the inverse, but for a last one that isn't whole.
#define SCALED(x) (is_whole ? (x) * inverse : largest < TINY ? (x) * 1e38f : (x) / largest)

#define INVERSE (largest < TINY ? 1e38f : 1 / largest)

// The block of a group, its elements and its scale.
#define FIND_BLOCK                                             \
  const uint item = get_local_id(0);                           \
  const ulong block = get_group_id(0), start = block * size;   \
  const uint count = (uint)min((ulong)size, elements - start); \
  const bool is_whole = count == size;                         \
  global const char* in = AT(in_base + in_offset, start);      \
  const float largest = largest_below(NO_LIMIT, in, count, item SHARED);
#define STORE_SCALE                                                         \
  if (item == 0) {                                                          \
    ((global float*)(scales_base + scales_offset))[block] =                 \
        is_whole || largest >= TINY || largest != largest ? largest : TINY; \
  }

static inline uint position4(float x) {
  uint position = 15;
#pragma unroll
  for (uint j = 0; j < 15; j++) position -= between_numbers[j] >= x;
  return position;
}

/// Two elements to a byte, blocks of an even size. A missing last element counts as 0.
/// A group for each block.
kernel ITEM_BY_ITEM void encode4(global const char* in_base, const ulong in_offset,
                                 global char* scales_base, const ulong scales_offset,
                                 global char* out_base, const ulong out_offset,
                                 const ulong elements, const uint size) {
  DECLARE_SHARED;
  FIND_BLOCK;
  STORE_SCALE;
  const float inverse = INVERSE;
  global uchar* out = (global uchar*)(out_base + out_offset) + start / 2;
  uint i = item;
#if GROUP == 1
  for (; i < count / 32; i++) {
    int16 first = 15, second = 15;
    const float16 a = SCALED(LOADV_AS(f32, E, 16, in, 2 * i));
    const float16 b = SCALED(LOADV_AS(f32, E, 16, in, 2 * i + 1));
#pragma unroll
    for (uint j = 0; j < 15; j++) {
      first += (float16)(between_numbers[j]) >= a;
      second += (float16)(between_numbers[j]) >= b;
    }
    const uchar16 numbers = (uchar16)(PASTE2(ORDER_, TABLE));
    const uchar16 x = shuffle(numbers, convert_uchar16(first));
    const uchar16 y = shuffle(numbers, convert_uchar16(second));
    vstore16((uchar16)(x.even << (uchar8)(4) | x.odd, y.even << (uchar8)(4) | y.odd), i, out);
  }
  i *= 16;
#endif
  for (; i < (count + 1) / 2; i += GROUP) {
    const float a = SCALED(LOAD_AS(f32, E, in, 2 * i));
    const float b = 2 * i + 1 < count ? SCALED(LOAD_AS(f32, E, in, 2 * i + 1)) : 0;
    out[i] = bits_in_order[position4(a)] << 4 | bits_in_order[position4(b)];
  }
}

/// The middles between neighbours of a table of 256. Global size: 255 or more.
kernel void middles(global const char* in_base, const ulong in_offset, global char* out_base,
                    const ulong out_offset) {
  const uint i = get_global_id(0);
  global const float* in = (global const float*)(in_base + in_offset);
  if (i < 255) ((global float*)(out_base + out_offset))[i] = (in[i] + in[i + 1]) * 0.5f;
}

/// Scales of blocks alone. A group for each block.
kernel ITEM_BY_ITEM void scales_of_blocks(global const char* in_base, const ulong in_offset,
                                          global char* scales_base, const ulong scales_offset,
                                          const ulong elements, const uint size) {
  DECLARE_SHARED;
  FIND_BLOCK;
  STORE_SCALE;
}

/// A byte for each element, by the middles of a table. A work-item for each element, in vectors'
/// lanes on CPUs. Global size: [elements of a block, blocks] or more.
kernel void encode8(global const char* in_base, const ulong in_offset,
                    global const char* scales_base, const ulong scales_offset,
                    global char* out_base, const ulong out_offset, global const char* middles_base,
                    const ulong middles_offset, const ulong elements, const uint size) {
  const ulong block = get_global_id(1);
  const uint place = get_global_id(0);
  const ulong i = block * size + place;
  if (place >= size || i >= elements) return;
  global const float* between = (global const float*)(middles_base + middles_offset);
  const bool is_whole = (block + 1) * size <= elements;
  const float largest = ((global const float*)(scales_base + scales_offset))[block];
  const float inverse = INVERSE;
  const float x = SCALED(LOAD_AS(f32, E, in_base + in_offset, i));
  uint position = 0;
#pragma unroll
  for (uint step = 128; step > 0; step /= 2) {
    position += between[position + step - 1] >= x ? 0 : step;
  }
  ((global uchar*)(out_base + out_offset))[i] = (uchar)position;
}

/// A work-item for each 32 elements on a CPU, for each 8 on a GPU; blocks have a multiple of 32.
kernel ITEM_BY_ITEM void decode4(global const char* in_base, const ulong in_offset, SCALES,
                                 global char* out_base, const ulong out_offset,
                                 const ulong elements, const uint size_shift) {
  DECLARE_NUMBERS;
#ifdef OCL_DEVICE_CPU
#define STRETCH 32
#else
#define STRETCH 8
#endif
  const ulong start = get_global_id(0) * STRETCH;
  if (start >= elements) return;
  const float scale = SCALE(start >> size_shift);
  global const uchar* in = (global const uchar*)(in_base + in_offset) + start / 2;
  global char* out = AT(out_base + out_offset, start);
  const uint count = (uint)min((ulong)STRETCH, elements - start);
#ifdef OCL_DEVICE_CPU
  if (count == STRETCH) {
    const uint16 bits = convert_uint16(vload16(0, in));
    const float16 a = NUMBERS_OF(UPPER(bits)) * scale, b = NUMBERS_OF(LOWER(bits)) * scale;
    const uint16 low = (uint16)(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    STOREV_FROM(E, f32, 16, out, 0, shuffle2(a, b, low));
    STOREV_FROM(E, f32, 16, out, 1, shuffle2(a, b, low + 8));
    return;
  }
  const float table[16] = {PASTE2(NUMBERS_, TABLE)};
#else
#define table numbers
  if (count == STRETCH) {
    const uchar4 bits = vload4(0, in);
    const float8 values = (float8)(table[UPPER(bits.x)], table[LOWER(bits.x)], table[UPPER(bits.y)],
                                   table[LOWER(bits.y)], table[UPPER(bits.z)], table[LOWER(bits.z)],
                                   table[UPPER(bits.w)], table[LOWER(bits.w)]);
    STOREV_FROM(E, f32, 8, out, 0, values * scale);
    return;
  }
#endif
  for (uint i = 0; i < count; i++) {
    const uint bits = i % 2 == 0 ? UPPER(in[i / 2]) : LOWER(in[i / 2]);
    STORE_FROM(E, f32, out, i, table[bits] * scale);
  }
}

/// A work-item for each `stretch` elements of a block, of which there are `stretches`.
kernel ITEM_BY_ITEM void decode8(global const char* in_base, const ulong in_offset,
                                 global const char* scales_base, const ulong scales_offset,
                                 global const char* table_base, const ulong table_offset,
                                 global char* out_base, const ulong out_offset,
                                 const ulong elements, const uint size, const uint stretch,
                                 const uint stretches) {
  const ulong block = get_global_id(0) / stretches;
  const uint part = (uint)(get_global_id(0) - block * stretches);
  const ulong start = block * size + part * stretch;
  const ulong end = min(min(start + stretch, block * size + size), elements);
  if (start >= elements) return;
  global const float* table = (global const float*)(table_base + table_offset);
  global const uchar* in = (global const uchar*)(in_base + in_offset);
  global char* out = out_base + out_offset;
  const float scale = ((global const float*)(scales_base + scales_offset))[block];
  for (ulong i = start; i < end; i++) STORE_FROM(E, f32, out, i, table[in[i]] * scale);
}
