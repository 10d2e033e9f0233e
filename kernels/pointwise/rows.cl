// Pointwise over rows: a two-dimensional range, x in chunks of WIDTH elements of the innermost
// dimension, y over all other dimensions. How each operand moves along x is known at compile time.
//
// Further compile parameters: STEP_OUT_<k>, STEP_IN_<k> per operand: 0 the same element for the
// whole row, 1 contiguous, 2 inner_step bytes apart. Global size: ceil(ceil(nx / WIDTH) / run),
// ceil(ny / together), or more: a CPU's work-item takes `run` chunks of a row, since to find it
// costs as much as a vector, and those of `together` rows one after the other, where rows are short
// or share the cache lines of an operand.
#include "pointwise/operands.clh"
#include "include/indexing.clh"

#ifndef STEP_OUT_0
#define STEP_OUT_0 1
#endif
#ifndef STEP_IN_0
#define STEP_IN_0 1
#endif

typedef struct {
  ulong offset[NOPS];  // bytes
  uint nx;
  uint ny;
  uint outer_dims;
  uint run;
  uint together;
  uint inner_step[NOPS];  // bytes
  uint size[15];          // of the outer dimensions, innermost first
  uint stride[NOPS][15];  // bytes
} RowsLayout;

// Element x of an operand, by its step: a byte pointer.
#define AT_0(p, tag, x, inner_step) (p)
#define AT_1(p, tag, x, inner_step) ((p) + (x) * STORAGE_SIZE(tag))
#define AT_2(p, tag, x, inner_step) ((p) + (x) * (inner_step))
#define LOAD_ONE(k, name, tag) \
  const T a##k = LOAD_AS(      \
      C, tag, PASTE2(AT_, STEP_IN_##k)(name, tag, x, layout.inner_step[BUFFER_OF_IN(k)]), 0);
#define STORE_ONE(k, name, tag) \
  STORE_FROM(tag, C, PASTE2(AT_, STEP_OUT_##k)(name, tag, x, layout.inner_step[k]), 0, r##k);

// WIDTH elements from chunk * WIDTH on.
#define LOAD_VECTOR_0(k, name, tag) const T a##k = (T)(LOAD_AS(C, tag, name, 0));
#define LOAD_VECTOR_1(k, name, tag) const T a##k = LOADV_AS(C, tag, WIDTH, name, chunk);
#define LOAD_VECTOR_2(k, name, tag)                                                             \
  TYPE(C) lanes##k[WIDTH];                                                                      \
  for (uint lane = 0; lane < WIDTH; lane++)                                                     \
    lanes##k[lane] =                                                                            \
        LOAD_AS(C, tag, name + (chunk * WIDTH + lane) * layout.inner_step[BUFFER_OF_IN(k)], 0); \
  const T a##k = PASTE2(vload, WIDTH)(0, lanes##k);
#define LOAD_VECTOR(k, name, tag) PASTE2(LOAD_VECTOR_, STEP_IN_##k)(k, name, tag)
// An output of step 0 has one element per row.
#define STORE_VECTOR_0(k, name, tag) STORE_VECTOR_2(k, name, tag)
#define STORE_VECTOR_1(k, name, tag) STOREV_FROM(tag, C, WIDTH, name, chunk, r##k);
#define STORE_VECTOR_2(k, name, tag)          \
  TYPE(C) results##k[WIDTH];                  \
  PASTE2(vstore, WIDTH)(r##k, 0, results##k); \
  for (uint lane = 0; lane < WIDTH; lane++)   \
    STORE_FROM(tag, C, name + (chunk * WIDTH + lane) * layout.inner_step[k], 0, results##k[lane]);
#define STORE_VECTOR(k, name, tag) PASTE2(STORE_VECTOR_, STEP_OUT_##k)(k, name, tag)

#define ADD_ROW_OUT(k, name, tag) name += at[k];
#define ADD_ROW_IN(k, name, tag) name += at[BUFFER_OF_IN(k)];
#define LEAVE_ROW_OUT(k, name, tag) name -= at[k];
#define LEAVE_ROW_IN(k, name, tag) name -= at[BUFFER_OF_IN(k)];

// On a GPU they are 1.
#ifdef OCL_DEVICE_CPU
#define RUN layout.run
#define TOGETHER layout.together
#else
#define RUN 1
#define TOGETHER 1
#endif

kernel BY_VECTORS void pointwise_rows(PARAMETERS(const RowsLayout layout)) {
  const size_t first = get_global_id(0) * RUN, first_row = get_global_id(1) * TOGETHER;
  if (first * WIDTH >= layout.nx || first_row >= layout.ny) return;
  ADD_OFFSETS()
  const size_t end = min((first + RUN) * WIDTH, (size_t)layout.nx);
  const size_t end_row = min(first_row + TOGETHER, (size_t)layout.ny);
  uint at[NOPS];
  uint beside = 0;  // rows up to the end of the first outer dimension
  for (size_t row = first_row; row < end_row; row++) {
    size_t chunk = first;
    if (beside == 0) {
      for (uint k = 0; k < NOPS; k++) at[k] = 0;
      DECODE_OFFSETS(at, NOPS, (uint)row, layout.outer_dims, layout.size, layout.stride);
      beside = layout.size[0] - (uint)row % layout.size[0];
    } else {
      for (uint k = 0; k < NOPS; k++) at[k] += layout.stride[k][0];
    }
    beside--;
    FOR_OUTS(ADD_ROW_OUT)
    FOR_INS(ADD_ROW_IN)
#if VECTOR_PATH
    for (; (chunk + 1) * WIDTH <= end; chunk++) {
#define T TYPEV(C, WIDTH)
#define LANES SUFFIX(WIDTH)
      LOAD_INS(LOAD_VECTOR)
      FOR_OUTS(DECLARE_RESULT)
      APPLY();
      FOR_OUTS(STORE_VECTOR)
#undef T
#undef LANES
    }
#endif
#define T TYPE(C)
#define LANES
    for (size_t x = chunk * WIDTH; x < end; x++) {
      LOAD_INS(LOAD_ONE)
      FOR_OUTS(DECLARE_RESULT)
      APPLY();
      FOR_OUTS(STORE_ONE)
    }
#undef T
#undef LANES
    FOR_OUTS(LEAVE_ROW_OUT)
    FOR_INS(LEAVE_ROW_IN)
  }
}
