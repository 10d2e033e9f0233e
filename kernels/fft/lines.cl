// A step of Fourier transforms: many lines of `length` elements, transformed in scratch memory.
//
// A transform of n = before * length * after elements takes a step for each length; each is a pass of
// Stockham's algorithm with that radix: for each t < before * after a line of the elements t,
// t + before * after, ..., whose results go to (t - k) length + k + {0, before, 2 before, ...} with
// k = t mod before. One step is all for a short n. A work-group (on CPUs a work-item) transforms
// `lanes` lines at a time. Loading and storing also do what belongs around the transform: real and
// Hermitian data, Bluestein's chirp, twiddle factors between steps, the scale.
//
// Compile parameters: R (f32, f64), WIDTH (lines in a vector; 1: the items of a group share the work).
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
#define SCRATCH global
#define GROUP_SIZE 1
#define ITEM 0
#define SYNCHRONIZE()
#else
#define SCRATCH local
#define GROUP_SIZE get_local_size(0)
#define ITEM get_local_id(0)
#define SYNCHRONIZE() barrier(CLK_LOCAL_MEM_FENCE)
#endif
#define MAX_LANES 64
#define MAX_DIMS 16
#define MAX_PASSES 16
#define BLOCK 16
// Columns of the finer table of twiddle factors between steps.
#define FINE_ROOTS 16

#include "fft/butterflies.clh"

// What a line holds in memory; numbered as on the host.
#define LOAD_COMPLEX 0
#define LOAD_REAL 1
#define LOAD_PAIRS 2            // reals 2i, 2i + 1 are an element
#define LOAD_HERMITIAN 3        // the first half of an odd number of elements
#define LOAD_HERMITIAN_PAIRS 4  // the same of an even number, made into what gives pairs of reals
#define LOAD_PRODUCT 5          // times an element of the factors
#define LOAD_UNPACKED 6         // the transform of pairs of reals, made into that of the reals
#define STORE_COMPLEX 0
#define STORE_REAL 1
#define STORE_PAIRS 2
#define STORE_UNPACKED 3

#define FLAG_SWAP_IN 1    // exchange real and imaginary parts: a backward transform is a forward one
#define FLAG_SWAP_OUT 2   // between exchanges
#define FLAG_CHIRP_IN 4   // times the chirp, 0 past it
#define FLAG_CHIRP_OUT 8  // exchange, then times the chirp
#define FLAG_ALONG_IN 16   // neighbours in memory: along a line, not across lines
#define FLAG_ALONG_OUT 32

typedef struct {
  long in_stride[MAX_DIMS], out_stride[MAX_DIMS];  // bytes, of batch dimensions
  long in_element, out_element;                    // bytes, from element to element
  uint size[MAX_DIMS];
  uint dims, lines, tiles, lanes, pitch;
  uint before, length, after;
  uint whole;     // elements of the whole signal: reals if it is real
  uint chirped;   // elements that the chirp covers
  uint limit;     // stored elements per signal
  uint load, store, flags, passes;
  uchar radix[MAX_PASSES];
} FftArgs;

