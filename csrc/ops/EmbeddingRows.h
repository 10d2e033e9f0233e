// Gradients of embeddings: sums over the indices that name a row.
#pragma once

#include <ATen/core/Tensor.h>

#include "opencl/device_assert.h"

namespace ocl::native {

/// sums[indices[i]] += rows[i] for all i but those whose index is `padding_idx` (none if negative).
/// sums is [weights, columns], rows [n, columns], indices contiguous. In order: deterministic.
void add_embedding_rows(const at::Tensor& sums, const at::Tensor& indices, const at::Tensor& rows,
                        int64_t padding_idx, const AssertSite& site);

/// Divides every row by how many of the indices name it.
void divide_by_frequency(at::Tensor& sums, const at::Tensor& indices, const AssertSite& site);

}  // namespace ocl::native
