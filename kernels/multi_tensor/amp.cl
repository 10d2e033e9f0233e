// Gradient scaling of mixed precision training.
//
// unscale_tensors, over lists of gradients: multiplied by *inv_scale; *found_inf = 1 if one is
// infinite or NaN. update_scale: the scale grows after enough steps without that, and shrinks at
// once.
#include "include/item_by_item.clh"
#include "multi_tensor/tensors.clh"

#define ANY_1(flags) (flags)
#define ANY_2(flags) any(flags)
#define ANY_4(flags) any(flags)
#define ANY_8(flags) any(flags)
#define ANY_16(flags) any(flags)
#define ANY(width, flags) PASTE2(ANY_, width)(flags)

// The difference with itself is 0 but for infinities and NaNs.
#define UNSCALE_STEP(width, i)                              \
  const TYPEV(C, width) g = LOADV_AS(C, E, width, grad, i); \
  found |= ANY(width, g - g != 0);                          \
  const TYPEV(C, width) unscaled = g * factor;              \
  STOREV_FROM(E, C, width, grad, i, unscaled)

kernel ITEM_BY_ITEM void unscale_tensors(TENSORS_PARAMETERS, global char* found_inf,
                                         ulong found_inf_offset, global const char* inv_scale,
                                         ulong inv_scale_offset) {
  FIND_CHUNK();
  global char* grad = PLACE(0);
  const TYPE(C) factor = *(global const float*)(inv_scale + inv_scale_offset);
  bool found = false;
  FOR_EACH_VECTOR(UNSCALE_STEP);
  // Several work-items may say so at once.
  if (found) atomic_xchg((volatile global float*)(found_inf + found_inf_offset), 1.0f);
}

kernel ITEM_BY_ITEM void update_scale(global char* scale_base, ulong scale_offset,
                                      global char* tracker_base, ulong tracker_offset,
                                      global const char* found_inf, ulong found_inf_offset,
                                      float growth, float backoff, int interval) {
  if (get_global_id(0) > 0) return;
  global float* scale = (global float*)(scale_base + scale_offset);
  global int* tracker = (global int*)(tracker_base + tracker_offset);
  if (*(global const float*)(found_inf + found_inf_offset) != 0) {
    *scale *= backoff;
    *tracker = 0;
    return;
  }
  const int successful = *tracker + 1;
  if (successful == interval) {
    // It does not grow past what a float holds.
    const float grown = *scale * growth;
    if (isfinite(grown)) *scale = grown;
    *tracker = 0;
  } else {
    *tracker = successful;
  }
}
