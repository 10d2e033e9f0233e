// Pointwise over operands of any strides: one element per work-item. Global size: n or more.
#include "pointwise/operands.clh"
#include "include/indexing.clh"
#include "pointwise/arguments.clh"

#define LOAD_ONE(k, name, tag) const T a##k = LOAD_AS(C, tag, name + at[BUFFER_OF_IN(k)], 0);
#define STORE_ONE(k, name, tag) STORE_FROM(tag, C, name + at[k], 0, r##k);

#define T TYPE(C)
#define T_SUFFIX
kernel void pointwise_strided(PARAMETERS(const Arguments arguments)) {
  const size_t i = get_global_id(0);
  if (i >= arguments.n) return;
  uint at[NOPS] = {0};
  DECODE_OFFSETS(at, NOPS, (uint)i, arguments.dims, arguments.size, arguments.stride);
  ADD_OFFSETS()
  LOAD_INS(LOAD_ONE)
  FOR_OUTS(DECLARE_RESULT)
  APPLY();
  FOR_OUTS(STORE_ONE)
}
