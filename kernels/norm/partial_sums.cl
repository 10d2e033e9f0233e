// Sums partial gradients of weight and bias: partial is [part][bias, weight][length]. On CPUs a
// work-item owns WIDTH adjacent elements of one of the two; on GPUs a work-group owns kSumColumns
// of them, and each of PART_ITEMS work-items for a column every PART_ITEMS-th part, for there are
// few columns and many parts.
#include "include/item_by_item.clh"
#include "norm/norm.clh"
#include "norm/arguments.clh"

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

kernel ITEM_BY_ITEM void norm_partial_sums(global const char* partial, const ulong partial_offset,
                                           global char* bias, const ulong bias_offset,
                                           global char* weight, const ulong weight_offset,
                                           const PartialSumArguments args) {
  const uint column = get_global_id(0) * WIDTH;
  const uint which = args.first + get_global_id(1);
  if (column >= args.length) return;
  global char* out = which ? weight + weight_offset : bias + bias_offset;
  out += (ulong)column * STORAGE_SIZE(PARAM);
  global const char* from =
      partial + partial_offset + ((ulong)which * args.length + column) * STORAGE_SIZE(ACC);
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

#ifndef PART_ITEMS
#define PART_ITEMS 16
#endif
#define LOADED 8  // parts whose loads are in flight together

/// Global size: kSumColumns * PART_ITEMS for each kSumColumns columns; 2 if both gradients are
/// wanted.
kernel __attribute__((reqd_work_group_size(PART_ITEMS * kSumColumns, 1, 1))) void
norm_partial_sums_group(global const char* partial, const ulong partial_offset, global char* bias,
                        const ulong bias_offset, global char* weight, const ulong weight_offset,
                        const PartialSumArguments args) {
  local SCALAR sums[PART_ITEMS * kSumColumns];
  const uint item = get_local_id(0), part_item = item / kSumColumns;
  const uint column = (uint)get_group_id(0) * kSumColumns + item % kSumColumns;
  const uint which = args.first + (uint)get_group_id(1);
  const ulong next = (ulong)args.length * 2 * STORAGE_SIZE(ACC);
  SCALAR sum = 0;
  if (column < args.length) {
    global const char* from =
        partial + partial_offset + ((ulong)which * args.length + column) * STORAGE_SIZE(ACC);
    uint part = part_item;
    for (; part + (LOADED - 1) * PART_ITEMS < args.parts; part += LOADED * PART_ITEMS) {
      SCALAR block = 0;
      _Pragma("unroll") for (uint i = 0; i < LOADED; i++) {
        block += LOAD_OF(ACC, from + (part + i * PART_ITEMS) * next, 0);
      }
      sum += block;
    }
    for (; part < args.parts; part += PART_ITEMS) sum += LOAD_OF(ACC, from + part * next, 0);
  }
  sums[item] = sum;
  for (uint n = PART_ITEMS / 2; n > 0; n /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (part_item < n) sums[item] += sums[item + n * kSumColumns];
  }
  if (part_item > 0 || column >= args.length) return;
  STORE_TO(PARAM, which ? weight + weight_offset : bias + bias_offset, column, sums[item]);
}
