// The fused cells of LSTM and GRU.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/rnn/RNN.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <array>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "ops/_thnn_fused_gru_cell.h"
#include "ops/_thnn_fused_gru_cell_backward.h"
#include "ops/_thnn_fused_lstm_cell.h"
#include "ops/_thnn_fused_lstm_cell_backward_impl.h"
#include "runtime/stream.h"

namespace ocl::native {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

namespace {

const KernelFamily lstm_family{"rnn/cells.cl", "lstm_cell"};
const KernelFamily lstm_backward_family{"rnn/cells.cl", "lstm_cell_backward"};
const KernelFamily gru_family{"rnn/cells.cl", "gru_cell"};
const KernelFamily gru_backward_family{"rnn/cells.cl", "gru_cell_backward"};

/// The geometry of a launch over the [rows, size] elements of a state, and its compile parameters.
struct CellLaunch {
  explicit CellLaunch(const Tensor& state)
      : queue(current_queue(state.device().index())),
        tag(ocl::tag(state.scalar_type())),
        compute(compute_dtype(state.scalar_type())),
        rows(static_cast<uint32_t>(state.size(0))),
        size(static_cast<uint64_t>(state.size(1))) {
    TORCH_CHECK_NOT_IMPLEMENTED(state.size(0) <= UINT32_MAX,
                                "ocl: a cell with more than 2^32 rows");
    width = vector_lanes(queue.device(), c10::elementSize(compute), state.size(1));
    range = NDRange::linear(rows * ceil_div(size, width), group_of_lanes(queue.device()));
  }

  Kernel& kernel(const KernelFamily& family, std::array<Define, 3> flags) const {
    return family.get(
        queue.device(),
        {{"TAG", tag}, {"C", ocl::tag(compute)}, {"WIDTH", width}, flags[0], flags[1], flags[2]});
  }

  Queue& queue;
  const char* tag;
  c10::ScalarType compute;
  uint32_t rows, width = 1;
  uint64_t size;
  NDRange range;
};

Tensor dense(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined() ? tensor->contiguous() : Tensor();
}

void check_cell(const char* name, const Tensor& input_gates, const Tensor& hidden_gates,
                const Tensor& input_bias, const Tensor& hidden_bias, const Tensor& state,
                int64_t gates) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(input_gates.scalar_type()), '"', name,
                              "\" not implemented for '", c10::toString(input_gates.scalar_type()),
                              "'");
  TORCH_CHECK(input_gates.dim() == 2, name, ": expected gates of 2 dimensions, got ",
              input_gates.dim());
  TORCH_CHECK(input_gates.sizes() == hidden_gates.sizes(), name,
              ": expected input and hidden gates of the same size, got ", input_gates.sizes(),
              " and ", hidden_gates.sizes());
  TORCH_CHECK(state.dim() == 2 && state.size(0) == input_gates.size(0) &&
                  state.size(1) * gates == input_gates.size(1),
              name, ": expected a state of ", input_gates.size(0), " rows and a ", gates,
              "th of the columns of the gates, got ", state.sizes());
  TORCH_CHECK(input_bias.defined() == hidden_bias.defined(), name,
              ": expected both biases or neither");
  for (const Tensor* bias : {&input_bias, &hidden_bias}) {
    TORCH_CHECK(!bias->defined() || (bias->dim() == 1 && bias->numel() == input_gates.size(1)),
                name, ": expected a bias of ", input_gates.size(1), " elements");
  }
  for (const Tensor* other : {&hidden_gates, &input_bias, &hidden_bias, &state}) {
    TORCH_CHECK(!other->defined() || other->scalar_type() == input_gates.scalar_type(), name,
                ": expected operands of one dtype, got ", input_gates.scalar_type(), " and ",
                other->scalar_type());
  }
}

void check_gradient(const char* name, const Tensor& gradient, const Tensor& state) {
  TORCH_CHECK(!gradient.defined() || (gradient.sizes() == state.sizes() &&
                                      gradient.scalar_type() == state.scalar_type()),
              name, ": expected a gradient like the state, ", state.scalar_type(), " of ",
              state.sizes(), ", got ", gradient.defined() ? gradient.sizes() : c10::IntArrayRef());
}

}  // namespace

void lstm_cell(const Tensor& input_gates, const LstmAddends& addends, const Tensor& cx,
               const Tensor& gates, const Tensor& cy, const Tensor& hy) {
  const CellLaunch cell(cx);
  Kernel& kernel = cell.kernel(lstm_family, {{{"HIDDEN_GATES", addends.hidden_gates.defined()},
                                              {"BIAS", addends.input_bias.defined()},
                                              {"GRAD_HY", 1}}});
  launch(kernel, cell.queue, cell.range, pointer(input_gates), pointer(addends.hidden_gates),
         pointer(addends.input_bias), pointer(addends.hidden_bias), pointer(cx), pointer(gates),
         pointer(cy), pointer(hy), cell.rows, cl_ulong{cell.size});
}

