// A step of Fourier transforms: many lines of `length` elements, transformed in scratch memory.
//
// A transform of n = before * length * after elements takes a step for each length; each is a pass
// of Stockham's algorithm with that radix: for each t < before * after a line of the elements t, t
// + before * after, ..., whose results go to (t - k) length + k + {0, before, 2 before, ...} with
// k = t mod before. One step is all for a short n. A work-group (on CPUs a work-item) transforms
// `lanes` lines at a time. Loading and storing also do what belongs around the transform: real and
// Hermitian data, Bluestein's chirp, twiddle factors between steps, the scale.
//
// Compile parameters: R (f32, f64), WIDTH (lines in a vector; 1: the work-items of a group share
// the work).
#include "include/item_by_item.clh"
#include "include/dtype.clh"

#ifndef R
#define R f32
#endif
#ifndef WIDTH
#define WIDTH 1
#endif

#define REAL TYPE(R)
#define COMPLEX TYPEV(R, 2)
#define V TYPEV(R, WIDTH)
#define REAL_SIZE STORAGE_SIZE(R)
#if WIDTH > 1
#define SCRATCH_SPACE global
#define GROUP_SIZE 1
#define ITEM 0
#define SYNCHRONIZE()
#else
#define SCRATCH_SPACE local
#define GROUP_SIZE get_local_size(0)
#define ITEM get_local_id(0)
#define SYNCHRONIZE() barrier(CLK_LOCAL_MEM_FENCE)
#endif
#define MAX_LANES 64
#define BLOCK 16

#include "fft/line.clh"
#include "fft/butterflies.clh"
#include "fft/halves.clh"
#include "fft/squares.clh"

// Runs body for each element e, first <= e < count, of each lane, shared among the work-items;
// first is 0 on GPUs. A CPU goes through a lane's elements in blocks, so that the rows of the lanes
// stay in the nearest cache.
#if WIDTH > 1
#define FOR_ELEMENTS(first, count, along)                     \
  for (uint block = (first); block < (count); block += BLOCK) \
    for (uint lane = 0; lane < valid; lane++)                 \
      for (uint e = block; e < min(block + BLOCK, (uint)(count)); e++)
#else
#define FOR_ELEMENTS(first, count, along)                             \
  for (uint i = item; i < (count) * valid; i += items)                \
    for (uint lane = (along) ? i / (count) : i % valid,               \
              e = (along) ? i - lane * (count) : i / valid, once = 1; \
         once; once = 0)
#endif

