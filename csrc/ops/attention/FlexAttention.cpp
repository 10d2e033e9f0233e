// flex_attention's kernels as ops of this package: torch_ocl/inductor/templates/flex.py lowers
// upstream's higher-order op to them.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/attention/modification.h"
#include "engine/dtype.h"
#include "ops/DtypeChecks.h"
#include "runtime/device_guard.h"

namespace ocl::native {

using at::Tensor;

namespace {

using OptionalTensor = std::optional<Tensor>;

/// The mask of blocks, as upstream's BlockMask has it: of the partial blocks of each block of
/// queries [batch or 1, heads or 1, rows], and their indices [..., rows, columns]; of the full
/// ones.
struct BlockMask {
  const Tensor &counts, &indices;
  const OptionalTensor &full_counts, &full_indices;
  int64_t query_block, key_block;
};

Tensor int32(const Tensor& tensor) { return tensor.to(at::kInt).contiguous(); }
Tensor int32(const OptionalTensor& tensor) { return tensor ? int32(*tensor) : Tensor(); }

attention::Modification modification_of(const std::string& text, const BlockMask& mask,
                                        const Tensor& query) {
  TORCH_CHECK(mask.indices.dim() == 4 && mask.counts.dim() == 3,
              "flex_attention: a block mask of other than 4 dimensions");
  TORCH_CHECK(mask.query_block > 0 && mask.key_block > 0,
              "flex_attention: blocks must have a row and a column");
  const Tensor blocks =
      attention::table_of_blocks(int32(mask.counts), int32(mask.indices), int32(mask.full_counts),
                                 int32(mask.full_indices))
          .expand({query.size(0), query.size(1), mask.indices.size(2), mask.indices.size(3)});
  constexpr int64_t kMost = int64_t{1} << 31;  // larger than any sequence
  return {ModifiedKernels::of(text),
          blocks,
          std::min(mask.query_block, kMost),
          std::min(mask.key_block, kMost),
          {},
          {},
          {},
          {},
          {}};
}

/// The rows of key or value for all batches.
Tensor broadcast(const Tensor& tensor, const Tensor& query) {
  if (tensor.size(0) == query.size(0)) return tensor;
  return tensor.expand({query.size(0), tensor.size(1), tensor.size(2), tensor.size(3)});
}

attention::Problem problem_of(const Tensor& query, const Tensor& key, const Tensor& value,
                              double scale, const attention::Modification& modification) {
  check_floating("flex_attention", query);
  check_same_dtype(key, query.scalar_type());
  check_same_dtype(value, query.scalar_type());
  const attention::Problem problem{.query = query,
                                   .key = broadcast(key, query),
                                   .value = broadcast(value, query),
                                   .mask = {},
                                   .scale = scale,
                                   .modification = &modification};
  const char* reason = attention::refuses(problem);
  TORCH_CHECK_NOT_IMPLEMENTED(reason == nullptr, "flex_attention on ocl: ", reason);
  return problem;
}

/// Dense, with the dimensions from the outermost to the innermost as `order` has them.
Tensor dense(at::IntArrayRef sizes, at::IntArrayRef order, const at::TensorOptions& options) {
  c10::DimVector strides(sizes.size(), 1);
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[static_cast<size_t>(order[i])] = stride;
    stride *= std::max<int64_t>(sizes[static_cast<size_t>(order[i])], 1);
  }
  return at::empty_strided(sizes, strides, options);
}

/// out, and logsumexp and maxima in units of log(2).
std::tuple<Tensor, Tensor, Tensor> flex_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, double scale,
    const std::string& text, const Tensor& counts, const Tensor& indices,
    const OptionalTensor& full_counts, const OptionalTensor& full_indices, int64_t query_block,
    int64_t key_block, std::optional<at::TensorList> captured, at::OptionalIntArrayRef numbers,
    at::IntArrayRef order, bool needs_maxima) {
  const DeviceGuard guard(query.device());
  const BlockMask mask{counts, indices, full_counts, full_indices, query_block, key_block};
  attention::Modification modification = modification_of(text, mask, query);
  if (captured) modification.captured = captured->vec();
  if (numbers) modification.numbers = numbers->vec();
  const attention::Problem problem = problem_of(query, key, value, scale, modification);
  const at::ScalarType compute = compute_dtype(query.scalar_type());
  const at::IntArrayRef rows = query.sizes().slice(0, 3);
  const Tensor out = dense({rows[0], rows[1], rows[2], value.size(3)}, order, query.options());
  const Tensor logsumexp = at::empty(rows, query.options().dtype(compute));
  Tensor maxima;
  if (needs_maxima) maxima = modification.maxima = at::empty_like(logsumexp);
  attention::forward(problem, out, logsumexp);
  const auto as_float = [](const Tensor& tensor) { return tensor.to(at::kFloat); };
  return {out, as_float(logsumexp),
          needs_maxima ? as_float(maxima) : at::empty(rows, query.options().dtype(at::kFloat))};
}

