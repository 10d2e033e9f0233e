// Several tensors, one behind the other along a dimension: cat.
//
// Each tensor is cut into chunks of CHUNK elements, and GROUP work-items serve a chunk.
//
// Compile parameters: MIXED (0: all have one dtype; 1: they are converted), OUT (the result's tag,
// or where nothing is converted an unsigned tag of the element's size), GROUP (a work-group if
// above 1), CHUNK, WIDTH (elements of a CPU's vector).
#include "include/dtype.clh"
#include "include/indexing.clh"
#include "include/item_by_item.clh"
#include "shape/arguments.clh"

#ifndef OUT
#define OUT u32
#endif
#ifndef MIXED
#define MIXED 0
#endif
#ifndef GROUP
#define GROUP 1
#define CHUNK 4096
#define WIDTH 16
#endif

#ifdef OCL_HAS_SYSTEM_SVM
#define PARAMETERS ulong out
#define OUT_BASE ((global char*)out)
#define PLACE_OF(part) ((global const char*)(part).in)
#else
// As in multi_tensor/tensors.clh: buffer number in the upper 8 bits, byte offset below.
#define PARAMETERS                                                                            \
  global char *out, ulong out_offset, global const char *buffer0, global const char *buffer1, \
      global const char *buffer2, global const char *buffer3, global const char *buffer4,     \
      global const char *buffer5, global const char *buffer6, global const char *buffer7
#define OUT_BASE (out + out_offset)
#define PLACE_OF(part) (BUFFER((part).in >> 56) + ((part).in & 0xfffffffffffffful))
#define BUFFER(n)       \
  ((n) == 0   ? buffer0 \
   : (n) == 1 ? buffer1 \
   : (n) == 2 ? buffer2 \
   : (n) == 3 ? buffer3 \
   : (n) == 4 ? buffer4 \
   : (n) == 5 ? buffer5 \
   : (n) == 6 ? buffer6 \
              : buffer7)
#endif

#if MIXED
#define CASE(number, tag) \
  case number:            \
    return LOAD_AS(OUT, tag, p, 0);
/// The cases are the numbers that PyTorch gives its dtypes.
static inline TYPE(OUT) element(uint dtype, global const char* p) {
  switch (dtype) {
    CASE(0, u8)
    CASE(1, i8)
    CASE(2, i16)
    CASE(3, i32)
    CASE(4, i64)
    CASE(5, f16)
#ifdef OCL_HAS_FP64
    CASE(7, f64)
#endif
    CASE(11, b8)
    CASE(15, bf16)
    CASE(27, u16)
    CASE(28, u32)
    CASE(29, u64)
    default:
      return LOAD_AS(OUT, f32, p, 0);
  }
}
#define ELEMENT(p) element(dtype, p)
#else
#define ELEMENT(p) LOAD(OUT, p, 0)
#endif

#define SIZE(d) ((d) == args.dim ? length : args.size[d])

/// Adds the offsets of element number `rest` of the dimensions from `first` on.
#define ADD_OFFSETS(rest, first)                                                  \
  FOR_DIMENSIONS(d, first, args.dims, args.size) {                                \
    const uint quotient = rest / SIZE(d), coordinate = rest - quotient * SIZE(d); \
    rest = quotient;                                                              \
    in_at += (long)coordinate * part.stride[d];                                   \
    out_at += (long)coordinate * args.stride[d];                                  \
  }

kernel ITEM_BY_ITEM void cat(PARAMETERS, const CatArguments args) {
  const uint chunk = get_global_id(0) / GROUP;
  if (chunk >= args.chunks) return;
  uint number = 0;
  FOR_DIMENSIONS(k, 1, args.parts, args.part) {
    if (args.part[k].first <= chunk) number = k;
  }
#ifdef OCL_UNROLL_DIMENSIONS
  CatPart part;
  FOR_DIMENSIONS(k, number, number + 1, args.part) part = args.part[k];
#else
#define part args.part[number]
#endif
  const uint length = part.length;
  uint n = 1;
  FOR_DIMENSIONS(d, 0, args.dims, args.size) n *= SIZE(d);
  const uint begin = (chunk - part.first) * CHUNK, end = begin + min((uint)CHUNK, n - begin);
  global const char* from = PLACE_OF(part);
  global char* to = OUT_BASE + part.out;
#if MIXED
  const uint dtype = part.dtype;
#endif
#if GROUP == 1
  // A CPU goes along dimension 0, whose rows are long.
  const uint row = SIZE(0);
  const long in_step = part.stride[0], out_step = args.stride[0];
  for (uint i = begin; i < end;) {
    uint rest = i / row;
    const uint x = i - rest * row, count = min(row - x, end - i);
    long in_at = x * in_step, out_at = x * out_step;
    ADD_OFFSETS(rest, 1);
    global const char* p = from + in_at;
    global char* q = to + out_at;
#if !MIXED
    if (in_step == STORAGE_SIZE(OUT) && out_step == STORAGE_SIZE(OUT)) {
      uint k = 0;
#if WIDTH > 1
      for (; k + WIDTH <= count; k += WIDTH) {
        STOREV(OUT, WIDTH, q + k * STORAGE_SIZE(OUT), 0,
               LOADV(OUT, WIDTH, p + k * STORAGE_SIZE(OUT), 0));
      }
#endif
      for (; k < count; k++) STORE(OUT, q, k, LOAD(OUT, p, k));
      i += count;
      continue;
    }
#endif
    for (uint k = 0; k < count; k++) STORE(OUT, q + k * out_step, 0, ELEMENT(p + k * in_step));
    i += count;
  }
#else
  for (uint i = begin + get_local_id(0); i < end; i += GROUP) {
    uint rest = i;
    long in_at = 0, out_at = 0;
    ADD_OFFSETS(rest, 0);
    STORE(OUT, to + out_at, 0, ELEMENT(from + in_at));
  }
#endif
}
