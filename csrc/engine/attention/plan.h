// An attention problem on its way to a kernel: what attention.cpp and the implementations share.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "engine/attention/attention.h"
#include "engine/attention/modification.h"
#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/kernel.h"
#include "runtime/stream.h"

namespace ocl::attention {

namespace kernel_arguments {
using namespace kernel_types;
#include "attention/arguments.clh"
}  // namespace kernel_arguments
using kernel_arguments::Arguments;
using kernel_arguments::Strides;

/// Operands of a backward pass beside those of the forward one.
struct Gradients {
  const at::Tensor &out, &query, &key, &value;
};

/// The problem as every implementation needs it.
struct Plan {
  Plan(const Problem& problem, const at::Tensor& out, const at::Tensor& logsumexp,
       const Gradients* gradients = nullptr);

  const Problem& problem;
  const at::Tensor &out, &logsumexp;  // written by the forward pass, read by the backward one
  const Gradients* gradients;         // null: the forward pass
  Device& device;
  Queue& queue;
  Arguments arguments{};
  uint32_t batch = 0, key_heads = 0;
  const char *in = nullptr, *compute = nullptr, *mask = nullptr;  // tags; mask "i8": none
  c10::ScalarType compute_type = c10::ScalarType::Float;
  size_t compute_size = 4;
  bool dropout = false;

  /// A kernel, the modified one if the problem has a modification.
  Kernel& kernel(const KernelFamily& family, std::span<const Define> defines) const;
  ScalarArgument scalar(double value) const { return scalar_argument(compute_type, value); }
  /// Sets the operands in the order of the kernel's, then the struct, factor, and what of `scalars`
  /// the kernel takes, then the probability to keep a weight, in units of 2^-24, and the factor of
  /// those kept, then what a modified kernel takes, then `local` bytes if any. Without
  /// `may_be_modified` the kernel is none of kernel()'s.
  void launch(Kernel& kernel, const NDRange& range, std::span<const at::Tensor> operands,
              std::initializer_list<ScalarArgument> scalars, size_t local,
              bool may_be_modified = true) const;
};

/// For CPUs: a few queries with the keys split (kernels/attention/decode.cl), and blocks of queries
/// (forward_lanes.cl, backward_lanes.cl), in bfloat16 by AMX (forward_amx.cl). For GPUs: NVIDIA's
/// tensor cores (forward_tensor_core.cl, backward_tensor_core.cl), the matrix instructions of AMD's
/// waves (forward_wave_matrix.cl, backward_wave_matrix.cl), and tiles in local memory
/// (forward_local.cl, backward_local.cl).
extern const Implementation<Plan> decode, amx, lanes, tensor_core, wave_matrix, local;

/// Dropout as kernels take it: the probability to keep a weight, in units of 2^-24, and the factor
/// of those kept.
struct Keep {
  Keep(double dropout, c10::ScalarType compute)
      : threshold(scalar_argument(compute, std::nearbyint((1 - dropout) * 0x1p24))),
        scale(scalar_argument(compute, dropout < 1 ? 1 / (1 - dropout) : 0.0)) {}
  ScalarArgument threshold, scale;
};

Strides strides_of(const at::Tensor& tensor);

/// Bytes of a CPU's vector register: what the device calls a vector of floats.
inline uint32_t register_bytes(const Device& device) {
  return std::clamp<uint32_t>(device.properties().vector_width_float * 4, 16, 64);
}

/// Sets splits and per_item so that about `wanted` work-items or groups run where `items` would,
/// with a multiple of keys each.
void split_keys(Plan& plan, uint64_t items, uint64_t wanted, uint32_t multiple);
/// Splits keys on a GPU where no more than `few` work-groups would run, into two for each of its
/// compute units. The maxima of a modification can't be split.
void split_few(Plan& plan, uint64_t groups, uint64_t few, uint32_t multiple);
/// The operands of the kernels that split keys; the last one is for what the splits leave, rows of
/// `columns` elements.
std::array<at::Tensor, 7> forward_operands(const Plan& plan, uint32_t columns);
/// Combines what the splits left, rows of `vectors` vectors of `width` elements. The operands are
/// those of the kernel attention_decode.
void combine_splits(const Plan& plan, std::span<const at::Tensor> operands, uint32_t width,
                    uint32_t vectors);
/// The operands of GPUs' backward kernels: query, key, value, mask, out, lse, grad, `delta` (the
/// products of the rows of grad and out), and the gradients of query, key and value.
std::array<at::Tensor, 11> backward_operands(const Plan& plan);

/// Vectors of `width` for rows of `columns` elements: more than needed where tiles of a few vectors
/// could not cover them.
uint32_t row_vectors(int64_t columns, uint32_t width, int most);
/// The vectors of a tile, which divide those of a row.
uint32_t tile_vectors(uint32_t vectors, int most);

}  // namespace ocl::attention
