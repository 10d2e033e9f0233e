// Attention whose keys were split among work-items or work-groups: what they left of a row becomes
// its result.
//
// Compile parameters: those of splits.clh.
#include "include/item_by_item.clh"
#include "attention/vectors.clh"
#include "attention/splits.clh"

/// Global size: rows, batch * heads of key, VV. Buffers: query, key, value, mask, out, lse,
/// workspace, as attention_decode has them.
kernel ITEM_BY_ITEM void attention_combine(
    global const char* query, const ulong query_offset, global const char* key,
    const ulong key_offset, global const char* value, const ulong value_offset,
    global const char* mask, const ulong mask_offset, global char* out, const ulong out_offset,
    global char* lse, const ulong lse_offset, global char* workspace, const ulong workspace_offset,
    const Arguments p, const T factor, const T keep_threshold, const T keep_scale) {
  const uint row = get_global_id(0), z = get_global_id(1), v = get_global_id(2);
  const uint key_heads = p.heads / p.group, b = z / key_heads;
  const uint h = z % key_heads * p.group + row / p.queries, q = row % p.queries;
  lse = OPERAND(lse);
  global const T* const states = (global const T*)OPERAND(workspace) +
                                 ((ulong)z * get_global_size(0) + row) * p.splits * STATE;
  T maximum = -INFINITY;
  for (uint s = 0; s < p.splits; s++) {
    const T x = states[s * STATE];
    maximum = x > maximum ? x : maximum;
  }
  const T base = FINITE(T, maximum);
  T total = 0;
  V sum = (V)(0);
  for (uint s = 0; s < p.splits; s++) {
    global const T* const state = states + s * STATE;
    const T weight = EXP2(state[0] - base);
    total = fma(weight, state[1], total);
    sum = fma((V)(weight), VECTOR_NAME(vload)(v, state + 2), sum);
  }
  if (v == 0) STORE_LOGARITHM(h, q, maximum, total);
  global char* const to = OPERAND(out) + HEAD_AT(out, IN, b, h) + q * p.out.row * STORAGE_SIZE(IN);
  store_lanes(to, p.out.column, v * WIDTH, p.columns, sum * (V)(SHRINK(total)));
}
