// Samples with replacement from rows of cumulative weights.
//
// Compile parameters: V (f32 or f64, the tag of the cumulative weights, contiguous), IN (tag of the
// weights). Failed checks are recorded for `site`.
#include "include/dtype.clh"
#include "include/philox.clh"
#include "include/assert.clh"

#ifndef V
#define V f32
#endif
#ifndef IN
#define IN f32
#endif

/// Weights, contiguous, must be finite and not negative. One work-item per weight.
kernel void multinomial_check(global const char* weights, ulong weights_offset, ulong n,
                              global int* asserts, uint negative_site, uint infinite_site) {
  const ulong i = get_global_id(0);
  if (i >= n) return;
  const TYPE(V) weight = LOAD_AS(V, IN, weights + weights_offset, i);
  if (weight < 0) record_failure(0, 0, asserts, negative_site);
  if (!(weight < INFINITY)) record_failure(0, 0, asserts, infinite_site);
}

/// result: long[rows][samples], contiguous. Sample i takes component i % 4 of Philox subsequence i
/// / 4. A row whose weights add up to 0 fails. One work-item per sample.
kernel void multinomial_search(global char* result_base, ulong result_offset,
                               global const char* cumulative_base, ulong cumulative_offset,
                               ulong samples, ulong rows, uint categories, ulong seed, ulong offset,
                               global int* asserts, uint site) {
  const ulong i = get_global_id(0);
  if (i >= samples * rows) return;
  global long* result = (global long*)(result_base + result_offset);
  global const TYPE(V)* cumulative =
      (global const TYPE(V)*)(cumulative_base + cumulative_offset) + i / samples * categories;
  uint word[4];
  vstore4(philox4x32(seed, i / 4, offset), 0, word);
  const TYPE(V) total = cumulative[categories - 1];
  if (!(total > 0)) record_failure(0, 0, asserts, site);
  const TYPE(V) target = (TYPE(V))(word[i & 3] >> 8) * 0x1p-24f * total;
  // The first category whose cumulative weight is above the target: one of weight 0 never is.
  uint low = 0, high = categories - 1;
  while (low < high) {
    const uint middle = (low + high) / 2;
    if (cumulative[middle] > target) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  // Rounding may leave the target at the total: go back to the last category with a weight.
  while (low > 0 && cumulative[low] == cumulative[low - 1]) low--;
  result[i] = low;
}
