// Convolutions with windows of 3 x 3 and a stride of 1 on CPUs by Winograd's minimal filtering,
// F(2 x 2, 3 x 3) (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015): tiles
// of 2 x 2 results take 16 terms per pair of channels instead of 36. Tiles of 4 x 4 elements and
// windows are transformed by additions; for each of a transform's 16 elements, which `point`
// numbers, the channels are summed as a matrix product; the sums are transformed back.
//
// Compile parameters besides conv.clh's: MR x NV * WIDTH (tiles x columns of the sums kept in
// registers), LANES (elements of a vector in winograd_input), CHANNELS_LAST (1: how the input and
// the transformed tiles lie), RESULT_LAST (1: so may the result; a network mostly has one of the
// two, and one takes half the time to build), ONLY (1, 2 or 3: the first, second or third kernel,
// which depend on different ones of these; 0: all).
//
// A line is the tiles of two rows of results of an image; a strip is MR of them. Transformed
// windows are [z][n / NR][point][channel][NR] of C, transformed tiles [line][point][channel][tile]
// or, channels last, [line][point][tile][channel].
#include "include/item_by_item.clh"
#include "conv/conv.clh"
#include "conv/epilogue.clh"
#include "conv/winograd_arguments.clh"

#ifndef MR
#define MR 7
#endif
#include "include/register_tile.clh"
#ifndef LANES
#define LANES 4
#endif
#ifndef CHANNELS_LAST
#define CHANNELS_LAST 0
#endif
#ifndef RESULT_LAST
#define RESULT_LAST 1
#endif
#ifndef ONLY
#define ONLY 0
#endif
#define SPAN (2 * MR)  // results of a strip's row

typedef TYPEV(C, WIDTH) V;
typedef TYPEV(C, LANES) L;
#define LOAD_PRIVATE(p) PASTE2(vload, WIDTH)(0, p)
#define STORE_PRIVATE(x, p) PASTE2(vstore, WIDTH)(x, 0, p)
#define T V  // the element of the squares that transpose.clh transposes
#include "include/transpose.clh"
#undef T

/// Each point's element of a transformed window: G w G', with G's rows 1 0 0, 1/2 1/2 1/2, 1/2 -1/2
/// 1/2 and 0 0 1.
#define WINDOW_ROW(to, x, y, z)             \
  {                                         \
    const V half_ends = ((x) + (z)) * 0.5f; \
    const V half_middle = (y) * 0.5f;       \
    to[0] = x;                              \
    to[1] = half_ends + half_middle;        \
    to[2] = half_ends - half_middle;        \
    to[3] = z;                              \
  }

#if ONLY == 0 || ONLY == 1
/// Transforms the windows of `block` channels of one panel. Global size: parts of the channels, n /
/// NR, groups.
kernel ITEM_BY_ITEM void winograd_weight(global const char* weight, const ulong weight_offset,
                                         global char* panels_base, const ulong panels_offset,
                                         const WinogradArguments p) {
  const uint jn = get_global_id(1), z = get_global_id(2);
  const uint first = get_global_id(0) * p.block, last = min(first + p.block, p.channels);
  const uint panels = (p.columns + NR - 1) / NR, valid = min((uint)NR, p.columns - jn * NR);
  weight += weight_offset + (z * p.weight_group + jn * NR * p.weight_column) * STORAGE_SIZE(IN);
  global T* panel = (global T*)(panels_base + panels_offset) +
                    ((ulong)z * panels + jn) * kPoints * p.channels * NR;
  for (uint channel = first; channel < last; channel++) {
    for (uint v = 0; v < NV; v++) {
      V window[9];
      T lanes[9][WIDTH];
      for (uint lane = 0; lane < WIDTH; lane++) {
        const uint column = v * WIDTH + lane;
        const long at = channel * p.weight_channel + column * p.weight_column;
        _Pragma("unroll") for (uint e = 0; e < 9; e++) {
          const long element = at + e / 3 * p.weight_row + e % 3 * p.weight_across;
          lanes[e][lane] = column < valid ? LOAD_AS(C, IN, weight, element) : (T)(0);
        }
      }
      for (uint e = 0; e < 9; e++) window[e] = LOAD_PRIVATE(lanes[e]);
      V rows[3][4], points[4][4];
      _Pragma("unroll") for (uint i = 0; i < 3; i++){
          WINDOW_ROW(rows[i], window[3 * i], window[3 * i + 1],
                     window[3 * i + 2])} _Pragma("unroll") for (uint j = 0; j < 4; j++) {
        V column[4];
        WINDOW_ROW(column, rows[0][j], rows[1][j], rows[2][j])
        _Pragma("unroll") for (uint i = 0; i < 4; i++) points[i][j] = column[i];
      }
      _Pragma("unroll") for (uint point = 0; point < kPoints; point++) {
        STOREV(C, WIDTH, (global char*)(panel + ((ulong)point * p.channels + channel) * NR), v,
               points[point / 4][point % 4]);
      }
    }
  }
}
#endif

