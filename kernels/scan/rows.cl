// Scans along lines (reduce-then-scan where a line has several chunks), one chunk of a line per
// work-item or per work-group of GROUP. Any strides.
//
// A work-item combines ITEMS neighbours by themselves before the running state comes in, so that
// only one combine per ITEMS elements waits for the one before. (A CPU scans for positions one by
// one: to compare is cheap.)
//
// Compile parameters: those of scan/ops.clh, PHASE, GROUP, ITEMS, CONTIGUOUS (the input's elements
// of a line are neighbours).
#include "include/always_inline.clh"
#include "include/item_by_item.clh"
#include "scan/ops.clh"
#include "scan/geometry.clh"

#ifndef GROUP
#define GROUP 1
#endif
#ifndef ITEMS
#define ITEMS 4
#endif
#ifndef CONTIGUOUS
#define CONTIGUOUS 0
#endif

#if CONTIGUOUS
#define LOAD_ELEMENT(i) load_state(start, i, i)
#else
#define LOAD_ELEMENT(i) load_state(start + (long)(i) * args.in_step, 0, i)
#endif
#define STORE_ELEMENT(i, state) \
  store_state(state, result0 + (long)(i) * args.out_step[0], result1 + (long)(i) * args.out_step[1])

#if GROUP > 1
/// Combines the states of the work-items before this one; *total combines all of them.
static inline State scan_group(State state, uint item, local State* shared, State* total) {
  shared[item] = state;
  for (uint distance = 1; distance < GROUP; distance *= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    State before = identity();
    if (item >= distance) before = shared[item - distance];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item >= distance) shared[item] = combine(before, shared[item]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  State before = identity();
  if (item > 0) before = shared[item - 1];
  *total = shared[GROUP - 1];
  barrier(CLK_LOCAL_MEM_FENCE);  // the array is written again next time
  return before;
}
#endif

#if GROUP > 1
#define GROUP_PARAMETERS , uint item, local State *shared
#define GROUP_PASSED , item, shared
#else
#define GROUP_PARAMETERS
#define GROUP_PASSED
#endif

#if PHASE == PHASE_SCAN
/// Combines the states of the line's chunks before `split`.
static ALWAYS_INLINE State earlier_chunks(uint split, uint line, global const char* partial,
                                          const Arguments args GROUP_PARAMETERS) {
  State carry = identity();
#if GROUP > 1
  const uint share = (split + GROUP - 1) / GROUP;
  for (uint s = item * share; s < min((item + 1) * share, split); s++) {
#else
  for (uint s = 0; s < split; s++) {
#endif
    const ulong index = (ulong)s * args.lines + line;
    carry = combine(carry, load_partial(partial, PARTIAL_STARTS(args), index));
  }
#if GROUP > 1
  State all;
  scan_group(carry, item, shared, &all);
  carry = all;
#endif
  return carry;
}
#endif

#if GROUP == 1 && ITEMS > 1
/// Makes neighbours' states running ones, from the one before them on.
static ALWAYS_INLINE void scan_items(const State carry, private State* states) {
#if STATE == STATE_VALUE && TILED
  if (!scan_tile(carry, states, PHASE == PHASE_REDUCE)) {
    states[0] = combine(carry, states[0]);
    for (uint k = 1; k < ITEMS; k++) states[k] = combine(states[k - 1], states[k]);
  }
#elif STATE == STATE_VALUE
  for (uint k = 1; k < ITEMS; k++) states[k] = combine(states[k - 1], states[k]);
  for (uint k = 0; k < ITEMS; k++) states[k] = combine(carry, states[k]);
#else
  bool any_nan = IS_NAN(carry);
  for (uint k = 0; k < ITEMS; k++) any_nan |= IS_NAN(states[k]);
  if (any_nan) {
    states[0] = combine(carry, states[0]);
    for (uint k = 1; k < ITEMS; k++) states[k] = combine(states[k - 1], states[k]);
  } else {
    states[0] = advance(carry, states[0]);
    for (uint k = 1; k < ITEMS; k++) states[k] = advance(states[k - 1], states[k]);
  }
#endif
}
#endif

kernel ITEM_BY_ITEM void scan_rows(global const char* in, const ulong in_offset, global char* out0,
                                   const ulong out0_offset, global char* out1,
                                   const ulong out1_offset, global char* partial,
                                   const ulong partial_offset, const Arguments args) {
#if GROUP > 1
  local State shared[GROUP];
  const uint item = get_local_id(0);
#endif
  const uint group = get_global_id(0) / GROUP;
  const uint split = group % args.splits;
  const uint first_line = group / args.splits * args.lines_per_item;
  const uint end_line = min(first_line + args.lines_per_item, args.lines);
  const ulong begin = split * args.chunk;
  const ulong end = min(begin + args.chunk, args.length);

  in += in_offset;
  out0 += out0_offset;
  out1 += out1_offset;
  partial += partial_offset;
  for (uint line = first_line; line < end_line; line++) {
    global const char* start = in;
    global char *result0 = out0, *result1 = out1;
    DECODE_LINE(args, 0, line, start, result0, result1);
    State carry = identity();
#if PHASE == PHASE_SCAN
    carry = earlier_chunks(split, line, partial, args GROUP_PASSED);
#endif

#if GROUP > 1
    for (ulong tile = begin; tile < end; tile += GROUP * ITEMS) {
      const ulong first = tile + item * ITEMS;
      State states[ITEMS];
      for (uint k = 0; k < ITEMS; k++) {
        states[k] = identity();
        if (first + k < end) states[k] = LOAD_ELEMENT(first + k);
      }
      for (uint k = 1; k < ITEMS; k++) states[k] = combine(states[k - 1], states[k]);
      State total;
      const State before = combine(carry, scan_group(states[ITEMS - 1], item, shared, &total));
#if PHASE != PHASE_REDUCE
      for (uint k = 0; k < ITEMS; k++) {
        if (first + k < end) STORE_ELEMENT(first + k, combine(before, states[k]));
      }
#endif
      carry = combine(carry, total);
    }
#else
    ulong i = begin;
#if ITEMS > 1
    for (; i + ITEMS <= end; i += ITEMS) {
      State states[ITEMS];
      for (uint k = 0; k < ITEMS; k++) states[k] = LOAD_ELEMENT(i + k);
      scan_items(carry, states);
#if PHASE != PHASE_REDUCE
      for (uint k = 0; k < ITEMS; k++) STORE_ELEMENT(i + k, states[k]);
#endif
      carry = states[ITEMS - 1];
    }
#endif
    for (; i < end; i++) {
      carry = combine(carry, LOAD_ELEMENT(i));
#if PHASE != PHASE_REDUCE
      STORE_ELEMENT(i, carry);
#endif
    }
#endif

#if PHASE == PHASE_REDUCE
#if GROUP > 1
    if (item == 0)
#endif
      store_partial(carry, partial, PARTIAL_STARTS(args), (ulong)split * args.lines + line);
#endif
  }
}
