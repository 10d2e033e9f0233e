// torch_ocl::jagged_attention and its gradient: attention of sequences that lie one after the
// other, as jagged nested tensors hold them. A launch for each sequence, without padding.
// torch_ocl/upstream/jagged_attention.py calls them.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/dtype.h"
#include "runtime/generator.h"

namespace ocl::native {

namespace {

using at::Tensor;

/// [heads, total, columns] tensors and the places [sequences + 1] where sequences begin.
struct Sequences {
  Sequences(const Tensor& query_, const Tensor& key_, const Tensor& value_,
            at::IntArrayRef queries_, at::IntArrayRef keys_, double dropout_, bool causal_,
            std::optional<double> scale_)
      : query(query_),
        key(key_),
        value(value_),
        queries(queries_),
        keys(keys_),
        dropout(dropout_),
        causal(causal_),
        scale(scale_ ? *scale_ : 1 / std::sqrt(static_cast<double>(query_.size(-1)))) {
    TORCH_CHECK(query.dim() == 3 && key.dim() == 3 && value.dim() == 3,
                "jagged_attention: expected query, key and value of 3 dimensions");
    TORCH_CHECK(query.size(2) == key.size(2) && key.size(1) == value.size(1) &&
                    query.size(0) == key.size(0) && key.size(0) == value.size(0),
                "jagged_attention: the shapes of query ", query.sizes(), ", key ", key.sizes(),
                " and value ", value.sizes(), " don't fit");
    TORCH_CHECK(
        query.scalar_type() == key.scalar_type() && query.scalar_type() == value.scalar_type(),
        "jagged_attention: query, key and value must have one dtype");
    TORCH_CHECK(dropout >= 0 && dropout <= 1,
                "dropout probability has to be between 0 and 1, but got ", dropout);
    TORCH_CHECK(queries.size() == keys.size() && !queries.empty(),
                "jagged_attention: as many sequences of queries as of keys are needed");
    check_bounds(queries, query.size(1));
    check_bounds(keys, key.size(1));
  }

  size_t count() const { return queries.size() - 1; }
  int64_t query_length(size_t b) const { return queries[b + 1] - queries[b]; }
  int64_t key_length(size_t b) const { return keys[b + 1] - keys[b]; }
  /// Whether a sequence has queries without keys, or keys without queries: nothing is computed.
  bool any_empty() const {
    for (size_t b = 0; b < count(); ++b) {
      if (query_length(b) == 0 || key_length(b) == 0) return true;
    }
    return queries.front() != 0 || queries.back() != query.size(1) || keys.front() != 0 ||
           keys.back() != key.size(1);
  }
  Tensor queries_of(const Tensor& all, size_t b) const {
    return all.narrow(1, queries[b], query_length(b)).unsqueeze(0);
  }
  Tensor keys_of(const Tensor& all, size_t b) const {
    return all.narrow(1, keys[b], key_length(b)).unsqueeze(0);
  }
  Tensor logarithms_of(const Tensor& all, size_t b) const {
    const int64_t heads = query.size(0);
    return all.narrow(0, heads * queries[b], heads * query_length(b))
        .view({1, heads, query_length(b)});
  }
  /// Philox counters: each sequence has its own.
  uint64_t counters(size_t b) const { return static_cast<uint64_t>(key_length(b) + 3) / 4; }

  /// Calls run(problem, b) for every sequence that has queries and keys.
  template <class Run>
  void each(uint64_t seed, uint64_t offset, const Run& run) const {
    for (size_t b = 0; b < count(); ++b) {
      if (query_length(b) == 0 || key_length(b) == 0) continue;
      attention::Problem problem;
      problem.query = queries_of(query, b);
      problem.key = keys_of(key, b);
      problem.value = keys_of(value, b);
      problem.causal = causal;
      problem.scale = scale;
      problem.dropout = dropout;
      problem.seed = seed;
      problem.offset = offset;
      const char* reason = attention::refuses(problem);
      TORCH_CHECK_NOT_IMPLEMENTED(reason == nullptr, "ocl: attention of ", reason);
      run(problem, b);
      offset += counters(b);
    }
  }

