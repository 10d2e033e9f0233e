// The random engine: fills tensors with Philox numbers. Element i (in row-major order) takes its
// numbers from Philox subsequence i / 4, so a seed gives one stream whatever the strides, the
// launch shape or the device.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>

namespace ocl::random {

using Generator = std::optional<at::Generator>;

/// A distribution of random/real.cl and its parameters, as that file lists them.
struct Distribution {
  const char* name;  // a literal that lives for ever: compared by address
  double p0 = 0, p1 = 0, p2 = 0;
  int digits = 0;  // random bits of a uniform number, 0: all
};

/// Fills a real or integer tensor; computes in double for double, else in float.
void fill_real(const at::TensorBase& out, const Distribution& distribution,
               const Generator& generator);

/// base + a number in [0, range), all 2^64 numbers if range is 0; converted to the dtype.
void fill_integer(const at::TensorBase& out, int64_t base, uint64_t range,
                  const Generator& generator);

/// 1 with probability p, else 0.
void fill_bernoulli(const at::TensorBase& out, double p, const Generator& generator);
/// 1 with the probability in p (floating, expanded to out's shape), else 0. One outside
/// [0, 1] raises RuntimeError at the next wait.
void fill_bernoulli(const at::TensorBase& out, const at::TensorBase& p, const Generator& generator);

/// mask (bool) = 1 with probability keep, out = in * mask * scale. One shape; 0 < keep < 1.
void dropout(const at::TensorBase& out, const at::TensorBase& mask, const at::TensorBase& in,
             double keep, double scale, const Generator& generator);

/// A random permutation of 0 .. n - 1 into `out`, contiguous and of size n.
void permute(const at::TensorBase& out, const Generator& generator);

}  // namespace ocl::random
