// Non-maximum suppression of boxes in the order of their scores: which pairs overlap too much, and
// which boxes stay then.
//
// Compile parameters: IN (tag of the boxes), ACC (that of the type computed in), GROUP (work-items
// of nms_scan, which is one work-group).
#include "include/dtype.clh"
#include "include/quotient.clh"
#include "vision/nms_arguments.clh"

#ifndef IN
#define IN f32
#endif
#ifndef ACC
#define ACC f32
#endif
#ifndef GROUP
#define GROUP 1
#endif

#define SCALAR TYPE(ACC)
#define BITS ((uint)kBits)

// As std::max and std::min have it, with a NaN in either place.
#define LARGER(a, b) ((a) < (b) ? (b) : (a))
#define SMALLER(a, b) ((b) < (a) ? (b) : (a))

typedef struct {
  SCALAR x1, y1, x2, y2, area;
} Box;

static inline Box load_box(global const char* boxes, uint i) {
  const ulong first = (ulong)i * 4;
  Box box;
  box.x1 = LOAD_AS(ACC, IN, boxes, first);
  box.y1 = LOAD_AS(ACC, IN, boxes, first + 1);
  box.x2 = LOAD_AS(ACC, IN, boxes, first + 2);
  box.y2 = LOAD_AS(ACC, IN, boxes, first + 3);
  box.area = (box.x2 - box.x1) * (box.y2 - box.y1);
  return box;
}

/// For the boxes [first, first + rows): mask[row][word] has a bit for each box of a lower score
/// whose overlap is above the threshold. Words of higher scores only are left alone. Global size:
/// rows by the words from that of `first` on, or more.
kernel void nms_mask(global char* mask, const ulong mask_offset, global const char* boxes,
                     const ulong boxes_offset, const uint n, const uint first, const uint rows,
                     const uint words, const SCALAR threshold) {
  boxes += boxes_offset;
  const uint row = get_global_id(0), i = first + row;
  const uint word = first / BITS + (uint)get_global_id(1), begin = word * BITS;
  if (row >= rows || word >= words || begin + BITS <= i) return;
  const Box a = load_box(boxes, i);
  const uint count = min(BITS, n - begin);
  uint bits = 0;
  for (uint j = 0; j < count; j++) {
    const Box b = load_box(boxes, begin + j);
    const SCALAR width = SMALLER(a.x2, b.x2) - LARGER(a.x1, b.x1);
    const SCALAR height = SMALLER(a.y2, b.y2) - LARGER(a.y1, b.y1);
    const SCALAR both = LARGER((SCALAR)(0), width) * LARGER((SCALAR)(0), height);
    const SCALAR share = QUOTIENT(ACC)(both, a.area + b.area - both);
    bits |= (uint)(share > threshold) << j;
  }
  if (word == i / BITS) bits &= ~((2u << (i % BITS)) - 1);  // itself, and those before it
  ((global uint*)(mask + mask_offset))[(ulong)row * words + word] = bits;
}

/// Goes through the boxes [first, first + rows): one stays if none that stays overlaps it. `first`
/// is a multiple of 32, and so is `rows`, except at the end. removed[words] has the bits of all
/// boxes that are out. keep[0] counts those that stay, and keep[1...] are their places in the
/// order given.
kernel void nms_scan(global const char* mask_base, const ulong mask_offset,
                     global char* removed_base, const ulong removed_offset,
                     global const char* order_base, const ulong order_offset,
                     global char* keep_base, const ulong keep_offset, const uint first,
                     const uint rows, const uint words) {
  global const uint* mask = (global const uint*)(mask_base + mask_offset);
  global uint* removed = (global uint*)(removed_base + removed_offset);
  global const long* order = (global const long*)(order_base + order_offset);
  global long* keep = (global long*)(keep_base + keep_offset);
  local uint diagonal[BITS];
  local uint decided;
  const uint item = get_local_id(0);
  long count = keep[0];
  for (uint begin = 0; begin < rows; begin += BITS) {
    const uint word = (first + begin) / BITS, size = min(BITS, rows - begin);
    for (uint t = item; t < size; t += GROUP) diagonal[t] = mask[(ulong)(begin + t) * words + word];
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    // Each of the 32 boxes depends on those before it.
    if (item == 0) {
      uint out = removed[word], stays = 0;
      for (uint t = 0; t < size; t++) {
        if ((out >> t) & 1) continue;
        stays |= 1u << t;
        out |= diagonal[t];
      }
      decided = stays;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint stays = decided;
    for (uint w = word + 1 + item; w < words; w += GROUP) {
      uint out = removed[w];
      for (uint left = stays; left != 0; left &= left - 1) {
        const uint t = BITS - 1 - clz(left & (0 - left));
        out |= mask[(ulong)(begin + t) * words + w];
      }
      removed[w] = out;
    }
    for (uint t = item; t < size; t += GROUP) {
      if ((stays >> t) & 1) {
        keep[1 + count + popcount(stays & ((1u << t) - 1))] = order[first + begin + t];
      }
    }
    count += popcount(stays);
  }
  barrier(CLK_GLOBAL_MEM_FENCE);  // every work-item has read the count that was
  if (item == 0) keep[0] = count;
}
