// Copies lines (rows or columns) of a matrix so that each is contiguous. TAG: an unsigned tag,
// because only bits move.
#ifndef TAG
#define TAG u32
#endif

#include "include/dtype.clh"

/// out[z][line][i] = in[z * batch_stride + line * line_stride + i * stride], in elements.
/// Global size: length, lines, batch, or more.
kernel void gemm_gather(global const char *in, ulong in_offset, global char *out, ulong out_offset,
                        const ulong stride, const ulong line_stride, const ulong batch_stride,
                        const uint length, const uint lines) {
  const ulong i = get_global_id(0), line = get_global_id(1), z = get_global_id(2);
  if (i >= length || line >= lines) return;
  const ulong from = z * batch_stride + line * line_stride + i * stride;
  const TYPE(TAG) bits = LOAD(TAG, in + in_offset, from);
  STORE(TAG, out + out_offset, (z * lines + line) * length + i, bits);
}
