#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/fft.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "engine/dtype.h"
#include "engine/fft_plan.h"
#include "engine/fft_tables.h"
#include "engine/reduce_geometry.h"
#include "opencl/kernel.h"
#include "runtime/allocator.h"
#include "runtime/stream.h"

namespace ocl::fft {

namespace {

using c10::ScalarType;

constexpr int kMaxDims = 16;
constexpr size_t kMaxLanes = 64;
constexpr size_t kGpuGroup = 128;
// Elements of a line that a GPU's work-group should have at hand, all lines together.
constexpr uint32_t kGpuElements = 1024;
// Lines side by side that fill a GPU's memory transactions.
constexpr uint32_t kGpuSideBySide = 8;
// The longest line: 16 of them, twice, lie in a CPU's second cache.
constexpr uint32_t kLongest = 2048;
// A CPU cuts single signals longer than that into lines for its vectors.
constexpr uint32_t kWorthCutting = 128;
constexpr uint32_t kWorthSharing = 512;

const KernelFamily lines_family{"fft/lines.cl", "fft_lines"};

// Numbered as in kernels/fft/lines.cl.
enum Load : uint32_t {
  kLoadComplex,
  kLoadReal,
  kLoadPairs,
  kLoadHermitian,
  kLoadHermitianPairs,
  kLoadProduct,
  kLoadUnpacked
};
enum Store : uint32_t { kStoreComplex, kStoreReal, kStorePairs, kStoreUnpacked };
enum Flag : uint32_t {
  kSwapIn = 1,
  kSwapOut = 2,
  kChirpIn = 4,
  kChirpOut = 8,
  kAlongIn = 16,
  kAlongOut = 32
};
constexpr uint32_t kNoLimit = std::numeric_limits<uint32_t>::max();

/// FftArgs of kernels/fft/lines.cl.
struct Arguments {
  int64_t in_stride[kMaxDims], out_stride[kMaxDims];
  int64_t in_element, out_element;
  uint32_t size[kMaxDims];
  uint32_t dims, lines, tiles, lanes, pitch;
  uint32_t before, length, after;
  uint32_t whole, chirped, limit;
  uint32_t load, store, flags, passes;
  uint8_t radix[Schedule::kMaxPasses];
  uint32_t unused;
};
static_assert(sizeof(Arguments) == 416, "must match kernels/fft/lines.cl");

/// Where signals lie: in a tensor, or one after another in a workspace.
struct Place {
  const void* address;
  int64_t element;                   // bytes from one element to the next
  int64_t signal;                    // bytes from one signal to the next, in a workspace
  const int64_t* strides = nullptr;  // bytes, of the batch dimensions, in a tensor
};

/// What a sequence of steps reads, writes and does at its ends.
struct Ends {
  Place in, out;
  Load load = kLoadComplex;
  Store store = kStoreComplex;
  uint32_t flags = 0;
  uint32_t limit = kNoLimit;
  double scale = 1;
  at::Tensor factors{};
};

/// One transform on its way: geometry in, launches out.
class Launcher {
 public:
  Launcher(const at::Tensor& in, const at::Tensor& out, int64_t dim);
  /// False if there are too many dimensions.
  bool set_batch(const at::Tensor& in, const at::Tensor& out, int64_t dim);
  void run(Kind kind, Direction direction, double scale);

 private:
  Plan plan(uint32_t n) const;
  /// Elements of scratch memory, over all lanes, that a work-group of a GPU gets.
  uint32_t gpu_capacity() const;
  uint32_t most_lanes(uint32_t length, bool along) const;
  void choose_lanes(uint32_t length);
  c10::DataPtr workspace(uint64_t elements) const;
  Place in_workspace(const c10::DataPtr& memory, uint32_t n) const;
  void transform_signals(uint32_t n, const Ends& ends);
  void transform_steps(const Plan& plan, uint32_t n, const Ends& ends);
  void unpack(const Place& spectrum, const Ends& ends);
  void step(const Place& in, const Place& out, const Ends& ends, uint32_t before, uint32_t length,
            uint32_t after);

