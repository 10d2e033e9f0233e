// Continuous distributions (and the geometric one, which is a rounded exponential).
//
// Compile parameters, besides fill.clh's: DIST (uniform, normal, log_normal, exponential, cauchy,
// geometric), DIGITS (random bits of a uniform number: at most 24 for V=f32, 53 for V=f64). V=f64
// takes two Philox calls for four elements, V=f32 one. Global size: ceil(n / 4) or more.
#include "random/fill.clh"

#ifndef DIST
#define DIST uniform
#endif
#ifndef DIGITS
#define DIGITS 24
#endif

typedef TYPE(V) real;
typedef TYPEV(V, 4) real4;

#define IS_f32 1
#define IS_f64 2
#if PASTE2(IS_, V) == 2
#define PHILOX_CALLS 2
#define EPSILON 0x1p-52
#define TINY 0x1p-1022
typedef ulong4 random4;
static inline ulong4 draw(ulong seed, ulong group, ulong offset) {
  const uint4 a = philox4x32(seed, group, offset);
  const uint4 b = philox4x32(seed, group, offset + 1);
  const uint4 low = (uint4)(a.xz, b.xz);
  const uint4 high = (uint4)(a.yw, b.yw);
  return convert_ulong4(low) | (convert_ulong4(high) << (ulong4)(32));
}
/// In (0, 1]: what logarithms take.
static inline double4 open_zero(ulong4 bits) {
  return (convert_double4(bits >> (ulong4)(11)) + 0.5) * 0x1p-53;
}
/// In [0, 1), a multiple of 2^-DIGITS.
static inline double4 half_open(ulong4 bits) {
  return convert_double4(bits >> (ulong4)(64 - DIGITS)) * (1.0 / (1ul << DIGITS));
}
#else
#define EPSILON 0x1p-23f
typedef uint4 random4;
static inline uint4 draw(ulong seed, ulong group, ulong offset) {
  return philox4x32(seed, group, offset);
}
/// All 32 bits: the tail of a normal number reaches as far as the float nearest to zero allows.
static inline float4 open_zero(uint4 bits) {
  return fma(convert_float4(bits), (float4)(0x1p-32f), (float4)(0x1p-33f));
}
static inline float4 half_open(uint4 bits) {
  return convert_float4(bits >> (uint4)(32 - DIGITS)) * (1.0f / (1u << DIGITS));
}
#endif

/// p0=from p1=to - from p2=the largest value of the dtype below `to`, which rounding may not pass.
static inline real4 draw_uniform(random4 bits, real p0, real p1, real p2) {
  return min(fma(half_open(bits), (real4)(p1), (real4)(p0)), (real4)(p2));
}

/// Box-Muller on pairs. p0=mean p1=std
static inline real4 draw_normal(random4 bits, real p0, real p1, real p2) {
  const real4 u = open_zero(bits);
  TYPEV(V, 2) angle = u.yw + u.yw;
  TYPEV(V, 2) radius = sqrt(log(u.xz) * (real)(-2));
  const TYPEV(V, 2) even = radius * cospi(angle);
  const TYPEV(V, 2) odd = radius * sinpi(angle);
  return fma((real4)(even.x, odd.x, even.y, odd.y), (real4)(p1), (real4)(p0));
}

/// p0=mean p1=std of the logarithm
static inline real4 draw_log_normal(random4 bits, real p0, real p1, real p2) {
  return exp(draw_normal(bits, p0, p1, p2));
}

/// p0=1/lambda. Never 0, which an exponential variable isn't either: a quotient by it stays finite.
static inline real4 draw_exponential(random4 bits, real p0, real p1, real p2) {
  return max(-log(open_zero(bits)), (real4)(EPSILON / 2)) * p0;
}

/// p0=median p1=sigma. The poles of the tangent are cut off.
static inline real4 draw_cauchy(random4 bits, real p0, real p1, real p2) {
  const real4 u = clamp(open_zero(bits), (real)(EPSILON), (real)(1 - EPSILON));
  return fma(tanpi(u - (real)(0.5f)), (real4)(p1), (real4)(p0));
}

/// p0=1 / log(1 - p). At least 1 trial.
static inline real4 draw_geometric(random4 bits, real p0, real p1, real p2) {
  return max(ceil(log(open_zero(bits)) * p0), (real4)(1));
}

kernel void random_real(global char *out, const FillLayout layout, ulong seed, ulong offset,
                        real p0, real p1, real p2) {
  const ulong group = get_global_id(0);
  if (group * 4 >= layout.n) return;
  const real4 values = PASTE2(draw_, DIST)(draw(seed, group, offset), p0, p1, p2);
  STORE_FOUR(out, layout, group, values);
}
