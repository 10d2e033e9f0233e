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
#include "include/always_inline.clh"
#include "include/item_by_item.clh"
#include "include/dtype.clh"
#include "include/indexing.clh"

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

/// Where the signals of a tile's lanes begin, and the places of the lanes' lines in them.
typedef struct {
  local long *in, *out;
  local uint *in_index, *out_index, *turn;
} Places;

static inline void find_places(const Places places, uint first_line, uint valid, uint item,
                               uint items, const Arguments* arguments) {
  const uint spread = arguments->before * arguments->after;
  for (uint lane = item; lane < arguments->lanes; lane += items) {
    const uint line = first_line + min(lane, valid - 1);
    uint rest = line / spread;
    const uint t = line - rest * spread, k = t % arguments->before;
    places.in_index[lane] = t;
    places.out_index[lane] = (t - k) * arguments->length + k;
    places.turn[lane] = k;
    long in_at = 0, out_at = 0;
    FOR_DIMENSIONS(d, 0, arguments->dims, arguments->size) {
      const uint quotient = rest / arguments->size[d],
                 coordinate = rest - quotient * arguments->size[d];
      in_at += coordinate * arguments->in_stride[d];
      out_at += coordinate * arguments->out_stride[d];
      rest = quotient;
    }
    places.in[lane] = in_at;
    places.out[lane] = out_at;
  }
}

/// Whether twiddle factors go on what is loaded.
static inline bool is_twiddled(const Arguments* arguments) {
  return arguments->before > 1 && arguments->passes > 0;
}

#if WIDTH > 1
/// Loads vectors of lanes whose elements are neighbours in memory.
static inline void load_neighbours(global const char* in, global const char* cross, uint turn,
                                   SCRATCH_SPACE REAL* to, const Arguments* arguments) {
  const uint columns = (arguments->before + kFineRoots - 1) / kFineRoots;
  const long step = arguments->before * arguments->after * arguments->in_element;
  for (uint e = 0; e < arguments->load_rows; e++, in += step) {
    V re, im;
    if (arguments->load == kLoadReal) {
      re = PASTE2(vload, WIDTH)(0, (global const REAL*)in);
      im = 0;
    } else {
      load_vectors((global const REAL*)in, &re, &im);
    }
    if (arguments->flags & kSwapIn) {
      const V real_part = re;
      re = im, im = real_part;
    }
    if (is_twiddled(arguments) && e > 0) {
      const COMPLEX coarse = table_entry(cross, (size_t)e * columns + turn / kFineRoots);
      V fr, fi;
      load_vectors((global const REAL*)cross + 2 * ((size_t)arguments->length * columns +
                                                    e * kFineRoots + turn % kFineRoots),
                   &fr, &fi);
      const V wr = fr * coarse.x - fi * coarse.y, wi = fr * coarse.y + fi * coarse.x;
      const V real_part = re;
      re = real_part * wr - im * wi;
      im = real_part * wi + im * wr;
    }
    SCRATCH_SPACE REAL* row = to + (size_t)e * 2 * WIDTH;
    WRITE_V(row, re);
    WRITE_V(row + WIDTH, im);
  }
}

/// Loads what it can by vectors. The number of elements of each lane that are loaded.
static inline uint load_by_vectors(global const char* in, global const char* cross,
                                   const Places places, SCRATCH_SPACE REAL* to,
                                   const Arguments* arguments) {
  const long in_size = arguments->load == kLoadReal ? REAL_SIZE : 2 * REAL_SIZE;
  const bool twiddled = is_twiddled(arguments);
  if (arguments->load > kLoadReal || (arguments->flags & kChirpIn)) return 0;
  if ((!twiddled || arguments->before % WIDTH == 0) &&
      side_by_side(places.in, places.in_index, arguments->in_element, in_size)) {
    load_neighbours(in + places.in[0] + places.in_index[0] * arguments->in_element, cross,
                    places.turn[0], to, arguments);
    return arguments->load_rows;
  }
  if (arguments->before * arguments->after > 1 || arguments->in_element != in_size) return 0;
  return load_squares(in, places.in, arguments->load_rows, arguments->load == kLoadReal,
                      arguments->flags & kSwapIn, to);
}

