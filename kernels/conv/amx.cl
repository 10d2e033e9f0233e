// Convolutions of bfloat16 by x86's AMX (gemm/amx.clh), on CPUs. The input lies channels last, with
// zeros around it and 32 channels or a multiple: then a run of 16 positions is a tile's rows as it
// lies, a step is 32 channels, and a line of a window is one run of steps. Nothing else is copied.
//
// Compile parameters: ONLY (the kernel: 1 to 3), for each is a program of its own.
#include "include/dtype.clh"
#include "include/item_by_item.clh"
#include "conv/amx_arguments.clh"

#ifndef ONLY
#define ONLY 0
#endif
#define WIDTH 16

#if ONLY == 0 || ONLY == 1
#define T ushort16
#define transpose transpose_elements
#include "include/transpose.clh"
#undef transpose
#undef T

/// The input's copy: a line for a work-item. Global size: padded_height, images.
kernel ITEM_BY_ITEM void conv_amx_copy(global const char* in_base, const ulong in_offset,
                                       global char* copy_base, const ulong copy_offset,
                                       const ConvAmxArguments p) {
  global const ushort* in = (global const ushort*)(in_base + in_offset);
  global ushort* copy = (global ushort*)(copy_base + copy_offset);
  const uint padded_row = get_global_id(0);
  const ulong image = get_global_id(1), all = 32 * p.steps;
  global ushort* to = copy + (image * p.padded_height + padded_row) * p.padded_width * all;
  const int row = (int)padded_row - p.top;
  const bool exists = row >= 0 && row < (int)p.height;
  const uint first = exists ? p.left : p.padded_width;
  const uint end = exists ? min(p.left + p.width, p.padded_width) : p.padded_width;
  for (ulong i = 0; i < first * all / 16; i++) vstore16((ushort16)(0), i, to);
  for (ulong i = end * all / 16; i < p.padded_width * all / 16; i++) {
    vstore16((ushort16)(0), i, to);
  }
  if (!exists) return;
  global const ushort* from = in + image * p.in_image + row * p.in_row;
  to += first * all;
  const uint width = end - first;
  for (uint column = 0; column < width; column += 16) {
    const uint count = min(16u, width - column);
    for (uint channel = 0; channel < all; channel += 16) {
      global const ushort* block = from + column * p.in_column + channel * p.in_channel;
      global ushort* to_block = to + column * all + channel;
      const uint channels = p.channels > channel ? min(16u, p.channels - channel) : 0;
      if (channels == 16 && p.in_channel == 1) {
        for (uint i = 0; i < count; i++) {
          vstore16(vload16(0, block + i * p.in_column), 0, to_block + i * all);
        }
      } else if (count == 16 && p.in_column == 1) {
        ushort16 square[16];
        for (uint c = 0; c < 16; c++) {
          square[c] = c < channels ? vload16(0, block + c * p.in_channel) : (ushort16)(0);
        }
        transpose_elements(square);
        for (uint i = 0; i < 16; i++) vstore16(square[i], 0, to_block + i * all);
      } else {
        for (uint i = 0; i < count; i++) {
          for (uint c = 0; c < 16; c++) {
            to_block[i * all + c] =
                c < channels ? block[i * p.in_column + c * p.in_channel] : (ushort)0;
          }
        }
      }
    }
  }
}
#endif

#if ONLY == 0 || ONLY == 2
#define T uint16
#define transpose transpose_pairs
#include "include/transpose.clh"
#undef transpose
#undef T

