// Copies lines (rows or columns) of a matrix so that each is contiguous. TAG: an unsigned tag,
// because only bits move. WIDTH: elements of a work-item, whose copies are aligned to a vector.
#ifndef TAG
#define TAG u32
#endif
#ifndef WIDTH
#define WIDTH 1
#endif

#include "include/dtype.clh"

/// out[z][line][i] = in[z * batch_stride + line * line_stride + i * stride], in elements;
/// out[z][line] begins at (z * lines + line) * pitch.
/// Global size: (length / WIDTH, rounded up) * lines, batch, or more.
kernel void gemm_copy_lines(global const char* in, ulong in_offset, global char* out,
                            ulong out_offset, const ulong stride, const ulong line_stride,
                            const ulong batch_stride, const uint length, const uint lines,
                            const ulong pitch) {
  const ulong at = get_global_id(0), z = get_global_id(1);
  const uint chunks = (length - 1) / WIDTH + 1;
  // 64-bit divisions would take longer than the copy.
  const bool is_short = at <= UINT_MAX;
  const ulong line = is_short ? (uint)at / chunks : at / chunks;
  const ulong i = (is_short ? (uint)at % chunks : at % chunks) * WIDTH;
  if (line >= lines) return;
  const ulong from = z * batch_stride + line * line_stride + i * stride;
  const ulong to = (z * lines + line) * pitch + i;
  in += in_offset;
  out += out_offset;
#if WIDTH > 1
  if (i + WIDTH <= length) {
    *(global TYPEV(TAG, WIDTH)*)(out + to * STORAGE_SIZE(TAG)) =
        LOADV(TAG, WIDTH, in + from * STORAGE_SIZE(TAG), 0);
    return;
  }
  for (uint j = 0; i + j < length; j++) STORE(TAG, out, to + j, LOAD(TAG, in, from + j));
#else
  STORE(TAG, out, to, LOAD(TAG, in, from));
#endif
}