kernel ITEM_BY_ITEM void fft_lines(global const char* in_base, ulong in_offset,
                                   global char* out_base, ulong out_offset,
                                   global const char* twiddle_base, ulong twiddle_offset,
                                   global const char* cross_base, ulong cross_offset,
                                   global const char* chirp_base, ulong chirp_offset,
                                   global const char* factor_base, ulong factor_offset,
#if WIDTH > 1
                                   global char* scratch_base, ulong scratch_offset,
#else
                                   local REAL* scratch_base,
#endif
                                   const REAL scale, const Arguments arguments) {
  local long in_line[MAX_LANES], out_line[MAX_LANES];  // where the lanes' signals begin
  local uint in_index[MAX_LANES], out_index[MAX_LANES], turn[MAX_LANES];
  const uint item = ITEM, items = GROUP_SIZE;
  const size_t buffer_size =
      (size_t)max(arguments.length, max(arguments.load_rows, arguments.store_rows)) * 2 *
      arguments.pitch;
#if WIDTH > 1
  SCRATCH_SPACE REAL* const scratch =
      (SCRATCH_SPACE REAL*)(scratch_base + scratch_offset) + get_group_id(0) * 2 * buffer_size;
#else
  SCRATCH_SPACE REAL* const scratch = scratch_base;
#endif
  global const char* const in = in_base + in_offset;
  global char* const out = out_base + out_offset;
  global const char* const cross = cross_base + cross_offset;
  global const char* const chirp = chirp_base + chirp_offset;
  global const char* const factors = factor_base + factor_offset;
  const uint spread = arguments.before * arguments.after;
  const bool twiddled = arguments.before > 1 && arguments.passes > 0;

  for (uint tile = get_group_id(0); tile < arguments.tiles; tile += get_num_groups(0)) {
    const uint first_line = tile * arguments.lanes;
    const uint valid = min(arguments.lanes, arguments.lines - first_line);
    SYNCHRONIZE();  // the last tile's stores read these arrays and the scratch memory
    for (uint lane = item; lane < arguments.lanes; lane += items) {
      const uint line = first_line + min(lane, valid - 1);
      uint rest = line / spread;
      const uint t = line - rest * spread, k = t % arguments.before;
      in_index[lane] = t;
      out_index[lane] = (t - k) * arguments.length + k;
      turn[lane] = k;
      long in_at = 0, out_at = 0;
      for (uint d = 0; d < arguments.dims; d++) {
        const uint quotient = rest / arguments.size[d],
                   coordinate = rest - quotient * arguments.size[d];
        in_at += coordinate * arguments.in_stride[d];
        out_at += coordinate * arguments.out_stride[d];
        rest = quotient;
      }
      in_line[lane] = in_at;
      out_line[lane] = out_at;
    }
    SYNCHRONIZE();

    SCRATCH_SPACE REAL* src = scratch;
    SCRATCH_SPACE REAL* dst = scratch + buffer_size;
    uint loaded = 0;
#if WIDTH > 1
    const long in_size = arguments.load == kLoadReal ? REAL_SIZE : 2 * REAL_SIZE;
    if (arguments.load > kLoadReal || (arguments.flags & kChirpIn)) {
      // Element by element.
    } else if ((!twiddled || arguments.before % WIDTH == 0) &&
               side_by_side(in_line, in_index, arguments.in_element, in_size)) {
      loaded = arguments.load_rows;
      global const char* p = in + in_line[0] + in_index[0] * arguments.in_element;
      const uint columns = (arguments.before + kFineRoots - 1) / kFineRoots;
      for (uint e = 0; e < arguments.load_rows; e++, p += spread * arguments.in_element) {
        V re, im;
        if (arguments.load == kLoadReal) {
          re = PASTE2(vload, WIDTH)(0, (global const REAL*)p);
          im = 0;
        } else {
          load_vectors((global const REAL*)p, &re, &im);
        }
        if (arguments.flags & kSwapIn) {
          const V real_part = re;
          re = im, im = real_part;
        }
        if (twiddled && e > 0) {
          const uint k = turn[0];
          const COMPLEX coarse = table_entry(cross, (size_t)e * columns + k / kFineRoots);
          V fr, fi;
          load_vectors((global const REAL*)cross + 2 * ((size_t)arguments.length * columns +
                                                        e * kFineRoots + k % kFineRoots),
                       &fr, &fi);
          const V wr = fr * coarse.x - fi * coarse.y, wi = fr * coarse.y + fi * coarse.x;
          const V real_part = re;
          re = real_part * wr - im * wi;
          im = real_part * wi + im * wr;
        }
        SCRATCH_SPACE REAL* row = src + (size_t)e * 2 * WIDTH;
        WRITE_V(row, re);
        WRITE_V(row + WIDTH, im);
      }
    } else if (spread == 1 && arguments.in_element == in_size) {
      loaded = load_squares(in, in_line, arguments.load_rows, arguments.load == kLoadReal,
                            arguments.flags & kSwapIn, src);
    }
#endif
    if (loaded < arguments.load_rows) {
      FOR_ELEMENTS(loaded, arguments.load_rows, arguments.flags & kAlongIn) {
        COMPLEX v = load_element(in + in_line[lane], in_index[lane] + e * spread, arguments.load,
                                 arguments.flags, arguments.whole, arguments.chirped,
                                 arguments.in_element, chirp, factors);
        if (twiddled) {
          v = multiply(v, cross_root(cross, arguments.length, arguments.before, e, turn[lane]));
        }
        SCRATCH_SPACE REAL* row = src + (size_t)e * 2 * arguments.pitch + lane;
        row[0] = v.x;
        row[arguments.pitch] = v.y;
      }
    }

    global const REAL* twiddles = (global const REAL*)(twiddle_base + twiddle_offset);
    Pass pass;
    pass.before = 1, pass.lanes = arguments.lanes, pass.pitch = arguments.pitch;
    pass.item = item, pass.items = items;
    if (arguments.flags & kPack) {
      pass.count = arguments.length;
      SYNCHRONIZE();
      pack_rows(src, dst, (global const REAL*)factors, pass);
      SCRATCH_SPACE REAL* const swap = src;
      src = dst, dst = swap;
    }
    for (uint p = 0; p < arguments.passes; p++) {
      const uint radix = arguments.radix[p];
      pass.count = arguments.length / radix;
      SYNCHRONIZE();
      switch (radix) {
        case 2:
          pass_2(src, dst, twiddles, pass);
          break;
        case 3:
          pass_3(src, dst, twiddles, pass);
          break;
        case 4:
          pass_4(src, dst, twiddles, pass);
          break;
        case 5:
          pass_5(src, dst, twiddles, pass);
          break;
        case 8:
          pass_8(src, dst, twiddles, pass);
          break;
        default:
          pass_odd(src, dst, twiddles, twiddles + 2 * radix, radix, pass);
          twiddles += 2 * radix;
      }
      if (p > 0) twiddles += 2 * pass.before * (radix - 1);
      pass.before *= radix;
      SCRATCH_SPACE REAL* const swap = src;
      src = dst, dst = swap;
    }
    SYNCHRONIZE();
    if (arguments.flags & kUnpack) {
      unpack_rows(src, dst, (global const REAL*)factors, arguments.store_rows, arguments.length,
                  pass);
      src = dst;
      SYNCHRONIZE();
    }

    uint stored = 0;
#if WIDTH > 1
    const long out_size = arguments.store == kStoreReal ? REAL_SIZE : 2 * REAL_SIZE;
    if (arguments.store > kStoreReal || (arguments.flags & kChirpOut) ||
        arguments.limit != UINT_MAX) {
      // Element by element.
    } else if (valid == WIDTH &&
               side_by_side(out_line, out_index, arguments.out_element, out_size)) {
      stored = arguments.store_rows;
      global char* p = out + out_line[0] + out_index[0] * arguments.out_element;
      for (uint e = 0; e < arguments.store_rows;
           e++, p += arguments.before * arguments.out_element) {
        SCRATCH_SPACE const REAL* row = src + (size_t)e * 2 * WIDTH;
        V re = READ_V(row) * scale, im = READ_V(row + WIDTH) * scale;
        if (arguments.flags & kSwapOut) {
          const V real_part = re;
          re = im, im = real_part;
        }
        if (arguments.store == kStoreReal) {
          PASTE2(vstore, WIDTH)(re, 0, (global REAL*)p);
        } else {
          store_vectors(re, im, (global REAL*)p);
        }
      }
    } else if (arguments.before == 1 && arguments.out_element == out_size) {
      stored = store_squares(src, out, out_line, out_index, valid, arguments.store_rows,
                             arguments.store == kStoreReal, arguments.flags & kSwapOut, scale);
    }
#endif
    if (stored < arguments.store_rows) {
      FOR_ELEMENTS(stored, arguments.store_rows, arguments.flags & kAlongOut) {
        SCRATCH_SPACE const REAL* row = src + (size_t)e * 2 * arguments.pitch + lane;
        store_element(out + out_line[lane], out_index[lane] + e * arguments.before,
                      (COMPLEX)(row[0], row[arguments.pitch]), arguments.store, arguments.flags,
                      arguments.limit, arguments.out_element, chirp, scale);
      }
    }
  }
}
