#include "engine/device_table.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace ocl {

namespace {

// Tiles for GPUs are chosen by a cost model among those of device_tiles.h.

/// By the bytes of a vector. With 32 registers 12 x 2 sums fit beside the operands, with 16
/// registers 6 x 2 do.
constexpr DeviceRow cpu(const char* name, const char* source, int register_bytes, int rows) {
  return {.device_class = name,
          .source = source,
          .register_bytes = register_bytes,
          .packed_rows = rows,
          .packed_block_bytes = 256 << 10,
          .skinny_rows = 4,
          .skinny_local = 16,
          .element_group = 64,
          .lane_group = 16,
          .reduce = {.column_chunk = 128, .item_elements = 8192},
          .scan = {.column_elements = 4096},
          .channels = {.positions = 4096}};
}
constexpr DeviceRow kCpus[] = {
    cpu("CPU, 64-byte vectors", "measured on an AMD EPYC", 64, 12),
    cpu("CPU, 32-byte vectors", "derived from that of 64 bytes: 16 registers", 32, 6),
    cpu("CPU, 16-byte vectors", "derived from that of 64 bytes: 16 registers", 16, 6),
};

constexpr DeviceRow gpu(const char* name, const char* source, double launch_cost, int group = 128,
                        int element_group = 256, int resident = 1024, int groups_per_unit = 8,
                        int unit_registers = 65536) {
  return {.device_class = name,
          .source = source,
          .register_bytes = 16,
          .packed_rows = 4,
          .packed_block_bytes = 64 << 10,
          .skinny_rows = 1,
          .skinny_local = group,
          .row_group = group,
          .element_group = element_group,
          .launch_cost = launch_cost,
          .unit_registers = unit_registers,
          .depthwise_group = element_group,
          .groups_per_unit = groups_per_unit,
          .resident_items = resident,
          .resident_column_items = resident * 3 / 4};
}
struct Vendor {
  std::string_view name;  // a part of the vendor's, in lower case
  DeviceRow row;
};
constexpr DeviceRow kAmd = gpu("AMD", "derived from NVIDIA's: 64 lanes at 2 GHz for 5 us", 0.6e6);
constexpr Vendor kGpus[] = {
    {"nvidia", gpu("NVIDIA", "measured on an NVIDIA H200: launches cost 5 to 8 us", 0.9e6)},
    {"advanced micro", kAmd},
    {"amd", kAmd},  // rusticl's name of it
    {"intel",
     gpu("Intel",
         "derived from NVIDIA's: a compute unit is a vector engine of 8 lanes at 2 GHz, with 8 "
         "threads of 16 work-items",
         0.1e6, 128, 256, 128, 1, 8192)},
    {"arm",
     gpu("Arm Mali", "derived from NVIDIA's: 48 lanes at 0.85 GHz; registers bound a group to 64",
         0.2e6, 64, 64, 1024, 8, 32768)},
    {"qualcomm",
     gpu("Qualcomm Adreno", "derived from NVIDIA's: 128 lanes at 0.7 GHz; a group is a wave or two",
         0.45e6, 64, 128, 1024, 8, 32768)},
};
constexpr DeviceRow kOtherGpu = gpu("other GPU", "NVIDIA's, for want of measurements", 0.9e6);

const DeviceRow* find_row(const Device& device) {
  const DeviceProperties& p = device.properties();
  if (device.is_cpu()) {
    // The device's vector of floats is a register of a CPU, and at least 16 bytes.
    const int bytes = std::max(static_cast<int>(p.vector_width_float) * 4, 16);
    return std::find_if(std::begin(kCpus), std::end(kCpus),
                        [&](const DeviceRow& row) { return row.register_bytes <= bytes; });
  }
  // A CPU that plays a GPU is to run what most GPUs do.
  if (p.device_class == DeviceClass::gpu) {
    std::string vendor = p.vendor;
    for (char& c : vendor) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    for (const Vendor& known : kGpus) {
      if (vendor.find(known.name) != std::string::npos) return &known.row;
    }
  }
  return &kOtherGpu;
}

constinit std::atomic<RowEdit> row_edit{nullptr};
// While rows are made and forgotten, so that none of before a change is kept after it.
constinit std::mutex row_mutex;
constinit std::array<std::atomic<const DeviceRow*>, 64> rows{};

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
  if (index >= rows.size()) return *find_row(device);
  const DeviceRow* row = rows[index].load(std::memory_order_acquire);
  if (__builtin_expect(row == nullptr, 0)) {
    std::lock_guard<std::mutex> lock(row_mutex);
    row = make_row(device);
    rows[index].store(row, std::memory_order_release);
  }
  return *row;
}

void set_row_edit(RowEdit edit) { row_edit.store(edit); }

void renew_device_rows() {
  std::lock_guard<std::mutex> lock(row_mutex);
  for (std::atomic<const DeviceRow*>& row : rows) row.store(nullptr, std::memory_order_release);
}

}  // namespace ocl