/// The weight's panels [columns / 32][window][steps][16 pairs of channels][32 columns]. Global
/// size: columns / 32, steps.
kernel ITEM_BY_ITEM void conv_amx_weight(global const char* weight_base, const ulong weight_offset,
                                         global char* panels_base, const ulong panels_offset,
                                         const ConvAmxArguments p) {
  global const ushort* weight = (global const ushort*)(weight_base + weight_offset);
  global uint* panels = (global uint*)(panels_base + panels_offset);
  const ulong panel = get_global_id(0), step = get_global_id(1);
  const uint taps = p.kernel_rows * p.kernel_columns;
  if (p.weight_channel == 1 && step * 32 + 32 <= p.channels && panel * 32 + 32 <= p.columns) {
    for (uint tap = 0; tap < taps; tap++) {
      global const ushort* from = weight + step * 32 +
                                  (long)(tap / p.kernel_columns) * p.weight_row +
                                  (long)(tap % p.kernel_columns) * p.weight_across;
      global uint* to = panels + ((panel * taps + tap) * p.steps + step) * (16 * 32);
      for (uint v = 0; v < 2; v++) {
        uint16 square[16];
        _Pragma("unroll") for (uint r = 0; r < 16; r++) {
          global const ushort* channels = from + (long)(panel * 32 + 16 * v + r) * p.weight_column;
          square[r] = (uint16)(as_uint8(vload16(0, channels)), as_uint8(vload16(1, channels)));
        }
        transpose_pairs(square);
        _Pragma("unroll") for (uint r = 0; r < 16; r++)
            vstore16(square[r], 0, to + 32 * r + 16 * v);
      }
    }
    return;
  }
  for (uint pair = 0; pair < 16; pair++) {
    const uint channel = step * 32 + 2 * pair;
    for (uint tap = 0; tap < taps; tap++) {
      global const ushort* from = weight + channel * p.weight_channel +
                                  (long)(tap / p.kernel_columns) * p.weight_row +
                                  (long)(tap % p.kernel_columns) * p.weight_across;
      global uint* to = panels + (((panel * taps + tap) * p.steps + step) * 16 + pair) * 32;
      for (uint j = 0; j < 32; j++) {
        const uint column = panel * 32 + j;
        global const ushort* element = from + column * p.weight_column;
        const bool low = column < p.columns && channel < p.channels;
        const bool high = column < p.columns && channel + 1 < p.channels;
        to[j] = (low ? element[0] : 0) | (high ? (uint)element[p.weight_channel] << 16 : 0);
      }
    }
  }
}
#endif

#if ONLY == 0 || ONLY == 3
#define K_PACK 2
typedef float16 V;
#include "gemm/amx.clh"
#define T V
#include "include/transpose.clh"
#undef T

/// Where a run of 16 positions begins: which image, line and position.
typedef struct {
  uint image, line, position;
} Run;

static inline Run run_of(ulong index, const ConvAmxArguments p) {
  const uint of_line = (p.positions + 15) / 16;
  Run run;
  // A line's last run reaches back to others' positions, and stores the same results there.
  run.position = min((uint)(index % of_line) * 16, max(p.positions, 16u) - 16);
  run.line = index / of_line % p.lines;
  run.image = index / of_line / p.lines;
  return run;
}

/// 32 columns' addends, from column0 on.
static inline void load_addend(private V* addend, uint column0, global const char* bias,
                               const ConvAmxArguments p) {
  addend[0] = addend[1] = (V)(0);
  if (!p.has_bias) return;
  for (uint j = 0; j < min(32u, p.columns - column0); j++) {
    ((private float*)addend)[j] = LOAD_AS(f32, bf16, bias, column0 + j);
  }
}

/// Stores `count` runs in planes, one plane after the other: each is another page of memory.
static inline void store_planes(ulong first, uint count, private const V* sums, uint column0,
                                private const V* addend, global char* out,
                                const ConvAmxArguments p) {
  ushort16 lines[32][2 * kAmxTiles];
  ulong places[2 * kAmxTiles];
  for (uint i = 0; i < count; i++) {
    const Run run = run_of(first + i, p);
    places[i] = run.image * p.out_image + run.line * p.out_row + run.position;
    for (uint v = 0; v < 2; v++) {
      V square[16];
      _Pragma("unroll") for (uint r = 0; r < 16; r++) {
        square[r] = sums[(16 * i + r) * 2 + v] + addend[v];
      }
      transpose(square);
      _Pragma("unroll") for (uint j = 0; j < 16; j++) {
        lines[16 * v + j][i] = encode_bf1616(square[j]);
      }
    }
  }
  for (uint j = 0; j < min(32u, p.columns - column0); j++) {
    global ushort* plane = (global ushort*)out + (column0 + j) * p.out_channel;
    if (p.positions >= 16) {
      for (uint i = 0; i < count; i++) vstore16(lines[j][i], 0, plane + places[i]);
    } else {
      for (uint i = 0; i < count; i++) {
        for (uint k = 0; k < p.positions; k++) {
          plane[places[i] + k] = ((private const ushort*)&lines[j][i])[k];
        }
      }
    }
  }
}

