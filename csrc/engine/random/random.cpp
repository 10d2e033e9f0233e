#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/random/random.h"

#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "engine/device_table.h"
#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "engine/row_major.h"
#include "opencl/ceil_div.h"
#include "opencl/device_assert.h"
#include "opencl/graph.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "runtime/generator.h"
#include "runtime/stream.h"

namespace ocl::random {

namespace {

using namespace kernel_types;
#include "random/arguments.clh"
static_assert(kMaxDims == RowMajor::kMaxKernelDims);

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

const char* const kFloat = tag(at::kFloat);
const char* const kDouble = tag(at::kDouble);
const char* const kInt = tag(at::kInt);
const char* const kLong = tag(at::kLong);

NDRange groups_of_four(const Device& device, int64_t n, int lanes = 1) {
  const int64_t per_item = 4 * lanes;
  return element_range(device, ceil_div(n, per_item)).of_work(4 * n);
}

/// Numbers for all elements, by a kernel that takes the four of a Philox call, or with `lanes`
/// those of 16 calls.
struct FillPlan {
  const Device& device;
  const char* what;
  int64_t n;
  bool contiguous;
  bool has_lanes;  // the kernel does
  c10::function_ref<void(int lanes)> launch;
};

const char* refuse_lanes(const FillPlan& plan) {
  if (!plan.device.is_cpu()) return "only for CPU devices";
  if (!plan.has_lanes) return "numbers of 64 bits, or with a probability each";
  return plan.contiguous ? nullptr : "the elements aren't contiguous";
}
void run_lanes(FillPlan& plan) { plan.launch(16); }

const char* refuse_no_fill(const FillPlan&) { return nullptr; }
void run_groups(FillPlan& plan) { plan.launch(1); }

constexpr Implementation<FillPlan> kLanes{"lanes", refuse_lanes, run_lanes},
    kGroups{"groups", refuse_no_fill, run_groups};
constexpr const Implementation<FillPlan>* kFills[] = {&kLanes, &kGroups};

/// A permutation.
struct PermutationPlan {
  Device& device;
  Queue& queue;
  const at::TensorBase& out;
  const Generator& generator;
  int64_t n;
  int bits;  // of the numbers below n
};

const char* refuse_rank(const PermutationPlan& plan) {
  return plan.n > kMaxRanked ? "many elements" : nullptr;
}
const char* refuse_feistel(const PermutationPlan& plan) {
  return plan.n <= kMaxRanked ? "few elements, which ranks permute uniformly" : nullptr;
}
const char* refuse_feistel_lanes(const PermutationPlan& plan) {
  if (!plan.device.is_cpu()) return "only for CPU devices";
  return plan.bits >= 32 ? "numbers of more than 31 bits" : refuse_feistel(plan);
}

void run_rank(PermutationPlan& plan) {
  const at::Tensor keys = at::empty({plan.n}, plan.out.options().dtype(at::kLong));
  fill_integer(keys, 0, 0, plan.generator);
  launch(rank_family.get(plan.device, {{"OUT", tag(plan.out.scalar_type())}}), plan.queue,
         element_range(plan.queue.device(), plan.n), Pointer{plan.out.data_ptr()},
         Pointer{keys.data_ptr()}, static_cast<uint32_t>(plan.n));
}

void launch_feistel(const PermutationPlan& plan, const KernelFamily& family, const NDRange& range) {
  // The host computes with the state, which a capture has none of. One that can't be given up finds
  // that out when it ends.
  (void)stays_captured(plan.queue, "torch.randperm of more than 1024 numbers");
  const PhiloxState state =
      reserve_philox(plan.generator, plan.out.device().index(), kRounds / 4 + 1);
  at::Philox4_32 words(state.seed, 0, state.offset);
  FeistelArguments keys{};
  keys.n = static_cast<uint64_t>(plan.n);
  keys.left_bits = plan.bits / 2;
  keys.right_bits = plan.bits - plan.bits / 2;
  for (uint32_t& key : keys.key) key = words();
  // A Feistel network makes only even permutations of its own domain; cycle walking makes both
  // kinds.
  keys.swaps = std::has_single_bit(keys.n) ? words() & 1 : 0;
  launch(family.get(plan.device, {{"OUT", tag(plan.out.scalar_type())}}), plan.queue, range,
         Pointer{plan.out.data_ptr()}, keys);
}
void run_feistel_lanes(PermutationPlan& plan) {
  launch_feistel(plan, feistel_lanes_family, NDRange::linear(ceil_div(plan.n, kFeistelStretch), 1));
}
void run_feistel(PermutationPlan& plan) {
  launch_feistel(plan, feistel_family, element_range(plan.queue.device(), plan.n));
}

constexpr Implementation<PermutationPlan> kRank{"rank", refuse_rank, run_rank},
    kFeistelLanes{"feistel_lanes", refuse_feistel_lanes, run_feistel_lanes},
    kFeistel{"feistel", refuse_feistel, run_feistel};
constexpr const Implementation<PermutationPlan>* kPermutations[] = {&kRank, &kFeistelLanes,
                                                                    &kFeistel};

Engine engine{"random", kFills, kPermutations};

/// Chooses how many lanes and calls launch(lanes).
template <class Launch>
void fill(const Device& device, const char* what, const RowMajor& layout, bool has_lanes,
          const Launch& launch) {
  FillPlan plan{device, what, layout.n, layout.contiguous, has_lanes, launch};
  run_first(engine, kFills, plan, [](const FillPlan& plan) {
    return std::string("random ") + plan.what + " " + std::to_string(plan.n);
  });
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
  FillArguments argument{};
  argument.n = static_cast<uint64_t>(layout.n);
  put_layout(argument, layout);
  launch(family.get(queue.device(), defines), queue,
         groups_of_four(queue.device(), layout.n, lanes), Pointer{out.data_ptr()}, argument,
         state.seed, state.offset, arguments...);
}

OperandArguments operand_layout(const RowMajor& layout) {
  OperandArguments argument{};
  argument.n = static_cast<uint64_t>(layout.n);
  put_layout(argument, layout);
  return argument;
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
    const Device& device = ocl::device(target.device().index());
    fill(device, distribution.name, layout, !is_double, [&](int lanes) {
      const Define defines[] = {{"DIST", distribution.name},
                                {"V", is_double ? kDouble : kFloat},
                                {"OUT", tag(target.scalar_type())},
                                {"DIGITS", distribution.digits ? distribution.digits
                                           : is_double         ? 53
                                                               : 24},
                                {"CONTIGUOUS", layout.contiguous},
                                {"LANES", lanes},
                                vector_access(layout, {target})};
      const at::ScalarType compute = is_double ? at::kDouble : at::kFloat;
      const auto [name, p0, p1, p2, digits] = distribution;
      launch_fill(real_family, target, layout, lanes, defines, state, scalar_argument(compute, p0),
                  scalar_argument(compute, p1), scalar_argument(compute, p2));
    });
  });
}