/// B' d, with B's columns 1 0 -1 0, 0 1 1 0, 0 -1 1 0 and 0 1 0 -1.
#define TILE_ROW(to, a, b, c, d) \
  {                              \
    to[0] = (a) - (c);           \
    to[1] = (b) + (c);           \
    to[2] = (c) - (b);           \
    to[3] = (b) - (d);           \
  }

/// Stores the transform of tiles d[row][column] for every point, `step` elements apart.
static inline void store_points(L d[4][4], global T* to, ulong step) {
  L rows[4][4];
  _Pragma("unroll") for (uint j = 0; j < 4; j++) {
    L column[4];
    TILE_ROW(column, d[0][j], d[1][j], d[2][j], d[3][j])
    _Pragma("unroll") for (uint i = 0; i < 4; i++) rows[i][j] = column[i];
  }
  _Pragma("unroll") for (uint i = 0; i < 4; i++) {
    L points[4];
    TILE_ROW(points, rows[i][0], rows[i][1], rows[i][2], rows[i][3])
    _Pragma("unroll") for (uint j = 0; j < 4; j++) {
      STOREV(C, LANES, (global char*)(to + (4 * i + j) * step), 0, points[j]);
    }
  }
}

#define LOAD_LANES(p) LOADV(C, LANES, (global const char*)(p), 0)

#if ONLY == 0 || ONLY == 2
/// Transforms a line's tiles, of `block` channels or, channels last, `block` tiles. Global size:
/// parts of the channels or tiles, lines.
kernel ITEM_BY_ITEM void winograd_input(global const char* input, const ulong input_offset,
                                        global char* tiles_base, const ulong tiles_offset,
                                        const WinogradArguments p) {
  const uint line = get_global_id(1), of_all = p.first_line + line;
  const uint first = get_global_id(0) * p.block, channels = p.channels * p.groups;
  const ulong step = (ulong)channels * p.line_tiles;
  global T* tiles = (global T*)(tiles_base + tiles_offset) + line * kPoints * step;
  global const T* in = (global const T*)(input + input_offset) +
                       of_all / p.image_lines * p.in_image + of_all % p.image_lines * 2 * p.in_row;
  L d[4][4];
#if CHANNELS_LAST
  const uint last = min(first + p.block, p.line_tiles);
  for (uint tile = first; tile < last; tile++) {
    global const T* corner = in + tile * 2 * p.in_column;
    for (uint next = 0; next < channels; next += LANES) {
      const uint channel = min(next, channels - LANES);  // the last ones once more
      _Pragma("unroll") for (uint i = 0; i < 4; i++) {
        _Pragma("unroll") for (uint j = 0; j < 4; j++) {
          d[i][j] = LOAD_LANES(corner + i * p.in_row + j * p.in_column + channel);
        }
      }
      store_points(d, tiles + (ulong)tile * channels + channel, step);
    }
  }
#else
  const uint last = min(first + p.block, channels);
  for (uint channel = first; channel < last; channel++) {
    global const T* plane = in + channel * p.in_channel;
    for (uint next = 0; next < p.line_tiles; next += LANES) {
      const uint tile = min(next, p.line_tiles - LANES);  // the last ones once more
      _Pragma("unroll") for (uint i = 0; i < 4; i++) {
        global const T* row = plane + i * p.in_row + tile * 2;
        const L a = LOAD_LANES(row), b = LOAD_LANES(row + LANES);
        const L c = LOAD_LANES(row + 2), e = LOAD_LANES(row + LANES + 2);
        d[i][0] = (L)(a.even, b.even);
        d[i][1] = (L)(a.odd, b.odd);
        d[i][2] = (L)(c.even, e.even);
        d[i][3] = (L)(c.odd, e.odd);
      }
      store_points(d, tiles + (ulong)channel * p.line_tiles + tile, step);
    }
  }
#endif
}
#endif

