// Copies lines (rows or columns) of a matrix so that each is contiguous. TAG: an unsigned tag,
// because only bits move.
#ifndef TAG
#define TAG u32
#endif

#include "include/dtype.clh"

/// out[z][line][i] = in[z * batch_stride + line * line_stride + i * stride], in elements;
/// out[z][line] begins at (z * lines + line) * pitch.
/// Global size: length * lines, batch, or more.
kernel void gemm_copy_lines(global const char* in, ulong in_offset, global char* out,
                            ulong out_offset, const ulong stride, const ulong line_stride,
                            const ulong batch_stride, const uint length, const uint lines,
                            const ulong pitch) {
  const ulong i = get_global_id(0) % length, line = get_global_id(0) / length, z = get_global_id(1);
  if (line >= lines) return;
  const ulong from = z * batch_stride + line * line_stride + i * stride;
  const TYPE(TAG) bits = LOAD(TAG, in + in_offset, from);
  STORE(TAG, out + out_offset, (z * lines + line) * pitch + i, bits);
}