  Queue& queue_;
  Device& device_;
  const ScalarType real_;
  const int64_t real_size_, complex_size_;
  const int64_t signal_in_, signal_out_;  // elements along the dimension
  Place in_{}, out_{};
  std::array<int64_t, kMaxDims> in_strides_{}, out_strides_{};
  std::array<uint32_t, kMaxDims> sizes_{};
  uint32_t dims_ = 0, signals_ = 1;
  uint32_t width_ = 1;  // lines in a vector; 1 on GPUs
  Arguments arguments_{};
  at::Tensor chirp_;
};

Launcher::Launcher(const at::Tensor& in, const at::Tensor& out, int64_t dim)
    : queue_(current_queue(in.device().index())),
      device_(queue_.device()),
      real_(c10::toRealValueType(in.scalar_type())),
      real_size_(static_cast<int64_t>(c10::elementSize(real_))),
      complex_size_(2 * real_size_),
      signal_in_(in.size(dim)),
      signal_out_(out.size(dim)),
      in_{in.const_data_ptr(), in.stride(dim) * in.element_size(), 0, in_strides_.data()},
      out_{out.mutable_data_ptr(), out.stride(dim) * out.element_size(), 0, out_strides_.data()} {
  if (device_.is_cpu()) {
    const auto bytes = std::clamp<uint32_t>(device_.properties().vector_width_float * 4, 16, 64);
    width_ = bytes / static_cast<uint32_t>(real_size_);
  }
}

bool Launcher::set_batch(const at::Tensor& in, const at::Tensor& out, int64_t dim) {
  reduce::Geometry geometry;
  for (int64_t d = 0; d < in.dim(); ++d) {
    if (d == dim) continue;
    geometry.add(
        false,
        {in.size(d), in.stride(d) * in.element_size(), {out.stride(d) * out.element_size(), 0}});
  }
  geometry.order();
  if (geometry.kept_count > kMaxDims) return false;
  const int64_t signals = geometry.outputs();
  TORCH_CHECK_NOT_IMPLEMENTED(signals <= INT32_MAX && std::max(signal_in_, signal_out_) <= 1 << 30,
                              "ocl: an FFT of ", signals, " signals of ",
                              std::max(signal_in_, signal_out_), " elements");
  signals_ = static_cast<uint32_t>(signals);
  dims_ = static_cast<uint32_t>(geometry.kept_count);
  for (uint32_t d = 0; d < dims_; ++d) {
    sizes_[d] = static_cast<uint32_t>(geometry.kept[d].size);
    in_strides_[d] = geometry.kept[d].in;
    out_strides_[d] = geometry.kept[d].out[0];
  }
  return true;
}

uint32_t Launcher::gpu_capacity() const {
  constexpr uint64_t kArrays = 2048;  // the kernel's own arrays, and a little more
  const uint64_t local = std::min<uint64_t>(device_.properties().local_memory, 48 << 10);
  return static_cast<uint32_t>((local - std::min(local, kArrays)) / (4 * real_size_));
}

Plan Launcher::plan(uint32_t n) const {
  uint32_t longest = kLongest;
  int least_steps = 1;
  if (width_ > 1) {
    const uint32_t units = device_.properties().compute_units;
    if ((n >= kWorthCutting && signals_ <= width_ / 2) ||
        (n >= kWorthSharing && signals_ < width_ * units)) {
      least_steps = 2;
    }
  } else {
    const uint32_t capacity = gpu_capacity();
    longest = n <= capacity ? capacity : std::max(kMaxPrime, capacity / (kGpuSideBySide + 1));
  }
  // Cold for a length that this thread has not met lately only.
  struct Memo {
    uint32_t n, longest;
    int least_steps;
    Plan plan;
  };
  static thread_local std::array<Memo, 64> memos{};
  Memo& memo = memos[(n ^ n >> 7 ^ n >> 13) % memos.size()];
  if (memo.n != n || memo.longest != longest || memo.least_steps != least_steps) {
    memo = {n, longest, least_steps, make_plan(n, longest, least_steps)};
  }
  return memo.plan;
}

c10::DataPtr Launcher::workspace(uint64_t elements) const {
  return allocator()->allocate(elements * complex_size_);
}

Place Launcher::in_workspace(const c10::DataPtr& memory, uint32_t n) const {
  return {memory.get(), complex_size_, static_cast<int64_t>(n) * complex_size_};
}

void Launcher::choose_lanes(uint32_t length) {
  uint32_t& lanes = arguments_.lanes;
  if (width_ > 1) {
    lanes = arguments_.pitch = width_;
  } else {
    const bool along = (arguments_.flags & kAlongIn) && (arguments_.flags & kAlongOut);
    lanes = std::max(kGpuElements / length, along ? 1 : kGpuSideBySide);
    lanes = std::min<uint32_t>({lanes, kMaxLanes, arguments_.lines});
    // An odd pitch spreads the rows over the memory's banks.
    while (lanes > 1 && length * (lanes | 1) > gpu_capacity()) --lanes;
    arguments_.pitch = lanes | 1;
  }
  arguments_.tiles = (arguments_.lines + lanes - 1) / lanes;
}

void Launcher::step(const Place& in, const Place& out, const Ends& ends, uint32_t before,
                    uint32_t length, uint32_t after) {
  Arguments& a = arguments_;
  const uint32_t spread = before * after;
  TORCH_CHECK_NOT_IMPLEMENTED(uint64_t{signals_} * spread <= INT32_MAX, "ocl: an FFT of ", signals_,
                              " signals, in ", spread, " lines each");
  a.lines = signals_ * spread;
  a.before = before;
  a.length = length;
  a.after = after;
  a.in_element = in.element;
  a.out_element = out.element;
  const bool in_tensor = in.strides != nullptr, out_tensor = out.strides != nullptr;
  a.dims = in_tensor || out_tensor ? dims_ : 1;
  int64_t in_signal = in.signal, out_signal = out.signal;
  for (uint32_t d = 0; d < a.dims; ++d) {
    a.size[d] = in_tensor || out_tensor ? sizes_[d] : signals_;
    a.in_stride[d] = in_tensor ? in.strides[d] : in_signal;
    a.out_stride[d] = out_tensor ? out.strides[d] : out_signal;
    in_signal *= a.size[d];
    out_signal *= a.size[d];
  }
  a.load = ends.load;
  a.store = ends.store;
  a.limit = ends.limit;
  a.flags = ends.flags;
  // Which neighbours in memory a GPU's work-items take.
  const auto along = [&](const int64_t* strides, int64_t element) {
    return a.dims == 0 || std::abs(element) <= std::abs(strides[0]);
  };
  if (spread == 1 && along(a.in_stride, in.element)) a.flags |= kAlongIn;
  if (before == 1 && (after > 1 || along(a.out_stride, out.element))) a.flags |= kAlongOut;

  Schedule passes;
  at::Tensor twiddles, cross;
  if (ends.load != kLoadUnpacked) {
    passes = schedule(length);
    twiddles = table(queue_, real_, TableKind::passes, length);
    if (before > 1) cross = table(queue_, real_, TableKind::cross, length, before);
  }
  a.passes = static_cast<uint32_t>(passes.passes);
  std::copy(passes.radix.begin(), passes.radix.end(), a.radix);
  choose_lanes(length);

  const auto pointer = [](const at::Tensor& tensor) {
    return Pointer{tensor.defined() ? tensor.const_data_ptr() : nullptr};
  };
  const auto enqueue = [&](const NDRange& range, const auto& scratch) {
    Kernel& kernel = lines_family.get(device_, {{"R", tag(real_)}, {"WIDTH", width_}});
    const auto go = [&](const auto& scale) {
      launch(kernel, queue_, range, Pointer{in.address}, Pointer{out.address}, pointer(twiddles),
             pointer(cross), pointer(chirp_), pointer(ends.factors), scratch, scale, a);
    };
    if (real_ == ScalarType::Double) {
      go(ends.scale);
    } else {
      go(static_cast<float>(ends.scale));
    }
  };
  const uint64_t elements = 2 * uint64_t{length} * a.pitch;
  if (width_ > 1) {
    const uint32_t groups = std::min(a.tiles, device_.properties().compute_units * 4);
    const c10::DataPtr scratch = workspace(groups * elements);
    enqueue(NDRange::linear(groups, 1), Pointer{scratch.get()});
  } else {
    enqueue(NDRange::linear(size_t{a.tiles} * kGpuGroup, kGpuGroup),
            LocalMemory{elements * complex_size_});
  }
}

void Launcher::unpack(const Place& spectrum, const Ends& ends) {
  Ends all = ends;
  all.load = kLoadUnpacked;
  all.store = kStoreComplex;
  all.flags = 0;
  // A step without passes leaves elements in their places if it is like a last one; any length will
  // do that keeps the items busy.
  const uint32_t length = std::min<uint32_t>(64, std::max<uint32_t>(1, ends.limit / 16));
  step(spectrum, ends.out, all, (ends.limit + length - 1) / length, length, 1);
}

void Launcher::transform_steps(const Plan& plan, uint32_t n, const Ends& ends) {
  c10::DataPtr memory[2];
  const bool unpacks = ends.store == kStoreUnpacked && plan.steps > 1;
  const int to_workspace = unpacks ? plan.steps : plan.steps - 1;
  for (int i = 0; i < std::min(to_workspace, 2); ++i) {
    memory[i] = workspace(uint64_t{signals_} * n);
  }
  Place source = ends.in;
  uint32_t before = 1;
  for (int i = 0; i < plan.steps; ++i) {
    const bool first = i == 0, last = i == plan.steps - 1;
    const Place target = i < to_workspace ? in_workspace(memory[i % 2], n) : ends.out;
    Ends here;
    if (first) {
      here.load = ends.load;
      here.flags |= ends.flags & (kSwapIn | kChirpIn);
      here.factors = ends.factors;
    }
    if (last && !unpacks) {
      here.store = ends.store;
      here.flags |= ends.flags & (kSwapOut | kChirpOut);
      here.factors = ends.factors;
      here.limit = ends.limit;
      here.scale = ends.scale;
    }
    step(source, target, here, before, plan.length[i], n / before / plan.length[i]);
    before *= plan.length[i];
    source = target;
  }
  if (unpacks) unpack(source, ends);
}

void Launcher::transform_signals(uint32_t n, const Ends& ends) {
  const Plan direct = plan(n);
  if (direct.steps > 0) return transform_steps(direct, n, ends);
  // Bluestein: jk = (j^2 + k^2 - (k - j)^2) / 2 makes it a convolution with a chirp, of any length
  // m >= 2 n - 1.
  const uint32_t m = next_smooth(2 * n - 1);
  chirp_ = table(queue_, real_, TableKind::chirp, n);
  arguments_.chirped = n;
  const c10::DataPtr memory = workspace(uint64_t{signals_} * m);
  const Place spectrum = in_workspace(memory, m);
  Ends to = ends;
  to.out = spectrum;
  to.store = kStoreComplex;
  to.flags = (ends.flags & kSwapIn) | kChirpIn;
  to.limit = kNoLimit;
  to.scale = 1;
  transform_steps(plan(m), m, to);

  const bool unpacks = ends.store == kStoreUnpacked;
  Ends back = ends;
  back.in = spectrum;
  back.load = kLoadProduct;
  back.factors = table(queue_, real_, TableKind::filter, n, m);
  back.flags = kSwapIn | (ends.flags & kSwapOut) | kChirpOut;
  back.limit = std::min(n, ends.limit);
  if (unpacks) {
    back.store = kStoreComplex;
    back.limit = n;
    back.scale = 1;
    const c10::DataPtr pairs = workspace(uint64_t{signals_} * n);
    back.out = in_workspace(pairs, n);
    transform_steps(plan(m), m, back);
    unpack(back.out, ends);
    return;
  }
  transform_steps(plan(m), m, back);
}

void Launcher::run(Kind kind, Direction direction, double scale) {
  const bool to_real = kind == Kind::complex_to_real;
  const auto whole = static_cast<uint32_t>(to_real ? signal_out_ : signal_in_);
  const bool pairs = kind != Kind::complex && whole % 2 == 0;
  Ends ends{in_, out_};
  ends.scale = scale;
  if (direction == Direction::backward) ends.flags = kSwapIn | kSwapOut;
  arguments_.whole = whole;
  if (pairs) ends.factors = table(queue_, real_, TableKind::half, whole);
  if (to_real) {
    ends.load = pairs ? kLoadHermitianPairs : kLoadHermitian;
    ends.store = pairs ? kStorePairs : kStoreReal;
  } else if (kind != Kind::complex) {
    ends.load = pairs ? kLoadPairs : kLoadReal;
    if (pairs) ends.store = kStoreUnpacked;
    if (pairs || kind == Kind::real_onesided) ends.limit = static_cast<uint32_t>(signal_out_);
  }
  transform_signals(pairs ? whole / 2 : whole, ends);
}

}  // namespace

void transform(const at::Tensor& in, const at::Tensor& out, int64_t dim, Kind kind,
               Direction direction, double scale) {
  Launcher launcher(in, out, dim);
  if (launcher.set_batch(in, out, dim)) return launcher.run(kind, direction, scale);
  // The dimension last and all others merged.
  const at::Tensor source = in.movedim(dim, -1).contiguous();
  std::vector<int64_t> sizes = source.sizes().vec();
  sizes.back() = out.size(dim);
  const at::Tensor result = at::empty(sizes, out.options());
  transform(source, result, source.dim() - 1, kind, direction, scale);
  out.copy_(result.movedim(-1, dim));
}

}  // namespace ocl::fft
