// Single precision as three numbers of 8 bits, for products in bfloat16: high, middle and low
// parts, all of a kind together, whose sum is the number. Each is the nearest to what is left:
// then a middle part times a low one is less than half of the last of 24 bits, whatever the numbers
// are, and needn't be multiplied. See Henry, Tang and Heinecke, "Leveraging the bfloat16 artificial
// intelligence datatype for higher-precision computations" (2019), BF16x3.
//
// bfloat16 has the range of single precision, so parts below 9e-41 are rounded to multiples of
// that.
#include "gemm/bfloat16x3_arguments.clh"
#include "include/dtype.clh"

/// The nearest number of 8 bits; what would round to infinity is cut off.
static inline uint nearest(float x) {
  const uint near = encode_bf16(x);
  return (near & 0x7fff) == 0x7f80 ? as_uint(x) >> 16 : near;
}

/// The bits of the three parts. Infinity is a low part: these meet high parts alone, which are 0
/// only if the number is (or below 5e-41), and its own high part is 1, with its sign.
static inline uint3 parts_of(float x) {
  if (isnan(x)) return (uint3)(0x7fc0, 0, 0);
  const uint sign = as_uint(x) >> 16 & 0x8000;
  if (isinf(x)) return (uint3)(sign | 0x3f80, 0, sign | 0x7f80);
  const uint high = nearest(x);
  const float rest = x - as_float(high << 16);
  const uint middle = nearest(rest);
  return (uint3)(high, middle, nearest(rest - as_float(middle << 16)));
}

/// Eight numbers' parts, 16 bytes of each, which lie `distance` bytes apart.
static inline void store_parts(global char* out, ulong distance, const private float* x) {
  uint4 parts[3];
#pragma unroll
  for (uint j = 0; j < 4; j++) {
    const uint3 first = parts_of(x[2 * j]), second = parts_of(x[2 * j + 1]);
    ((private uint*)&parts[0])[j] = first.s0 | second.s0 << 16;
    ((private uint*)&parts[1])[j] = first.s1 | second.s1 << 16;
    ((private uint*)&parts[2])[j] = first.s2 | second.s2 << 16;
  }
#pragma unroll
  for (uint q = 0; q < 3; q++) *(global uint4*)(out + q * distance) = parts[q];
}

/// For each part, out[z * lines + line][i] is that of
/// in[z * batch_stride + line * line_stride + i * stride], and 0 from `length` on. Lines are
/// `pitch` elements apart, a multiple of 8, and parts `distance` bytes.
/// Global size: pitch / 8 * lines * batch, or more.
kernel void gemm_bfloat16x3(global const char* in, ulong in_offset, global char* out,
                            ulong out_offset, const ulong stride, const ulong line_stride,
                            const ulong batch_stride, const uint length, const uint lines,
                            const uint batch, const uint pitch, const ulong distance) {
  const ulong at = get_global_id(0);
  const uint chunks = pitch / 8;
  // 64-bit divisions would take longer than the copy.
  const bool is_short = at <= UINT_MAX;
  const ulong row = is_short ? (uint)at / chunks : at / chunks;
  const uint i = (is_short ? (uint)at % chunks : at % chunks) * 8;
  const ulong z = batch == 1 ? 0 : row / lines, line = row - z * lines;
  if (row >= (ulong)lines * batch) return;
  in += in_offset + (z * batch_stride + line * line_stride + i * stride) * 4;
  float x[8];
  if (stride == 1 && i + 8 <= length && (ulong)in % 16 == 0) {
    *(private float4*)x = *(global const float4*)in;
    *(private float4*)(x + 4) = *(global const float4*)(in + 16);
  } else {
#pragma unroll
    for (uint j = 0; j < 8; j++) x[j] = i + j < length ? LOAD(f32, in, j * stride) : 0.0f;
  }
  store_parts(out + out_offset + (row * pitch + i) * 2, distance, x);
}

/// Splits images whose channels are planes of `positions` elements into parts with channels
/// innermost: for each part, out[image][position][channel], and 0 from `channels` up to
/// `pitch`. Global size: kTurnedItems * tiles of positions * tiles of channels * images.
kernel __attribute__((reqd_work_group_size(kTurnedItems, 1, 1))) void gemm_bfloat16x3_turned(
    global const char* in, ulong in_offset, global char* out, ulong out_offset,
    const uint positions, const uint channels, const uint pitch, const ulong distance) {
  local float tile[kTurnedChannels][kTurnedPositions + 1];
  const uint item = get_local_id(0), group = get_group_id(0);
  const uint across_tiles = (positions - 1) / kTurnedPositions + 1;
  const uint channel_tiles = (pitch - 1) / kTurnedChannels + 1;
  const uint rest = group / across_tiles, image = rest / channel_tiles;
  const uint position0 = group % across_tiles * kTurnedPositions;
  const uint channel0 = rest % channel_tiles * kTurnedChannels;
  in += in_offset + (ulong)image * channels * positions * 4;
  const uint across = item % kTurnedPositions;
#pragma unroll
  for (uint c = item / kTurnedPositions; c < kTurnedChannels;
       c += kTurnedItems / kTurnedPositions) {
    const bool exists = position0 + across < positions && channel0 + c < channels;
    tile[c][across] =
        exists ? LOAD(f32, in, (ulong)(channel0 + c) * positions + position0 + across) : 0.0f;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const uint position = item / (kTurnedChannels / 8), channel = item % (kTurnedChannels / 8) * 8;
  if (position0 + position >= positions || channel0 + channel >= pitch) return;
  float x[8];
#pragma unroll
  for (uint j = 0; j < 8; j++) x[j] = tile[channel + j][position];
  const ulong to = ((ulong)image * positions + position0 + position) * pitch + channel0 + channel;
  store_parts(out + out_offset + to * 2, distance, x);
}
