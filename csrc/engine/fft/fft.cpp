#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/fft/fft.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "engine/dtype.h"
#include "engine/fft/launcher.h"
#include "engine/fft/plan.h"
#include "engine/fft/tables.h"
#include "opencl/ceil_div.h"

namespace ocl::fft {

namespace {

// The longest line: 16 of them, twice, lie in a CPU's second cache.
constexpr uint32_t kLongest = 2048;
// A CPU cuts single signals longer than that into lines for its vectors, and a few longer than that
// for its cores.
constexpr uint32_t kWorthCutting = 128;
constexpr uint32_t kWorthSharing = 512;

}  // namespace

bool Launcher::is_cut(uint32_t n) const {
  if (width_ == 1) return false;
  const uint32_t units = device_.properties().compute_units;
  return (n >= kWorthCutting && signals_ <= width_ / 2) ||
         (n >= kWorthSharing && signals_ < width_ * units);
}

Plan Launcher::line_plan(uint32_t n) const {
  if (width_ > 1) return make_plan(n, kLongest, is_cut(n) ? 2 : 1);
  const uint32_t capacity = gpu_capacity();
  return make_plan(
      n, n <= capacity ? capacity : std::max(kMaxPrime, capacity / (table_.side_by_side + 1)), 1);
}

Plan Launcher::register_plan(uint32_t n) const {
  return make_register_plan(
      n, [&](uint32_t length) { return fits_registers(length, across_ ? side_by_side() : 1); },
      [&](uint32_t length) { return fits_registers(length, side_by_side()); });
}

Plan Launcher::plan(uint32_t n, bool in_registers) const {
  const uint32_t form = static_cast<uint32_t>(device_.index()) << 8 |
                        static_cast<uint32_t>(real_size_) << 4 | (across_ ? 4 : 0) |
                        (is_cut(n) ? 2 : 0) | (in_registers ? 1 : 0);
  // Cold for a length that this thread has not met lately only.
  struct Memo {
    uint32_t n, form;
    Plan plan;
  };
  static thread_local std::array<Memo, 64> memos{};
  Memo& memo = memos[(n ^ n >> 7 ^ n >> 13) % memos.size()];
  if (memo.n != n || memo.form != form) {
    memo = {n, form, in_registers ? register_plan(n) : line_plan(n)};
  }
  return memo.plan;
}

const char* Launcher::refuse_registers(uint32_t n) const {
  if (width_ > 1) return "a kernel for GPUs";
  if (n < table_.register_length) return "short lines";
  if (far_) return "elements past 32-bit distances";
  return plan(n, true).steps == 0 ? "no radices that registers hold" : nullptr;
}

const char* Launcher::refuse_lines(uint32_t n) const {
  return plan(n, false).steps == 0 ? "a large prime factor" : nullptr;
}

void Launcher::unpack(const Place& spectrum, const Ends& ends) {
  Ends all = ends;
  all.load = kLoadUnpacked;
  all.store = kStoreComplex;
  all.flags = 0;
  // A step without passes leaves elements in their places if it is like a last one; any length will
  // do that keeps the work-items busy.
  const uint32_t length = std::min<uint32_t>(64, std::max<uint32_t>(1, ends.limit / 16));
  step(spectrum, ends.out, all, ceil_div(ends.limit, length), length, 1);
}

void Launcher::run_steps(uint32_t n, const Ends& ends, bool in_registers) {
  const Plan plan = this->plan(n, in_registers);
  c10::DataPtr memory[2];
  // Packing and unpacking want a whole line of a little more elements in scratch memory.
  const auto fits = [&](uint32_t rows) {
    return plan.steps == 1 && (width_ > 1 || rows <= gpu_capacity());
  };
  const bool unpacks = ends.store == kStoreUnpacked && !plan.in_registers && !fits(ends.limit);
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
      if (ends.load == kLoadHermitianPairs && !(ends.flags & kChirpIn) && !plan.in_registers &&
          fits(n + 1)) {
        here.load = kLoadComplex;
        here.load_rows = n + 1;
        here.flags = kPack;
      }
    }
    if (last && !unpacks) {
      here.store = ends.store;
      here.flags |= ends.flags & (kSwapOut | kChirpOut);
      here.factors = ends.factors;
      here.limit = ends.limit;
      here.scale = ends.scale;
      if (ends.store == kStoreUnpacked) {
        here.store = kStoreComplex;
        here.store_rows = ends.limit;
        here.limit = kNoLimit;
        here.flags |= kUnpack;
      }
    }
    step(source, target, here, before, plan.length[i], n / before / plan.length[i],
         plan.in_registers);
    before *= plan.length[i];
    source = target;
  }
  if (unpacks) unpack(source, ends);
}

