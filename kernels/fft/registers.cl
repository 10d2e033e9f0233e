// A step of Fourier transforms, as in lines.cl, with the lines in registers: for GPUs.
//
// The work-items that share a line hold RADIX_0 or a few more of its elements each. A pass
// transforms them as they are held; between passes the work-items exchange them through local
// memory. All of a work-item's loads are under way at once, and nothing but the exchange is written
// and read again.
//
// Compile parameters: R (f32, f64); LENGTH of the lines; the radices of the passes, RADIX_0 to
// RADIX_5, whose product it is, the largest first and 1 for no pass; LINES (lines of a work-group);
// HALVES (1: real and imaginary parts are exchanged one after the other, in half the memory).
#include "include/always_inline.clh"
#include "include/dtype.clh"
#include "include/indexing.clh"

#ifndef R
#define R f32
#endif
#ifndef LENGTH
#define LENGTH 64
#define RADIX_0 8
#define RADIX_1 8
#define RADIX_2 1
#define RADIX_3 1
#define RADIX_4 1
#define RADIX_5 1
#define LINES 4
#define HALVES 0
#endif

#define WIDTH 1
#define REAL TYPE(R)
#define V REAL
#define COMPLEX TYPEV(R, 2)
#define MULTIPLY_ADD(a, b, c) fma(a, b, c)

#include "fft/line.clh"
#include "fft/dft.clh"
#include "fft/dft_longer.clh"

#define ITEMS (LENGTH / RADIX_0)  // that share a line
// Products of the radices before a pass, and where its twiddle factors begin.
#define BEFORE_1 RADIX_0
#define BEFORE_2 (BEFORE_1 * RADIX_1)
#define BEFORE_3 (BEFORE_2 * RADIX_2)
#define BEFORE_4 (BEFORE_3 * RADIX_3)
#define BEFORE_5 (BEFORE_4 * RADIX_4)
#define TABLE_2 (BEFORE_1 * (RADIX_1 - 1))
#define TABLE_3 (TABLE_2 + BEFORE_2 * (RADIX_2 - 1))
#define TABLE_4 (TABLE_3 + BEFORE_3 * (RADIX_3 - 1))
#define TABLE_5 (TABLE_4 + BEFORE_4 * (RADIX_4 - 1))
#if RADIX_5 > 1
#define LAST_RADIX RADIX_5
#elif RADIX_4 > 1
#define LAST_RADIX RADIX_4
#elif RADIX_3 > 1
#define LAST_RADIX RADIX_3
#elif RADIX_2 > 1
#define LAST_RADIX RADIX_2
#else
#define LAST_RADIX RADIX_1
#endif
/// Butterflies of a work-item in a pass of that radix; not every work-item has the last of them.
#define SHARE(radix) ((RADIX_0 + (radix) - 1) / (radix))
#define HELD (2 * RADIX_0)  // no pass holds more, and what is never used takes no register
// An element in local memory: a part of it, or both.
#if HALVES
#define CELL REAL
#define JOIN(re, im) (re)
#define SPLIT(cell, re, im) ((re) = (cell))
#define CELL_SIZE STORAGE_SIZE(R)
#else
#define CELL COMPLEX
#define JOIN(re, im) ((COMPLEX)(re, im))
#define SPLIT(cell, re, im) ((re) = (cell).x, (im) = (cell).y)
#define CELL_SIZE (2 * STORAGE_SIZE(R))
#endif
// A cell of padding for each RUN, which are all banks of local memory, where elements are written
// in strides of a power of two; lines begin so far apart that adjacent work-items may take adjacent
// lines.
#define RUN (128 / CELL_SIZE)
#define PADDED(e) (RADIX_0 % 4 == 0 ? (e) + (e) / RUN : (e))
#define PITCH ((PADDED(LENGTH) + RUN - 1) / RUN * RUN + (LINES <= RUN ? RUN / LINES : 1))
#define SYNCHRONIZE() barrier(CLK_LOCAL_MEM_FENCE)