static inline COMPLEX multiply(COMPLEX a, COMPLEX b) {
  return (COMPLEX)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
static inline COMPLEX conjugate(COMPLEX a) { return (COMPLEX)(a.x, -a.y); }
static inline COMPLEX load_complex(global const char* p) { return vload2(0, (global const REAL*)p); }
static inline COMPLEX table_entry(global const char* table, size_t i) {
  return vload2(i, (global const REAL*)table);
}

/// Element k of the transform of n reals, from elements k and n/2 - k (z, y) of that of their pairs.
static inline COMPLEX unpack(COMPLEX z, COMPLEX y, COMPLEX root) {
  y = conjugate(y);
  const COMPLEX even = (z + y) * (REAL)0.5f, difference = (z - y) * (REAL)0.5f;
  return even + multiply((COMPLEX)(difference.y, -difference.x), root);
}

/// Element i of a line that begins at `line`.
static inline COMPLEX load_element(global const char* line, uint i, uint load, uint flags, uint whole,
                                   uint chirped, long step, global const char* chirp,
                                   global const char* factors) {
  if ((flags & FLAG_CHIRP_IN) && i >= chirped) return (COMPLEX)(0, 0);
  COMPLEX v;
  switch (load) {
    case LOAD_REAL:
      v = (COMPLEX)(*(global const REAL*)(line + i * step), 0);
      break;
    case LOAD_PAIRS:
      v = (COMPLEX)(*(global const REAL*)(line + 2 * i * step),
                    *(global const REAL*)(line + (2 * i + 1) * step));
      break;
    case LOAD_HERMITIAN:
      v = i <= whole / 2 ? load_complex(line + i * step)
                         : conjugate(load_complex(line + (whole - i) * step));
      if (i == 0) v.y = 0;
      break;
    case LOAD_HERMITIAN_PAIRS: {
      COMPLEX a = load_complex(line + i * step);
      COMPLEX b = conjugate(load_complex(line + (whole / 2 - i) * step));
      if (i == 0) a.y = b.y = 0;
      const COMPLEX odd = multiply(a - b, conjugate(table_entry(factors, i)));
      v = a + b + (COMPLEX)(-odd.y, odd.x);
      break;
    }
    case LOAD_PRODUCT:
      v = multiply(load_complex(line + i * step), table_entry(factors, i));
      break;
    case LOAD_UNPACKED: {
      if (i >= whole) return (COMPLEX)(0, 0);
      const uint half_length = whole / 2;
      const uint k = i <= half_length ? i : whole - i;
      const COMPLEX z = load_complex(line + (k == half_length ? 0 : k) * step);
      const COMPLEX y = load_complex(line + (k == 0 ? 0 : half_length - k) * step);
      v = unpack(z, y, table_entry(factors, k));
      if (i > half_length) v.y = -v.y;
      break;
    }
    default:
      v = load_complex(line + i * step);
  }
  if (flags & FLAG_SWAP_IN) v = v.yx;
  if (flags & FLAG_CHIRP_IN) v = multiply(v, table_entry(chirp, i));
  return v;
}

/// The twiddle factor of element e on a line with this k.
static inline COMPLEX cross_root(global const char* cross, uint length, uint before, uint e, uint k) {
  const uint columns = (before + FINE_ROOTS - 1) / FINE_ROOTS;
  const COMPLEX coarse = table_entry(cross, (size_t)e * columns + k / FINE_ROOTS);
  const COMPLEX fine = table_entry(cross, (size_t)length * columns + e * FINE_ROOTS + k % FINE_ROOTS);
  return multiply(coarse, fine);
}

/// Stores v, element i of the transform, unless it is past what is wanted.
static inline void store_element(global char* line, uint i, COMPLEX v, uint store, uint flags,
                                 uint limit, long step, global const char* chirp, REAL scale) {
  if (i >= limit) return;
  // What the chirp goes on was transformed backward.
  if (flags & FLAG_CHIRP_OUT) v = multiply(v.yx, table_entry(chirp, i));
  if (flags & FLAG_SWAP_OUT) v = v.yx;
  v *= scale;
  if (store == STORE_REAL) {
    *(global REAL*)(line + i * step) = v.x;
  } else if (store == STORE_PAIRS) {
    *(global REAL*)(line + 2 * i * step) = v.x;
    *(global REAL*)(line + (2 * i + 1) * step) = v.y;
  } else {
    vstore2(v, 0, (global REAL*)(line + i * step));
  }
}

#if WIDTH > 1
/// Whether the lanes' elements are neighbours in memory.
static inline bool side_by_side(local const long* base, local const uint* index, long step, long size) {
  const long first = base[0] + index[0] * step;
  bool regular = true;
  for (uint i = 1; i < WIDTH; i++) regular &= base[i] + index[i] * step == first + i * size;
  return regular;
}
#endif

// Runs body for each element e < count of each lane, shared among the items. A CPU goes through a
// lane's elements in blocks, so that the rows of the lanes stay in the nearest cache.
#if WIDTH > 1
#define FOR_ELEMENTS(count, along, ...)                                  \
  for (uint block = 0; block < (count); block += BLOCK) {                \
    const uint block_end = min(block + BLOCK, (uint)(count));            \
    for (uint lane = 0; lane < valid; lane++) {                          \
      for (uint e = block; e < block_end; e++) {                         \
        __VA_ARGS__                                                      \
      }                                                                  \
    }                                                                    \
  }
#else
#define FOR_ELEMENTS(count, along, ...)                                  \
  for (uint i = item; i < (count) * valid; i += items) {                 \
    const uint lane = (along) ? i / (count) : i % valid;                 \
    const uint e = (along) ? i - lane * (count) : i / valid;             \
    __VA_ARGS__                                                          \
  }
#endif

kernel void fft_lines(global const char* in_base, ulong in_offset, global char* out_base,
                      ulong out_offset, global const char* twiddle_base, ulong twiddle_offset,
                      global const char* cross_base, ulong cross_offset,
                      global const char* chirp_base, ulong chirp_offset,
                      global const char* factor_base, ulong factor_offset,
#if WIDTH > 1
                      global char* scratch_base, ulong scratch_offset,
#else
                      local REAL* scratch_base,
#endif
                      const REAL scale, const FftArgs args) {
  local long in_line[MAX_LANES], out_line[MAX_LANES];  // where the lanes' signals begin
  local uint in_index[MAX_LANES], out_index[MAX_LANES], turn[MAX_LANES];
  const uint item = ITEM, items = GROUP_SIZE;
  const size_t buffer_size = (size_t)args.length * 2 * args.pitch;
#if WIDTH > 1
  SCRATCH REAL* const scratch =
      (SCRATCH REAL*)(scratch_base + scratch_offset) + get_group_id(0) * 2 * buffer_size;
#else
  SCRATCH REAL* const scratch = scratch_base;
#endif
  global const char* const in = in_base + in_offset;
  global char* const out = out_base + out_offset;
  global const char* const cross = cross_base + cross_offset;
  global const char* const chirp = chirp_base + chirp_offset;
  global const char* const factors = factor_base + factor_offset;
  const uint spread = args.before * args.after;
  const bool twiddled = args.before > 1 && args.passes > 0;

  for (uint tile = get_group_id(0); tile < args.tiles; tile += get_num_groups(0)) {
    const uint first_line = tile * args.lanes;
    const uint valid = min(args.lanes, args.lines - first_line);
    SYNCHRONIZE();  // the last tile's stores read these arrays and the scratch memory
    for (uint lane = item; lane < args.lanes; lane += items) {
      const uint line = first_line + min(lane, valid - 1);
      uint rest = line / spread;
      const uint t = line - rest * spread, k = t % args.before;
      in_index[lane] = t;
      out_index[lane] = (t - k) * args.length + k;
      turn[lane] = k;
      long in_at = 0, out_at = 0;
      for (uint d = 0; d < args.dims; d++) {
        const uint quotient = rest / args.size[d], coordinate = rest - quotient * args.size[d];
        in_at += coordinate * args.in_stride[d];
        out_at += coordinate * args.out_stride[d];
        rest = quotient;
      }
      in_line[lane] = in_at;
      out_line[lane] = out_at;
    }
    SYNCHRONIZE();

    SCRATCH REAL* src = scratch;
    SCRATCH REAL* dst = scratch + buffer_size;
    bool loaded = false;
#if WIDTH > 1
    const long in_size = args.load == LOAD_REAL ? REAL_SIZE : 2 * REAL_SIZE;
    if (args.load <= LOAD_REAL && !(args.flags & FLAG_CHIRP_IN) &&
        (!twiddled || args.before % WIDTH == 0) &&
        side_by_side(in_line, in_index, args.in_element, in_size)) {
      loaded = true;
      global const char* p = in + in_line[0] + in_index[0] * args.in_element;
      const uint columns = (args.before + FINE_ROOTS - 1) / FINE_ROOTS;
      for (uint e = 0; e < args.length; e++, p += spread * args.in_element) {
        V re, im;
        if (args.load == LOAD_REAL) {
          re = PASTE2(vload, WIDTH)(0, (global const REAL*)p);
          im = 0;
        } else {
          const V low = PASTE2(vload, WIDTH)(0, (global const REAL*)p);
          const V high = PASTE2(vload, WIDTH)(1, (global const REAL*)p);
          re = (V)(low.even, high.even);
          im = (V)(low.odd, high.odd);
        }
        if (args.flags & FLAG_SWAP_IN) {
          const V real_part = re;
          re = im, im = real_part;
        }
        if (twiddled && e > 0) {
          const uint k = turn[0];
          const COMPLEX coarse = table_entry(cross, (size_t)e * columns + k / FINE_ROOTS);
          global const REAL* fine = (global const REAL*)cross +
              2 * ((size_t)args.length * columns + e * FINE_ROOTS + k % FINE_ROOTS);
          const V low = PASTE2(vload, WIDTH)(0, fine), high = PASTE2(vload, WIDTH)(1, fine);
          const V fr = (V)(low.even, high.even), fi = (V)(low.odd, high.odd);
          const V wr = fr * coarse.x - fi * coarse.y, wi = fr * coarse.y + fi * coarse.x;
          const V real_part = re;
          re = real_part * wr - im * wi;
          im = real_part * wi + im * wr;
        }
        SCRATCH REAL* row = src + (size_t)e * 2 * WIDTH;
        WRITE_V(row, re);
        WRITE_V(row + WIDTH, im);
      }
    }
#endif
    if (!loaded) {
      FOR_ELEMENTS(args.length, args.flags & FLAG_ALONG_IN,
        COMPLEX v = load_element(in + in_line[lane], in_index[lane] + e * spread, args.load,
                                 args.flags, args.whole, args.chirped, args.in_element, chirp,
                                 factors);
        if (twiddled) {
          v = multiply(v, cross_root(cross, args.length, args.before, e, turn[lane]));
        }
        SCRATCH REAL* row = src + (size_t)e * 2 * args.pitch + lane;
        row[0] = v.x;
        row[args.pitch] = v.y;
      )
    }

    global const REAL* twiddles = (global const REAL*)(twiddle_base + twiddle_offset);
    Pass pass;
    pass.before = 1, pass.lanes = args.lanes, pass.pitch = args.pitch;
    pass.item = item, pass.items = items;
    for (uint p = 0; p < args.passes; p++) {
      const uint radix = args.radix[p];
      pass.count = args.length / radix;
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
      SCRATCH REAL* const swap = src;
      src = dst, dst = swap;
    }
    SYNCHRONIZE();

    bool stored = false;
#if WIDTH > 1
    const long out_size = args.store == STORE_REAL ? REAL_SIZE : 2 * REAL_SIZE;
    if (args.store <= STORE_REAL && !(args.flags & FLAG_CHIRP_OUT) && args.limit == UINT_MAX &&
        valid == WIDTH && side_by_side(out_line, out_index, args.out_element, out_size)) {
      stored = true;
      global char* p = out + out_line[0] + out_index[0] * args.out_element;
      for (uint e = 0; e < args.length; e++, p += args.before * args.out_element) {
        SCRATCH const REAL* row = src + (size_t)e * 2 * WIDTH;
        V re = READ_V(row) * scale, im = READ_V(row + WIDTH) * scale;
        if (args.flags & FLAG_SWAP_OUT) {
          const V real_part = re;
          re = im, im = real_part;
        }
        if (args.store == STORE_REAL) {
          PASTE2(vstore, WIDTH)(re, 0, (global REAL*)p);
        } else {
          V low, high;
          low.even = re.lo, low.odd = im.lo;
          high.even = re.hi, high.odd = im.hi;
          PASTE2(vstore, WIDTH)(low, 0, (global REAL*)p);
          PASTE2(vstore, WIDTH)(high, 1, (global REAL*)p);
        }
      }
    }
#endif
    if (!stored) {
#define READ_ROW(i) ((COMPLEX)(src[(size_t)(i) * 2 * args.pitch + lane], \
                               src[(size_t)(i) * 2 * args.pitch + args.pitch + lane]))
      const uint count = args.store == STORE_UNPACKED ? args.limit : args.length;
      FOR_ELEMENTS(count, args.flags & FLAG_ALONG_OUT,
        COMPLEX v;
        if (args.store == STORE_UNPACKED) {
          const uint k = e <= args.length ? e : args.whole - e;
          v = unpack(READ_ROW(k == args.length ? 0 : k), READ_ROW(k == 0 ? 0 : args.length - k),
                     table_entry(factors, k));
          if (e > args.length) v.y = -v.y;
        } else {
          v = READ_ROW(e);
        }
        store_element(out + out_line[lane], out_index[lane] + e * args.before, v, args.store,
                      args.flags, args.limit, args.out_element, chirp, scale);
      )
    }
  }
}
