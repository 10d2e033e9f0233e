// One step of an LSTM or GRU after its matrix products, and its gradient: a work-item takes WIDTH
// columns of a row. All operands are contiguous and of one dtype.
//
// Compile parameters besides cells.clh's: HIDDEN_GATES (0: the hidden product is already in the
// input gates), BIAS, GRAD_HY, GRAD_CY (0: there is none). Global size: rows * ceil(size / WIDTH)
// or more.
#include "include/item_by_item.clh"
#include "rnn/cells.clh"

#ifndef HIDDEN_GATES
#define HIDDEN_GATES 1
#endif
#ifndef BIAS
#define BIAS 1
#endif
#ifndef GRAD_HY
#define GRAD_HY 1
#endif
#ifndef GRAD_CY
#define GRAD_CY 1
#endif

/// Runs CELL(width, row, column) for the columns of this work-item.
#define FOR_COLUMNS(CELL)                                             \
  do {                                                                \
    const uint vectors_ = (size + WIDTH - 1) / WIDTH;                 \
    const ulong item_ = get_global_id(0);                             \
    const ulong row_ = item_ / vectors_;                              \
    if (row_ >= rows) return;                                         \
    const ulong first_ = (item_ - row_ * vectors_) * WIDTH;           \
    if (first_ + WIDTH <= size) {                                     \
      CELL(WIDTH, row_, first_);                                      \
    } else {                                                          \
      for (ulong at_ = first_; at_ < size; at_++) CELL(1, row_, at_); \
    }                                                                 \
  } while (0)

#if HIDDEN_GATES
#define WITH_HIDDEN(width, gate) +GET(width, hidden, gate)
#else
#define WITH_HIDDEN(width, gate)
#endif
#if BIAS
#define INPUT_BIAS(width, place) +GET(width, input_bias, place)
#define HIDDEN_BIAS(width, place) +GET(width, hidden_bias, place)
#else
#define INPUT_BIAS(width, place)
#define HIDDEN_BIAS(width, place)
#endif

#define OPERAND(name) global const char *name##_base, const ulong name##_offset
#define RESULT(name) global char *name##_base, const ulong name##_offset
#define USE(name) global const char* name = name##_base + name##_offset
#define USE_RESULT(name) global char* name = name##_base + name##_offset

/// The sum of gate k (0 to 3) of a row's column.
#define GATE_SUM(width, k)                                                \
  (GET(width, input, gate + k * size) WITH_HIDDEN(width, gate + k * size) \
       INPUT_BIAS(width, column + k * size) HIDDEN_BIAS(width, column + k * size))
#define LSTM_CELL(width, row, column_)                                                           \
  do {                                                                                           \
    const ulong column = column_, gate = row * 4 * size + column, element = row * size + column; \
    LSTM_FORWARD(width, gates, gate, size, element, GET(width, cx, element), GATE_SUM(width, 0), \
                 GATE_SUM(width, 1), GATE_SUM(width, 2), GATE_SUM(width, 3), cy, hy);            \
  } while (0)

/// gates may be the input gates themselves: each work-item reads what it writes, before it does.
kernel ITEM_BY_ITEM void lstm_cell(OPERAND(input), OPERAND(hidden), OPERAND(input_bias),
                                   OPERAND(hidden_bias), OPERAND(cx), RESULT(gates), RESULT(cy),
                                   RESULT(hy), const uint rows, const ulong size) {
  USE(input);
#if HIDDEN_GATES
  USE(hidden);
#endif
#if BIAS
  USE(input_bias);
  USE(hidden_bias);
#endif
  USE(cx);
  USE_RESULT(gates);
  USE_RESULT(cy);
  USE_RESULT(hy);
  FOR_COLUMNS(LSTM_CELL);
}

#if GRAD_HY
#define OUTPUT_GRADIENT(width, element) GET(width, grad_hy, element)
#else
#define OUTPUT_GRADIENT(width, element) (TYPEV(C, width))(0)
#endif
#if GRAD_CY
#define STATE_GRADIENT(width, element) GET(width, grad_cy, element)
#else
#define STATE_GRADIENT(width, element) (TYPEV(C, width))(0)
#endif

#define LSTM_GRADIENT(width, row, column_)                                                       \
  do {                                                                                           \
    const ulong column = column_, gate = row * 4 * size + column, element = row * size + column; \
    LSTM_BACKWARD(width, gates, gate, size, element, GET(width, cx, element),                    \
                  GET(width, cy, element), OUTPUT_GRADIENT(width, element),                      \
                  STATE_GRADIENT(width, element), grad_gates, grad_cx);                          \
  } while (0)