void fill_integer(const at::TensorBase& out, int64_t base, uint64_t range,
                  const Generator& generator) {
  // Multiplying 32 random bits into a range of 2^28 makes some numbers 1/16 likelier than others;
  // upstream draws the same line.
  const int bits = range == 0 || range >= (uint64_t{1} << 28) ? 64 : 32;
  const PhiloxState state = reserve_philox(generator, out.device().index(), kIncrement);
  fill_any(out, [&](const at::TensorBase& target, const RowMajor& layout) {
    const Device& device = ocl::device(target.device().index());
    fill(device, "integer", layout, bits == 32, [&](int lanes) {
      const Define defines[] = {{"V", kLong},     {"OUT", tag(target.scalar_type())},
                                {"BITS", bits},   {"CONTIGUOUS", layout.contiguous},
                                {"LANES", lanes}, vector_access(layout, {target})};
      launch_fill(integer_family, target, layout, lanes, defines, state, base, range);
    });
  });
}

void fill_bernoulli(const at::TensorBase& out, double p, const Generator& generator) {
  const PhiloxState state = reserve_philox(generator, out.device().index(), kIncrement);
  if (p == 0) {
    at::Tensor(out).zero_();
    return;
  }
  fill_any(out, [&](const at::TensorBase& target, const RowMajor& layout) {
    fill(ocl::device(target.device().index()), "bernoulli", layout, true, [&](int lanes) {
      const Define defines[] = {{"V", kInt},
                                {"OUT", tag(target.scalar_type())},
                                {"CONTIGUOUS", layout.contiguous},
                                {"LANES", lanes}};
      launch_fill(bernoulli_family, target, layout, lanes, defines, state, heads_limit(p));
    });
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
    fill(queue.device(), "bernoulli of a tensor", layout, false, [&](int) {
      Kernel& kernel =
          bernoulli_tensor_family.get(queue.device(), {{"V", kInt},
                                                       {"OUT", tag(target.scalar_type())},
                                                       {"IN", tag(p.scalar_type())},
                                                       {"P", p_is_double ? kDouble : kFloat},
                                                       {"CONTIGUOUS", layout.contiguous}});
      launch(kernel, queue, groups_of_four(queue.device(), layout.n), Pointer{target.data_ptr()},
             Pointer{p.data_ptr()}, operand_layout(layout), state.seed, state.offset,
             queue.device().asserts().mem(), site);
    });
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
  const at::ScalarType compute = out.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  fill(queue.device(), "dropout", layout, true, [&](int lanes) {
    Kernel& kernel =
        dropout_family.get(queue.device(), {{"V", kInt},
                                            {"C", tag(compute)},
                                            {"OUT", tag(out.scalar_type())},
                                            {"IN", tag(in.scalar_type())},
                                            {"CONTIGUOUS", layout.contiguous},
                                            {"LANES", lanes},
                                            vector_access(layout, {out, source, mask})});
    launch(kernel, queue, groups_of_four(queue.device(), layout.n, lanes), Pointer{out.data_ptr()},
           Pointer{source.data_ptr()}, Pointer{mask.data_ptr()}, operand_layout(layout), state.seed,
           state.offset, heads_limit(keep), scalar_argument(compute, scale));
  });
}

void permute(const at::TensorBase& out, const Generator& generator) {
  const int64_t n = out.numel();
  if (n == 0) return;
  Queue& queue = current_queue(out.device().index());
  PermutationPlan plan{
      queue.device(), queue, out,
      generator,      n,     static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1)))};
  run_first(engine, kPermutations, plan, [](const PermutationPlan& plan) {
    return "random permutation " + std::to_string(plan.n);
  });
}

}  // namespace ocl::random
