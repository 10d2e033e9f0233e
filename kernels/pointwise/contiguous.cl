// Pointwise over operands that all lie in memory in the order of iteration: VECTORS vectors of
// WIDTH elements per work-item, the last elements one at a time. Global size: ceil(n / (VECTORS *
// WIDTH)) or more.
//
// PAIRS: all operands are bfloat16 in whole cache lines, and VECTORS is even (see
// vector_pairs.clh).
#include "include/prefetch.clh"
#include "pointwise/operands.clh"
#ifndef VECTORS
#define VECTORS 1
#endif
#define PER_ITEM (VECTORS * WIDTH)
#ifndef PAIRS
#define PAIRS 0
#endif

#define LOAD_ONE(k, name, tag) const T a##k = LOAD_AS(C, tag, name, i);
// Asks for an operand's elements a page later, where there is one, or a narrow one among several:
// its pages last longer than the others', and the processor's own prefetching stops at a page's
// end. Without it where() takes 1.4 times as long, and tanh() 5% longer. With it several operands
// of 4 bytes would be up to 15% slower.
#define IS_NARROW(k, name, tag) || STORAGE_SIZE(tag) < 4
#define PREFETCH_IN(k, name, tag) \
  if (PER_ITEM * STORAGE_SIZE(tag) >= 32) PREFETCH_PAGE_AHEAD(tag, PER_ITEM, name, chunk);
#define LOAD_VECTOR(k, name, tag) const T a##k = LOADV_AS(C, tag, WIDTH, name, i);
#if PAIRS
#define TIES_TO_EVEN 1
#include "include/vector_pairs.clh"
static inline uint16 encoded(float16 x) { return x != x ? (uint16)(0x7fc00000) : rounded(x); }
#define LOAD_WORDS(k, name, tag) const uint16 w##k = ((global const uint16*)(name))[i];
#define LOAD_EVEN(k, name, tag) const T a##k = EVEN_OF(w##k);
#define LOAD_ODD(k, name, tag) const T a##k = ODD_OF(w##k);
#define DECLARE_WORDS(k, name, tag) uint16 e##k, o##k;
#define KEEP_EVEN(k, name, tag) e##k = encoded(r##k);
#define KEEP_ODD(k, name, tag) o##k = encoded(r##k);
#define STORE_WORDS(k, name, tag) STORE_ALIGNED(uint16, name, i, WORDS_OF(e##k, o##k));
#define COMPUTE_PAIR()       \
  FOR_INS(LOAD_WORDS)        \
  FOR_OUTS(DECLARE_WORDS) {  \
    LOAD_INS(LOAD_EVEN)      \
    FOR_OUTS(DECLARE_RESULT) \
    APPLY();                 \
    FOR_OUTS(KEEP_EVEN)      \
  }                          \
  {                          \
    LOAD_INS(LOAD_ODD)       \
    FOR_OUTS(DECLARE_RESULT) \
    APPLY();                 \
    FOR_OUTS(KEEP_ODD)       \
  }                          \
  FOR_OUTS(STORE_WORDS)
#endif
#define STORE_ONE(k, name, tag) STORE_FROM(tag, C, name, i, r##k);
#define STORE_VECTOR(k, name, tag) STOREV_FROM(tag, C, WIDTH, name, i, r##k);
// Complex numbers as vectors of twice as many reals.
#define REAL_c64 f32
#define REAL_c128 f64
#define LOAD_REALS(k, name, tag) \
  const T a##k = LOADV(PASTE2(REAL_, tag), PASTE2(REALS_, WIDTH), name, chunk);
#define REPEAT(k) const T a##k = EACH(c##k);
#define STORE_REALS(k, name, tag) \
  STOREV(PASTE2(REAL_, tag), PASTE2(REALS_, WIDTH), name, chunk, r##k);

kernel BY_VECTORS void pointwise_contiguous(PARAMETERS(const uint n)) {
  const size_t chunk = get_global_id(0);
  ADD_OFFSETS()
  const size_t end = min((chunk + 1) * PER_ITEM, (size_t)n);
  size_t x = chunk * PER_ITEM;
#if VECTOR_PATH
#define T TYPEV(C, WIDTH)
#define T_SUFFIX SUFFIX(WIDTH)
#define COMPUTE_VECTOR()   \
  LOAD_INS(LOAD_VECTOR)    \
  FOR_OUTS(DECLARE_RESULT) \
  APPLY();                 \
  FOR_OUTS(STORE_VECTOR)
  if (x + PER_ITEM <= n) {
    if (NIN == 1 FOR_INS(IS_NARROW)) {
      FOR_INS(PREFETCH_IN)
    }
#if PAIRS
    for (size_t i = chunk * (VECTORS / 2); i < (chunk + 1) * (VECTORS / 2); i++) {
      COMPUTE_PAIR()
    }
#else
    for (size_t i = chunk * VECTORS; i < (chunk + 1) * VECTORS; i++) {
      COMPUTE_VECTOR()
    }
#endif
    return;
  }
#if VECTORS > 1
  for (; x + WIDTH <= end; x += WIDTH) {
    const size_t i = x / WIDTH;
    COMPUTE_VECTOR()
  }
#endif
#undef T
#undef T_SUFFIX
#endif
#ifdef COMPLEX_VECTORS
  if ((chunk + 1) * WIDTH <= n) {
#define T REALS
    FOR_INS(LOAD_REALS)
    FOR_SCALAR_INS(REPEAT)
    FOR_OUTS(DECLARE_RESULT)
    r0 = CALL(PASTE2(v, OP), (ARGUMENTS));
    FOR_OUTS(STORE_REALS)
    return;
#undef T
  }
#endif
#define T TYPE(C)
#define T_SUFFIX
  for (size_t i = x; i < end; i++) {
    LOAD_INS(LOAD_ONE)
    FOR_OUTS(DECLARE_RESULT)
    APPLY();
    FOR_OUTS(STORE_ONE)
  }
}