kernel ITEM_BY_ITEM void lstm_cell_backward(OPERAND(grad_hy), OPERAND(grad_cy), OPERAND(cx),
                                            OPERAND(cy), OPERAND(gates), RESULT(grad_gates),
                                            RESULT(grad_cx), const uint rows, const ulong size) {
#if GRAD_HY
  USE(grad_hy);
#endif
#if GRAD_CY
  USE(grad_cy);
#endif
  USE(cx);
  USE(cy);
  USE(gates);
  USE_RESULT(grad_gates);
  USE_RESULT(grad_cx);
  FOR_COLUMNS(LSTM_GRADIENT);
}

// A GRU's gates are [rows][3][size]: reset, update, new. Kept for the gradient, [rows][5][size]:
// the three activated, the old state, and the hidden part of the new gate.
#define GRU_CELL(width, row, column_)                                                            \
  do {                                                                                           \
    const ulong column = column_, gate = row * 3 * size + column, element = row * size + column; \
    const ulong place = row * 5 * size + column;                                                 \
    const TYPEV(C, width) reset = SIGMOID(GATE_SUM(width, 0)),                                   \
                          update = SIGMOID(GATE_SUM(width, 1));                                  \
    const TYPEV(C, width) old = GET(width, hx, element);                                         \
    const TYPEV(C, width) inner =                                                                \
        GET(width, hidden, gate + 2 * size) HIDDEN_BIAS(width, column + 2 * size);               \
    const TYPEV(C, width) fresh =                                                                \
        TANH_OF(width, GET(width, input, gate + 2 * size) INPUT_BIAS(width, column + 2 * size) + \
                           reset * inner);                                                       \
    PUT(width, workspace, place, reset);                                                         \
    PUT(width, workspace, place + size, update);                                                 \
    PUT(width, workspace, place + 2 * size, fresh);                                              \
    PUT(width, workspace, place + 3 * size, old);                                                \
    PUT(width, workspace, place + 4 * size, inner);                                              \
    PUT(width, hy, element, fresh + update * (old - fresh));                                     \
  } while (0)

kernel ITEM_BY_ITEM void gru_cell(OPERAND(input), OPERAND(hidden), OPERAND(input_bias),
                                  OPERAND(hidden_bias), OPERAND(hx), RESULT(hy), RESULT(workspace),
                                  const uint rows, const ulong size) {
  USE(input);
  USE(hidden);
#if BIAS
  USE(input_bias);
  USE(hidden_bias);
#endif
  USE(hx);
  USE_RESULT(hy);
  USE_RESULT(workspace);
  FOR_COLUMNS(GRU_CELL);
}

#define GRU_GRADIENT(width, row, column_)                                                        \
  do {                                                                                           \
    const ulong column = column_, gate = row * 3 * size + column, element = row * size + column; \
    const ulong place = row * 5 * size + column;                                                 \
    const TYPEV(C, width) reset = GET(width, workspace, place);                                  \
    const TYPEV(C, width) update = GET(width, workspace, place + size);                          \
    const TYPEV(C, width) fresh = GET(width, workspace, place + 2 * size);                       \
    const TYPEV(C, width) old = GET(width, workspace, place + 3 * size);                         \
    const TYPEV(C, width) inner = GET(width, workspace, place + 4 * size);                       \
    const TYPEV(C, width) dh = GET(width, grad_hy, element);                                     \
    const TYPEV(C, width) d_update = dh * (old - fresh) * (1 - update) * update;                 \
    const TYPEV(C, width) d_fresh = dh * (1 - update) * (1 - fresh * fresh);                     \
    const TYPEV(C, width) d_reset = d_fresh * inner * (1 - reset) * reset;                       \
    PUT(width, grad_input, gate, d_reset);                                                       \
    PUT(width, grad_input, gate + size, d_update);                                               \
    PUT(width, grad_input, gate + 2 * size, d_fresh);                                            \
    PUT(width, grad_hidden, gate, d_reset);                                                      \
    PUT(width, grad_hidden, gate + size, d_update);                                              \
    PUT(width, grad_hidden, gate + 2 * size, d_fresh * reset);                                   \
    PUT(width, grad_hx, element, dh * update);                                                   \
  } while (0)

kernel ITEM_BY_ITEM void gru_cell_backward(OPERAND(grad_hy), OPERAND(workspace), RESULT(grad_input),
                                           RESULT(grad_hidden), RESULT(grad_hx), const uint rows,
                                           const ulong size) {
  USE(grad_hy);
  USE(workspace);
  USE_RESULT(grad_input);
  USE_RESULT(grad_hidden);
  USE_RESULT(grad_hx);
  FOR_COLUMNS(GRU_GRADIENT);
}