// For each element that a work-item holds in a pass: element r of butterfly t is held at j * radix
// + r.
#define FOR_HELD(radix, item)                                                      \
  UNROLL for (uint j = 0, t = (item); j < SHARE(radix);                            \
              j++, t += ITEMS) if (RADIX_0 % (radix) == 0 || t < LENGTH / (radix)) \
      UNROLL for (uint r = 0; r < (radix); r++)

/// The results of a pass to where its successor's elements are in order.
static inline void put(local CELL* line, const REAL* re, const REAL* im, uint radix, uint before,
                       uint item) {
  // Whether no digit is carried into the number of the run, so that addresses differ by constants.
  const uint all = before * radix;
  const bool apart = RUN % all == 0 || (all % RUN == 0 && (before % RUN == 0 || RUN % before == 0));
  FOR_HELD(radix, item) {
    const uint k = t % before, to = (t - k) * radix + k;
    line[apart ? PADDED(to) + PADDED(r * before) : PADDED(to + r * before)] =
        JOIN(re[j * radix + r], im[j * radix + r]);
  }
}
static inline void take(local const CELL* line, REAL* re, REAL* im, uint radix, uint item) {
  const uint count = LENGTH / radix;
  FOR_HELD(radix, item) {
    const CELL v = line[count % RUN == 0 ? PADDED(t) + PADDED(r * count) : PADDED(t + r * count)];
    SPLIT(v, re[j * radix + r], im[j * radix + r]);
  }
}

/// From the results of a pass of radix `last` to those of the next one, of radix `radix`, with
/// `before` the product of the radices before that. The work-item may take part in another line
/// than before.
static inline void next_pass(local CELL* from, uint from_item, uint last, local CELL* to, uint item,
                             uint radix, uint before, global const COMPLEX* twiddles, REAL* re,
                             REAL* im) {
  // Loaded before the wait for the other work-items.
  COMPLEX w[HELD];
  UNROLL for (uint j = 0; j < SHARE(radix); j++) {
    const uint k = (item + j * ITEMS) % before;
    UNROLL for (uint r = 1; r < radix; r++) w[j * radix + r] = twiddles[(r - 1) * before + k];
  }
#if HALVES
  put(from, re, re, last, before / last, from_item);
  SYNCHRONIZE();
  take(to, re, re, radix, item);
  SYNCHRONIZE();
  put(from, im, im, last, before / last, from_item);
  SYNCHRONIZE();
  take(to, im, im, radix, item);
#else
  put(from, re, im, last, before / last, from_item);
  SYNCHRONIZE();
  take(to, re, im, radix, item);
#endif
  UNROLL for (uint j = 0; j < SHARE(radix); j++) {
    UNROLL for (uint r = 1; r < radix; r++) {
      const uint i = j * radix + r;
      ROTATE(re[i], im[i], w[i].x, -w[i].y);
    }
    dft(re + j * radix, im + j * radix, radix);
  }
  SYNCHRONIZE();  // what was taken may be overwritten
}

/// Multiplies what is held before or after a pass of that radix by the factors at `table`; element
/// e of the line by factor first + e * step, or 0 from `limit` on.
static inline void weigh(REAL* re, REAL* im, uint radix, uint item, global const COMPLEX* table,
                         uint first, uint step, uint limit) {
  COMPLEX w[HELD];
  FOR_HELD(radix, item) {
    const uint i = first + (t + r * (LENGTH / radix)) * step;
    w[j * radix + r] = i < limit ? table[i] : (COMPLEX)(0, 0);
  }
  FOR_HELD(radix, item) {
    const uint i = j * radix + r;
    ROTATE(re[i], im[i], w[i].x, -w[i].y);
  }
}
static inline void swap_parts(REAL* re, REAL* im, uint radix, uint item) {
  FOR_HELD(radix, item) {
    const REAL real_part = re[j * radix + r];
    re[j * radix + r] = im[j * radix + r], im[j * radix + r] = real_part;
  }
}

