// Runs of equal neighbours in a vector, read as it lies, for CPUs: count where they begin, sum the
// counts (scan.cl), write. Zeros are equal to each other, NaNs to nothing.
//
// Compile parameters: E (tag of the elements); INVERSE, STARTS (1: it is wanted).
#include "include/always_inline.clh"
#include "include/dtype.clh"
#include "include/item_by_item.clh"
#ifndef E
#define E f32
#endif
#ifndef INVERSE
#define INVERSE 1
#endif
#ifndef STARTS
#define STARTS 1
#endif

#define LANES 16
#define AT(i) (values + (ulong)(i) * STORAGE_SIZE(E))
// -1 in the lanes of elements i to i + 15 that differ from the one before them.
#define BEGIN_MASKS(here, i) convert_int16((here) != LOADV(E, LANES, AT((i) - 1), 0))

kernel ITEM_BY_ITEM void consecutive_count(global const char* values, ulong values_offset,
                                           global char* counts, ulong counts_offset, uint n,
                                           uint chunk) {
  const ulong first = (ulong)get_global_id(0) * chunk;
  if (first >= n) return;
  values += values_offset;
  const uint end = (uint)min(first + chunk, (ulong)n);
  uint i = (uint)first, count = 0;
  if (i == 0) {
    count = 1;
    i = 1;
  }
  int16 sums = 0;
  for (; end - i >= LANES; i += LANES) {
    const TYPEV(E, LANES) here = LOADV(E, LANES, AT(i), 0);
    sums -= BEGIN_MASKS(here, i);
  }
  for (; i < end; i++) {
    const TYPE(E) here = LOAD(E, AT(i), 0), before = LOAD(E, AT(i - 1), 0);
    count += here != before;
  }
  const int8 sums8 = sums.lo + sums.hi;
  const int4 sums4 = sums8.lo + sums8.hi;
  ((global uint*)(counts + counts_offset))[get_global_id(0)] =
      count + (uint)(sums4.x + sums4.y + sums4.z + sums4.w);
}

#if STARTS
#define STARTS_PARAMETER , global long* starts
#define STARTS_PASSED , starts
#else
#define STARTS_PARAMETER
#define STARTS_PASSED
#endif
#if INVERSE
#define INVERSE_PARAMETER , global long* inverse
#define INVERSE_PASSED , inverse
#else
#define INVERSE_PARAMETER
#define INVERSE_PASSED
#endif

/// Writes what LANES elements from the i-th on make, of which some begin runs, as `masks` says, the
/// first of them run `run`. Up to `limit` what is stored too much is written over. How many begin.
static ALWAYS_INLINE uint write_some(const TYPEV(E, LANES) here, const int16 masks, uint i,
                                     uint run, uint limit,
                                     global char* firsts STARTS_PARAMETER INVERSE_PARAMETER) {
  int begins[LANES];
  TYPE(E) found[LANES], kept[LANES];
  vstore16(masks, 0, begins);
  vstore16(here, 0, found);
#if STARTS
  long places[LANES];
#endif
  uint taken = 0;
  _Pragma("unroll") for (uint j = 0; j < LANES; j++) {
    kept[taken] = found[j];
#if STARTS
    places[taken] = i + j;
#endif
    taken -= begins[j];
#if INVERSE
    inverse[i + j] = (long)(run + taken) - 1;
#endif
  }
  if (limit - run >= LANES) {
    const TYPEV(E, LANES) all_kept = vload16(0, kept);
    STOREV(E, LANES, firsts + (ulong)run * STORAGE_SIZE(E), 0, all_kept);
#if STARTS
    vstore16(vload16(0, places), 0, starts + run);
#endif
  } else {
    for (uint j = 0; j < taken; j++) {
      STORE(E, firsts, run + j, kept[j]);
#if STARTS
      starts[run + j] = places[j];
#endif
    }
  }
  return taken;
}

/// firsts: the first element of each run; starts (if wanted): where it begins, and n after the
/// last; inverse (if wanted): the run of each element. counts: of the runs that begin before each
/// chunk, and of all.
kernel ITEM_BY_ITEM void consecutive_write(global const char* values, ulong values_offset,
                                           global const char* counts_base, ulong counts_offset,
                                           global char* firsts, ulong firsts_offset,
                                           global char* starts_base, ulong starts_offset,
                                           global char* inverse_base, ulong inverse_offset, uint n,
                                           uint chunk) {
  const ulong first = (ulong)get_global_id(0) * chunk;
  if (first >= n) return;
  values += values_offset;
  firsts += firsts_offset;
#if STARTS
  global long* starts = (global long*)(starts_base + starts_offset);
#endif
#if INVERSE
  global long* inverse = (global long*)(inverse_base + inverse_offset);
#endif
  global const uint* counts = (global const uint*)(counts_base + counts_offset) + get_global_id(0);
  uint run = counts[0];
  // Where the runs of the next chunk go: up to there what is stored too much is written over.
  const uint limit = counts[1];
  const uint end = (uint)min(first + chunk, (ulong)n);
  for (uint i = (uint)first; i < end;) {
    if (i == 0 || end - i < LANES) {
      const TYPE(E) here = LOAD(E, AT(i), 0);
      bool begins = i == 0;
      if (i > 0) {
        const TYPE(E) before = LOAD(E, AT(i - 1), 0);
        begins = here != before;
      }
      if (begins) {
        STORE(E, firsts, run, here);
#if STARTS
        starts[run] = i;
#endif
        run++;
      }
#if INVERSE
      inverse[i] = run - 1;
#endif
      i++;
      continue;
    }
    const TYPEV(E, LANES) here = LOADV(E, LANES, AT(i), 0);
    const int16 masks = BEGIN_MASKS(here, i);
    if (all(masks)) {
      STOREV(E, LANES, firsts + (ulong)run * STORAGE_SIZE(E), 0, here);
#if STARTS || INVERSE
      const long16 lanes = (long16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#endif
#if STARTS
      vstore16(lanes + (long16)((long)i), 0, starts + run);
#endif
#if INVERSE
      vstore16(lanes + (long16)((long)run), 0, inverse + i);
#endif
      run += LANES;
    } else if (any(masks)) {
      run += write_some(here, masks, i, run, limit, firsts STARTS_PASSED INVERSE_PASSED);
    } else {
#if INVERSE
      vstore16((long16)((long)run - 1), 0, inverse + i);
#endif
    }
    i += LANES;
  }
#if STARTS
  if (end == n) starts[run] = n;
#endif
}
