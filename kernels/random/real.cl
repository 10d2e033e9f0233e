// Continuous distributions (and the geometric one, which is a rounded exponential).
//
// Compile parameters, besides fill.clh's: DIST (uniform, normal, log_normal, exponential, cauchy,
// geometric), DIGITS (random bits of a uniform number: at most 24 for V=f32, 53 for V=f64). V=f64
// takes two Philox calls for four elements, V=f32 one. LANES is for V=f32 alone. Global size:
// ceil(n / (4 * ITEM_GROUPS)) or more.
#include "random/fill.clh"
#include "random/lanes.clh"
#include "random/transforms.clh"
#include "math/exponential.clh"

#ifndef DIST
#define DIST uniform
#endif
#ifndef DIGITS
#define DIGITS 24
#endif

typedef TYPE(V) real;

#define IS_f32 1
#define IS_f64 2
#if PASTE2(IS_, V) == 2
#define EPSILON 0x1p-52
#define BITS ulong
static inline ulong4 draw(ulong seed, ulong group, ulong offset) {
  const uint4 a = philox4x32(seed, group, offset);
  const uint4 b = philox4x32(seed, group, offset + 1);
  const uint4 low = (uint4)(a.xz, b.xz);
  const uint4 high = (uint4)(a.yw, b.yw);
  return convert_ulong4(low) | (convert_ulong4(high) << (ulong4)(32));
}
// In (0, 1]: what logarithms take.
#define OPEN_ZERO(n, bits) \
  ((convert_double##n(bits >> (ulong##n)(11)) + (double##n)(0.5)) * (double##n)(0x1p-53))
// In [0, 1), a multiple of 2^-DIGITS.
#define HALF_OPEN(n, bits) \
  (convert_double##n(bits >> (ulong##n)(64 - DIGITS)) * (double##n)(1.0 / (1ul << DIGITS)))
#else
#define EPSILON 0x1p-23f
#define BITS uint
static inline uint4 draw(ulong seed, ulong group, ulong offset) {
  return philox4x32(seed, group, offset);
}
// All 32 bits: the tail of a normal number reaches as far as the float nearest to zero allows.
#define OPEN_ZERO(n, bits) fma(convert_float##n(bits), (float##n)(0x1p-32f), (float##n)(0x1p-33f))
#define HALF_OPEN(n, bits) \
  (convert_float##n(bits >> (uint##n)(32 - DIGITS)) * (float##n)(1.0f / (1u << DIGITS)))
#endif

// draw_<distribution>: two numbers' values of their bits, for which it takes one number each, or
// both for both.
//
// uniform: p0=from p1=to - from p2=the largest value of the dtype below `to`, which rounding may
// not pass. normal: Box-Muller. p0=mean p1=std. log_normal: the logarithm's. exponential:
// p0=1/lambda. Never 0, which an exponential variable isn't either: a quotient by it stays finite.
// cauchy: p0=median p1=sigma. The poles of the tangent are cut off.
// geometric: p0=1 / log(1 - p). At least 1 trial.
#define DEFINE_DRAWS(S, B, n)                                                                      \
  static inline S##n of_uniform##n(B##n bits, S p0, S p1, S p2) {                                  \
    return min(fma(HALF_OPEN(n, bits), (S##n)(p1), (S##n)(p0)), (S##n)(p2));                       \
  }                                                                                                \
  static inline S##n of_exponential##n(B##n bits, S p0, S p1, S p2) {                              \
    const S##n u = OPEN_ZERO(n, bits);                                                             \
    return max(-LOG(S, n, u), (S##n)(EPSILON / 2)) * (S##n)(p0);                                   \
  }                                                                                                \
  static inline S##n of_cauchy##n(B##n bits, S p0, S p1, S p2) {                                   \
    const S##n u = clamp(OPEN_ZERO(n, bits), (S##n)(EPSILON), (S##n)(1 - EPSILON));                \
    S##n cosine, sine;                                                                             \
    COS_SIN(S, n, u * (S##n)(0.5f), cosine, sine)                                                  \
    return fma(-cosine / sine, (S##n)(p1), (S##n)(p0));                                            \
  }                                                                                                \
  static inline S##n of_geometric##n(B##n bits, S p0, S p1, S p2) {                                \
    const S##n u = OPEN_ZERO(n, bits);                                                             \
    return max(ceil(LOG(S, n, u) * (S##n)(p0)), (S##n)(1));                                        \
  }                                                                                                \
  static inline void draw_normal##n(B##n a, B##n b, S p0, S p1, S p2, S##n* even, S##n* odd) {     \
    const S##n u = OPEN_ZERO(n, a), turn = OPEN_ZERO(n, b);                                        \
    const S##n radius = sqrt(LOG(S, n, u) * (S##n)(-2));                                           \
    S##n cosine, sine;                                                                             \
    COS_SIN(S, n, turn, cosine, sine)                                                              \
    *even = fma(radius * cosine, (S##n)(p1), (S##n)(p0));                                          \
    *odd = fma(radius * sine, (S##n)(p1), (S##n)(p0));                                             \
  }                                                                                                \
  static inline void draw_log_normal##n(B##n a, B##n b, S p0, S p1, S p2, S##n* even, S##n* odd) { \
    draw_normal##n(a, b, p0, p1, p2, even, odd);                                                   \
    *even = EXP(S, n, *even);                                                                      \
    *odd = EXP(S, n, *odd);                                                                        \
  }                                                                                                \
  DEFINE_DRAW_OF_EACH(S, B, n, uniform)                                                            \
  DEFINE_DRAW_OF_EACH(S, B, n, exponential)                                                        \
  DEFINE_DRAW_OF_EACH(S, B, n, cauchy)                                                             \
  DEFINE_DRAW_OF_EACH(S, B, n, geometric)
#define DEFINE_DRAW_OF_EACH(S, B, n, dist)                                                     \
  static inline void draw_##dist##n(B##n a, B##n b, S p0, S p1, S p2, S##n* even, S##n* odd) { \
    *even = of_##dist##n(a, p0, p1, p2);                                                       \
    *odd = of_##dist##n(b, p0, p1, p2);                                                        \
  }
#define DEFINE_DRAWS_OF(S, B, n) DEFINE_DRAWS(S, B, n)
DEFINE_DRAWS_OF(TYPE(V), BITS, 2)
#if LANES == 16
DEFINE_DRAWS_OF(TYPE(V), BITS, 16)
#endif

kernel BY_LANES void random_real(global char* out, const ulong out_offset,
                                 const FillArguments layout, ulong seed, ulong offset, real p0,
                                 real p1, real p2) {
  out += out_offset;
  const ulong first = get_global_id(0) * ITEM_GROUPS;
  if (first * 4 >= layout.n) return;
#if LANES == 16
  if ((first + LANES) * 4 <= layout.n) {
    uint16 word[4];
    float16 value[4];
    philox4x32_lanes(seed, first, offset, word);
    for (uint k = 0; k < 4; k += 2)
      PASTE3(draw_, DIST, 16)(word[k], word[k + 1], p0, p1, p2, &value[k], &value[k + 1]);
    IN_ORDER(float16, value);
    for (uint k = 0; k < 4; k++) STOREV_FROM(OUT, V, 16, out, first / 4 + k, value[k]);
    return;
  }
#endif
  const ulong end = min(first + ITEM_GROUPS, (layout.n + 3) / 4);
  for (ulong group = first; group < end; group++) {
    const PASTE2(BITS, 4) bits = draw(seed, group, offset);
    TYPEV(V, 2) even, odd;
    PASTE3(draw_, DIST, 2)(bits.xz, bits.yw, p0, p1, p2, &even, &odd);
    const TYPEV(V, 4) values = (TYPEV(V, 4))(even.x, odd.x, even.y, odd.y);
    STORE_FOUR(out, layout, group, values);
  }
}