/// The gradients of query, key (for all batches), value, and of the first of `captured`, as many as
/// `sinks`, which have its shapes and are float32: the functions add to them.
std::tuple<Tensor, Tensor, Tensor, std::vector<Tensor>> flex_attention_backward(
    const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& out,
    const Tensor& logsumexp, const Tensor& grad, const OptionalTensor& grad_logsumexp, double scale,
    const std::string& text, const Tensor& counts, const Tensor& indices,
    const OptionalTensor& full_counts, const OptionalTensor& full_indices, int64_t query_block,
    int64_t key_block, at::TensorList captured, at::TensorList sinks, at::IntArrayRef numbers,
    at::IntArrayRef query_order, at::IntArrayRef key_order, at::IntArrayRef value_order) {
  const DeviceGuard guard(query.device());
  const BlockMask mask{counts, indices, full_counts, full_indices, query_block, key_block};
  attention::Modification modification = modification_of(text, mask, query);
  modification.captured = captured.vec();
  modification.numbers = numbers.vec();
  // Small gradients have many terms each.
  constexpr int64_t kElements = int64_t{1} << 20, kMostCopies = 32;
  int64_t elements = 1;
  for (const Tensor& sink : sinks) elements += sink.numel();
  modification.copies = std::clamp<int64_t>(kElements / elements, 1, kMostCopies);
  for (const Tensor& sink : sinks) {
    c10::DimVector sizes(sink.sizes().begin(), sink.sizes().end());
    sizes.insert(sizes.begin(), modification.copies);
    modification.gradients.push_back(at::zeros(sizes, sink.options().dtype(at::kFloat)));
  }
  const at::ScalarType compute = compute_dtype(query.scalar_type());
  if (grad_logsumexp) {
    // The gradient by natural logarithms is that by logarithms of base 2, divided by log(2).
    modification.lse_slopes = grad_logsumexp->to(compute).mul(M_LOG2E).contiguous();
  }
  const attention::Problem problem = problem_of(query, key, value, scale, modification);
  Tensor logarithms = logsumexp.to(compute).contiguous();
  if (compute == at::kDouble) {
    // Upstream keeps float32 between the passes, which is not enough for float64.
    logarithms = at::empty(query.sizes().slice(0, 3), query.options());
    attention::forward(problem, at::empty_like(out), logarithms);
  }
  const auto like = [&](const Tensor& tensor, at::IntArrayRef order) {
    return dense({query.size(0), tensor.size(1), tensor.size(2), tensor.size(3)}, order,
                 tensor.options());
  };
  const Tensor grad_query = like(query, query_order), grad_key = like(key, key_order),
               grad_value = like(value, value_order);
  attention::backward(problem, grad.to(query.scalar_type()), out, logarithms, grad_query, grad_key,
                      grad_value);
  std::vector<Tensor> captured_gradients;
  for (const Tensor& copies : modification.gradients) captured_gradients.push_back(copies.sum(0));
  return {grad_query, grad_key, grad_value, captured_gradients};
}

// AOTInductor's models can't pass empty lists: there are none instead.
constexpr const char* kForward =
    "flex_attention(Tensor query, Tensor key, Tensor value, float scale, str text, Tensor counts, "
    "Tensor indices, Tensor? full_counts, Tensor? full_indices, SymInt query_block, "
    "SymInt key_block, Tensor[]? captured, SymInt[]? numbers, int[] order, bool needs_maxima) -> "
    "(Tensor, Tensor, Tensor)";
constexpr const char* kBackward =
    "flex_attention_backward(Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, "
    "Tensor grad, Tensor? grad_logsumexp, float scale, str text, Tensor counts, Tensor indices, "
    "Tensor? full_counts, Tensor? full_indices, SymInt query_block, SymInt key_block, "
    "Tensor[] captured, Tensor[] sinks, SymInt[] numbers, int[] query_order, int[] key_order, "
    "int[] value_order) -> (Tensor, Tensor, Tensor, Tensor[])";

}  // namespace

TORCH_LIBRARY_FRAGMENT(ocl, m) {
  m.def(kForward);
  m.def(kBackward);
}

TORCH_LIBRARY_IMPL(ocl, PrivateUse1, m) {
  m.impl("flex_attention", TORCH_FN(flex_attention));
  m.impl("flex_attention_backward", TORCH_FN(flex_attention_backward));
}

}  // namespace ocl::native
