// Sums partial gradients of weight and bias: partial is [part][bias, weight][length]. On CPUs a
// work-item owns WIDTH adjacent elements of one of the two; on GPUs a work-group of LANES x COLUMNS
// owns COLUMNS of them, and a work-item every LANES-th part, for there are few columns and many
// parts.
#include "include/item_by_item.clh"
#include "norm/norm.clh"

// The layout is that of csrc/engine/norm/rows.cpp.
typedef struct {
  ulong offset[3];
  uint parts;
  uint length;
  uint first;  // 0: from the bias on, 1: the weight alone
} FinishArgs;

// Parts summed one after the other before the sum goes to the total: bounds the rounding error.
#define BLOCK 64

#define SUM_PARTS(T, load)                                          \
  T total = (T)(0);                                                 \
  for (uint begin = 0; begin < args.parts; begin += BLOCK) {        \
    T block = (T)(0);                                               \
    for (uint p = begin; p < min(begin + BLOCK, args.parts); p++) { \
      block += load(ACC, from + p * next, 0);                       \
    }                                                               \
    total += block;                                                 \
  }

kernel ITEM_BY_ITEM void norm_finish(global const char* partial_base, global char* bias_base,
                                     global char* weight_base, const FinishArgs args) {
  const uint column = get_global_id(0) * WIDTH;
  const uint which = args.first + get_global_id(1);
  if (column >= args.length) return;
  global char* out = which ? weight_base + args.offset[2] : bias_base + args.offset[1];
  out += (ulong)column * STORAGE_SIZE(PARAM);
  global const char* from =
      partial_base + args.offset[0] + ((ulong)which * args.length + column) * STORAGE_SIZE(ACC);
  const ulong next = (ulong)args.length * 2 * STORAGE_SIZE(ACC);
  if (column + WIDTH <= args.length) {
    SUM_PARTS(VECTOR, LOADV_OF)
    STOREV_TO(PARAM, out, 0, total);
    return;
  }
  const uint rest = args.length - column;
  for (uint i = 0; i < rest; i++) {
    SUM_PARTS(SCALAR, LOAD_OF)
    STORE_TO(PARAM, out, 0, total);
    out += STORAGE_SIZE(PARAM);
    from += STORAGE_SIZE(ACC);
  }
}

#define LANES 16
#define COLUMNS 16
#define LOADED 8  // parts whose loads are in flight together

/// Global size: COLUMNS * LANES for each COLUMNS columns; 2 if both gradients are wanted.
kernel __attribute__((reqd_work_group_size(LANES * COLUMNS, 1, 1))) void norm_finish_group(
    global const char* partial_base, global char* bias_base, global char* weight_base,
    const FinishArgs args) {
  local SCALAR sums[LANES * COLUMNS];
  const uint item = get_local_id(0), lane = item / COLUMNS;
  const uint column = (uint)get_group_id(0) * COLUMNS + item % COLUMNS;
  const uint which = args.first + (uint)get_group_id(1);
  const ulong next = (ulong)args.length * 2 * STORAGE_SIZE(ACC);
  SCALAR sum = 0;
  if (column < args.length) {
    global const char* from =
        partial_base + args.offset[0] + ((ulong)which * args.length + column) * STORAGE_SIZE(ACC);
    uint part = lane;
    for (; part + (LOADED - 1) * LANES < args.parts; part += LOADED * LANES) {
      SCALAR block = 0;
      _Pragma("unroll") for (uint i = 0; i < LOADED; i++) {
        block += LOAD_OF(ACC, from + (part + i * LANES) * next, 0);
      }
      sum += block;
    }
    for (; part < args.parts; part += LANES) sum += LOAD_OF(ACC, from + part * next, 0);
  }
  sums[item] = sum;
  for (uint n = LANES / 2; n > 0; n /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < n) sums[item] += sums[item + n * COLUMNS];
  }
  if (lane > 0 || column >= args.length) return;
  STORE_TO(PARAM, which ? weight_base + args.offset[2] : bias_base + args.offset[1], column,
           sums[item]);
}
