// Known answers of the kernels that drivers compute wrongly, tried before the first use of a device
// whose driver nobody has tested. A kernel that fails is left out (engine/quarantine.h).
#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/dispatch.h"
#include "engine/quarantine.h"
#include "opencl/device.h"
#include "opencl/log.h"
#include "opencl/quirks.h"
#include "runtime/graph.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

using at::Tensor;
using Operands = std::vector<Tensor>;

/// Multiples of 1/8 between -4 and 4, in an order without a pattern that a wrong kernel would keep.
/// Most sums of their products are exact.
Tensor numbers(at::IntArrayRef shape, int64_t seed) {
  const int64_t count = c10::multiply_integers(shape);
  const Tensor at = at::arange(count, at::kLong) + 131 * seed;
  return at.mul(at.remainder(8191) + 7919).remainder(65).sub(32).to(at::kFloat).div(8).view(shape);
}

Tensor places(int64_t count, int64_t below) {
  const Tensor at = at::arange(count, at::kLong);
  return at.mul(at + 7919).remainder(below);
}

using Results = std::vector<Tensor>;

/// An engine, what makes it choose a kernel, and operands in single precision or whole numbers. All
/// are on one device; the CPU's are of double precision. Each program that this needs is waited
/// for: so it is little else than the engine's own kernels.
struct Known {
  const char* engine;
  Operands operands;
  std::function<Results(const Operands&)> compute;
};

Results convolve(const Operands& x) {
  const Tensor out = at::conv2d(x[0], x[1], {}, 1, 1);
  const auto [input, weight, bias] =
      at::convolution_backward(out, x[0], x[1], at::OptionalIntArrayRef(), {1, 1}, {1, 1}, {1, 1},
                               false, {0, 0}, 1, {true, true, false});
  return {out, input, weight};
}

/// Engines that others build on come first.
std::vector<Known> known_answers() {
  return {
      {"reduce",
       {numbers({5, 3001}, 1)},
       [](const Operands& x) -> Results { return {x[0].sum(1)}; }},
      {"reduce",
       {numbers({301, 65}, 2)},
       [](const Operands& x) -> Results { return {x[0].sum(0)}; }},
      {"binning",
       {places(5000, 37).to(at::kFloat)},
       [](const Operands& x) -> Results { return {x[0].histc(37, 0, 37)}; }},
      {"scan",
       {numbers({40000}, 3)},
       [](const Operands& x) -> Results { return {x[0].cumsum(0)}; }},
      {"index",
       {numbers({40, 33}, 4), places(700, 40), numbers({700, 33}, 5)},
       [](const Operands& x) -> Results { return {x[0].index_add(0, x[1], x[2])}; }},
      {"gemm",
       {numbers({33, 4100}, 6), numbers({4100, 65}, 7)},
       [](const Operands& x) -> Results { return {x[0].mm(x[1])}; }},
      {"gemm",
       {numbers({130, 70}, 8), numbers({70, 129}, 9)},
       [](const Operands& x) -> Results { return {x[0].mm(x[1])}; }},
      {"softmax",
       {numbers({33, 300}, 10)},
       [](const Operands& x) -> Results { return {x[0].softmax(1)}; }},
      {"convolution", {numbers({2, 12, 17, 19}, 11), numbers({24, 12, 3, 3}, 12)}, convolve},
      {"attention",
       {numbers({1, 2, 70, 32}, 13), numbers({1, 2, 90, 32}, 14), numbers({1, 2, 90, 32}, 15)},
       [](const Operands& x) -> Results {
         return {at::scaled_dot_product_attention(x[0], x[1], x[2])};
       }},
  };
}

Results expected_of(const Known& known) {
  Operands wide;
  for (const Tensor& x : known.operands) {
    wide.push_back(x.is_floating_point() ? x.to(at::kDouble) : x);
  }
  return known.compute(wide);
}