  const Tensor &query, &key, &value;
  const at::IntArrayRef queries, keys;
  const double dropout;
  const bool causal;
  const double scale;

 private:
  static void check_bounds(at::IntArrayRef bounds, int64_t total) {
    int64_t before = 0;
    for (const int64_t bound : bounds) {
      TORCH_CHECK(bound >= before && bound <= total,
                  "jagged_attention: offsets must not decrease, within 0 and ", total);
      before = bound;
    }
  }
};

/// [heads, total, columns], with the heads of a place side by side, as nested tensors have it.
Tensor made_like(const Tensor& like, int64_t columns, bool zero) {
  const std::vector<int64_t> sizes{like.size(1), like.size(0), columns};
  const Tensor made = zero ? at::zeros(sizes, like.options()) : at::empty(sizes, like.options());
  return made.transpose(0, 1);
}

std::tuple<Tensor, Tensor, int64_t, int64_t> jagged_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, at::IntArrayRef query_offsets,
    at::IntArrayRef key_offsets, double dropout_p, bool is_causal, std::optional<double> scale) {
  const c10::DeviceGuard guard(query.device());
  const Sequences sequences(query, key, value, query_offsets, key_offsets, dropout_p, is_causal,
                            scale);
  uint64_t seed = 0, offset = 0;
  if (dropout_p > 0) {
    uint64_t counters = 0;
    for (size_t b = 0; b < sequences.count(); ++b) counters += sequences.counters(b);
    const PhiloxState state = reserve_philox(std::nullopt, query.device().index(), counters);
    seed = state.seed;
    offset = state.offset;
  }
  const Tensor out = made_like(query, value.size(2), sequences.any_empty());
  const Tensor logarithms = at::empty({query.size(0) * query.size(1)},
                                      query.options().dtype(compute_dtype(query.scalar_type())));
  sequences.each(seed, offset, [&](const attention::Problem& problem, size_t b) {
    attention::forward(problem, sequences.queries_of(out, b),
                       sequences.logarithms_of(logarithms, b));
  });
  return {out, logarithms, static_cast<int64_t>(seed), static_cast<int64_t>(offset)};
}

std::tuple<Tensor, Tensor, Tensor> jagged_attention_backward(
    const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& out, const Tensor& logarithms, at::IntArrayRef query_offsets,
    at::IntArrayRef key_offsets, double dropout_p, bool is_causal, std::optional<double> scale,
    int64_t seed, int64_t offset) {
  const c10::DeviceGuard guard(query.device());
  const Sequences sequences(query, key, value, query_offsets, key_offsets, dropout_p, is_causal,
                            scale);
  const bool zero = sequences.any_empty();
  const Tensor grad_query = made_like(query, query.size(2), zero),
               grad_key = made_like(key, key.size(2), zero),
               grad_value = made_like(value, value.size(2), zero);
  sequences.each(static_cast<uint64_t>(seed), static_cast<uint64_t>(offset),
                 [&](const attention::Problem& problem, size_t b) {
                   attention::backward(
                       problem, sequences.queries_of(grad, b), sequences.queries_of(out, b),
                       sequences.logarithms_of(logarithms, b), sequences.queries_of(grad_query, b),
                       sequences.keys_of(grad_key, b), sequences.keys_of(grad_value, b));
                 });
  return {grad_query, grad_key, grad_value};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ocl, library) {
  library.def(
      "jagged_attention(Tensor query, Tensor key, Tensor value, int[] query_offsets, int[] "
      "key_offsets, float dropout_p, bool is_causal, float? scale) -> (Tensor, Tensor, int, int)");
  library.def(
      "jagged_attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out, "
      "Tensor logarithms, int[] query_offsets, int[] key_offsets, float dropout_p, bool is_causal, "
      "float? scale, int seed, int offset) -> (Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(torch_ocl, PrivateUse1, library) {
  library.impl("jagged_attention", TORCH_FN(jagged_attention));
  library.impl("jagged_attention_backward", TORCH_FN(jagged_attention_backward));
}

}  // namespace ocl::native
