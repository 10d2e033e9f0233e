// An attention problem on its way to a kernel: what attention.cpp and the launchers share.
//
// Offers: AttentionPlan and the launchers.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "engine/attention/attention.h"
#include "engine/dtype.h"
#include "opencl/kernel.h"
#include "runtime/stream.h"

namespace ocl {

/// The layout of Problem in kernels/attention/attention.clh.
struct AttentionArguments {
  struct Strides {
    uint64_t batch, head, row, column;
  };
  uint64_t offset[12];
  Strides query, key, value, mask, out, grad, grad_query, grad_key, grad_value;
  uint64_t seed, counter;
  uint32_t heads, group, queries, keys, depth, columns, causal, per_item, splits, unused;
};

/// The problem as every launcher needs it.
struct AttentionPlan {
  explicit AttentionPlan(const AttentionProblem& problem);

  const AttentionProblem& problem;
  Device& device;
  Queue& queue;
  AttentionArguments arguments{};
  uint32_t batch = 0, key_heads = 0;
  const char *in = nullptr, *compute = nullptr, *mask = nullptr;  // tags; mask "i8": none
  c10::ScalarType compute_type = c10::ScalarType::Float;
  size_t compute_size = 4;
  bool dropout = false;

  ScalarArgument scalar(double value) const { return scalar_argument(compute_type, value); }
  /// Sets the buffers in the order of the kernel's, then the struct, factor, and what of `scalars`
  /// the kernel takes, then the probability to keep a weight, in units of 2^-24, and the factor of
  /// those kept, then `local` bytes if any.
  void launch(Kernel& kernel, const NDRange& range, std::span<const at::Tensor> operands,
              std::initializer_list<ScalarArgument> scalars, size_t local);
};

/// Dropout as kernels take it: the probability to keep a weight, in units of 2^-24, and the factor
/// of those kept.
struct Keep {
  Keep(double dropout, c10::ScalarType compute)
      : threshold(scalar_argument(compute, std::nearbyint((1 - dropout) * 0x1p24))),
        scale(scalar_argument(compute, dropout < 1 ? 1 / (1 - dropout) : 0.0)) {}
  ScalarArgument threshold, scale;
};

AttentionArguments::Strides attention_strides(const at::Tensor& tensor);

inline uint32_t block_count(uint32_t n, uint32_t block) { return (n + block - 1) / block; }

/// Bytes of a CPU's vector register: what the device calls a vector of floats.
inline uint32_t register_bytes(const Device& device) {
  return std::clamp<uint32_t>(device.properties().vector_width_float * 4, 16, 64);
}

/// Sets splits and per_item so that about `wanted` work-items or groups run where `items` would,
/// with a multiple of keys each.
void split_keys(AttentionPlan& plan, uint64_t items, uint64_t wanted, uint32_t multiple);
/// The buffers of the kernels that split keys; the last one is for what the splits leave, rows of
/// `columns` elements.
std::array<at::Tensor, 7> forward_operands(const AttentionPlan& plan, const at::Tensor& out,
                                           const at::Tensor& logsumexp, uint32_t columns);
/// Combines what the splits left, rows of `vectors` vectors of `width` elements. The operands are
/// those of the kernel attention_decode.
void combine_splits(AttentionPlan& plan, std::span<const at::Tensor> operands, uint32_t width,
                    uint32_t vectors);

/// For CPUs: blocks of queries (kernels/attention/forward_lanes.cl, backward_lanes.cl), and a few
/// queries with the keys split (decode.cl).
void attention_lanes(AttentionPlan& plan, const at::Tensor& out, const at::Tensor& logsumexp);
bool takes_decode(const AttentionPlan& plan);
void attention_decode(AttentionPlan& plan, const at::Tensor& out, const at::Tensor& logsumexp);
/// Arguments as attention_backward's, whose strides the plan has.
void attention_lanes_backward(AttentionPlan& plan, const at::Tensor& grad, const at::Tensor& out,
                              const at::Tensor& logsumexp, const at::Tensor& grad_query,
                              const at::Tensor& grad_key, const at::Tensor& grad_value);

/// For GPUs. The first one folds groups of single queries and sets the result's strides; the others
/// want that done.
///
/// NVIDIA's tensor cores (kernels/attention/forward_tensor_core.cl, backward_tensor_core.cl): why
/// they don't take the problem with these `others` beside its operands, or null, and what runs it.
void prepare_groups(AttentionPlan& plan, const at::Tensor& out);
const char* tensor_core_refuses(const AttentionPlan& plan, std::span<const at::Tensor> others);
void attention_tensor_core(AttentionPlan& plan, const at::Tensor& out, const at::Tensor& logsumexp);
void attention_tensor_core_backward(AttentionPlan& plan, std::span<const at::Tensor> operands);
/// Tiles in local memory (kernels/attention/forward_local.cl, backward_local.cl).
void attention_local(AttentionPlan& plan, const at::Tensor& out, const at::Tensor& logsumexp);
/// The operands of the backward kernels, whose strides the plan has: query, key, value, mask, out,
/// lse, grad, the products of the rows of grad and out, and the gradients of query, key and value.
void attention_local_backward(AttentionPlan& plan, std::span<const at::Tensor> operands);

/// Vectors of `width` for rows of `columns` elements: more than needed where tiles of a few vectors
/// could not cover them.
uint32_t row_vectors(int64_t columns, uint32_t width, int most);
/// The vectors of a tile, which divide those of a row.
uint32_t tile_vectors(uint32_t vectors, int most);

}  // namespace ocl
