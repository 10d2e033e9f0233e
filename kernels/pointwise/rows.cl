// Pointwise over rows: a two-dimensional range, x in chunks of WIDTH elements of the innermost
// dimension, y over all other dimensions. How each operand moves along x is known at compile time.
//
// Further compile parameters: STEP_OUT_<k>, STEP_IN_<k> per operand: 0 the same element for the
// whole row, 1 contiguous, 2 a stride apart. Global size: ceil(ceil(size[0] / WIDTH) / run),
// ceil(n / together), or more: a CPU's work-item takes `run` chunks of a row, since to find it
// costs as much as a vector, and those of `together` rows one after the other, where rows are short
// or share the cache lines of an operand.
#include "pointwise/operands.clh"
#include "include/indexing.clh"
#include "pointwise/arguments.clh"

#ifndef STEP_OUT_0
#define STEP_OUT_0 1
#endif
#ifndef STEP_IN_0
#define STEP_IN_0 1
#endif

#define STRIDE(k, d) arguments.stride[k][d]

// Element x of an operand, by its step: a byte pointer.
#define AT_0(p, tag, x, inner_step) (p)
#define AT_1(p, tag, x, inner_step) ((p) + (x) * STORAGE_SIZE(tag))
#define AT_2(p, tag, x, inner_step) ((p) + (x) * (inner_step))
#define LOAD_ONE(k, name, tag) \
  const T a##k =               \
      LOAD_AS(C, tag, PASTE2(AT_, STEP_IN_##k)(name, tag, x, STRIDE(BUFFER_OF_IN(k), 0)), 0);
#define STORE_ONE(k, name, tag) \
  STORE_FROM(tag, C, PASTE2(AT_, STEP_OUT_##k)(name, tag, x, STRIDE(k, 0)), 0, r##k);

// WIDTH elements from chunk * WIDTH on.
#define LOAD_VECTOR_0(k, name, tag) const T a##k = (T)(LOAD_AS(C, tag, name, 0));
#define LOAD_VECTOR_1(k, name, tag) const T a##k = LOADV_AS(C, tag, WIDTH, name, chunk);
#define LOAD_VECTOR_2(k, name, tag)                                                     \
  TYPE(C) lanes##k[WIDTH];                                                              \
  for (uint lane = 0; lane < WIDTH; lane++)                                             \
    lanes##k[lane] =                                                                    \
        LOAD_AS(C, tag, name + (chunk * WIDTH + lane) * STRIDE(BUFFER_OF_IN(k), 0), 0); \
  const T a##k = PASTE2(vload, WIDTH)(0, lanes##k);
#define LOAD_VECTOR(k, name, tag) PASTE2(LOAD_VECTOR_, STEP_IN_##k)(k, name, tag)
// An output of step 0 has one element per row.
#define STORE_VECTOR_0(k, name, tag) STORE_VECTOR_2(k, name, tag)
#define STORE_VECTOR_1(k, name, tag) STOREV_FROM(tag, C, WIDTH, name, chunk, r##k);
#define STORE_VECTOR_2(k, name, tag)          \
  TYPE(C) results##k[WIDTH];                  \
  PASTE2(vstore, WIDTH)(r##k, 0, results##k); \
  for (uint lane = 0; lane < WIDTH; lane++)   \
    STORE_FROM(tag, C, name + (chunk * WIDTH + lane) * STRIDE(k, 0), 0, results##k[lane]);
#define STORE_VECTOR(k, name, tag) PASTE2(STORE_VECTOR_, STEP_OUT_##k)(k, name, tag)

#define ADD_ROW_OUT(k, name, tag) name += at[k];
#define ADD_ROW_IN(k, name, tag) name += at[BUFFER_OF_IN(k)];
#define LEAVE_ROW_OUT(k, name, tag) name -= at[k];
#define LEAVE_ROW_IN(k, name, tag) name -= at[BUFFER_OF_IN(k)];

// On a GPU they are 1.
#ifdef OCL_DEVICE_CPU
#define RUN arguments.run
#define TOGETHER arguments.together
#else
#define RUN 1
#define TOGETHER 1
#endif

kernel BY_VECTORS void pointwise_rows(PARAMETERS(const Arguments arguments)) {
  const size_t first = get_global_id(0) * RUN, first_row = get_global_id(1) * TOGETHER;
  if (first * WIDTH >= arguments.size[0] || first_row >= arguments.n) return;
  ADD_OFFSETS()
  const size_t end = min((first + RUN) * WIDTH, (size_t)arguments.size[0]);
  const size_t end_row = min(first_row + TOGETHER, (size_t)arguments.n);
  uint at[NOPS];
  uint beside = 0;  // rows up to the end of the first outer dimension
  for (size_t row = first_row; row < end_row; row++) {
    size_t chunk = first;
    if (beside == 0) {
      for (uint k = 0; k < NOPS; k++) at[k] = 0;
      DECODE_OFFSETS_BY(at, NOPS, (uint)row, 1, arguments.dims, arguments.size, STRIDE);
      beside = arguments.size[1] - (uint)row % arguments.size[1];
    } else {
      for (uint k = 0; k < NOPS; k++) at[k] += STRIDE(k, 1);
    }
    beside--;
    FOR_OUTS(ADD_ROW_OUT)
    FOR_INS(ADD_ROW_IN)
#if VECTOR_PATH
    for (; (chunk + 1) * WIDTH <= end; chunk++) {
#define T TYPEV(C, WIDTH)
#define T_SUFFIX SUFFIX(WIDTH)
      LOAD_INS(LOAD_VECTOR)
      FOR_OUTS(DECLARE_RESULT)
      APPLY();
      FOR_OUTS(STORE_VECTOR)
#undef T
#undef T_SUFFIX
    }
#endif
#define T TYPE(C)
#define T_SUFFIX
    for (size_t x = chunk * WIDTH; x < end; x++) {
      LOAD_INS(LOAD_ONE)
      FOR_OUTS(DECLARE_RESULT)
      APPLY();
      FOR_OUTS(STORE_ONE)
    }
#undef T
#undef T_SUFFIX
    FOR_OUTS(LEAVE_ROW_OUT)
    FOR_INS(LEAVE_ROW_IN)
  }
}
