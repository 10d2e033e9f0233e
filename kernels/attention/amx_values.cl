// Values as x86's AMX takes them for attention (forward_amx.cl): a row for each column.
//
// Compile parameters: attention.clh's, with IN bf16.
#include "include/item_by_item.clh"
#include "attention/attention.clh"
#define WIDTH 16
#define T ushort16
#include "include/transpose.clh"
#undef T

/// to[c][k] = value[k][c], with zeros for keys past the end. Global size: row / 16, batch * heads
/// of keys; a row of `to` has so many elements.
kernel ITEM_BY_ITEM void attention_amx_values(global const char* value, const ulong value_offset,
                                              global char* to, const ulong to_offset,
                                              const Arguments p, const uint row) {
  const uint k0 = get_global_id(0) * 16, z = get_global_id(1), heads = p.heads / p.group;
  global const ushort* from =
      (global const ushort*)(OPERAND(value) + HEAD_AT(value, IN, z / heads, z % heads));
  global ushort* rows = (global ushort*)(to + to_offset) + (ulong)z * p.columns * row + k0;
  for (uint c = 0; c < p.columns; c += 16) {
    ushort16 square[16];
    for (uint i = 0; i < 16; i++) {
      square[i] = (ushort16)(0);
      if (k0 + i >= p.keys) continue;
      global const ushort* elements = from + (k0 + i) * p.value.row + c * p.value.column;
      if (p.value.column == 1) {
        square[i] = vload16(0, elements);
      } else {
        for (uint j = 0; j < 16; j++) {
          ((private ushort*)&square[i])[j] = elements[j * p.value.column];
        }
      }
    }
    transpose(square);
    for (uint i = 0; i < 16; i++) vstore16(square[i], 0, rows + (ulong)(c + i) * row);
  }
}