/// Stores what it can by vectors. The number of elements of each lane that are stored.
static inline uint store_by_vectors(SCRATCH_SPACE const REAL* from, global char* out,
                                    const Places places, uint valid, REAL scale,
                                    const Arguments* arguments) {
  const long out_size = arguments->store == kStoreReal ? REAL_SIZE : 2 * REAL_SIZE;
  if (arguments->store > kStoreReal || (arguments->flags & kChirpOut) ||
      arguments->limit != UINT_MAX) {
    return 0;
  }
  if (valid != WIDTH ||
      !side_by_side(places.out, places.out_index, arguments->out_element, out_size)) {
    if (arguments->before > 1 || arguments->out_element != out_size) return 0;
    return store_squares(from, out, places.out, places.out_index, valid, arguments->store_rows,
                         arguments->store == kStoreReal, arguments->flags & kSwapOut, scale);
  }
  global char* p = out + places.out[0] + places.out_index[0] * arguments->out_element;
  for (uint e = 0; e < arguments->store_rows;
       e++, p += arguments->before * arguments->out_element) {
    SCRATCH_SPACE const REAL* row = from + (size_t)e * 2 * WIDTH;
    V re = READ_V(row) * scale, im = READ_V(row + WIDTH) * scale;
    if (arguments->flags & kSwapOut) {
      const V real_part = re;
      re = im, im = real_part;
    }
    if (arguments->store == kStoreReal) {
      PASTE2(vstore, WIDTH)(re, 0, (global REAL*)p);
    } else {
      store_vectors(re, im, (global REAL*)p);
    }
  }
  return arguments->store_rows;
}
#endif

#define SWAP_BUFFERS()                  \
  do {                                  \
    SCRATCH_SPACE REAL* const t_ = src; \
    src = dst, dst = t_;                \
  } while (0)

/// Transforms the lanes in `src`, with `dst` for what is between. Where the results are.
static ALWAYS_INLINE SCRATCH_SPACE REAL* transform(SCRATCH_SPACE REAL* src, SCRATCH_SPACE REAL* dst,
                                                   global const REAL* twiddles,
                                                   global const REAL* halves, uint item, uint items,
                                                   const Arguments* arguments) {
  Pass pass;
  pass.before = 1, pass.lanes = arguments->lanes, pass.pitch = arguments->pitch;
  pass.item = item, pass.items = items;
  if (arguments->flags & kPack) {
    pass.count = arguments->length;
    SYNCHRONIZE();
    pack_rows(src, dst, halves, pass);
    SWAP_BUFFERS();
  }
  for (uint p = 0; p < arguments->passes; p++) {
    const uint radix = arguments->radices >> (8 * p) & 255;
    pass.count = arguments->length / radix;
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
    SWAP_BUFFERS();
  }
  SYNCHRONIZE();
  if (arguments->flags & kUnpack) {
    unpack_rows(src, dst, halves, arguments->store_rows, arguments->length, pass);
    SYNCHRONIZE();
    return dst;
  }
  return src;
}

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
  local long in_line[kMaxLanes], out_line[kMaxLanes];
  local uint in_index[kMaxLanes], out_index[kMaxLanes], turn[kMaxLanes];
  const Places places = {in_line, out_line, in_index, out_index, turn};
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

  for (uint tile = get_group_id(0); tile < arguments.tiles; tile += get_num_groups(0)) {
    const uint first_line = tile * arguments.lanes;
    const uint valid = min(arguments.lanes, arguments.lines - first_line);
    SYNCHRONIZE();  // the last tile's stores read the places and the scratch memory
    find_places(places, first_line, valid, item, items, &arguments);
    SYNCHRONIZE();

    uint loaded = 0;
#if WIDTH > 1
    loaded = load_by_vectors(in, cross, places, scratch, &arguments);
#endif
    if (loaded < arguments.load_rows) {
      FOR_ELEMENTS(loaded, arguments.load_rows, arguments.flags & kAlongIn) {
        COMPLEX v = load_element(in + in_line[lane], in_index[lane] + e * spread, arguments.load,
                                 arguments.flags, arguments.whole, arguments.chirped,
                                 arguments.in_element, chirp, factors);
        if (is_twiddled(&arguments)) {
          v = multiply(v, cross_root(cross, arguments.length, arguments.before, e, turn[lane]));
        }
        SCRATCH_SPACE REAL* row = scratch + (size_t)e * 2 * arguments.pitch + lane;
        row[0] = v.x;
        row[arguments.pitch] = v.y;
      }
    }
    SCRATCH_SPACE const REAL* const results = transform(
        scratch, scratch + buffer_size, (global const REAL*)(twiddle_base + twiddle_offset),
        (global const REAL*)factors, item, items, &arguments);
    uint stored = 0;
#if WIDTH > 1
    stored = store_by_vectors(results, out, places, valid, scale, &arguments);
#endif
    if (stored < arguments.store_rows) {
      FOR_ELEMENTS(stored, arguments.store_rows, arguments.flags & kAlongOut) {
        SCRATCH_SPACE const REAL* row = results + (size_t)e * 2 * arguments.pitch + lane;
        store_element(out + out_line[lane], out_index[lane] + e * arguments.before,
                      (COMPLEX)(row[0], row[arguments.pitch]), arguments.store, arguments.flags,
                      arguments.limit, arguments.out_element, chirp, scale);
      }
    }
  }
}