/// The implementations of the engine that ran last, by the dispatch's lines.
std::vector<std::string> that_ran(const Known& known, const std::vector<std::string>& lines) {
  constexpr std::string_view kRuns = " runs";
  std::vector<std::string> names;
  for (const std::string& said : lines) {
    // Lines within a block are indented.
    const std::string line = said.substr(said.find_first_not_of(' '));
    const size_t colon = line.rfind(": ");
    if (!line.starts_with(std::string(known.engine) + " ") || !line.ends_with(kRuns)) continue;
    const std::string name = line.substr(colon + 2, line.size() - kRuns.size() - colon - 2);
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

Results computed_on(const Known& known, c10::Device device) {
  Operands there;
  for (const Tensor& x : known.operands) there.push_back(x.to(device));
  return known.compute(there);
}

/// NaN is wrong, too.
bool is_right(const Results& computed, const Results& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const Tensor actual = computed[i].cpu().to(at::kDouble);
    const double largest = expected[i].abs().max().item<double>();
    const double error = (actual - expected[i]).abs().max().item<double>();
    if (!(error <= 1e-3 * largest)) return false;
  }
  return true;
}

/// The fault of what the device computes; empty if nothing is. `names` get who ran.
std::string fault_of(const Known& known, const Results& expected, c10::Device device,
                     std::vector<std::string>& names) {
  const DispatchListener listener;
  try {
    const bool right = is_right(computed_on(known, device), expected);
    names = that_ran(known, listener.lines);
    return right ? "" : "computes wrong results";
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    names = that_ran(known, listener.lines);
    const std::string text = error.what();
    return "raises: " + text.substr(0, std::min(text.find('\n'), size_t{200}));
  }
}

/// Leaves out who computes wrongly, until the next of the list is right. Where several ran for one
/// answer, the one is sought without which it is right.
void try_one(const Known& known, const Results& expected, Device& device, c10::Device place) {
  std::vector<std::string> names, others;
  for (int tries = 0; tries < 8; ++tries) {
    const std::string fault = fault_of(known, expected, place, names);
    if (fault.empty() || names.empty()) return;
    const std::vector<quarantine::LeftOut> before = quarantine::left_out(device);
    const auto without = [&](const std::string& name) {
      auto all = before;
      all.push_back({known.engine, name, fault + " (first use)"});
      quarantine::set_left_out(device, all);
    };
    std::string guilty = names.back();
    for (const std::string& name : names) {
      without(name);
      if (names.size() > 1 && fault_of(known, expected, place, others).empty()) guilty = name;
    }
    for (const auto& one : before) {  // the last of a list runs all the same
      if (one.engine == known.engine && one.implementation == guilty) {
        quarantine::set_left_out(device, before);
        return;
      }
    }
    without(guilty);
    warn(std::string(known.engine) + "'s kernel " + guilty + " " + fault + " on " +
         device.description() + ", and is left out from now on: python -m torch_ocl check tries " +
         "all others");
  }
}

/// Begins all answers, so that their programs are built side by side: nothing waits. There are none
/// where the device raises.
std::vector<Results> begin_all(const std::vector<Known>& all, c10::Device place) {
  std::vector<Results> begun(all.size());
  for (size_t i = all.size(); i-- > 0;) {
    try {
      begun[i] = computed_on(all[i], place);
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const std::exception&) {  // it is tried again by itself
    }
  }
  return begun;
}

bool is_right_already(const Results& begun, const Results& expected) {
  try {
    return !begun.empty() && is_right(begun, expected);
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception&) {
    return false;
  }
}

void try_all(Device& device) {
  const quarantine::Trying trying;
  const c10::InferenceMode no_gradients;
  const c10::Device place(kDeviceType, static_cast<c10::DeviceIndex>(device.index()));
  set_device(place.index());
  const std::string process = std::to_string(getpid()) + " ";
  const std::vector<Known> all = known_answers();
  quarantine::keep(device, process + "some kernels");
  const std::vector<Results> begun = begin_all(all, place);
  for (size_t i = 0; i < all.size(); ++i) {
    const Results expected = expected_of(all[i]);
    if (is_right_already(begun[i], expected)) continue;
    quarantine::keep(device, process + all[i].engine);
    try_one(all[i], expected, device, place);
  }
  quarantine::keep(device, "first_use");
  if (!is_tested_driver(device.properties())) {
    trace(device.description() + ", driver " + device.properties().driver_version +
          ", is new to this package: python -m torch_ocl check tries all of its kernels");
  }
}

/// A thread of its own has none of the caller's modes, guards and streams.
bool try_kernels(Device& device) {
  if (is_capturing() || sync_debug_mode() != 0) return false;
  std::exception_ptr failed;
  std::thread([&] {
    try {
      try_all(device);
    } catch (...) {
      failed = std::current_exception();
    }
  }).join();
  if (failed) quarantine::keep(device, "");  // no room for operands: the next process tries
  return true;
}

[[maybe_unused]] const bool entered = (quarantine::set_first_trial(&try_kernels), true);

}  // namespace

}  // namespace ocl::native
