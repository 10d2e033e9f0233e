// Gradients of the fused attention's gradients, which it has no kernel for: composed of other ops,
// with the matrix of weights in memory. The first gradients stay the kernel's, even of a graph that
// is kept for more (create_graph) and then not used.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_backward.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "engine/attention/attention.h"
#include "engine/dtype.h"

namespace ocl::native {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Arguments of the backward op besides tensors with gradients.
struct Arguments {
  Tensor mask, out, logsumexp, starts_q, starts_k, seed, offset;
  std::array<bool, 4> wanted;
  c10::SymInt longest_q, longest_k;
  double dropout;
  bool causal;
  std::optional<double> scale;
};

/// The attention composed, in the dtype that the kernels compute in. `factors`: of the weights, the
/// dropout; undefined without.
Tensor composed(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                const Tensor& factors, bool causal, std::optional<double> scale) {
  const at::ScalarType wide = compute_dtype(query.scalar_type());
  const int64_t heads = query.size(-3), key_heads = key.size(-3);
  const auto repeated = [&](const Tensor& tensor) {
    const Tensor t = tensor.to(wide);
    return heads == key_heads ? t : t.repeat_interleave(heads / key_heads, -3);
  };
  const double factor =
      scale.has_value() ? *scale : 1 / std::sqrt(static_cast<double>(query.size(-1)));
  Tensor scores = at::matmul(query.to(wide) * factor, repeated(key).mT());
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  if (mask.defined()) {
    scores = mask.scalar_type() == at::kBool ? scores.masked_fill(mask.logical_not(), kNever)
                                             : scores + mask;
  }
  if (causal) {
    const Tensor later = at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool));
    scores = scores.masked_fill(later.triu(1), kNever);
  }
  Tensor weights = at::_safe_softmax(scores, -1);
  if (factors.defined()) weights = weights * factors.view(weights.sizes());
  return at::matmul(weights, repeated(value)).to(query.scalar_type());
}

/// As autograd's `grad` takes inputs: something that requires a gradient. A view, since a tensor
/// itself may lie behind another one in the graph, as query does behind the result's gradient, and
/// then that way's part would be added too.
Tensor differentiable(const Tensor& tensor) {
  return tensor.requires_grad() ? tensor.view_as(tensor) : tensor.detach().requires_grad_();
}

struct AttentionBackward : torch::autograd::Function<AttentionBackward> {
  static variable_list forward(AutogradContext* ctx, const Tensor& grad_out, const Tensor& query,
                               const Tensor& key, const Tensor& value, const Arguments& arguments) {
    const Arguments& a = arguments;
    ctx->save_for_backward({grad_out, query, key, value, a.mask});
    ctx->saved_data["causal"] = a.causal;
    ctx->saved_data["scale"] = a.scale;
    ctx->saved_data["dropout"] = a.dropout;
    if (a.dropout > 0) {
      ctx->saved_data["seed"] = a.seed.item().toLong();
      ctx->saved_data["offset"] = a.offset.item().toLong();
    }
    at::AutoDispatchBelowADInplaceOrView below;
    auto [q, k, v, mask] = at::_scaled_dot_product_fused_attention_overrideable_backward_symint(
        grad_out, query, key, value, a.mask, a.wanted, a.out, a.logsumexp, a.starts_q, a.starts_k,
        a.longest_q, a.longest_k, a.dropout, a.causal, a.seed, a.offset, a.scale);
    return {q, k, v};
  }

  static Tensor dropout_factors(AutogradContext& ctx) {
    const double dropout = ctx.saved_data["dropout"].toDouble();
    if (dropout == 0) return {};
    const variable_list saved = ctx.get_saved_variables();
    const Tensor &query = saved[1], &key = saved[2];
    const bool batched = query.dim() == 4;
    Tensor factors =
        at::empty({batched ? query.size(0) : 1, query.size(-3), query.size(-2), key.size(-2)},
                  query.options().dtype(compute_dtype(query.scalar_type())));
    attention::dropout_factors(dropout, static_cast<uint64_t>(ctx.saved_data["seed"].toInt()),
                               static_cast<uint64_t>(ctx.saved_data["offset"].toInt()), factors);
    return factors;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const bool create_graph = at::GradMode::is_enabled();
    const at::AutoGradMode enabled(true);
    variable_list inputs;  // grad_out, query, key, value
    for (size_t i = 0; i < 4; ++i) inputs.push_back(differentiable(saved[i]));
    const Tensor out =
        composed(inputs[1], inputs[2], inputs[3], saved[4], dropout_factors(*ctx),
                 ctx->saved_data["causal"].toBool(), ctx->saved_data["scale"].toOptional<double>());
    const variable_list first =
        torch::autograd::grad({out}, {inputs[1], inputs[2], inputs[3]}, {inputs[0]},
                              /*retain_graph=*/true, /*create_graph=*/true);
    variable_list outputs, directions;
    for (size_t i = 0; i < first.size(); ++i) {
      if (!grads[i].defined()) continue;
      outputs.push_back(first[i]);
      directions.push_back(grads[i]);
    }
    if (outputs.empty()) return variable_list(5);
    variable_list result = torch::autograd::grad(outputs, inputs, directions, create_graph,
                                                 create_graph, /*allow_unused=*/true);
    result.emplace_back();  // of the arguments
    return result;
  }
};

std::tuple<Tensor, Tensor, Tensor, Tensor> attention_backward_autograd(
    const Tensor& grad_out, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& attn_bias, std::array<bool, 4> grad_input_mask, const Tensor& out,
    const Tensor& logsumexp, const Tensor& cum_seq_q, const Tensor& cum_seq_k, c10::SymInt max_q,
    c10::SymInt max_k, double dropout_p, bool is_causal, const Tensor& philox_seed,
    const Tensor& philox_offset, std::optional<double> scale) {
  const bool differentiated =
      at::GradMode::is_enabled() && (grad_out.requires_grad() || query.requires_grad() ||
                                     key.requires_grad() || value.requires_grad());
  if (grad_out.defined() && differentiated) {
    const Arguments arguments{
        attn_bias,       out,   logsumexp, cum_seq_q, cum_seq_k, philox_seed, philox_offset,
        grad_input_mask, max_q, max_k,     dropout_p, is_causal, scale};
    const variable_list grads = AttentionBackward::apply(grad_out, query, key, value, arguments);
    return {grads[0], grads[1], grads[2], Tensor()};
  }
  at::AutoDispatchBelowADInplaceOrView below;
  return at::_scaled_dot_product_fused_attention_overrideable_backward_symint(
      grad_out, query, key, value, attn_bias, grad_input_mask, out, logsumexp, cum_seq_q, cum_seq_k,
      std::move(max_q), std::move(max_k), dropout_p, is_causal, philox_seed, philox_offset, scale);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward",
         TORCH_FN(attention_backward_autograd));
}

}  // namespace ocl::native