/// The partner of each element that is held after the last pass: element i of a signal of n goes
/// with element (n - i) mod n, which is on the line `mirror`.
static inline void take_partners(local CELL* line, local const CELL* mirror, uint k, uint item,
                                 const REAL* re, const REAL* im, REAL* other_re, REAL* other_im) {
#define TAKE(part_re, part_im)                                                      \
  FOR_HELD(LAST_RADIX, item) {                                                      \
    const uint e = t + r * (LENGTH / LAST_RADIX);                                   \
    const CELL v = mirror[PADDED(k > 0 ? LENGTH - 1 - e : e > 0 ? LENGTH - e : 0)]; \
    SPLIT(v, part_re[j * LAST_RADIX + r], part_im[j * LAST_RADIX + r]);             \
  }
#if HALVES
  put(line, re, re, LAST_RADIX, LENGTH / LAST_RADIX, item);
  SYNCHRONIZE();
  TAKE(other_re, other_re)
  SYNCHRONIZE();
  put(line, im, im, LAST_RADIX, LENGTH / LAST_RADIX, item);
  SYNCHRONIZE();
  TAKE(other_im, other_im)
#else
  put(line, re, im, LAST_RADIX, LENGTH / LAST_RADIX, item);
  SYNCHRONIZE();
  TAKE(other_re, other_im)
#endif
#undef TAKE
}

/// Which line a lane takes, of all signals' lines. Mirrored: the second half of the lanes has the
/// lines k' = -k of the first half's. False past the last line, and for a line that another lane
/// has.
static inline bool choose_line(uint lane, uint group, uint lines, uint before, bool mirrored,
                               uint* line) {
  if (!mirrored) {
    *line = min(group * LINES + lane, lines - 1);
    return group * LINES + lane < lines;
  }
  const uint half_lanes = max(LINES / 2, 1), groups = (before / 2 + half_lanes) / half_lanes;
  const uint signal = group / groups,
             wanted = (group - signal * groups) * half_lanes + lane % half_lanes;
  const uint k = min(wanted, before / 2), mirror = k > 0 ? before - k : 0;
  *line = signal * before + (lane < half_lanes ? k : mirror);
  return wanted <= before / 2 && (lane < half_lanes || k != mirror);
}

/// Where a line's signal begins, and the line's place among those of its signal.
typedef struct {
  long start;
  uint t, k;
} Line;
#define FIND_LINE(result, line, strides)                                           \
  do {                                                                             \
    uint rest = (line);                                                            \
    result.start = result.t = result.k = 0;                                        \
    if (spread > 1) {                                                              \
      rest = (line) / spread;                                                      \
      result.t = (line) - rest * spread;                                           \
      result.k = arguments.after > 1 ? result.t % arguments.before : result.t;     \
    }                                                                              \
    FOR_DIMENSIONS(d, 0, arguments.dims, arguments.size) {                         \
      const uint quotient = d + 1 < arguments.dims ? rest / arguments.size[d] : 0; \
      result.start += (rest - quotient * arguments.size[d]) * strides[d];          \
      rest = quotient;                                                             \
    }                                                                              \
  } while (0)

/// Loads a work-item's elements of line t, all at once, where they are complex.
static inline void load_held(global const char* in, global const char* factors,
                             global const char* chirp, uint t, uint spread, uint item, REAL* re,
                             REAL* im, const Arguments* arguments) {
  const uint limit = arguments->flags & kChirpIn ? arguments->chirped : UINT_MAX;
  const uint first = t + item * spread, step = ITEMS * spread;
  const uint element = (uint)arguments->in_element;
  UNROLL for (uint r = 0; r < RADIX_0; r++) {
    const uint i = first + r * step;
    const COMPLEX v = i < limit ? load_complex(in + (ulong)i * element) : (COMPLEX)(0, 0);
    re[r] = v.x, im[r] = v.y;
  }
  if (arguments->load == kLoadHermitianPairs) {
    COMPLEX other[RADIX_0], root[RADIX_0];
    UNROLL for (uint r = 0; r < RADIX_0; r++) {
      const uint i = first + r * step < limit ? first + r * step : 0;
      other[r] = load_complex(in + (ulong)(arguments->whole / 2 - i) * element);
      root[r] = table_entry(factors, i);
    }
    UNROLL for (uint r = 0; r < RADIX_0; r++) {
      const uint i = first + r * step;
      COMPLEX v = pack((COMPLEX)(re[r], im[r]), other[r], root[r], i == 0);
      if (i >= limit) v = (COMPLEX)(0, 0);
      re[r] = v.x, im[r] = v.y;
    }
  }
  if (arguments->load == kLoadProduct) {
    weigh(re, im, RADIX_0, item, (global const COMPLEX*)factors, t, spread, UINT_MAX);
  }
  if (arguments->flags & kSwapIn) swap_parts(re, im, RADIX_0, item);
  if (arguments->flags & kChirpIn) {
    weigh(re, im, RADIX_0, item, (global const COMPLEX*)chirp, t, spread, limit);
  }
}