void Launcher::run_bluestein(uint32_t n, const Ends& ends) {
  // jk = (j^2 + k^2 - (k - j)^2) / 2 makes it a convolution with a chirp, of any length
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
  transform_signals(m, to, /*by_steps=*/true);

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
    transform_signals(m, back, /*by_steps=*/true);
    unpack(back.out, ends);
    return;
  }
  transform_signals(m, back, /*by_steps=*/true);
}

namespace {

constexpr Implementation<Transform> registers{
    "registers", [](const Transform& t) { return t.launcher.refuse_registers(t.n); },
    [](Transform& t) { t.launcher.run_steps(t.n, t.ends, true); }};
constexpr Implementation<Transform> lines{
    "lines", [](const Transform& t) { return t.launcher.refuse_lines(t.n); },
    [](Transform& t) { t.launcher.run_steps(t.n, t.ends, false); }};
constexpr Implementation<Transform> bluestein{
    "bluestein",
    [](const Transform& t) {
      // Forced, it would never end.
      return next_smooth(t.n) == t.n ? "a length that it is made of" : nullptr;
    },
    [](Transform& t) { t.launcher.run_bluestein(t.n, t.ends); }};
constexpr const Implementation<Transform>* kImplementations[] = {&registers, &lines, &bluestein};

const Engine engine{"fft", kImplementations};

}  // namespace

std::string Launcher::describe(uint32_t n) const {
  return "fft " + std::to_string(signals_) + "x" + std::to_string(n) + " " +
         tag(c10::toComplexType(real_));
}

void Launcher::transform_signals(uint32_t n, const Ends& ends, bool by_steps) {
  Transform transform{*this, n, ends};
  const std::span all(kImplementations);
  run_first(engine, by_steps ? all.first(2) : all, transform,
            [](const Transform& t) { return t.launcher.describe(t.n); });
}

void Launcher::run(Kind kind, Direction direction, double scale) {
  const bool to_real = kind == Kind::complex_to_real;
  const auto whole = static_cast<uint32_t>(to_real ? signal_out_ : signal_in_);
  const bool pairs = kind != Kind::complex && whole % 2 == 0;
  // Pairs of neighbours in memory are complex numbers there; GPUs take aligned ones alone.
  const auto aligned = [&](const Place& place) {
    auto bits = reinterpret_cast<uintptr_t>(place.address);
    for (uint32_t d = 0; d < dims_; ++d) bits |= static_cast<uintptr_t>(place.strides[d]);
    return width_ > 1 || bits % static_cast<uintptr_t>(complex_size_) == 0;
  };
  const bool pairs_in = pairs && !to_real && in_.element == real_size_ && aligned(in_);
  const bool pairs_out = pairs && to_real && out_.element == real_size_ && aligned(out_);
  if (pairs_in) in_.element = complex_size_;
  if (pairs_out) out_.element = complex_size_;
  Ends ends{in_, out_};
  ends.scale = scale;
  if (direction == Direction::backward) ends.flags = kSwapIn | kSwapOut;
  const auto across = [&](const Place& place) {
    return dims_ > 0 && std::abs(place.element) > std::abs(place.strides[0]);
  };
  across_ = across(in_) || across(out_);
  far_ = std::max(in_.element, out_.element) > UINT32_MAX;
  arguments_.whole = whole;
  if (pairs) ends.factors = table(queue_, real_, TableKind::half, whole);
  if (to_real) {
    ends.load = pairs ? kLoadHermitianPairs : kLoadHermitian;
    ends.store = pairs_out ? kStoreComplex : pairs ? kStorePairs : kStoreReal;
  } else if (kind != Kind::complex) {
    ends.load = pairs_in ? kLoadComplex : pairs ? kLoadPairs : kLoadReal;
    if (pairs) ends.store = kStoreUnpacked;
    if (pairs || kind == Kind::real_onesided) ends.limit = static_cast<uint32_t>(signal_out_);
  }
  transform_signals(pairs ? whole / 2 : whole, ends);
}

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