void lstm_cell_backward(const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& cx,
                        const Tensor& cy, const Tensor& gates, const Tensor& grad_gates,
                        const Tensor& grad_cx) {
  const CellLaunch cell(cx);
  Kernel& kernel =
      cell.kernel(lstm_backward_family,
                  {{{"BIAS", 0}, {"GRAD_HY", grad_hy.defined()}, {"GRAD_CY", grad_cy.defined()}}});
  launch(kernel, cell.queue, cell.range, pointer(grad_hy), pointer(grad_cy), pointer(cx),
         pointer(cy), pointer(gates), pointer(grad_gates), pointer(grad_cx), cell.rows,
         cl_ulong{cell.size});
}

std::tuple<Tensor, Tensor, Tensor> _thnn_fused_lstm_cell(const Tensor& input_gates,
                                                         const Tensor& hidden_gates,
                                                         const Tensor& cx,
                                                         const OptionalTensor& input_bias,
                                                         const OptionalTensor& hidden_bias) {
  const LstmAddends addends{hidden_gates.contiguous(), dense(input_bias), dense(hidden_bias)};
  check_cell("_thnn_fused_lstm_cell", input_gates, hidden_gates, addends.input_bias,
             addends.hidden_bias, cx, 4);
  const Tensor input = input_gates.contiguous(), state = cx.contiguous();
  Tensor gates = at::empty(input.sizes(), input.options());
  Tensor hy = at::empty(state.sizes(), state.options()), cy = at::empty_like(hy);
  lstm_cell(input, addends, state, gates, cy, hy);
  return {hy, cy, gates};
}

std::tuple<Tensor, Tensor, Tensor> _thnn_fused_lstm_cell_backward_impl(
    const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, const Tensor& cx,
    const Tensor& cy, const Tensor& workspace, bool has_bias) {
  const Tensor output_gradient = dense(grad_hy), state_gradient = dense(grad_cy);
  if (!output_gradient.defined() && !state_gradient.defined()) return {};
  constexpr const char* kName = "_thnn_fused_lstm_cell_backward";
  check_gradient(kName, output_gradient, cx);
  check_gradient(kName, state_gradient, cx);
  check_cell(kName, workspace, workspace, Tensor(), Tensor(), cx, 4);
  const Tensor gates = workspace.contiguous(), old = cx.contiguous();
  Tensor grad_gates = at::empty_like(gates), grad_cx = at::empty_like(old);
  lstm_cell_backward(output_gradient, state_gradient, old, cy.contiguous(), gates, grad_gates,
                     grad_cx);
  return {grad_gates, grad_cx, has_bias ? grad_gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> _thnn_fused_gru_cell(const Tensor& input_gates,
                                                const Tensor& hidden_gates, const Tensor& hx,
                                                const OptionalTensor& input_bias,
                                                const OptionalTensor& hidden_bias) {
  const Tensor bias = dense(input_bias), bias_of_hidden = dense(hidden_bias);
  check_cell("_thnn_fused_gru_cell", input_gates, hidden_gates, bias, bias_of_hidden, hx, 3);
  const Tensor input = input_gates.contiguous(), hidden = hidden_gates.contiguous();
  const Tensor state = hx.contiguous();
  Tensor hy = at::empty(state.sizes(), state.options());
  Tensor workspace = at::empty({state.size(0), state.size(1) * 5}, state.options());
  const CellLaunch cell(state);
  Kernel& kernel =
      cell.kernel(gru_family, {{{"HIDDEN_GATES", 1}, {"BIAS", bias.defined()}, {"GRAD_HY", 1}}});
  launch(kernel, cell.queue, cell.range, pointer(input), pointer(hidden), pointer(bias),
         pointer(bias_of_hidden), pointer(state), pointer(hy), pointer(workspace), cell.rows,
         cl_ulong{cell.size});
  return {hy, workspace};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> _thnn_fused_gru_cell_backward(
    const Tensor& grad_hy, const Tensor& workspace, bool has_bias) {
  constexpr const char* kName = "_thnn_fused_gru_cell_backward";
  TORCH_CHECK(workspace.dim() == 2 && workspace.size(1) % 5 == 0, kName,
              ": expected a workspace of five columns per column of the state, got ",
              workspace.sizes());
  const int64_t rows = workspace.size(0), size = workspace.size(1) / 5;
  const Tensor saved = workspace.contiguous(), gradient = grad_hy.contiguous();
  Tensor grad_input = at::empty({rows, 3 * size}, saved.options());
  Tensor grad_hidden = at::empty_like(grad_input);
  Tensor grad_hx = at::empty({rows, size}, saved.options());
  check_gradient(kName, gradient, grad_hx);
  const CellLaunch cell(grad_hx);
  Kernel& kernel =
      cell.kernel(gru_backward_family, {{{"HIDDEN_GATES", 1}, {"BIAS", 0}, {"GRAD_HY", 1}}});
  launch(kernel, cell.queue, cell.range, pointer(gradient), pointer(saved), pointer(grad_input),
         pointer(grad_hidden), pointer(grad_hx), cell.rows, cl_ulong{cell.size});
  return {grad_input, grad_hidden, grad_hx, has_bias ? grad_input.sum(0) : Tensor(),
          has_bias ? grad_hidden.sum(0) : Tensor()};
}

}  // namespace ocl::native
