// The factors of attention's dropout, one for each weight, as a matrix: for second derivatives,
// which have one.
//
// Compile parameters: C (tag of the factors).
#ifndef C
#define C f32
#endif
#include "include/dtype.clh"
typedef TYPE(C) T;
#include "attention/dropout.clh"

/// factors: [rows][keys]. Global size: a row's keys or more, rows.
kernel void attention_dropout(global char* factors, const ulong factors_offset, const ulong seed,
                              const ulong counter, const uint keys, const T keep_threshold,
                              const T keep_scale) {
  const uint key = get_global_id(0);
  const ulong row = get_global_id(1);
  if (key >= keys) return;
  STORE(C, factors + factors_offset, row * keys + key,
        keep_weight(seed, counter, row, key, keep_threshold, keep_scale));
}
