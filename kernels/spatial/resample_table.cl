// The weights of resampling along one axis, as a table that whole images are then resampled with.
//
// An output o of the axis takes the inputs from begin[o] on, with the weights weight[o][0 ..
// count[o]). In memory the weights come first, then begin, then count.
//
// Compile parameters: ACC (the tag of the weights), FILTER (0 linear, 1 cubic, 2 Lanczos with three
// lobes), ANTIALIAS (filters grow with the scale), GROUP (of fixed_table).
#ifndef FILTER
#define FILTER 0
#endif
#ifndef ANTIALIAS
#define ANTIALIAS 0
#endif
#ifndef GROUP
#define GROUP 64
#endif
#include "spatial/filters.clh"
#include "spatial/resample_arguments.clh"

#define WEIGHTS(table) ((global SCALAR*)(table))
#define BEGINS(table) ((global int*)((table) + (ulong)args.outputs * args.taps * sizeof(SCALAR)))
#define COUNTS(table) (BEGINS(table) + args.outputs)

static inline SCALAR sinc(SCALAR x) {
  // pi as a sum of floats: a double literal needs cl_khr_fp64 in some compilers.
  const SCALAR y = x * ((SCALAR)M_PI_F + (SCALAR)-8.742278e-8f);
  return x == 0 ? (SCALAR)1 : sin(y) / y;
}

static inline SCALAR filter(SCALAR x) {
  x = fabs(x);
#if FILTER == 0
  return fmax((SCALAR)1 - x, (SCALAR)0);
#elif FILTER == 1
  const SCALAR a = ANTIALIAS ? (SCALAR)-0.5f : (SCALAR)-0.75f;
  return x < 1 ? cubic_near(x, a) : x < 2 ? cubic_far(x, a) : (SCALAR)0;
#else
  return x < 3 ? sinc(x) * sinc(x / 3) : (SCALAR)0;
#endif
}

kernel void resample_table(global char* table, const ulong table_offset,
                           const TableArguments args) {
  const uint o = get_global_id(0);
  if (o >= args.outputs) return;
  table += table_offset;
  global SCALAR* weight = WEIGHTS(table) + (ulong)o * args.taps;
  int begin, count;
#if ANTIALIAS
  const SCALAR center = args.scale * ((SCALAR)o + (SCALAR)0.5f);
  const SCALAR shrink = args.scale >= 1 ? 1 / args.scale : (SCALAR)1;
  begin = max((int)(center - args.support + (SCALAR)0.5f), 0);
  count = min((int)(center + args.support + (SCALAR)0.5f), (int)args.size) - begin;
  count = clamp(count, 0, (int)args.taps);
  SCALAR total = 0;
  for (int j = 0; j < count; j++) {
    weight[j] = filter(((SCALAR)(j + begin) - center + (SCALAR)0.5f) * shrink);
    total += weight[j];
  }
  if (total != 0) {
    for (int j = 0; j < count; j++) weight[j] /= total;
  }
#else
  // Taps past an edge are added to the edge's.
  const Split at = split(position_of(o, args.scale, args.align, FILTER == 0), args.size);
  const int half_taps = (int)args.taps / 2;
  const int first = at.index - half_taps + 1;
  begin = max(first, 0);
  count = min(at.index + half_taps + 1, (int)args.size) - begin;
  count = clamp(count, 0, (int)args.taps);
  for (int j = 0; j < (int)args.taps; j++) weight[j] = 0;
  for (int j = 0; j < (int)args.taps; j++) {
    const int to = clamp(first + j, 0, (int)args.size - 1) - begin;
    weight[to] += filter((SCALAR)(j + 1 - half_taps) - at.rest);
  }
#endif
  BEGINS(table)[o] = begin;
  COUNTS(table)[o] = count;
}

// Rounds the weights to 16-bit integers, as many bits as the largest of them leaves room for; the
// number of fractional bits goes behind the counts. A single work-group.
kernel void fixed_table(global char* table, const ulong table_offset, const TableArguments args) {
  table += table_offset;
  global SCALAR* weights = WEIGHTS(table);
  const uint item = get_local_id(0);
  local SCALAR largest[GROUP];
  SCALAR own = 0;
  for (uint o = item; o < args.outputs; o += GROUP) {
    for (int j = 0; j < COUNTS(table)[o]; j++) own = fmax(own, weights[(ulong)o * args.taps + j]);
  }
  largest[item] = own;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint n = 0; n < GROUP; n++) own = fmax(own, largest[n]);
  int bits = 0;
  while (bits < 22 && (int)((SCALAR)0.5f + own * (SCALAR)(1 << (bits + 1))) < (1 << 15)) bits++;
  for (uint o = item; o < args.outputs; o += GROUP) {
    for (int j = 0; j < COUNTS(table)[o]; j++) {
      global SCALAR* weight = weights + (ulong)o * args.taps + j;
      const SCALAR scaled = *weight * (SCALAR)(1 << bits);
      *weight = (SCALAR)(int)(scaled + (scaled < 0 ? (SCALAR)-0.5f : (SCALAR)0.5f));
    }
  }
  if (item == 0) COUNTS(table)[args.outputs] = bits;
}
