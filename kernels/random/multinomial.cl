// Samples with replacement from rows of cumulative weights, and without it from rows of weights and
// exponential variables.
//
// Compile parameters: V (f32 or f64, the tag of the cumulative weights, contiguous), IN (tag of the
// weights); of multinomial_race also ONE (1: one sample) and GROUP (work-items that share a row, a
// work-group if above 1). Failed checks are recorded for `site`.
#include "include/dtype.clh"
#include "include/item_by_item.clh"
#include "include/philox.clh"
#include "include/assert.clh"

#ifndef V
#define V f32
#endif
#ifndef IN
#define IN f32
#endif
#ifndef ONE
#define ONE 1
#endif
#ifndef GROUP
#define GROUP 1
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

/// out: with ONE long[rows], the category of the largest weight divided by its variable, the first
/// of equal ones; otherwise these quotients, which may take the variables' place. A row with a
/// weight that is negative, infinite or NaN fails, and so does one whose weights add up to 0. A
/// work-item, or a work-group of GROUP, per row.
kernel ITEM_BY_ITEM void multinomial_race(global const char* weights, ulong weights_offset,
                                          global const char* times, ulong times_offset,
                                          global char* out, ulong out_offset, ulong rows,
                                          uint categories, global int* asserts, uint invalid_site,
                                          uint no_weight_site) {
  const ulong row = get_global_id(0) / GROUP;
  const uint item = GROUP > 1 ? (uint)get_local_id(0) : 0;
  if (row >= rows) return;
  weights += weights_offset + row * categories * STORAGE_SIZE(IN);
  times += times_offset + row * categories * STORAGE_SIZE(IN);
  out += out_offset;
  TYPE(V) best = -1, sum = 0;
  uint place = 0;
  bool valid = true;
  for (uint i = item; i < categories; i += GROUP) {
    const TYPE(V) weight = LOAD_AS(V, IN, weights, i);
    const TYPE(V) quotient = weight / LOAD_AS(V, IN, times, i);
    valid = valid && weight >= 0 && weight < INFINITY;
    sum += weight;
#if ONE
    if (quotient > best) {
      best = quotient;
      place = i;
    }
#else
    STORE_FROM(IN, V, out, row * categories + i, quotient);
#endif
  }
#if GROUP > 1
  local TYPE(V) sums[GROUP], bests[GROUP];
  local uint places[GROUP], valids[GROUP];
  sums[item] = sum;
  bests[item] = best;
  places[item] = place;
  valids[item] = valid;
  for (uint n = GROUP / 2; n > 0; n /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item >= n) continue;
    sums[item] += sums[item + n];
    valids[item] &= valids[item + n];
    const TYPE(V) other = bests[item + n];
    const bool further =
        other > bests[item] || (other == bests[item] && places[item + n] < places[item]);
    bests[item] = further ? other : bests[item];
    places[item] = further ? places[item + n] : places[item];
  }
  if (item != 0) return;
  sum = sums[0];
  place = places[0];
  valid = valids[0] != 0;
#endif
  if (!valid) {
    record_failure(0, 0, asserts, invalid_site);
  } else if (sum == 0) {
    record_failure(0, 0, asserts, no_weight_site);
  }
#if ONE
  ((global long*)out)[row] = place;
#endif
}
