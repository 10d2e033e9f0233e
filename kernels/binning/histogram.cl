// The bin of each point of a histogram, one dimension at a time.
//
// Compile parameters: IN (tag of points and edges), BINS (i32, i64), SELECT (linear: edges are
// evenly spaced; nearby: as linear, corrected by comparing with the edges next to it; search: any
// increasing edges), FIRST (1: dimension 0).
#ifndef IN
#define IN f32
#endif
#ifndef BINS
#define BINS i64
#endif
#ifndef SELECT
#define SELECT 0
#endif
#ifndef FIRST
#define FIRST 1
#endif
#include "include/dtype.clh"
#include "include/quotient.clh"

#define SELECT_LINEAR 0
#define SELECT_NEARBY 1
#define SELECT_SEARCH 2
#if SELECT == SELECT_LINEAR
#define FOUND bin
#else
#define FOUND (low - 1)
#endif

// CPU torch does this arithmetic in the dtype of the points, which shows in half and bfloat16.
#define ROUNDED(x) PASTE2(ROUND_, IN)(, x)

/// bins[i] = bins[i] * (edge_count - 1) + the bin of point i between the edges, or -1 (and -1
/// stays) for points outside of them and NaNs. The last bin includes its right edge.
kernel void histogram_bins(global const char* points, ulong points_offset, long point_step,
                           global const char* edges, ulong edges_offset, int edge_count,
                           global char* bins_base, ulong bins_offset, ulong n) {
  const ulong i = get_global_id(0);
  if (i >= n) return;
  global TYPE(BINS)* bins = (global TYPE(BINS)*)(bins_base + bins_offset);
  edges += edges_offset;
  const int last = edge_count - 1;
#if FIRST
  const TYPE(BINS) outer = 0;
#else
  const TYPE(BINS) outer = bins[i];
#endif
  const TYPE(IN) x = LOAD(IN, points + points_offset + (long)i * point_step, 0);
  const TYPE(IN) left = LOAD(IN, edges, 0), right = LOAD(IN, edges, last);
  if (outer < 0 || !(x >= left && x <= right)) {
    bins[i] = -1;
    return;
  }
#if SELECT == SELECT_SEARCH
  int low = 0, high = edge_count;
#else
  const TYPE(IN) scaled = ROUNDED(ROUNDED(x - left) * ROUNDED((TYPE(IN))last));
  const int bin = convert_int(ROUNDED(QUOTIENT(IN)(scaled, ROUNDED(right - left))));
#endif
#if SELECT == SELECT_NEARBY
  // A quotient that overflowed says nothing of the bin.
  const bool known = isfinite(scaled);
  int low = known ? max(bin - 1, 0) : 0, high = known ? min(bin + 2, edge_count) : edge_count;
#endif
#if SELECT != SELECT_LINEAR
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (LOAD(IN, edges, middle) > x) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
#endif
  bins[i] = outer * last + (TYPE(BINS))clamp(FOUND, 0, last - 1);
}
