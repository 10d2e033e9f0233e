// The attention engine: softmax(scale * query key^T + mask) value without the matrix of scores.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ocl::attention {

struct Modification;

/// query: [batch, heads, queries, depth], key: [batch, key heads, keys, depth], value: [batch, key
/// heads, keys, columns], of one floating dtype and any strides. The key heads divide the heads: as
/// many consecutive heads share one.
struct Problem {
  at::Tensor query, key, value;
  at::Tensor mask;      // undefined, or floating [batch, heads, queries, keys], added to the scores
  bool causal = false;  // query i takes keys up to i only
  double scale = 1;
  double dropout = 0;             // the probability of a weight to become 0, in [0, 1]
  uint64_t seed = 0, offset = 0;  // Philox: as many counters as four keys fit in `keys`
  const Modification* modification = nullptr;  // flex_attention's (modification.h)
};

/// Why the kernels do not take the problem; null if they do.
const char* refuses(const Problem& problem);

/// out: [batch, heads, queries, columns], any strides. logsumexp: contiguous [batch, heads,
/// queries] of the dtype computed in (float for half types), in units of log(2), -infinity for a
/// row without a key; such a row of out is 0.
///
/// TORCH_OCL_VERBOSE=dispatch prints which kernel ran and why others were refused,
/// TORCH_OCL_ATTENTION=<name> asks for one.
void forward(const Problem& problem, const at::Tensor& out, const at::Tensor& logsumexp);

/// The gradients of query, key and value, of their shapes and dtype, any strides, from that of out.
/// `out` and `logsumexp` are forward()'s results for the same problem. Deterministic.
void backward(const Problem& problem, const at::Tensor& grad, const at::Tensor& out,
              const at::Tensor& logsumexp, const at::Tensor& grad_query, const at::Tensor& grad_key,
              const at::Tensor& grad_value);

/// The factors of these two, one for each weight: `factors`, contiguous [batch, heads, queries,
/// keys] of the dtype computed in.
void dropout_factors(double dropout, uint64_t seed, uint64_t offset, const at::Tensor& factors);

}  // namespace ocl::attention
