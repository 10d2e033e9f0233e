// Counts how often each bin is named.
#pragma once

#include <ATen/core/Tensor.h>

namespace ocl::binning {

/// counts[b] += the number of elements of `bins` that are b; elements outside [0, counts.numel())
/// are passed over. bins: one dimension, any integer dtype, any stride. counts: one dimension, any
/// dtype. Exact and deterministic. Throws NotImplementedError for 2^32 bins or more.
void count(const at::Tensor& bins, const at::Tensor& counts);

}  // namespace ocl::binning
