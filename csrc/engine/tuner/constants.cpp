#include "engine/tuner/constants.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>

#include "engine/device_table.h"
#include "engine/tuner/results.h"
#include "engine/tuner/tuner.h"
#include "opencl/log.h"

namespace ocl::tuner {

namespace {

/// The operation of results that are constants of the device.
constexpr const char* kOperation = "device";

struct Constant {
  std::string_view name;
  double (*get)(const DeviceRow& row);
  void (*set)(DeviceRow& row, double value);
  bool whole;
};
#define CONSTANT(member)                                                              \
  Constant {                                                                          \
    #member, [](const DeviceRow& row) { return static_cast<double>(row.member); },    \
        [](DeviceRow& row, double value) {                                            \
          row.member = static_cast<std::remove_cvref_t<decltype(row.member)>>(value); \
        },                                                                            \
        std::is_integral_v<decltype(DeviceRow{}.member)>                              \
  }
#define ROW(type, name, value) CONSTANT(name),
#define REDUCE(type, name, value) CONSTANT(reduce.name),
#define SCAN(type, name, value) CONSTANT(scan.name),
#define FFT(type, name, value) CONSTANT(fft.name),
#define CHANNELS(type, name, value) CONSTANT(channels.name),
#define HARDWARE(type, name, value) CONSTANT(hardware.name),
constexpr Constant kConstants[] = {
#include "engine/device_constants.h"
};
#undef CONSTANT

const Constant* find_constant(std::string_view name) {
  const auto* found = std::find_if(std::begin(kConstants), std::end(kConstants),
                                   [&](const Constant& each) { return each.name == name; });
  return found == std::end(kConstants) ? nullptr : found;
}

/// Whether kernels count the work-items of a group by it.
bool is_group(std::string_view name) {
  return name.ends_with("group") || name == "skinny_local" || name == "most_sharers" ||
         name == "long_row_sharers";
}

bool is_power(double value) {
  return value >= 1 && value < 9e15 && std::has_single_bit(static_cast<uint64_t>(value));
}

/// Why the value can't take the place of the row's; empty if it can. What is a power of two in the
/// table is one because kernels count on it.
std::string distrust(const Device& device, const DeviceRow& row, const Constant& constant,
                     double value) {
  constexpr double kMost = INT32_MAX;
  if (!(value > 0) || value > kMost) return "is from above 0 to 2147483647";
  if (constant.whole && value != std::floor(value)) return "is a whole number";
  if (constant.whole && is_power(constant.get(row)) && !is_power(value)) return "is a power of two";
  const auto most = static_cast<double>(device.properties().max_work_group_size);
  if (is_group(constant.name) && value > most) {
    return "is at most " + std::to_string(static_cast<size_t>(most)) +
           ", the device's largest work-group";
  }
  return {};
}

/// Puts what the device's file says into a row that device_row() makes.
bool put_constants(const Device& device, DeviceRow& row) {
  bool changed = false;
  if (epoch() == detail::kOff) return changed;
  for (const Result& result : results(device)) {
    if (result.operation != kOperation) continue;
    const Constant* constant = find_constant(result.problem);
    double value = 0;
    const char* end = result.choice.data() + result.choice.size();
    const auto [stop, error] = std::from_chars(result.choice.data(), end, value);
    std::string reason = "is unknown";
    if (constant != nullptr) {
      reason = error != std::errc() || stop != end ? "is a number"
                                                   : distrust(device, row, *constant, value);
    }
    if (reason.empty()) {
      constant->set(row, value);
      changed = true;
    } else {
      warn("the tuning file's constant " + result.problem + "=" + result.choice +
           " is ignored: it " + reason);
    }
  }
  return changed;
}

const bool registered = (set_row_edit(put_constants), true);

}  // namespace

std::vector<std::pair<std::string, double>> constants(const Device& device) {
  const DeviceRow& row = device_row(device);
  std::vector<std::pair<std::string, double>> list;
  for (const Constant& each : kConstants) list.emplace_back(each.name, each.get(row));
  return list;
}

void set_constant(const Device& device, const std::string& name, double value) {
  const Constant* constant = find_constant(name);
  TORCH_CHECK_VALUE(constant != nullptr, "a device has no constant ", name);
  const std::string reason = distrust(device, device_row(device), *constant, value);
  TORCH_CHECK_VALUE(reason.empty(), name, " ", reason, ", got ", value);
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  store(device, {kOperation, name, std::string(text, end), 0});
  forget_choices();
}

}  // namespace ocl::tuner
