// LSTM layers as a whole: one product for the inputs of all steps, then a step per launch.
//
// Upstream's composite function multiplies the inputs step by step on every device but the CPU. It
// has an op for one layer and direction whose gradient autograd knows, also of second order: the
// one that the CPU runs in oneDNN. This device implements it too, and makes `lstm.input` call it
// where it can.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/lstm_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/mkldnn_rnn_layer_ops.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "ops/mkldnn_rnn_layer.h"
#include "ops/mkldnn_rnn_layer_backward.h"
#include "ops/rnn/RNN.h"
#include "runtime/stream.h"

namespace ocl::native {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

namespace {

constexpr int64_t kLstm = 2;  // of the op's `mode`

const KernelFamily step_family{"rnn/lstm_steps.cl", "lstm_step"};
const KernelFamily step_backward_family{"rnn/lstm_steps.cl", "lstm_step_backward"};

/// Steps whose product and cell are one launch, on CPUs: their geometry.
struct StepLaunch {
  StepLaunch(const Tensor& state, uint32_t columns)
      : queue(current_queue(state.device().index())),
        compute(compute_dtype(state.scalar_type())),
        tag(ocl::tag(state.scalar_type())),
        rows(static_cast<uint32_t>(state.size(0))),
        size(static_cast<uint32_t>(state.size(1))),
        width(static_cast<uint32_t>(64 / c10::elementSize(compute))),
        columns(columns) {
    const size_t blocks = ceil_div(rows, kRows), local = std::min<size_t>(blocks, 8);
    range = NDRange::volume({size / (width * columns), blocks, 1}, {1, local, 1});
  }

  Kernel& kernel(const KernelFamily& family, bool cell = true) const {
    return family.get(queue.device(), {{"TAG", tag},
                                       {"C", ocl::tag(compute)},
                                       {"WIDTH", width},
                                       {"ROWS", kRows},
                                       {"COLUMNS", columns},
                                       {"CELL", cell}});
  }

  static constexpr uint32_t kRows = 4;
  Queue& queue;
  c10::ScalarType compute;
  const char* tag;
  uint32_t rows, size, width, columns;
  NDRange range;
};

/// Steps of that state, and whether a step's product and cell are one launch.
struct StepPlan {
  const Tensor& state;
  bool fused = false;
};

constexpr Implementation<StepPlan> kFused{
    "fused",
    [](const StepPlan& plan) -> const char* {
      const Tensor& state = plan.state;
      if (!current_queue(state.device().index()).device().is_cpu()) {
        return "on GPUs the product does better";
      }
      const int64_t width = 64 / c10::elementSize(compute_dtype(state.scalar_type()));
      if (state.size(1) % width != 0) return "states aren't whole vectors";
      return state.size(0) > UINT32_MAX || state.size(1) > 1 << 20 ? "states are large" : nullptr;
    },
    [](StepPlan& plan) { plan.fused = true; }};
constexpr Implementation<StepPlan> kCells{"cells",
                                          [](const StepPlan&) -> const char* { return nullptr; },
                                          [](StepPlan& plan) { plan.fused = false; }};
constexpr const Implementation<StepPlan>* kSteps[] = {&kFused, &kCells};
Engine lstm_engine{"lstm", kSteps};

bool fused_steps(const Tensor& state) {
  StepPlan plan{state};
  run_first(lstm_engine, kSteps, plan, [](const StepPlan& p) {
    return "lstm " + std::to_string(p.state.size(0)) + "x" + std::to_string(p.state.size(1)) + " " +
           tag(p.state.scalar_type());
  });
  return plan.fused;
}

/// A layer's operands as the steps need them.
struct Layer {
  Layer(const Tensor& input, const Tensor& hx, bool reverse)
      : steps(input.size(0)), rows(hx.size(0)), size(hx.size(1)), reverse(reverse) {}

  /// The place in time of the k-th step.
  int64_t time(int64_t k) const { return reverse ? steps - 1 - k : k; }

  int64_t steps, rows, size;
  bool reverse;
};

/// The weights of the hidden state, [4 * size, size], as lstm_step reads them.
Tensor packed_weights(const Tensor& weights, const StepLaunch& step) {
  const int64_t size = step.size, width = step.width;
  return weights.to(step.compute)
      .reshape({4, size / width, width, size})
      .permute({1, 3, 0, 2})
      .contiguous();
}

/// The step at time t of a contiguous [steps, ...] tensor. Made without a view: a step's launch
/// takes hardly longer than making a few of those.
Pointer at_time(const Tensor& tensor, int64_t t) {
  const int64_t bytes = tensor.stride(0) * static_cast<int64_t>(tensor.element_size());
  return Pointer{static_cast<const char*>(tensor.const_data_ptr()) + t * bytes};
}

/// The gradient needs this of all steps, in the op's workspace, by time: the activated gates, the
/// states (but for the last, a result of its own) and the outputs that the steps began with.
struct Saved {
  static Tensor allocate(const Layer& layer, const at::TensorOptions& options) {
    return at::empty({layer.steps * layer.rows * 6 * layer.size}, options);
  }

