// Max unpooling: every element goes to the position that its index names; the host has zeroed the
// output.
//
// Compile parameter: E (the tag of the elements' bits).
#include "include/item_by_item.clh"
#include "include/assert.clh"
#include "spatial/spatial.clh"

// Operand 0 is the input, 1 the output, 2 the indices.
kernel ITEM_BY_ITEM void max_unpool(global const char* in, const ulong in_offset, global char* out,
                                    const ulong out_offset, global const char* indices,
                                    const ulong indices_offset, const Arguments args,
                                    const UnpoolArguments unpool, global int* asserts,
                                    const uint site) {
  in += in_offset;
  out += out_offset;
  indices += indices_offset;
  FOR_ROWS(start) {
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
      const long index = LOAD(i64, indices, ELEMENT(2, p));
      if (!check_index(index, (long)unpool.plane, asserts, site)) continue;
      const uint line = (uint)index / args.other[2];
      const uint w = (uint)index - line * args.other[2];
      const uint d = line / args.other[1];
      const uint h = line - d * args.other[1];
      STORE(E, out, PLANE(1, p) + POINT(1, d, h, w), LOAD(E, in, ELEMENT(0, p)));
    }
  }
}