/// Loads a work-item's elements of line t, of any kind, through local memory. That has an index, as
/// registers have not.
static ALWAYS_INLINE void load_by_local(global const char* in, global const char* factors,
                                        global const char* chirp, uint t, uint spread, uint item,
                                        local CELL* line, REAL* re, REAL* im,
                                        const Arguments* arguments) {
  // A part at a time, even if the other is there: this is rare.
  for (uint part = 0; part < 2; part++) {
    _Pragma("unroll 1") for (uint e = item; e < LENGTH; e += ITEMS) {
      const COMPLEX v =
          load_element(in, t + e * spread, arguments->load, arguments->flags, arguments->whole,
                       arguments->chirped, arguments->in_element, chirp, factors);
      line[PADDED(e)] = JOIN(part == 0 ? v.x : v.y, v.y);
    }
    if (part == 0) {
      take(line, re, im, RADIX_0, item);
      if (!HALVES) break;
    } else {
      take(line, im, im, RADIX_0, item);
    }
  }
  SYNCHRONIZE();
}

/// Stores the transform of reals, which was made as one of pairs of them.
static ALWAYS_INLINE void store_unpacked(global char* out, global const char* factors, uint first,
                                         uint k, uint item, bool valid, local CELL* line,
                                         local const CELL* mirror, const REAL* re, const REAL* im,
                                         REAL scale, const Arguments* arguments) {
  const uint element = (uint)arguments->out_element;
  REAL other_re[HELD], other_im[HELD];
  const uint n = LENGTH * arguments->before;
  take_partners(line, mirror, k, item, re, im, other_re, other_im);
  FOR_HELD(LAST_RADIX, item) {
    const uint q = j * LAST_RADIX + r,
               i = first + (t + r * (LENGTH / LAST_RADIX)) * arguments->before;
    const COMPLEX z = (COMPLEX)(re[q], im[q]), y = (COMPLEX)(other_re[q], other_im[q]);
    const COMPLEX v = unpack(z, y, table_entry(factors, i)) * scale;
    if (!valid) continue;
    STORE_COMPLEX_AT(out + (ulong)i * element, v);
    // The first element also makes the one in the middle, and there may be the conjugates after
    // that.
    if (i == 0) STORE_COMPLEX_AT(out + (ulong)n * element, (COMPLEX)((z.x - z.y) * scale, 0));
    if (i > 0 && arguments->store_rows > n + 1) {
      STORE_COMPLEX_AT(out + (ulong)(2 * n - i) * element, conjugate(v));
    }
  }
}

