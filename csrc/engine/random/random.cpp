#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/random/random.h"

#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/dtype.h"
#include "engine/row_major.h"
#include "opencl/device_assert.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "runtime/generator.h"
#include "runtime/stream.h"

namespace ocl::random {

namespace {

constexpr size_t kLocalSize = 64, kGpuLocal = 256;
// Below this size a permutation is ranked, exactly uniform; above it a Feistel network is.
constexpr int64_t kMaxRanked = 1024;
// Philox calls of one operation: two at most, and generators count in fours.
constexpr uint64_t kIncrement = 4;

const KernelFamily real_family{"random/real.cl", "random_real"};
const KernelFamily integer_family{"random/integer.cl", "random_integer"};
const KernelFamily bernoulli_family{"random/bernoulli.cl", "bernoulli_scalar"};
const KernelFamily bernoulli_tensor_family{"random/bernoulli.cl", "bernoulli_tensor"};
const KernelFamily dropout_family{"random/bernoulli.cl", "dropout"};
const KernelFamily rank_family{"random/permutation.cl", "permute_rank"};
const KernelFamily feistel_family{"random/permutation.cl", "permute_feistel"};
const KernelFamily feistel_lanes_family{"random/permutation.cl", "permute_feistel_lanes"};
constexpr int64_t kFeistelStretch = 512;  // STRETCH there

// The layout structs of kernels/random.
struct FillLayout {
  uint64_t offset;
  uint64_t n;
  StridedArgument<1> strided;
};
struct OperandLayout {
  uint64_t offset[3];
  uint64_t n;
  StridedArgument<3> strided;
};
constexpr int kRounds = 24;
struct FeistelKeys {
  uint64_t n;
  uint32_t left_bits, right_bits;
  uint32_t key[kRounds];
  uint32_t swaps, unused;
};

const char* const kFloat = tag(at::kFloat);
const char* const kDouble = tag(at::kDouble);
const char* const kInt = tag(at::kInt);
const char* const kLong = tag(at::kLong);

NDRange groups_of_four(const Device& device, int64_t n, int lanes = 1) {
  const int64_t per_item = 4 * lanes;
  return NDRange::linear((n + per_item - 1) / per_item, device.is_cpu() ? kLocalSize : kGpuLocal)
      .of_work(4 * n);
}

/// The groups of four that a work-item takes in the lanes of vectors, LANES of random/lanes.clh.
int lanes_of(const Device& device, const RowMajor& layout) {
  return device.is_cpu() && layout.contiguous ? 16 : 1;
}

/// Calls fill(out, layout), with a contiguous copy in between for tensors the kernels can't
/// address.
template <class Fill>
void fill_any(const at::TensorBase& out, const Fill& fill) {
  if (out.numel() == 0) return;
  const RowMajor layout = row_major(out.sizes(), {out});
  if (layout.contiguous || layout.fits) {
    fill(out, layout);
    return;
  }
  const at::Tensor dense = at::empty(out.sizes(), out.options());
  fill(dense, row_major(out.sizes(), {dense}));
  at::Tensor(out).copy_(dense);
}

/// The compile parameter that lets a GPU take the four elements of a work-item as one vector.
Define vector_access(const RowMajor& layout,
                     std::initializer_list<std::reference_wrapper<const at::TensorBase>> tensors) {
  const bool gpu = !device(tensors.begin()->get().device().index()).is_cpu();
  const bool aligned =
      gpu && layout.contiguous && std::ranges::all_of(tensors, [](const at::TensorBase& tensor) {
        return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % (4 * tensor.itemsize()) == 0;
      });
  return {aligned ? "ALIGNED_VECTORS" : "ANY_ALIGNMENT", 1};
}

template <class... Arguments>
void launch_fill(const KernelFamily& family, const at::TensorBase& out, const RowMajor& layout,
                 int lanes, std::span<const Define> defines, const PhiloxState& state,
                 const Arguments&... arguments) {
  Queue& queue = current_queue(out.device().index());
  const Location to = queue.device().addresses().find(out.data_ptr());
  const FillLayout argument{to.offset, static_cast<uint64_t>(layout.n), StridedArgument<1>(layout)};
  launch(family.get(queue.device(), defines), queue,
         groups_of_four(queue.device(), layout.n, lanes), to.mem, argument, state.seed,
         state.offset, arguments...);
}

/// The largest 32-bit word that counts as heads, for p > 0.
uint32_t heads_limit(double p) {
  const double words = std::clamp(std::nearbyint(p * 0x1p32), 1.0, 0x1p32);
  return static_cast<uint32_t>(static_cast<uint64_t>(words) - 1);
}

}  // namespace

void fill_real(const at::TensorBase& out, const Distribution& distribution,
               const Generator& generator) {
  const bool is_double = out.scalar_type() == at::kDouble;
  const PhiloxState state = reserve_philox(generator, out.device().index(), kIncrement);
  fill_any(out, [&](const at::TensorBase& target, const RowMajor& layout) {
    const int lanes =
        is_double ? 1 : lanes_of(current_queue(target.device().index()).device(), layout);
    const Define defines[] = {{"DIST", distribution.name},
                              {"V", is_double ? kDouble : kFloat},
                              {"OUT", tag(target.scalar_type())},
                              {"DIGITS", distribution.digits ? distribution.digits
                                         : is_double         ? 53
                                                             : 24},
                              {"CONTIGUOUS", layout.contiguous},
                              {"LANES", lanes},
                              vector_access(layout, {target})};
    const auto [name, p0, p1, p2, digits] = distribution;
    if (is_double) {
      launch_fill(real_family, target, layout, lanes, defines, state, p0, p1, p2);
    } else {
      launch_fill(real_family, target, layout, lanes, defines, state, static_cast<float>(p0),
                  static_cast<float>(p1), static_cast<float>(p2));
    }
  });
}

void fill_integer(const at::TensorBase& out, int64_t base, uint64_t range,
                  const Generator& generator) {
  // Multiplying 32 random bits into a range of 2^28 makes some numbers 1/16 likelier than others;
  // upstream draws the same line.
  const int bits = range == 0 || range >= (uint64_t{1} << 28) ? 64 : 32;
  const PhiloxState state = reserve_philox(generator, out.device().index(), kIncrement);
  fill_any(out, [&](const at::TensorBase& target, const RowMajor& layout) {
    const int lanes =
        bits == 64 ? 1 : lanes_of(current_queue(target.device().index()).device(), layout);
    const Define defines[] = {{"V", kLong},     {"OUT", tag(target.scalar_type())},
                              {"BITS", bits},   {"CONTIGUOUS", layout.contiguous},
                              {"LANES", lanes}, vector_access(layout, {target})};
    launch_fill(integer_family, target, layout, lanes, defines, state, base, range);
  });
}

void fill_bernoulli(const at::TensorBase& out, double p, const Generator& generator) {
  const PhiloxState state = reserve_philox(generator, out.device().index(), kIncrement);
  if (p == 0) {
    at::Tensor(out).zero_();
    return;
  }
  fill_any(out, [&](const at::TensorBase& target, const RowMajor& layout) {
    const int lanes = lanes_of(current_queue(target.device().index()).device(), layout);
    const Define defines[] = {{"V", kInt},
                              {"OUT", tag(target.scalar_type())},
                              {"CONTIGUOUS", layout.contiguous},
                              {"LANES", lanes}};
    launch_fill(bernoulli_family, target, layout, lanes, defines, state, heads_limit(p));
  });
}

void fill_bernoulli(const at::TensorBase& out, const at::TensorBase& p,
                    const Generator& generator) {
  static const uint32_t site =
      message_site("bernoulli: all probabilities should be between 0 and 1");
  const bool p_is_double = p.scalar_type() == at::kDouble;
  const PhiloxState state = reserve_philox(generator, out.device().index(), kIncrement);
  fill_any(out, [&](const at::TensorBase& target, const RowMajor&) {
    const RowMajor layout = row_major(target.sizes(), {target, p});
    TORCH_CHECK(
        layout.contiguous || layout.fits,
        "bernoulli_: a tensor of probabilities with more than 16 dimensions or 2 GiB must be "
        "contiguous");
    Queue& queue = current_queue(out.device().index());
    AddressSpace& addresses = queue.device().addresses();
    const Location to = addresses.find(target.data_ptr());
    const Location from = addresses.find(p.data_ptr());
    const OperandLayout argument{
        {to.offset, from.offset, 0}, static_cast<uint64_t>(layout.n), StridedArgument<3>(layout)};
    Kernel& kernel =
        bernoulli_tensor_family.get(queue.device(), {{"V", kInt},
                                                     {"OUT", tag(target.scalar_type())},
                                                     {"IN", tag(p.scalar_type())},
                                                     {"P", p_is_double ? kDouble : kFloat},
                                                     {"CONTIGUOUS", layout.contiguous}});
    launch(kernel, queue, groups_of_four(queue.device(), layout.n), to.mem, from.mem, argument,
           state.seed, state.offset, queue.device().asserts().mem(), site);
  });
}

void dropout(const at::TensorBase& out, const at::TensorBase& mask, const at::TensorBase& in,
             double keep, double scale, const Generator& generator) {
  if (out.numel() == 0) return;
  const PhiloxState state = reserve_philox(generator, out.device().index(), kIncrement);
  RowMajor layout = row_major(out.sizes(), {out, in, mask});
  at::Tensor source(in);
  if (!layout.contiguous && !layout.fits) {
    source = source.contiguous();
    layout = row_major(out.sizes(), {out, source, mask});
    TORCH_CHECK(layout.contiguous || layout.fits, "native_dropout: tensor too large");
  }
  Queue& queue = current_queue(out.device().index());
  AddressSpace& addresses = queue.device().addresses();
  const Location to = addresses.find(out.data_ptr());
  const Location from = addresses.find(source.data_ptr());
  const Location flags = addresses.find(mask.data_ptr());
  const OperandLayout argument{{to.offset, from.offset, flags.offset},
                               static_cast<uint64_t>(layout.n),
                               StridedArgument<3>(layout)};
  const bool is_double = out.scalar_type() == at::kDouble;
  const int lanes = lanes_of(queue.device(), layout);
  Kernel& kernel = dropout_family.get(queue.device(), {{"V", kInt},
                                                       {"C", is_double ? kDouble : kFloat},
                                                       {"OUT", tag(out.scalar_type())},
                                                       {"IN", tag(in.scalar_type())},
                                                       {"CONTIGUOUS", layout.contiguous},
                                                       {"LANES", lanes},
                                                       vector_access(layout, {out, source, mask})});
  const NDRange range = groups_of_four(queue.device(), layout.n, lanes);
  if (is_double) {
    launch(kernel, queue, range, to.mem, from.mem, flags.mem, argument, state.seed, state.offset,
           heads_limit(keep), scale);
  } else {
    launch(kernel, queue, range, to.mem, from.mem, flags.mem, argument, state.seed, state.offset,
           heads_limit(keep), static_cast<float>(scale));
  }
}

void permute(const at::TensorBase& out, const Generator& generator) {
  const int64_t n = out.numel();
  if (n == 0) return;
  Queue& queue = current_queue(out.device().index());
  const NDRange range = NDRange::linear(n, kLocalSize);
  if (n <= kMaxRanked) {
    const at::Tensor keys = at::empty({n}, out.options().dtype(at::kLong));
    fill_integer(keys, 0, 0, generator);
    launch(rank_family.get(queue.device(), {{"OUT", tag(out.scalar_type())}}), queue, range,
           Pointer{out.data_ptr()}, Pointer{keys.data_ptr()}, static_cast<uint32_t>(n));
    return;
  }
  const PhiloxState state = reserve_philox(generator, out.device().index(), kRounds / 4 + 1);
  at::Philox4_32 words(state.seed, 0, state.offset);
  FeistelKeys keys;
  keys.n = n;
  const int bits = std::bit_width(static_cast<uint64_t>(n - 1));
  keys.left_bits = bits / 2;
  keys.right_bits = bits - bits / 2;
  for (uint32_t& key : keys.key) key = words();
  // A Feistel network makes only even permutations of its own domain; cycle walking makes both
  // kinds.
  keys.swaps = std::has_single_bit(static_cast<uint64_t>(n)) ? words() & 1 : 0;
  keys.unused = 0;
  const bool lanes = queue.device().is_cpu() && bits < 32;
  launch((lanes ? feistel_lanes_family : feistel_family)
             .get(queue.device(), {{"OUT", tag(out.scalar_type())}}),
         queue, lanes ? NDRange::linear((n + kFeistelStretch - 1) / kFeistelStretch, 1) : range,
         Pointer{out.data_ptr()}, keys);
}

}  // namespace ocl::random
