// Convolutions of float32 with windows of one element in planes, on CPUs with AVX-512: 12 rows of
// the weight times 32 positions of each of the input's planes. Both operands are read where they
// lie. A work-item's positions of all planes stay in a cache for the next rows.
//
// Compile parameters: those of conv/epilogue.clh.
#include "include/dtype.clh"
#include "include/item_by_item.clh"
#include "conv/one_by_one_arguments.clh"

#define C f32
#define OUT f32
#define WIDTH 16
#define MR ONE_BY_ONE_ROWS
#define NV (ONE_BY_ONE_COLUMNS / WIDTH)
#define MOST_CHANNELS 256  // of one sum: rounding errors grow with its length
#include "conv/epilogue.clh"
typedef float16 V;
#include "gemm/dot_rows.clh"

// Rows lie `row` bytes apart: x0, x4 and x8 are every fourth, and three_rows is three times that.
#define MULTIPLY_FOUR(x, i0, i1, i2, i3, i4, i5, i6, i7) \
  MULTIPLY_AT("(%[" x "])", 26, i0, i1)                  \
  MULTIPLY_AT("(%[" x "],%[row])", 27, i2, i3)           \
  MULTIPLY_AT("(%[" x "],%[row],2)", 26, i4, i5)         \
  MULTIPLY_AT("(%[" x "],%[three_rows])", 27, i6, i7)
#define MULTIPLY_AT(at, value, sum0, sum1)                                                  \
  "vpbroadcastd " at ", %%zmm" #value "\nvfmadd231ps %%zmm24, %%zmm" #value ", %%zmm" #sum0 \
  "\nvfmadd231ps %%zmm25, %%zmm" #value ", %%zmm" #sum1 "\n"
#define NEXT_CHANNEL        \
  "prefetcht0 128(%[y])\n"  \
  "prefetcht0 192(%[y])\n"  \
  "add %[channel], %[x0]\n" \
  "add %[channel], %[x4]\n" \
  "add %[channel], %[x8]\n" \
  "add %[plane], %[y]\n"    \
  "dec %[count]\n"

/// sums = the product of `count` (not 0) channels of 12 rows of the weight x and of planes y.
/// Distances are in bytes.
static inline void multiply_planes(global const float* x, ulong row, ulong channel,
                                   global const float* y, ulong plane, ulong count,
                                   private V* sums) {
  V saved[28];
  ulong x0 = (ulong)x, x4 = x0 + 4 * row, x8 = x4 + 4 * row;
  __asm__ volatile(EACH_OF_28(SAVE_REGISTER) EACH_OF_24(CLEAR_REGISTER)             //
                   "1:\n" LOAD_COLUMNS MULTIPLY_FOUR("x0", 0, 1, 2, 3, 4, 5, 6, 7)  //
                   MULTIPLY_FOUR("x4", 8, 9, 10, 11, 12, 13, 14, 15)                //
                   MULTIPLY_FOUR("x8", 16, 17, 18, 19, 20, 21, 22, 23)              //
                   NEXT_CHANNEL "jnz 1b\n" EACH_OF_24(STORE_SUM) EACH_OF_28(RESTORE_REGISTER)
                   : [x0] "+r"(x0), [x4] "+r"(x4), [x8] "+r"(x8), [y] "+r"(y), [count] "+r"(count)
                   : [row] "r"(row), [three_rows] "r"(3 * row), [channel] "r"(channel),
                     [plane] "r"(plane), [sums] "r"(sums), [saved] "r"(saved)
                   : "memory", "cc");
}

/// The sums over at most MOST_CHANNELS channels of 12 rows and 32 positions, from `first` on.
static inline void multiply_channels(global const float* x, global const float* y, uint first,
                                     private V* sums, private const OneByOneArguments* p) {
  multiply_planes(x + first * p->weight_channel, p->weight_row * sizeof(float),
                  p->weight_channel * sizeof(float), y + first * p->in_channel,
                  p->in_channel * sizeof(float), min((uint)MOST_CHANNELS, p->channels - first),
                  sums);
}

/// The sums over all channels.
static inline void multiply_tile(global const float* x, global const float* y, private V* totals,
                                 private const OneByOneArguments* p) {
  multiply_channels(x, y, 0, totals, p);
  for (uint first = MOST_CHANNELS; first < p->channels; first += MOST_CHANNELS) {
    V sums[MR * NV];
    multiply_channels(x, y, first, sums, p);
    _Pragma("unroll") for (uint i = 0; i < MR * NV; i++) totals[i] += sums[i];
  }
}

/// Stores a tile without its first `rows_done` rows and `done` positions, which those before it
/// have stored.
static inline void store_tile(private const V* totals, global const float* bias, global float* out,
                              ulong image, uint row0, uint rows_done, uint first, uint done,
                              private const OneByOneArguments* p EPILOGUE_PARAMETERS) {
  for (uint i = rows_done; i < MR; i++) {
    const float addend = p->has_bias ? bias[row0 + i] : 0;
    const ulong result_row = image * p->rows + row0 + i;
    global float* to = out + (row0 + i) * p->out_channel + first;
    const V values[NV] = {totals[NV * i] + addend, totals[NV * i + 1] + addend};
    for (uint v = 0; v < NV; v++) {
      if (done <= v * WIDTH) {
        STORE_RESULTS(WIDTH, result_row, first + v * WIDTH, (global char*)(to + v * WIDTH),
                      values[v]);
      } else {
        for (uint j = done; j < (v + 1) * WIDTH; j++) {
          STORE_RESULT(result_row, first + j, (global char*)to, j,
                       ((private const float*)values)[j]);
        }
      }
    }
  }
}

/// Global size: tiles / block, panels of 12 rows / panels, images.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void one_by_one(
    global const char* in_base, const ulong in_offset, global const char* weight_base,
    const ulong weight_offset, global const char* bias_base, const ulong bias_offset,
    global char* out_base, const ulong out_offset, const OneByOneArguments p EPILOGUE_PARAMETERS) {
  const ulong image = get_global_id(2);
  const uint panels = (p.rows + MR - 1) / MR, first_panel = get_global_id(1) * p.panels;
  const uint last_panel = min(first_panel + p.panels, panels);
  global const float* in = (global const float*)(in_base + in_offset) + image * p.in_image;
  global const float* weight = (global const float*)(weight_base + weight_offset);
  global const float* bias = (global const float*)(bias_base + bias_offset);
  global float* out = (global float*)(out_base + out_offset) + image * p.out_image;
  const uint first_tile = get_global_id(0) * p.block,
             last_tile = min(first_tile + p.block, p.tiles);
  for (uint panel = first_panel; panel < last_panel; panel++) {
    // The last panel reaches back, and so does the last tile.
    const uint row = min(panel * MR, p.rows - MR);
    for (uint tile = first_tile; tile < last_tile; tile++) {
      const uint first = min(tile * ONE_BY_ONE_COLUMNS, p.positions - ONE_BY_ONE_COLUMNS);
      V totals[MR * NV];
      multiply_tile(weight + row * p.weight_row, in + first, totals, &p);
      store_tile(totals, bias, out, image, row, panel * MR - row, first,
                 tile * ONE_BY_ONE_COLUMNS - first, &p EPILOGUE_PASSED);
    }
  }
}