/// Stores sums of a run: 16 positions of 32 columns, from column0 on.
static inline void store_run(const Run run, private const V* sums, uint column0,
                             private const V* addend, global char* out, const ConvAmxArguments p) {
  out += (run.image * p.out_image + column0 * p.out_channel) * STORAGE_SIZE(bf16);
  const uint count = min(16u, p.positions), columns = min(32u, p.columns - column0);
  for (uint i = 0; i < count; i++) {
    uint row = run.line, column = run.position + i;
    if (p.folded) {
      row = column / p.padded_width;
      column %= p.padded_width;
      if (column >= p.out_width) continue;
    }
    global char* to = out + (row * p.out_row + column * p.out_column) * STORAGE_SIZE(bf16);
    const V values[2] = {sums[2 * i] + addend[0], sums[2 * i + 1] + addend[1]};
    if (p.out_channel == 1 && columns == 32) {
      STOREV_FROM(bf16, f32, 16, to, 0, values[0]);
      STOREV_FROM(bf16, f32, 16, to, 1, values[1]);
      continue;
    }
    for (uint j = 0; j < columns; j++) {
      STORE_FROM(bf16, f32, to, j * p.out_channel, ((private const float*)values)[j]);
    }
  }
}

/// The sums of kAmxTiles pairs of runs and 32 columns. Global size: columns / 32, runs / (2
/// kAmxTiles).
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void conv_amx(
    global const char* copy_base, const ulong copy_offset, global const char* panels_base,
    const ulong panels_offset, global const char* bias_base, const ulong bias_offset,
    global char* out_base, const ulong out_offset, const ConvAmxArguments p) {
  global const char* copy = copy_base + copy_offset;
  global const uint* panels = (global const uint*)(panels_base + panels_offset);
  global const char* bias = bias_base + bias_offset;
  global char* out = out_base + out_offset;
  const ulong panel = get_global_id(0), first = get_global_id(1) * (2 * kAmxTiles);
  const ulong all = 32 * p.steps * sizeof(ushort);  // bytes of a position
  const ulong line = p.kernel_columns * p.steps;
  global const uint* y = panels + panel * p.kernel_rows * line * (16 * 32);
  const uint tiles = (min(p.runs - first, (ulong)(2 * kAmxTiles)) + 1) / 2;
  V totals[kAmxTiles * 64];
  for (uint i = 0; i < tiles * 64; i++) totals[i] = (V)(0);
  begin_tiles();
  for (uint tile = 0; tile < tiles; tile++) {
    ulong at[2];
    for (uint i = 0; i < 2; i++) {
      const Run run = run_of(min(first + 2 * tile + i, p.runs - 1), p);
      const ulong row = (ulong)run.image * p.padded_height + run.line * p.stride_row;
      at[i] = (ulong)copy + (row * p.padded_width + (ulong)run.position * p.stride_column) * all;
    }
    multiply_tiles(at[0], at[1], p.stride_column * all, 64, line,
                   p.dilation_row * p.padded_width * all - line * 64, p.kernel_rows, y,
                   totals + tile * 64);
  }
  end_tiles();
  const uint runs = min(p.runs - first, (ulong)(2 * kAmxTiles)), column0 = panel * 32;
  V addend[2];
  load_addend(addend, column0, bias, p);
  if (p.out_column == 1 && p.out_channel != 1 && !p.folded) {
    store_planes(first, runs, totals, column0, addend, out, p);
    return;
  }
  for (uint i = 0; i < runs; i++) {
    store_run(run_of(first + i, p), totals + i * 32, column0, addend, out, p);
  }
}
#endif
