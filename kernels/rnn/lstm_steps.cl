// A step of an LSTM layer in one launch, and its gradient: the product with the hidden weights
// stays in registers, where the cell takes it from. For CPUs, whose caches hold the weights from
// step to step.
//
// A work-item takes ROWS rows and, forward, WIDTH columns of all four gates; backward, COLUMNS
// vectors of columns. Compile parameters besides cells.clh's: ROWS, COLUMNS, CELL (0: the gradient
// stops at the product).
#include "include/item_by_item.clh"
#include "rnn/cells.clh"

#ifndef ROWS
#define ROWS 4
#endif
#ifndef COLUMNS
#define COLUMNS 2
#endif
#ifndef CELL
#define CELL 1
#endif

typedef TYPE(C) T;
typedef TYPEV(C, WIDTH) V;

/// gates: [rows][4][size], the input's part (with the biases), then the activated gates; weights:
/// [size / WIDTH][size][4][WIDTH] of C. The output goes to hy, and to next, where the next step
/// finds it. size is a multiple of WIDTH. Global size: size / WIDTH, ceil(rows / ROWS) or more.
kernel ITEM_BY_ITEM void lstm_step(global const char* hx_base, const ulong hx_offset,
                                   global const char* weights_base, const ulong weights_offset,
                                   global const char* cx_base, const ulong cx_offset,
                                   global char* gates_base, const ulong gates_offset,
                                   global char* cy_base, const ulong cy_offset,
                                   global char* hy_base, const ulong hy_offset,
                                   global char* next_base, const ulong next_offset, const uint rows,
                                   const uint size) {
  const uint tile = get_global_id(0), row0 = get_global_id(1) * ROWS;
  if (tile * WIDTH >= size || row0 >= rows) return;
  global const char* hx = hx_base + hx_offset;
  global const char* weights =
      weights_base + weights_offset + (ulong)tile * size * 4 * WIDTH * sizeof(T);
  global const char* cx = cx_base + cx_offset;
  global char *gates = gates_base + gates_offset, *cy = cy_base + cy_offset,
              *hy = hy_base + hy_offset, *next = next_base + next_offset;
  const ulong column = (ulong)tile * WIDTH;
  // Rows past the end repeat the last one, so that the loop has no conditions.
  ulong row[ROWS];
  V sum[ROWS][4];
#pragma unroll
  for (uint r = 0; r < ROWS; r++) {
    row[r] = min(row0 + r, rows - 1);
#pragma unroll
    for (uint k = 0; k < 4; k++) sum[r][k] = GET(WIDTH, gates, (row[r] * 4 + k) * size + column);
  }
  for (uint j = 0; j < size; j++) {
    V w[4];
#pragma unroll
    for (uint k = 0; k < 4; k++) w[k] = LOADV(C, WIDTH, weights, j * 4 + k);
#pragma unroll
    for (uint r = 0; r < ROWS; r++) {
      const V h = (V)(GET(1, hx, row[r] * size + j));
#pragma unroll
      for (uint k = 0; k < 4; k++) sum[r][k] = fma(h, w[k], sum[r][k]);
    }
  }
#pragma unroll
  for (uint r = 0; r < ROWS; r++) {
    if (row0 + r >= rows) continue;
    const ulong element = row[r] * size + column;
    const V old = GET(WIDTH, cx, element);
    LSTM_FORWARD(WIDTH, gates, row[r] * 4 * size + column, size, element, old, sum[r][0], sum[r][1],
                 sum[r][2], sum[r][3], cy, hy);
    PUT(WIDTH, next, element, GET(WIDTH, hy, element));
  }
}

/// The gradient of step t from that of the gates of the step after it, `next`: [rows][4 * size].
/// grad_output: what comes from outside, of the step's output; weights: [4 * size][size] of C;
/// grad_cy: that of the new state, replaced by that of the old one. Without CELL it is that of the
/// output that the next step began with, and only `next` and the weights are read. size is a
/// multiple of WIDTH * COLUMNS. Global size: size / (WIDTH * COLUMNS), ceil(rows / ROWS) or more.
kernel ITEM_BY_ITEM void lstm_step_backward(
    global const char* next_base, const ulong next_offset, global const char* weights_base,
    const ulong weights_offset, global const char* output_base, const ulong output_offset,
    global const char* cx_base, const ulong cx_offset, global const char* cy_base,
    const ulong cy_offset, global const char* gates_base, const ulong gates_offset,
    global char* grad_gates_base, const ulong grad_gates_offset, global char* grad_cy_base,
    const ulong grad_cy_offset, const uint rows, const uint size) {
  const ulong column = (ulong)get_global_id(0) * WIDTH * COLUMNS;
  const uint row0 = get_global_id(1) * ROWS;
  if (column >= size || row0 >= rows) return;
  global const char* next = next_base + next_offset;
  global const char* weights = weights_base + weights_offset;
  global const char *grad_output = output_base + output_offset, *cx = cx_base + cx_offset;
  global const char *cy = cy_base + cy_offset, *gates = gates_base + gates_offset;
  global char *grad_gates = grad_gates_base + grad_gates_offset,
              *grad_cy = grad_cy_base + grad_cy_offset;
  ulong row[ROWS];
  V sum[ROWS][COLUMNS];
#pragma unroll
  for (uint r = 0; r < ROWS; r++) {
    row[r] = min(row0 + r, rows - 1);
#pragma unroll
    for (uint v = 0; v < COLUMNS; v++) {
#if CELL
      sum[r][v] = GET(WIDTH, grad_output, row[r] * size + column + v * WIDTH);
#else
      sum[r][v] = (V)(0);
#endif
    }
  }
  for (uint j = 0; j < 4 * size; j++) {
    V w[COLUMNS];
#pragma unroll
    for (uint v = 0; v < COLUMNS; v++) {
      w[v] = LOADV(C, WIDTH, weights + ((ulong)j * size + column) * sizeof(T), v);
    }
#pragma unroll
    for (uint r = 0; r < ROWS; r++) {
      const V d = (V)(GET(1, next, row[r] * 4 * size + j));
#pragma unroll
      for (uint v = 0; v < COLUMNS; v++) sum[r][v] = fma(d, w[v], sum[r][v]);
    }
  }
#pragma unroll
  for (uint r = 0; r < ROWS; r++) {
    if (row0 + r >= rows) continue;
#pragma unroll
    for (uint v = 0; v < COLUMNS; v++) {
      const ulong at = column + v * WIDTH, element = row[r] * size + at;
#if !CELL
      PUT(WIDTH, grad_cy, element, sum[r][v]);
#else
      const V old = GET(WIDTH, cx, element), state = GET(WIDTH, cy, element);
      const V later = GET(WIDTH, grad_cy, element);
      LSTM_BACKWARD(WIDTH, gates, row[r] * 4 * size + at, size, element, old, state, sum[r][v],
                    later, grad_gates, grad_cy);
#endif
    }
  }
}
