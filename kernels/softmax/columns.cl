// Softmax along a dimension that is not the innermost: a work-item owns WIDTH adjacent positions
// and walks across the dimension.
#include "include/item_by_item.clh"
#include "softmax/softmax.clh"

// AT: where the work-item's column begins. NEXT: the bytes to the dimension's following element.
#define AT(p, tag) ((p) + ((ulong)outer * args.length * args.inner + column) * STORAGE_SIZE(tag))
#define NEXT(tag) ((ulong)args.inner * STORAGE_SIZE(tag))

#define FIND_COLUMN                                           \
  const uint tiles = args.columns / WIDTH;                    \
  const uint id = get_global_id(0);                           \
  const uint outer = id / tiles;                              \
  const uint column = args.first_column + id % tiles * WIDTH; \
  if (outer >= args.outer) return;

kernel ITEM_BY_ITEM void softmax_columns(global const char* in, const ulong in_offset,
                                         global char* out, const ulong out_offset,
                                         const Arguments args) {
  FIND_COLUMN
  in = AT(in + in_offset, IN);
  out = AT(out + out_offset, OUT);
  const ulong in_next = NEXT(IN), out_next = NEXT(OUT);

  VECTOR largest = (VECTOR)(LOWEST(ACC));
  for (uint i = 0; i < args.length; i++) {
    const VECTOR x = LOADV_OF(IN, in + i * in_next, 0);
    largest = LARGER(x, largest);
  }
  VECTOR sum = (VECTOR)(0);
  for (uint begin = 0; begin < args.length; begin += BLOCK) {
    VECTOR block = (VECTOR)(0);
    for (uint i = begin; i < min(begin + BLOCK, args.length); i++) {
      const VECTOR e = EXPV(LOADV_OF(IN, in + i * in_next, 0) - largest);
#if STASH && !LOG
      STOREV_FROM(OUT, ACC, WIDTH, out + i * out_next, 0, e);
#endif
      block += e;
    }
    sum += block;
  }
#if LOG
  const VECTOR log_sum = log(sum);
#else
  const VECTOR scale = 1 / sum;
#endif
  for (uint i = 0; i < args.length; i++) {
#if LOG
    const VECTOR result = (LOADV_OF(IN, in + i * in_next, 0) - largest) - log_sum;
#elif STASH
    const VECTOR result = LOADV_OF(OUT, out + i * out_next, 0) * scale;
#else
    const VECTOR result = EXPV(LOADV_OF(IN, in + i * in_next, 0) - largest) * scale;
#endif
    STOREV_FROM(OUT, ACC, WIDTH, out + i * out_next, 0, result);
  }
}

kernel ITEM_BY_ITEM void softmax_columns_backward(global const char* grad, const ulong grad_offset,
                                                  global const char* result,
                                                  const ulong result_offset, global char* out,
                                                  const ulong out_offset, const Arguments args) {
  FIND_COLUMN
  grad = AT(grad + grad_offset, GRAD);
  result = AT(result + result_offset, IN);
  out = AT(out + out_offset, OUT);
  const ulong grad_next = NEXT(GRAD), result_next = NEXT(IN), out_next = NEXT(OUT);

  VECTOR sum = (VECTOR)(0);
  for (uint begin = 0; begin < args.length; begin += BLOCK) {
    VECTOR block = (VECTOR)(0);
    for (uint i = begin; i < min(begin + BLOCK, args.length); i++) {
      block +=
          TERM(LOADV_OF(GRAD, grad + i * grad_next, 0), LOADV_OF(IN, result + i * result_next, 0));
    }
    sum += block;
  }
  for (uint i = 0; i < args.length; i++) {
    const VECTOR g = LOADV_OF(GRAD, grad + i * grad_next, 0);
    const VECTOR y = LOADV_OF(IN, result + i * result_next, 0);
    STOREV_FROM(OUT, ACC, WIDTH, out + i * out_next, 0, GRAD_INPUT(SUFFIX(WIDTH), g, y));
  }
}
