#include "engine/device_table.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "engine/device_rows.h"

namespace ocl {

namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// Whether any of the words is a part of the text, in lower case.
bool has_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(
      words, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

/// By the gfx number, or Mesa's code name, in a device's name; else by its waves.
const DeviceRow& amd_row(const DeviceProperties& p, std::string_view name) {
  if (has_any(name, {"gfx908", "gfx90a", "gfx94", "gfx95", "arcturus", "aldebaran"})) {
    return rows::kCdna;
  }
  if (has_any(name, {"gfx906", "vega20"})) return rows::kVega20;
  if (has_any(name, {"gfx11", "gfx12", "navi3", "navi4", "phoenix", "strix"})) {
    return rows::kRdna3;
  }
  if (has_any(name, {"gfx10", "navi", "vangogh", "rembrandt"})) return rows::kRdna;
  return p.max_sub_group_size == 32 ? rows::kRdna : rows::kGcn;
}

/// By the number of the architecture (cl_intel_device_attribute_query), else by a device's name.
const DeviceRow& intel_row(const DeviceProperties& p, std::string_view name) {
  const uint32_t major = p.intel_architecture / 100, minor = p.intel_architecture % 100;
  if (major >= 20) return rows::kXe2;
  if (major == 12) return minor < 55 ? rows::kXeLp : minor == 60 ? rows::kXeHpc : rows::kXeHpg;
  if (major > 0) return rows::kGen9;
  if (has_any(name, {"gpu max"})) return rows::kXeHpc;
  if (has_any(name, {"arc(tm) b", "arc(tm) 130v", "arc(tm) 140v", "arc(tm) pro b"})) {
    return rows::kXe2;
  }
  if (has_any(name, {"arc", "gpu flex"})) return rows::kXeHpg;
  if (has_any(name, {"xe", "uhd graphics 7"})) return rows::kXeLp;
  // The least sub-groups of Xe2's have 16 work-items, and no other's that isn't named above.
  return p.subgroup_matrix_size == 16 ? rows::kXe2 : rows::kGen9;
}

/// Bifrost's are numbers of two digits; those of three, and the four below, are newer.
const DeviceRow& arm_row(std::string_view name) {
  const size_t at = name.find("-g");
  const std::string_view number = at == std::string_view::npos ? "" : name.substr(at + 2, 3);
  const bool three = number.size() == 3 && std::isdigit(static_cast<unsigned char>(number[2]));
  const bool valhall = three || has_any(number, {"57", "68", "77", "78"});
  return number.empty() || valhall ? rows::kValhall : rows::kBifrost;
}

/// Those with a compute capability that the guide gives half the rate, or a third, in double
/// precision, and those that say none.
const DeviceRow& nvidia_row(const DeviceProperties& p) {
  constexpr uint32_t kFastFp64[] = {0, 35, 37, 60, 70, 80, 90, 100};
  const bool is_fast = std::ranges::find(kFastFp64, p.compute_capability) != std::end(kFastFp64);
  return is_fast ? rows::kNvidia : rows::kGeForce;
}

/// A GPU's row, by its vendor and what tells its generation. TORCH_OCL_DEVICE_CLASS=other has it be
/// one that nobody knows.
const DeviceRow& gpu_row(const DeviceProperties& p) {
  const char* asked = std::getenv("TORCH_OCL_DEVICE_CLASS");
  if (asked != nullptr && std::string_view(asked) == "other") return rows::kOtherGpu;
  const std::string vendor = lower(p.vendor), name = lower(p.name);
  if (has_any(vendor, {"nvidia"})) return nvidia_row(p);
  if (has_any(vendor, {"advanced micro", "amd"})) return amd_row(p, name);
  if (has_any(vendor, {"intel"})) return intel_row(p, name);
  if (has_any(vendor, {"arm"})) return arm_row(name);
  return has_any(vendor, {"qualcomm"}) ? rows::kAdreno : rows::kOtherGpu;
}

const DeviceRow* find_row(const Device& device) {
  const DeviceProperties& p = device.properties();
  if (device.is_cpu()) {
    // The device's vector of floats is a register of a CPU, and at least 16 bytes.
    const int bytes = std::max(static_cast<int>(p.vector_width_float) * 4, 16);
    return std::ranges::find_if(rows::kCpus,
                                [&](const DeviceRow& row) { return row.register_bytes <= bytes; });
  }
  return p.device_class == DeviceClass::gpu ? &gpu_row(p) : &rows::kPlayedGpu;
}

constinit std::atomic<RowEdit> row_edit{nullptr};
// While rows are made and forgotten, so that none of before a change is kept after it.
constinit std::mutex row_mutex;
constinit std::array<std::atomic<const DeviceRow*>, 64> own_rows{};

/// The table's row, or a copy that has constants of the device's own. Copies are never freed, since
/// there may be references to them; there is one for each change of the tuner's.
const DeviceRow* make_row(const Device& device) {
  const DeviceRow* row = find_row(device);
  const RowEdit edit = row_edit.load();
  if (edit == nullptr) return row;
  auto own = std::make_unique<DeviceRow>(*row);
  return edit(device, *own) ? own.release() : row;
}

}  // namespace

const DeviceRow& device_row(const Device& device) {
  const auto index = static_cast<size_t>(device.index());
  if (index >= own_rows.size()) return *find_row(device);
  const DeviceRow* row = own_rows[index].load(std::memory_order_acquire);
  if (__builtin_expect(row == nullptr, 0)) {
    std::lock_guard<std::mutex> lock(row_mutex);
    row = make_row(device);
    own_rows[index].store(row, std::memory_order_release);
  }
  return *row;
}

void set_row_edit(RowEdit edit) { row_edit.store(edit); }

void renew_device_rows() {
  std::lock_guard<std::mutex> lock(row_mutex);
  for (std::atomic<const DeviceRow*>& row : own_rows) row.store(nullptr, std::memory_order_release);
}

}  // namespace ocl
