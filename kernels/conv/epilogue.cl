// Applies the epilogue to results that a kernel stored itself (epilogue.clh), in the order in which
// they lie: a matrix of `columns` columns, from row `first` on. Global size: elements / block.
// GPUs' work-items have one element.
//
// Compile parameters: C, OUT (the tags that the epilogue takes, and of what is stored).
#include "include/item_by_item.clh"
#include "conv/conv.clh"
#include "conv/epilogue.clh"

#ifdef HAS_EPILOGUE
#if EPILOGUE_LANES > 1
#define VECTOR EPILOGUE_LANES
kernel ITEM_BY_ITEM
#else
kernel
#endif
    void conv_epilogue(global const char* from, const ulong from_offset, const ulong first,
                       const ulong elements, const ulong columns,
                       const uint block EPILOGUE_PARAMETERS) {
  from += from_offset;
  ulong at = get_global_id(0) * (ulong)block;
  const ulong end = min(at + block, elements);
  ulong row = at / columns, column = at % columns;
  while (at < end) {
    const ulong run = min(columns - column, end - at);
    ulong i = 0;
#if EPILOGUE_LANES > 1
    for (; i + VECTOR <= run; i += VECTOR) {
      PASTE2(epilogue_, VECTOR)
      (0, first + row, column + i,
       LOADV_AS(C, OUT, VECTOR, from + (at + i) * STORAGE_SIZE(OUT), 0) EPILOGUE_OPERANDS);
    }
#endif
    for (; i < run; i++) {
      epilogue(0, first + row, column + i, LOAD_AS(C, OUT, from, at + i) EPILOGUE_OPERANDS);
    }
    at += run;
    column = 0;
    row++;
  }
}
#endif
