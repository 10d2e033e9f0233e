// scaled_dot_product_attention: which backend serves it, and the one with a kernel of its own.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/attention/attention.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "ops/_fused_sdp_choice.h"
#include "ops/_scaled_dot_product_fused_attention_overrideable.h"
#include "ops/_scaled_dot_product_fused_attention_overrideable_backward.h"
#include "runtime/generator.h"

namespace ocl::native {

using at::Tensor;

namespace {

/// Whether a function transform (vmap, grad, jvp) or a forward gradient is at work on the tensor:
/// these know the composed formula's ops, but not the fused one.
bool transformed(const Tensor& tensor) {
  constexpr c10::DispatchKeySet kWrappers(
      {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
  return tensor.key_set().has_any(kWrappers) || tensor._fw_grad(0).defined();
}

/// Sizes may be symbolic here: tensors of a graph that is being traced come along too.
const char* kernel_refuses(const Tensor& query, const Tensor& key, const Tensor& value,
                           const std::optional<Tensor>& mask, bool enable_gqa) {
  if (query.is_nested() || key.is_nested() || value.is_nested()) return "nested tensors";
  if (transformed(query) || transformed(key) || transformed(value)) return "a transform";
  const c10::ScalarType dtype = query.scalar_type();
  if (!c10::isFloatingType(dtype) || c10::isReducedFloatingType(dtype) != (query.itemsize() == 2)) {
    return "the dtype";
  }
  if (key.scalar_type() != dtype || value.scalar_type() != dtype) return "mixed dtypes";
  const int64_t dims = query.dim();
  if ((dims != 3 && dims != 4) || key.dim() != dims || value.dim() != dims) {
    return "tensors of other than 3 or 4 dimensions";
  }
  if (query.sym_size(-1) != key.sym_size(-1)) return "a depth that differs";
  if (query.sym_size(-1) > 256 || value.sym_size(-1) > 256) return "heads past 256 columns";
  if (query.sym_size(-1) == 0) return "heads without columns";
  if (key.sym_size(-2) != value.sym_size(-2)) return "as many keys as values are needed";
  if (dims == 4 &&
      (query.sym_size(0) != key.sym_size(0) || query.sym_size(0) != value.sym_size(0))) {
    return "batches that broadcast";
  }
  const c10::SymInt heads = query.sym_size(-3), key_heads = key.sym_size(-3);
  if (key_heads != value.sym_size(-3)) return "heads that broadcast";
  if (heads != key_heads && (!enable_gqa || key_heads == 0 || heads % key_heads != 0)) {
    return "heads that broadcast";
  }
  if (mask.has_value()) {
    if (mask->requires_grad() && at::GradMode::is_enabled()) return "a mask with a gradient";
    if (mask->dim() > dims) return "a mask of more dimensions";
    for (int64_t d = 1; d <= mask->dim(); ++d) {
      const c10::SymInt wanted = d == 1 ? key.sym_size(-2) : query.sym_size(-d);
      if (mask->sym_size(-d) != 1 && mask->sym_size(-d) != wanted) return "the mask's shape";
    }
  }
  return nullptr;
}

/// A call of scaled_dot_product_attention, and what serves it.
struct Choice {
  const Tensor &query, &key, &value;
  const std::optional<Tensor>& mask;
  bool enable_gqa;
  at::SDPBackend backend = at::SDPBackend::error;
};

constexpr Implementation<Choice> kFused{
    "fused",
    [](const Choice& c) {
      const at::Context& context = at::globalContext();
      const bool on = context.userEnabledOverrideableSDP() || context.userEnabledFlashSDP() ||
                      context.userEnabledMemEfficientSDP();
      return on ? kernel_refuses(c.query, c.key, c.value, c.mask, c.enable_gqa) : "switched off";
    },
    [](Choice& c) { c.backend = at::SDPBackend::overrideable; }};
constexpr Implementation<Choice> kMath{
    "math",
    [](const Choice&) -> const char* {
      return at::globalContext().userEnabledMathSDP() ? nullptr : "switched off";
    },
    [](Choice& c) { c.backend = at::SDPBackend::math; }};
constexpr const Implementation<Choice>* kBackends[] = {&kFused, &kMath};
Engine sdpa_engine{"sdpa", kBackends};

int64_t choose(const Tensor& query, const Tensor& key, const Tensor& value,
               const std::optional<Tensor>& mask, bool enable_gqa) {
  Choice choice{query, key, value, mask, enable_gqa};
  // Sizes may be symbolic, so they are not described.
  const auto describe = [](const Choice& c) {
    return "sdpa " + std::to_string(c.query.dim()) + "d " + c10::toString(c.query.scalar_type());
  };
  const bool chosen = run_first(sdpa_engine, kBackends, choice, describe);
  TORCH_CHECK(chosen, "No available kernel. Aborting execution: ", kFused.refuse(choice),
              ", and the math backend is off");
  return static_cast<int64_t>(choice.backend);
}

/// A 3-D tensor as a batch of one.
Tensor batched(const Tensor& tensor) { return tensor.dim() == 3 ? tensor.unsqueeze(0) : tensor; }

/// The mask added to the scores, expanded to [batch, heads, queries, keys].
Tensor additive_mask(const std::optional<Tensor>& mask, const Tensor& query, const Tensor& key) {
  if (!mask.has_value() || !mask->defined()) return {};
  Tensor additive = *mask;
  if (additive.scalar_type() == at::kBool) {
    const auto options = query.options();
    additive = at::where(additive, at::full({}, 0, options),
                         at::full({}, -std::numeric_limits<double>::infinity(), options));
  }
  return additive.expand({query.size(0), query.size(1), query.size(2), key.size(2)});
}

attention::Problem problem_of(const Tensor& query, const Tensor& key, const Tensor& value,
                              const std::optional<Tensor>& mask, double dropout_p, bool is_causal,
                              std::optional<double> scale) {
  TORCH_CHECK(query.dim() == key.dim() && query.dim() == value.dim() &&
                  (query.dim() == 3 || query.dim() == 4),
              "query, key and value must be 3D or 4D, got ", query.dim(), "D, ", key.dim(),
              "D and ", value.dim(), "D");
  TORCH_CHECK(dropout_p >= 0 && dropout_p <= 1,
              "dropout probability has to be between 0 and 1, but got ", dropout_p);
  attention::Problem problem;
  problem.query = batched(query);
  problem.key = batched(key);
  problem.value = batched(value);
  const Tensor &q = problem.query, &k = problem.key, &v = problem.value;
  TORCH_CHECK(c10::isFloatingType(q.scalar_type()) && q.scalar_type() == k.scalar_type() &&
                  q.scalar_type() == v.scalar_type(),
              "query, key and value must have one floating dtype, got ", q.scalar_type(), ", ",
              k.scalar_type(), " and ", v.scalar_type());
  TORCH_CHECK(q.size(0) == k.size(0) && q.size(0) == v.size(0) && k.size(1) == v.size(1) &&
                  k.size(2) == v.size(2) && q.size(3) == k.size(3) &&
                  (q.size(1) == k.size(1) || (k.size(1) > 0 && q.size(1) % k.size(1) == 0)),
              "the shapes of query ", query.sizes(), ", key ", key.sizes(), " and value ",
              value.sizes(), " don't fit");
  problem.mask = additive_mask(mask, q, k);
  problem.causal = is_causal;
  problem.dropout = dropout_p;
  problem.scale = scale.has_value() ? *scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  const char* reason = attention::refuses(problem);
  TORCH_CHECK_NOT_IMPLEMENTED(reason == nullptr, "ocl: attention of ", reason);
  return problem;
}

/// An empty tensor of query's shape but for the last dimension, its dimensions in query's order.
Tensor empty_as_query(const Tensor& query, int64_t columns) {
  if (query.size(-1) == columns) return at::empty_like(query);
  std::array<int64_t, 4> order{}, shape{}, strides{};
  const int64_t dims = query.dim();
  const auto key = [&](int64_t d) {
    const int64_t stride = query.stride(d);
    return stride == 0 ? std::numeric_limits<int64_t>::max() : stride;
  };
  for (int64_t d = 0; d < dims; ++d) {
    order[d] = d;
    shape[d] = d == dims - 1 ? columns : query.size(d);
  }
  std::stable_sort(order.begin(), order.begin() + dims,
                   [&](int64_t a, int64_t b) { return key(a) < key(b); });
  int64_t stride = 1;
  for (int64_t i = 0; i < dims; ++i) {
    strides[order[i]] = stride;
    stride *= shape[order[i]];
  }
  const auto count = static_cast<size_t>(dims);
  return at::empty_strided({shape.data(), count}, {strides.data(), count}, query.options());
}

/// A number in CPU memory, made without the dispatcher: every call needs two.
Tensor philox_word(uint64_t word) {
  const Tensor tensor = at::detail::empty_cpu({}, at::kLong);
  *tensor.mutable_data_ptr<int64_t>() = static_cast<int64_t>(word);
  return tensor;
}

}  // namespace

int64_t _fused_sdp_choice(const Tensor& query, const Tensor& key, const Tensor& value,
                          const std::optional<Tensor>& attn_mask, double, bool,
                          std::optional<double>, bool enable_gqa) {
  return choose(query, key, value, attn_mask, enable_gqa);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>
_scaled_dot_product_fused_attention_overrideable(const Tensor& query, const Tensor& key,
                                                 const Tensor& value,
                                                 const std::optional<Tensor>& attn_bias,
                                                 double dropout_p, bool is_causal, bool,
                                                 std::optional<double> scale) {
  attention::Problem problem =
      problem_of(query, key, value, attn_bias, dropout_p, is_causal, scale);
  if (dropout_p > 0) {
    const PhiloxState state = reserve_philox(std::nullopt, query.device().index(),
                                             static_cast<uint64_t>(key.size(-2) + 3) / 4);
    problem.seed = state.seed;
    problem.offset = state.offset;
  }
  const Tensor &q = problem.query, &v = problem.value;
  Tensor out = empty_as_query(query, value.size(-1));
  Tensor logsumexp = at::empty({q.size(0), q.size(1), q.size(2)},
                               q.options().dtype(compute_dtype(q.scalar_type())));
  attention::forward(problem, batched(out), logsumexp);
  return {out, logsumexp, Tensor(), Tensor(), c10::SymInt(q.size(2)), c10::SymInt(v.size(2)),
          // Without dropout, too: compiled graphs save them.
          philox_word(problem.seed), philox_word(problem.offset), Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor>
_scaled_dot_product_fused_attention_overrideable_backward(
    const Tensor& grad_out, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& attn_bias, std::array<bool, 4> grad_input_mask, const Tensor& out,
    const Tensor& logsumexp, const Tensor&, const Tensor&, int64_t, int64_t, double dropout_p,
    bool is_causal, const Tensor& philox_seed, const Tensor& philox_offset,
    std::optional<double> scale) {
  if (!grad_out.defined()) return {};
  TORCH_CHECK_NOT_IMPLEMENTED(!grad_input_mask[3],
                              "ocl: the fused attention gives its mask no gradient");
  attention::Problem problem =
      problem_of(query, key, value, attn_bias, dropout_p, is_causal, scale);
  if (dropout_p > 0) {
    problem.seed = static_cast<uint64_t>(philox_seed.item().toLong());
    problem.offset = static_cast<uint64_t>(philox_offset.item().toLong());
  }
  const Tensor grad_query = at::empty_like(query), grad_key = at::empty_like(key),
               grad_value = at::empty_like(value);
  attention::backward(problem, batched(grad_out), batched(out), logsumexp, batched(grad_query),
                      batched(grad_key), batched(grad_value));
  return {grad_query, grad_key, grad_value, Tensor()};
}

}  // namespace ocl::native

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &ocl::native::_fused_sdp_choice)
}  // namespace at::native