/// Where a strip's results are.
typedef struct {
  ulong image;
  uint y, x;        // of the first one
  uint rows, span;  // of them
} Strip;

static inline Strip strip_of(private const WinogradArguments* p, uint strip) {
  const uint strips = p->line_tiles / MR;
  const uint line = p->first_line + strip / strips;
  Strip s;
  s.image = line / p->image_lines;
  s.y = line % p->image_lines * 2;
  s.x = strip % strips * SPAN;
  s.rows = min(2u, p->height - s.y);
  s.span = s.x < p->width ? min((uint)SPAN, p->width - s.x) : 0;
  return s;
}

/// The strip's results as sums of all terms: transforms of infinite numbers are not.
static void sum_directly(private const WinogradArguments* p, Strip s, uint z, uint jn, uint columns,
                         global const char* input, global const char* weight,
                         global const char* bias, global char* to,
                         ulong position EPILOGUE_PARAMETERS) {
  global const T* in = (global const T*)input + s.image * p->in_image + s.y * p->in_row +
                       s.x * p->in_column + z * p->channels * p->in_channel;
  weight += (z * p->weight_group + jn * NR * p->weight_column) * STORAGE_SIZE(IN);
  for (uint column = 0; column < columns; column++) {
    const T addend = p->flags & kConvBias ? LOAD_AS(C, OUT, bias, column) : (T)(0);
    for (uint i = 0; i < s.rows; i++) {
      for (uint j = 0; j < s.span; j++) {
        T sum = (T)(0);
        for (uint channel = 0; channel < p->channels; channel++) {
          global const T* corner = in + channel * p->in_channel + i * p->in_row + j * p->in_column;
          const long window = column * p->weight_column + channel * p->weight_channel;
          for (uint e = 0; e < 9; e++) {
            sum = MAD(
                corner[e / 3 * p->in_row + e % 3 * p->in_column],
                LOAD_AS(C, IN, weight, window + e / 3 * p->weight_row + e % 3 * p->weight_across),
                sum);
          }
        }
        const ulong at = position + i * p->width + j, of_all = z * p->columns + jn * NR + column;
        STORE_RESULT(RESULT_ROW(p->plane, p->all, at, of_all), RESULT_COLUMN(p->plane, at, of_all),
                     to, i * p->out_row + j * p->out_column + column * p->out_channel,
                     sum + addend);
      }
    }
  }
}

/// A' m A, with A's columns 1 1 1 0 and 0 1 -1 -1, of one tile's vector v: results[row][column].
static inline void results_of(private const V* sums, V results[2][2]) {
  V rows[2][4];
  _Pragma("unroll") for (uint j = 0; j < 4; j++) {
    const V a = sums[j * MR * NV], b = sums[(4 + j) * MR * NV];
    const V c = sums[(8 + j) * MR * NV], d = sums[(12 + j) * MR * NV];
    rows[0][j] = a + b + c;
    rows[1][j] = b - c - d;
  }
  _Pragma("unroll") for (uint i = 0; i < 2; i++) {
    results[i][0] = rows[i][0] + rows[i][1] + rows[i][2];
    results[i][1] = rows[i][1] - rows[i][2] - rows[i][3];
  }
}

/// Stores the first `count` elements of x.
static inline void store_some(V x, global char* to, uint count, ulong result_row,
                              ulong result_column EPILOGUE_PARAMETERS) {
  if (count >= WIDTH) {
    STORE_RESULTS(WIDTH, result_row, result_column, to, x);
    return;
  }
  T elements[WIDTH];
  STORE_PRIVATE(x, elements);
#if EPILOGUE_LANES > 1
  store_run(result_row, result_column, elements, count EPILOGUE_PASSED);
#else
  for (uint e = 0; e < count; e++) {
    STORE_RESULT(result_row, result_column + e, to, e, elements[e]);
  }
#endif
}

