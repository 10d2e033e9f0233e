// Samples of categories by their weights.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/multinomial.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/multinomial_native.h>
#include <ATen/ops/topk.h>

#include <algorithm>
#include <bit>
#include <tuple>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/random/random.h"
#include "opencl/device_assert.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "runtime/generator.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

using Generator = std::optional<at::Generator>;

const KernelFamily check_family{"random/multinomial.cl", "multinomial_check"};
const KernelFamily search_family{"random/multinomial.cl", "multinomial_search"};
const KernelFamily race_family{"random/multinomial.cl", "multinomial_race"};

// On GPUs shorter rows have a work-item each.
constexpr int64_t kShortRow = 64;
constexpr size_t kMostSharers = 256;
// Upstream's separate launches over all weights have vectors for every core of a CPU.
constexpr int64_t kMostWeightsOfCpu = int64_t{1} << 16;
constexpr int64_t kMostCategories = int64_t{1} << 24;  // upstream's limit

const char* const kNoWeight = "invalid multinomial distribution (sum of probabilities <= 0)";

void multinomial_with_replacement(at::Tensor& result, const at::Tensor& self, int64_t samples,
                                  Generator generator) {
  static const uint32_t negative_weight =
      message_site("invalid multinomial distribution (encountering probability entry < 0)");
  static const uint32_t infinite_weight = message_site(
      "invalid multinomial distribution (encountering probability entry = infinity or NaN)");
  static const uint32_t no_weight = message_site(kNoWeight);
  if (result.numel() == 0) return;
  TORCH_CHECK(self.numel() > 0, kNoWeight);
  const bool is_double = self.scalar_type() == at::kDouble;
  const at::Tensor weights = self.contiguous();
  const at::Tensor cumulative =
      at::cumsum(self, -1, is_double ? at::kDouble : at::kFloat).contiguous();
  at::Tensor dense = result.contiguous();
  const PhiloxState state = reserve_philox(generator, self.device().index(), 4);
  Queue& queue = current_queue(self.device().index());
  const uint64_t rows = self.dim() == 1 ? 1 : self.size(0);
  const std::initializer_list<Define> defines = {{"V", tag(cumulative.scalar_type())},
                                                 {"IN", tag(weights.scalar_type())}};
  const cl_mem asserts = queue.device().asserts().mem();
  launch(check_family.get(queue.device(), defines), queue,
         NDRange::linear(weights.numel(), group_of_lanes(queue.device())).of_work(weights.numel()),
         Pointer{weights.const_data_ptr()}, static_cast<uint64_t>(weights.numel()), asserts,
         negative_weight, infinite_weight);
  launch(search_family.get(queue.device(), defines), queue,
         NDRange::linear(rows * samples, group_of_lanes(queue.device())), Pointer{dense.data_ptr()},
         Pointer{cumulative.data_ptr()}, static_cast<uint64_t>(samples), rows,
         static_cast<uint32_t>(self.size(-1)), state.seed, state.offset, asserts, no_weight);
  if (!dense.is_same(result)) result.copy_(dense);
}

/// Without replacement the samples are the categories whose exponential variables, divided by their
/// weights, come first (Efraimidis and Spirakis, "Weighted random sampling with a reservoir",
/// 2006). Weights are checked by the same launch, and the host waits for that, as on the CPU.
void race(const at::Tensor& result, const at::Tensor& self, int64_t samples,
          const Generator& generator) {
  static const uint32_t invalid_weight =
      message_site("probability tensor contains either `inf`, `nan` or element < 0");
  static const uint32_t no_weight = message_site(kNoWeight);
  Queue& queue = current_queue(self.device().index());
  Device& device = queue.device();
  const at::Tensor weights = self.contiguous();
  const at::Tensor times = at::empty_like(weights);
  random::fill_real(times, {"exponential", 1}, generator);
  const bool one = samples == 1;
  const at::Tensor dense =
      one && !result.is_contiguous() ? at::empty(result.sizes(), result.options()) : result;
  const int64_t categories = self.size(-1), rows = self.numel() / categories;
  const size_t group =
      device.is_cpu() || categories < kShortRow
          ? 1
          : std::min<size_t>(kMostSharers, std::bit_ceil(static_cast<size_t>(categories) / 8));
  const at::ScalarType dtype = self.scalar_type();
  Kernel& kernel = race_family.get(
      device,
      {{"V", tag(compute_dtype(dtype))}, {"IN", tag(dtype)}, {"ONE", one}, {"GROUP", group}});
  launch(kernel, queue,
         NDRange::linear(rows * group, group > 1         ? group
                                       : device.is_cpu() ? 1
                                                         : group_of_rows(device))
             .of_work(2 * self.numel()),
         Pointer{weights.const_data_ptr()}, Pointer{times.data_ptr()},
         Pointer{one ? dense.data_ptr() : times.data_ptr()}, static_cast<uint64_t>(rows),
         static_cast<uint32_t>(categories), device.asserts().mem(), invalid_weight, no_weight);
  if (queue.capture() == nullptr) synchronize(current_stream(self.device().index()));
  if (one) {
    if (!dense.is_same(result)) result.copy_(dense);
  } else {
    result.copy_(std::get<1>(at::topk(times, samples)));
  }
}

}  // namespace

// Upstream's function has the errors, what is drawn with replacement, and much work on a CPU.
at::Tensor& multinomial_out(const at::Tensor& self, int64_t samples, bool replacement,
                            Generator generator, at::Tensor& result) {
  const bool drawn_by_race =
      (samples == 1 || !replacement) &&
      (self.numel() <= kMostWeightsOfCpu || !ocl::device(self.device().index()).is_cpu());
  if (!drawn_by_race || self.numel() == 0 || self.dim() > 2 || samples <= 0 || self.dim() == 0 ||
      samples > self.size(-1) || self.size(-1) > kMostCategories ||
      !c10::isFloatingType(self.scalar_type()) || c10::isFloat8Type(self.scalar_type()) ||
      result.device() != self.device() || result.scalar_type() != at::kLong) {
    return at::native::multinomial_out(self, samples, replacement, std::move(generator), result);
  }
  if (self.dim() == 1) {
    result.resize_({samples});
  } else {
    result.resize_({self.size(0), samples});
  }
  race(result, self, samples, generator);
  return result;
}

at::Tensor multinomial(const at::Tensor& self, int64_t samples, bool replacement,
                       Generator generator) {
  at::Tensor result = at::empty({0}, self.options().dtype(at::kLong));
  return multinomial_out(self, samples, replacement, std::move(generator), result);
}

}  // namespace ocl::native

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(multinomial_with_replacement_stub,
                              &ocl::native::multinomial_with_replacement)
}  // namespace at::native
