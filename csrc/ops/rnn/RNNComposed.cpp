// The fused cells of LSTM and GRU and their gradients composed of other ops where a forward
// gradient or vmap is at work: autograd has no forward derivative of the fused ones, and vmap no
// rule.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_thnn_differentiable_gru_cell_backward_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/_thnn_differentiable_lstm_cell_backward_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/_thnn_fused_gru_cell_backward_ops.h>
#include <ATen/ops/_thnn_fused_gru_cell_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_backward_impl_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_ops.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

namespace ocl::native {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

namespace {

Tensor plus(const Tensor& gates, const OptionalTensor& bias) {
  return bias.has_value() && bias->defined() ? gates + *bias : gates;
}

std::tuple<Tensor, Tensor, Tensor> composed_lstm_cell(const Tensor& input_gates,
                                                      const Tensor& hidden_gates, const Tensor& cx,
                                                      const OptionalTensor& input_bias,
                                                      const OptionalTensor& hidden_bias) {
  const auto sums = (plus(input_gates, input_bias) + plus(hidden_gates, hidden_bias)).chunk(4, 1);
  const Tensor in = sums[0].sigmoid(), forget = sums[1].sigmoid(), cell = sums[2].tanh(),
               out = sums[3].sigmoid();
  const Tensor cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

std::tuple<Tensor, Tensor> composed_gru_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                             const Tensor& hx, const OptionalTensor& input_bias,
                                             const OptionalTensor& hidden_bias) {
  const auto input = plus(input_gates, input_bias).chunk(3, 1);
  const auto hidden = plus(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor reset = (input[0] + hidden[0]).sigmoid(), update = (input[1] + hidden[1]).sigmoid();
  const Tensor fresh = (input[2] + hidden[2] * reset).tanh();
  return {(hx - fresh) * update + fresh, at::cat({reset, update, fresh, hx, hidden[2]}, 1)};
}

/// The slope of a sigmoid or tanh, by its result.
Tensor sigmoid_slope(const Tensor& y) { return y * (1 - y); }
Tensor tanh_slope(const Tensor& y) { return 1 - y * y; }

Tensor or_zeros(const OptionalTensor& gradient, const Tensor& like) {
  return gradient.has_value() && gradient->defined() ? *gradient : at::zeros_like(like);
}

std::tuple<Tensor, Tensor, Tensor> composed_lstm_cell_backward(const OptionalTensor& grad_hy,
                                                               const OptionalTensor& grad_cy,
                                                               const Tensor& cx, const Tensor& cy,
                                                               const Tensor& workspace,
                                                               bool has_bias) {
  const auto gates = workspace.chunk(4, 1);
  const Tensor &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const Tensor grad = or_zeros(grad_hy, cy), shown = cy.tanh();
  const Tensor grad_state = or_zeros(grad_cy, cy) + grad * out * tanh_slope(shown);
  const Tensor grad_gates =
      at::cat({grad_state * cell * sigmoid_slope(in), grad_state * cx * sigmoid_slope(forget),
               grad_state * in * tanh_slope(cell), grad * shown * sigmoid_slope(out)},
              1);
  return {grad_gates, grad_state * forget, has_bias ? grad_gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> composed_gru_cell_backward(
    const Tensor& grad_hy, const Tensor& workspace, bool has_bias) {
  const auto kept = workspace.chunk(5, 1);
  const Tensor &reset = kept[0], &update = kept[1], &fresh = kept[2], &hx = kept[3];
  const Tensor grad_fresh = grad_hy * (1 - update) * tanh_slope(fresh);
  const Tensor grad_reset = grad_fresh * kept[4] * sigmoid_slope(reset);
  const Tensor grad_update = grad_hy * (hx - fresh) * sigmoid_slope(update);
  const Tensor grad_input = at::cat({grad_reset, grad_update, grad_fresh}, 1);
  const Tensor grad_hidden = at::cat({grad_reset, grad_update, grad_fresh * reset}, 1);
  return {grad_input, grad_hidden, grad_hy * update, has_bias ? grad_input.sum(0) : Tensor(),
          has_bias ? grad_hidden.sum(0) : Tensor()};
}

bool has_forward_gradient(const Tensor& tensor) {
  return tensor.defined() && tensor._fw_grad(0).defined();
}
bool has_forward_gradient(const OptionalTensor& tensor) {
  return tensor.has_value() && has_forward_gradient(*tensor);
}
bool has_forward_gradient(bool) { return false; }

/// Keys that lead to upstream's autograd function, in whose place the functions below stand: other
/// devices' key of autograd has it, too, and goes on to this device's kernel from there. While
/// torch.compile traces, keys that were served already are still in the set.
c10::DispatchKeySet to_upstream(c10::DispatchKeySet keys) {
  return (keys & c10::after_autograd_keyset).add(c10::DispatchKey::AutogradOther);
}

/// The op, or what it is composed of where a forward gradient is at work.
template <class Operator, auto composed, class Signature>
struct FusedOrComposed;

template <class Operator, auto composed, class Result, class... Arguments>
struct FusedOrComposed<Operator, composed, Result(Arguments...)> {
  static Result call(c10::DispatchKeySet keys, Arguments... arguments) {
    if ((has_forward_gradient(arguments) || ...)) return composed(arguments...);
    return Operator::redispatch(to_upstream(keys), arguments...);
  }
};

template <class Operator, auto composed>
constexpr auto fused_or_composed =
    FusedOrComposed<Operator, composed, typename Operator::schema>::call;

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  using namespace at::_ops;
  m.impl("_thnn_fused_lstm_cell", fused_or_composed<_thnn_fused_lstm_cell, composed_lstm_cell>);
  m.impl("_thnn_fused_lstm_cell_backward_impl",
         fused_or_composed<_thnn_fused_lstm_cell_backward_impl, composed_lstm_cell_backward>);
  m.impl("_thnn_fused_gru_cell", fused_or_composed<_thnn_fused_gru_cell, composed_gru_cell>);
  m.impl("_thnn_fused_gru_cell_backward",
         fused_or_composed<_thnn_fused_gru_cell_backward, composed_gru_cell_backward>);
}

TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(composed_lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(composed_lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(composed_gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(composed_gru_cell_backward));
  // Composites, which vmap would call once for every element of the batch.
  using namespace at::compositeimplicitautograd;
  m.impl("_thnn_differentiable_lstm_cell_backward",
         TORCH_FN(_thnn_differentiable_lstm_cell_backward));
  m.impl("_thnn_differentiable_gru_cell_backward",
         TORCH_FN(_thnn_differentiable_gru_cell_backward));
}

}  // namespace

}  // namespace ocl::native