  Saved(const Tensor& workspace, const Layer& layer) {
    int64_t used = 0;
    const auto take = [&](int64_t width) {
      const int64_t elements = layer.steps * layer.rows * width;
      used += elements;
      return workspace.narrow(0, used - elements, elements).view({layer.steps, layer.rows, width});
    };
    gates = take(4 * layer.size);
    states = take(layer.size);
    before = take(layer.size);
  }

  Tensor gates, states, before;
};

/// From the inputs' part of the gates' sums to the activated gates, in place, and to the rest of
/// what is saved, the outputs of all steps and the last output and state.
void run_steps(const Layer& layer, const Saved& saved, const Tensor& hx, const Tensor& cx,
               const Tensor& weights, const Tensor& output, const Tensor& hy, const Tensor& cy) {
  const int64_t end = layer.steps - 1;
  saved.before.select(0, layer.time(0)).copy_(hx);
  if (fused_steps(hx)) {
    const StepLaunch step(hx, 1);
    const Tensor packed = packed_weights(weights, step);
    Kernel& kernel = step.kernel(step_family);
    for (int64_t k = 0; k <= end; ++k) {
      const int64_t t = layer.time(k);
      launch(kernel, step.queue, step.range, at_time(saved.before, t), pointer(packed),
             k == 0 ? pointer(cx) : at_time(saved.states, layer.time(k - 1)),
             at_time(saved.gates, t), k == end ? pointer(cy) : at_time(saved.states, t),
             at_time(output, t), k == end ? pointer(hy) : at_time(saved.before, layer.time(k + 1)),
             step.rows, step.size);
    }
    return;
  }
  Tensor old_output = hx, old_state = cx;
  for (int64_t k = 0; k <= end; ++k) {
    const int64_t t = layer.time(k);
    Tensor sums = saved.gates.select(0, t);
    const Tensor result = output.select(0, t), state = k == end ? cy : saved.states.select(0, t);
    at::addmm_out(sums, sums, old_output, weights.t());
    lstm_cell(sums, {}, old_state, sums, state, result);
    old_output = result;
    old_state = state;
  }
  hy.copy_(old_output);
  const int64_t from = layer.reverse ? 0 : 1;
  saved.before.narrow(0, from, end).copy_(output.narrow(0, 1 - from, end));
}

/// A contiguous tensor of like's dtype, or an undefined one.
Tensor as_given(const OptionalTensor& gradient, const Tensor& like) {
  if (!gradient.has_value() || !gradient->defined()) return {};
  return gradient->to(like.scalar_type()).contiguous();
}

/// How many vectors of columns a work-item of lstm_step_backward takes.
uint32_t backward_columns(const Tensor& state) {
  const int64_t vectors = state.size(1) * c10::elementSize(compute_dtype(state.scalar_type())) / 64;
  return vectors % 4 == 0 ? 4 : vectors % 2 == 0 ? 2 : 1;
}

/// The gradients of all gates' sums; grad_cx becomes that of the first state. Any gradient of a
/// result may be undefined.
Tensor backward_steps(const Layer& layer, const Saved& saved, const Tensor& cx, const Tensor& cy,
                      const Tensor& weights, const Tensor& grad_output, const Tensor& grad_hy,
                      const Tensor& grad_cy, const Tensor& grad_cx) {
  const Tensor &gates = saved.gates, &states = saved.states;
  Tensor grad_gates = at::empty(gates.sizes(), gates.options());
  const int64_t last = layer.time(layer.steps - 1);
  const auto state_before = [&](int64_t k) {
    return k == 0 ? cx : states.select(0, layer.time(k - 1));
  };
  Tensor sum = grad_hy;
  if (grad_output.defined()) {
    sum = grad_output.select(0, last);
    if (grad_hy.defined()) sum = sum.add(grad_hy);
  }
  lstm_cell_backward(sum, grad_cy, state_before(layer.steps - 1), cy, gates.select(0, last),
                     grad_gates.select(0, last), grad_cx);
  if (layer.steps == 1) return grad_gates;
  if (fused_steps(cx)) {
    const StepLaunch step(cx, backward_columns(cx));
    const Tensor right = weights.to(step.compute);
    const Tensor outside =
        grad_output.defined() ? grad_output : at::zeros(states.sizes(), states.options());
    Kernel& kernel = step.kernel(step_backward_family);
    for (int64_t k = layer.steps - 2; k >= 0; --k) {
      const int64_t t = layer.time(k);
      launch(kernel, step.queue, step.range, at_time(grad_gates, layer.time(k + 1)), pointer(right),
             at_time(outside, t), k == 0 ? pointer(cx) : at_time(states, layer.time(k - 1)),
             at_time(states, t), at_time(gates, t), at_time(grad_gates, t), pointer(grad_cx),
             step.rows, step.size);
    }
    return grad_gates;
  }
  for (int64_t k = layer.steps - 2; k >= 0; --k) {
    const int64_t t = layer.time(k);
    const Tensor next = grad_gates.select(0, layer.time(k + 1));
    sum = grad_output.defined() ? at::addmm(grad_output.select(0, t), next, weights)
                                : at::mm(next, weights);
    lstm_cell_backward(sum, grad_cx, state_before(k), states.select(0, t), gates.select(0, t),
                       grad_gates.select(0, t), grad_cx);
  }
  return grad_gates;
}

/// The gradient of the output before a step, from that of the step's gates.
Tensor output_gradient(const Tensor& grad_gates, const Tensor& hx, const Tensor& weights) {
  if (!fused_steps(hx)) return at::mm(grad_gates, weights);
  const StepLaunch step(hx, backward_columns(hx));
  const Tensor right = weights.to(step.compute);
  Tensor gradient = at::empty(hx.sizes(), hx.options());
  const Pointer none{nullptr};
  launch(step.kernel(step_backward_family, false), step.queue, step.range, pointer(grad_gates),
         pointer(right), none, none, none, none, none, pointer(gradient), step.rows, step.size);
  return gradient;
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor> mkldnn_rnn_layer(
    const Tensor& input, const Tensor& weight0, const Tensor& weight1, const Tensor& weight2,
    const Tensor& weight3, const Tensor& hx_, const Tensor& cx_, bool reverse,
    c10::IntArrayRef /*batch_sizes*/, int64_t mode, int64_t /*hidden_size*/, int64_t /*num_layers*/,
    bool has_biases, bool /*bidirectional*/, bool /*batch_first*/, bool /*train*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(mode == kLstm, "ocl: mkldnn_rnn_layer is implemented for LSTM only");
  const Tensor hx = hx_.contiguous(), cx = cx_.contiguous(), x = input.contiguous();
  const Layer layer(x, hx, reverse);
  const int64_t rows = layer.steps * layer.rows;
  const Tensor workspace = Saved::allocate(layer, x.options());
  const Saved saved(workspace, layer);
  Tensor sums = saved.gates.view({rows, -1});
  const Tensor flat = x.view({rows, -1});
  if (has_biases) {
    at::addmm_out(sums, weight2.add(weight3), flat, weight0.t());
  } else {
    at::mm_out(sums, flat, weight0.t());
  }
  Tensor output = at::empty(saved.states.sizes(), x.options());
  Tensor hy = at::empty(hx.sizes(), hx.options()), cy = at::empty(cx.sizes(), cx.options());
  run_steps(layer, saved, hx, cx, weight1, output, hy, cy);
  return {output, hy, cy, c10::GradMode::is_enabled() ? workspace : Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> mkldnn_rnn_layer_backward(
    const Tensor& input, const Tensor& weight1, const Tensor& weight2, const Tensor& /*weight3*/,
    const Tensor& /*weight4*/, const Tensor& hx_, const Tensor& cx_tmp, const Tensor& output,
    const Tensor& /*hy_*/, const Tensor& cy_, const OptionalTensor& grad_output,
    const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, bool reverse, int64_t mode,
    int64_t /*hidden_size*/, int64_t /*num_layers*/, bool has_biases, bool /*train*/,
    bool /*bidirectional*/, c10::IntArrayRef /*batch_sizes*/, bool /*batch_first*/,
    const Tensor& workspace) {
  TORCH_CHECK_NOT_IMPLEMENTED(mode == kLstm, "ocl: mkldnn_rnn_layer is implemented for LSTM only");
  const auto given = [](const OptionalTensor& t) { return t.has_value() && t->defined(); };
  if (!given(grad_output) && !given(grad_hy) && !given(grad_cy)) return {};
  const Tensor hx = hx_.contiguous(), cx = cx_tmp.contiguous(), x = input.contiguous();
  const Layer layer(x, hx, reverse);
  const int64_t rows = layer.steps * layer.rows;
  const Saved saved(workspace, layer);
  const Tensor hidden_weights = weight2.contiguous();
  Tensor grad_cx = at::empty(cx.sizes(), cx.options());
  const Tensor grad_gates = backward_steps(layer, saved, cx, cy_.contiguous(), hidden_weights,
                                           as_given(grad_output, output), as_given(grad_hy, hx),
                                           as_given(grad_cy, cx), grad_cx);
  const Tensor flat = grad_gates.view({rows, -1});
  const Tensor grad_bias = has_biases ? flat.sum(0) : Tensor();
  return {at::mm(flat, weight1).view(x.sizes()), at::mm(flat.t(), x.view({rows, -1})),
          at::mm(flat.t(), saved.before.view({rows, -1})), grad_bias,
          // A copy, so that both biases can keep what they get.
          has_biases ? grad_bias.clone() : Tensor(),
          output_gradient(grad_gates.select(0, layer.time(0)), hx, hidden_weights), grad_cx};
}

namespace {

bool has_shape(const Tensor& tensor, c10::IntArrayRef sizes) { return tensor.sizes() == sizes; }

/// Whether layers run as a whole. What is refused, wrong shapes among it, is upstream's to handle.
bool takes(const Tensor& input, at::TensorList hx, at::TensorList params, bool has_biases,
           int64_t num_layers, bool bidirectional, bool batch_first) {
  // Autocast lives in the ops that upstream's function calls.
  if (!c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutocastPrivateUse1)) return false;
  const auto plain = [&](const Tensor& t) {
    return t.defined() && t.device() == input.device() && t.scalar_type() == input.scalar_type() &&
           !t.key_set().has_any(c10::DispatchKeySet(
               {c10::DispatchKey::Python, c10::DispatchKey::FuncTorchGradWrapper,
                c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::Functionalize})) &&
           !t._fw_grad(0).defined();
  };
  const int64_t directions = bidirectional ? 2 : 1, layers = num_layers * directions;
  const int64_t each = has_biases ? 4 : 2;
  if (!plain(input) || input.dim() != 3 || input.numel() == 0 || hx.size() != 2 || num_layers < 1 ||
      !at::isFloatingType(input.scalar_type()) ||
      static_cast<int64_t>(params.size()) != layers * each) {
    return false;
  }
  const int64_t rows = input.size(batch_first ? 0 : 1), size = hx[0].size(-1);
  if (size == 0) return false;
  for (const Tensor& state : hx) {
    if (!plain(state) || !has_shape(state, {layers, rows, size})) return false;
  }
  for (int64_t k = 0; k < layers; ++k) {
    const int64_t width = k < directions ? input.size(2) : directions * size;
    for (const Tensor& tensor : params.slice(k * each, each)) {
      if (!plain(tensor)) return false;
    }
    if (!has_shape(params[k * each], {4 * size, width}) ||
        !has_shape(params[k * each + 1], {4 * size, size})) {
      return false;
    }
    for (int64_t bias = 2; bias < each; ++bias) {
      if (!has_shape(params[k * each + bias], {4 * size})) return false;
    }
  }
  return true;
}

std::tuple<Tensor, Tensor, Tensor> lstm_input(const Tensor& input, at::TensorList hx,
                                              at::TensorList params, bool has_biases,
                                              int64_t num_layers, double dropout, bool train,
                                              bool bidirectional, bool batch_first) {
  if (!takes(input, hx, params, has_biases, num_layers, bidirectional, batch_first)) {
    return at::compositeimplicitautograd::lstm(input, hx, params, has_biases, num_layers, dropout,
                                               train, bidirectional, batch_first);
  }
  const int64_t directions = bidirectional ? 2 : 1, each = has_biases ? 4 : 2;
  const Tensor none = has_biases ? Tensor() : at::empty({0}, input.options());
  Tensor x = batch_first ? input.transpose(0, 1) : input;
  std::vector<Tensor> outputs, states;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    std::vector<Tensor> sides;
    for (int64_t side = 0; side < directions; ++side) {
      const int64_t k = layer * directions + side;
      const at::TensorList weights = params.slice(k * each, each);
      auto [output, hy, cy, workspace] = at::_ops::mkldnn_rnn_layer::call(
          x, weights[0], weights[1], has_biases ? weights[2] : none, has_biases ? weights[3] : none,
          hx[0].select(0, k), hx[1].select(0, k), side == 1, {}, kLstm, hx[0].size(2), num_layers,
          has_biases, bidirectional, batch_first, train);
      sides.push_back(std::move(output));
      outputs.push_back(std::move(hy));
      states.push_back(std::move(cy));
    }
    x = directions == 1 ? sides[0] : at::cat(sides, -1);
    if (dropout != 0 && train && layer + 1 < num_layers) x = at::dropout(x, dropout, true);
  }
  const auto together = [](const std::vector<Tensor>& layers) {
    return layers.size() == 1 ? layers[0].unsqueeze(0) : at::stack(layers, 0);
  };
  return {batch_first ? x.transpose(0, 1) : x, together(outputs), together(states)};
}

// Composite functions are registered below autograd too, for inference mode.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("lstm.input", TORCH_FN(lstm_input)); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("lstm.input", TORCH_FN(lstm_input)); }

}  // namespace

}  // namespace ocl::native
