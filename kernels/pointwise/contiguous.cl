// Pointwise over operands that all lie in memory in the order of iteration: WIDTH elements per
// work-item, the last ones one at a time. Global size: ceil(n / WIDTH) or more.
#include "include/prefetch.clh"
#include "pointwise/operands.clh"

typedef struct {
  ulong offset[NOPS];  // bytes
  uint n;              // elements
} ContiguousLayout;

#define LOAD_ONE(k, name, tag) const T a##k = LOAD_AS(C, tag, name, i);
// What a long operand needs a page later, where a vector is a cache line or half of one: arithmetic and memory don't
// wait for each other then.
#ifdef STREAMING_STORES
#define PREFETCH_LINE(name, tag) \
  if (WIDTH * STORAGE_SIZE(tag) >= 32) PREFETCH_PAGE_AHEAD(tag, WIDTH, name, i);
#else
#define PREFETCH_LINE(name, tag)
#endif
#define LOAD_VECTOR(k, name, tag) \
  PREFETCH_LINE(name, tag)        \
  const T a##k = LOADV_AS(C, tag, WIDTH, name, i);
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

kernel BY_VECTORS void pointwise_contiguous(PARAMETERS(const ContiguousLayout layout)) {
  const size_t chunk = get_global_id(0);
  ADD_OFFSETS()
#if VECTOR_PATH
  if ((chunk + 1) * WIDTH <= layout.n) {
#define T TYPEV(C, WIDTH)
#define LANES SUFFIX(WIDTH)
    const size_t i = chunk;
    LOAD_INS(LOAD_VECTOR)
    FOR_OUTS(DECLARE_RESULT)
    APPLY();
    FOR_OUTS(STORE_VECTOR)
    return;
#undef T
#undef LANES
  }
#endif
#ifdef COMPLEX_VECTORS
  if ((chunk + 1) * WIDTH <= layout.n) {
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
#define LANES
  const size_t end = min((chunk + 1) * WIDTH, (size_t)layout.n);
  for (size_t i = chunk * WIDTH; i < end; i++) {
    LOAD_INS(LOAD_ONE)
    FOR_OUTS(DECLARE_RESULT)
    APPLY();
    FOR_OUTS(STORE_ONE)
  }
}
