// flex_attention: functions of the user's own between the scores and the softmax, as source in
// front of the kernels (kernels/attention/modification.clh).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "engine/modified_kernels.h"

namespace ocl::attention {

/// Changes to the scores of a problem.
struct Modification {
  const ModifiedKernels& kernels;
  /// uint8 [batch, heads, blocks of queries, blocks of keys], any strides: 0 nothing of a block is
  /// taken, 1 what the mask's function takes, 2 all.
  at::Tensor blocks;
  int64_t query_block, key_block;  // rows and columns of a block
  /// [batch, heads, queries], of the dtype computed in, or undefined. The rows' maxima, in units of
  /// log(2), which the forward pass writes; and the gradient of logsumexp in these units.
  at::Tensor maxima, lse_slopes;
  /// Tensors that the functions read besides, and where they add gradients: [copies, ...] for each,
  /// in the order of its parameters.
  std::vector<at::Tensor> captured;
  std::vector<int64_t> numbers;
  std::vector<at::Tensor> gradients;
  int64_t copies = 1;
};

/// The table of blocks: contiguous int32 counts [..., rows] and indices [..., rows, columns]; those
/// of the full blocks may be undefined.
at::Tensor table_of_blocks(const at::Tensor& counts, const at::Tensor& indices,
                           const at::Tensor& full_counts, const at::Tensor& full_indices);

}  // namespace ocl::attention
