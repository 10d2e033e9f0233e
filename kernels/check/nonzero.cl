// _assert_async: an element that must not be zero.
//
// Compile parameters: IN (tag).
#ifndef IN
#define IN b8
#endif
#include "include/dtype.clh"
#include "include/assert.clh"

kernel void check_nonzero(global const char* in, ulong in_offset, global int* asserts, uint site) {
  if (get_global_id(0) != 0) return;
  if (!LOAD_AS(b8, IN, in + in_offset, 0)) record_failure(0, 0, asserts, site);
}