kernel __attribute__((reqd_work_group_size(ITEMS * LINES, 1, 1))) void fft_registers(
    global const char* in_base, ulong in_offset, global char* out_base, ulong out_offset,
    global const char* twiddle_base, ulong twiddle_offset, global const char* cross_base,
    ulong cross_offset, global const char* chirp_base, ulong chirp_offset,
    global const char* factor_base, ulong factor_offset, const REAL scale,
    const Arguments arguments) {
  local CELL scratch[LINES * PITCH];
  global const COMPLEX* const twiddles = (global const COMPLEX*)(twiddle_base + twiddle_offset);
  global const char* const chirp = chirp_base + chirp_offset;
  global const char* const factors = factor_base + factor_offset;
  // Adjacent work-items take what are neighbours in memory, of a line or of adjacent lines.
  const uint id = get_local_id(0), group = get_group_id(0),
             spread = arguments.before * arguments.after;
  const uint in_lane = arguments.flags & kAlongIn ? id / ITEMS : id % LINES;
  const uint in_item = arguments.flags & kAlongIn ? id % ITEMS : id / LINES;
  const uint lane = arguments.flags & kAlongOut ? id / ITEMS : id % LINES;
  const uint item = arguments.flags & kAlongOut ? id % ITEMS : id / LINES;
  local CELL* const in_line = scratch + in_lane * PITCH;
  local CELL* const line = scratch + lane * PITCH;
  const bool mirrored = (arguments.flags & kUnpack) && arguments.before > 1;
  REAL re[HELD], im[HELD];

  uint number;
  Line from;
  choose_line(in_lane, group, arguments.lines, arguments.before, mirrored, &number);
  FIND_LINE(from, number, arguments.in_stride);
  global const char* const in = in_base + in_offset + from.start;
  if (arguments.load == kLoadComplex || arguments.load == kLoadProduct ||
      arguments.load == kLoadHermitianPairs) {
    load_held(in, factors, chirp, from.t, spread, in_item, re, im, &arguments);
  } else {
    load_by_local(in, factors, chirp, from.t, spread, in_item, in_line, re, im, &arguments);
  }
  if (arguments.before > 1) {
    global const COMPLEX* const cross = (global const COMPLEX*)(cross_base + cross_offset);
    global const COMPLEX* const steps = cross + ITEMS * arguments.before + from.k;
    const COMPLEX start = cross[in_item * arguments.before + from.k];
    COMPLEX w[RADIX_0];
    UNROLL for (uint r = 1; r < RADIX_0; r++) w[r] = steps[r * arguments.before];
    ROTATE(re[0], im[0], start.x, -start.y);
    UNROLL for (uint r = 1; r < RADIX_0; r++) {
      ROTATE(w[r].x, w[r].y, start.x, -start.y);
      ROTATE(re[r], im[r], w[r].x, -w[r].y);
    }
  }

  dft(re, im, RADIX_0);
  next_pass(in_line, in_item, RADIX_0, line, item, RADIX_1, BEFORE_1, twiddles, re, im);
#if RADIX_2 > 1
  next_pass(line, item, RADIX_1, line, item, RADIX_2, BEFORE_2, twiddles + TABLE_2, re, im);
#endif
#if RADIX_3 > 1
  next_pass(line, item, RADIX_2, line, item, RADIX_3, BEFORE_3, twiddles + TABLE_3, re, im);
#endif
#if RADIX_4 > 1
  next_pass(line, item, RADIX_3, line, item, RADIX_4, BEFORE_4, twiddles + TABLE_4, re, im);
#endif
#if RADIX_5 > 1
  next_pass(line, item, RADIX_4, line, item, RADIX_5, BEFORE_5, twiddles + TABLE_5, re, im);
#endif

  Line to;
  const bool valid = choose_line(lane, group, arguments.lines, arguments.before, mirrored, &number);
  FIND_LINE(to, number, arguments.out_stride);
  global char* const out = out_base + out_offset + to.start;
  const uint first = (to.t - to.k) * LENGTH + to.k, element = (uint)arguments.out_element;
  if (arguments.flags & kUnpack) {
    store_unpacked(out, factors, first, to.k, item, valid, line,
                   scratch + (mirrored ? lane ^ (LINES / 2) : lane) * PITCH, re, im, scale,
                   &arguments);
    return;
  }
  if (arguments.flags & kChirpOut) {
    // The elements before the chirp were transformed backward.
    swap_parts(re, im, LAST_RADIX, item);
    weigh(re, im, LAST_RADIX, item, (global const COMPLEX*)chirp, first, arguments.before,
          arguments.limit);
  }
  if (arguments.flags & kSwapOut) swap_parts(re, im, LAST_RADIX, item);
  if (!valid) return;
  FOR_HELD(LAST_RADIX, item) {
    const uint i = first + (t + r * (LENGTH / LAST_RADIX)) * arguments.before;
    const COMPLEX v = (COMPLEX)(re[j * LAST_RADIX + r], im[j * LAST_RADIX + r]);
    if (arguments.store == kStoreComplex) {
      if (i < arguments.limit) STORE_COMPLEX_AT(out + (ulong)i * element, v * scale);
    } else {
      store_element(out, i, v, arguments.store, 0, arguments.limit, arguments.out_element, chirp,
                    scale);
    }
  }
}