#if ONLY == 0 || ONLY == 3
#if CHANNELS_LAST
#define ROW(i) x[at[i]]
#else
#define ROW(i) x[i]
#endif
/// sums[MR][NV] of a point of MR tiles, from `tile` of a line on: their elements times the panel's
/// at y, over the channels.
static ALWAYS_INLINE void sum_point(private V* sums, global const T* tiles, global const T* y,
                                    uint line, uint tile, uint point, uint z, uint all,
                                    private const WinogradArguments* p) {
  global const T* x = tiles + ((ulong)line * kPoints + point) * all * p->line_tiles;
#if CHANNELS_LAST
  x += (ulong)tile * all + z * p->channels;
  const uint step = 1;
  long at[MR];
  _Pragma("unroll") for (uint i = 0; i < MR; i++) at[i] = i * all;
#else
  x += (ulong)z * p->channels * p->line_tiles + tile;
  const uint step = p->line_tiles;
#endif
  V sum[MR][NV];
  _Pragma("unroll") for (uint i = 0; i < MR; i++) {
    _Pragma("unroll") for (uint v = 0; v < NV; v++) sum[i][v] = (V)(0);
  }
  for (uint k = 0; k < p->channels; k++, x += step, y += NR) {
    V column[NV];
    _Pragma("unroll") for (uint v = 0; v < NV; v++) {
      column[v] = LOADV(C, WIDTH, (global const char*)y, v);
    }
    _Pragma("unroll") for (uint i = 0; i < MR; i++) {
      const V row = (V)(ROW(i));
      _Pragma("unroll") for (uint v = 0; v < NV; v++) {
        sum[i][v] = MAD(row, column[v], sum[i][v]);
      }
    }
  }
  _Pragma("unroll") for (uint i = 0; i < MR; i++) {
    _Pragma("unroll") for (uint v = 0; v < NV; v++) { sums[i * NV + v] = sum[i][v]; }
  }
}

#if RESULT_LAST
/// Stores a strip's results, whole vectors of channels. The value's lanes are NaN where a result is
/// infinite or NaN, else 0.
static ALWAYS_INLINE V store_whole(const Strip strip, private const V* sums,
                                   private const V* addend, global char* to, ulong position,
                                   ulong channel,
                                   private const WinogradArguments* p EPILOGUE_PARAMETERS) {
  V unsound = (V)(0);
  _Pragma("unroll") for (uint i = 0; i < MR; i++) {
    _Pragma("unroll") for (uint v = 0; v < NV; v++) {
      V results[2][2];
      results_of(&sums[i * NV + v], results);
      _Pragma("unroll") for (uint e = 0; e < 4; e++) {
        const V result = results[e / 2][e % 2];
        unsound = MAD(result, (V)(0), unsound);
        if (e / 2 < strip.rows && 2 * i + e % 2 < strip.span) {
          STORE_RESULTS(WIDTH, position + e / 2 * p->width + 2 * i + e % 2, channel + v * WIDTH,
                        to + (e / 2 * p->out_row + (2 * i + e % 2) * p->out_column + v * WIDTH) *
                                 STORAGE_SIZE(OUT),
                        result + addend[v]);
        }
      }
    }
  }
  return unsound;
}
#endif

/// As store_whole(), for `columns` channels that lie anywhere: results side by side, transposed so
/// that they lie as a row's elements do.
static ALWAYS_INLINE V store_edge(const Strip strip, private const V* sums, private const V* addend,
                                  global char* to, ulong position, ulong channel, uint columns,
                                  private const WinogradArguments* p EPILOGUE_PARAMETERS) {
  V unsound = (V)(0);
  for (uint v = 0; v < NV; v++) {
    V square[2][(SPAN + WIDTH - 1) / WIDTH * WIDTH];
    _Pragma("unroll") for (uint i = 0; i < MR; i++) {
      V results[2][2];
      results_of(&sums[i * NV + v], results);
      _Pragma("unroll") for (uint e = 0; e < 4; e++) {
        unsound = MAD(results[e / 2][e % 2], (V)(0), unsound);
        square[e / 2][2 * i + e % 2] = results[e / 2][e % 2] + addend[v];
      }
    }
    for (uint i = 0; i < strip.rows; i++) {
      for (uint x = 0; x < strip.span; x += WIDTH) {
        transpose(square[i] + x);
        for (uint e = 0; e < WIDTH && v * WIDTH + e < columns; e++) {
          global char* row =
              to + (i * p->out_row + x * p->out_column + (v * WIDTH + e) * p->out_channel) *
                       STORAGE_SIZE(OUT);
          const ulong at = position + i * p->width + x, of_all = channel + v * WIDTH + e;
          if (p->out_column == 1 && IN_A_PLANE(p->plane, at, 1)) {
            store_some(square[i][x + e], row, strip.span - x,
                       RESULT_ROW(p->plane, p->all, at, of_all),
                       RESULT_COLUMN(p->plane, at, of_all) EPILOGUE_PASSED);
          } else {
            T elements[WIDTH];
            STORE_PRIVATE(square[i][x + e], elements);
            for (uint j = 0; j < WIDTH && x + j < strip.span; j++) {
              STORE_RESULT(RESULT_ROW(p->plane, p->all, at + j, of_all),
                           RESULT_COLUMN(p->plane, at + j, of_all), row, j * p->out_column,
                           elements[j]);
            }
          }
        }
      }
    }
  }
  return unsound;
}

/// Sums over the channels, and what they make. Global size: n / NR, strips / block, groups.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void winograd_sums(
    global const char* input, const ulong input_offset, global const char* weight,
    const ulong weight_offset, global const char* panels_base, const ulong panels_offset,
    global const char* tiles_base, const ulong tiles_offset, global const char* bias,
    const ulong bias_offset, global char* out, const ulong out_offset,
    const WinogradArguments p EPILOGUE_PARAMETERS) {
  const uint jn = get_global_id(0), z = get_global_id(2);
  const uint panels = (p.columns + NR - 1) / NR, strips = p.line_tiles / MR;
  const uint end = min((uint)(get_global_id(1) + 1) * p.block, p.lines * strips);
  const uint all = p.channels * p.groups, column0 = jn * NR;
  const uint columns = min((uint)NR, p.columns - column0);
  global const T* panel = (global const T*)(panels_base + panels_offset) +
                          ((ulong)z * panels + jn) * kPoints * p.channels * NR;
  global const T* tiles = (global const T*)(tiles_base + tiles_offset);
  bias += bias_offset + ((ulong)z * p.columns + column0) * STORAGE_SIZE(OUT);
  out += out_offset + ((ulong)z * p.columns + column0) * p.out_channel * STORAGE_SIZE(OUT);
  V addend[NV];
  for (uint v = 0; v < NV; v++) {
    T elements[WIDTH];
    for (uint e = 0; e < WIDTH; e++) {
      const bool given = p.flags & kConvBias && v * WIDTH + e < columns;
      elements[e] = given ? LOAD_AS(C, OUT, bias, v * WIDTH + e) : (T)(0);
    }
    addend[v] = LOAD_PRIVATE(elements);
  }

  V sums[kMostStrips][kPoints * MR * NV];
  for (uint first = get_global_id(1) * p.block; first < end; first += p.strips) {
    const uint count = min(p.strips, end - first);
    for (uint point = 0; point < kPoints; point++) {
      for (uint s = 0; s < count; s++) {
        const uint line = (first + s) / strips, tile = (first + s) % strips * MR;
        sum_point(sums[s] + point * MR * NV, tiles, panel + (ulong)point * p.channels * NR, line,
                  tile, point, z, all, &p);
      }
    }
    for (uint s = 0; s < count; s++) {
      const Strip strip = strip_of(&p, first + s);
      if (strip.span == 0) continue;
      global char* to =
          out + (strip.image * p.out_image + strip.y * p.out_row + strip.x * p.out_column) *
                    STORAGE_SIZE(OUT);
      const ulong position = p.position0 + (strip.image * p.height + strip.y) * p.width + strip.x;
      const ulong channel = (ulong)z * p.columns + column0;
      V unsound;
#if RESULT_LAST
      if (p.out_channel == 1 && columns == NR) {
        unsound = store_whole(strip, sums[s], addend, to, position, channel, &p EPILOGUE_PASSED);
      } else
#endif
      {
        unsound =
            store_edge(strip, sums[s], addend, to, position, channel, columns, &p EPILOGUE_PASSED);
      }
      if (any(isnan(unsound))) {
        sum_directly(&p, strip, z, jn, columns, input + input_offset, weight + weight_offset, bias,
                     to, position EPILOGUE_PASSED);
      }
    }
  }
}
#endif
