#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/fft/tables.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <list>
#include <mutex>
#include <unordered_map>

#include "engine/dtype.h"
#include "engine/fft/fft.h"
#include "engine/fft/launcher.h"
#include "engine/fft/plan.h"
#include "opencl/ceil_div.h"
#include "opencl/deferred.h"
#include "opencl/graph.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "runtime/allocator.h"
#include "runtime/stream.h"

namespace ocl::fft {

namespace {

using c10::ScalarType;

constexpr size_t kLocal = 64;
// Bytes that the cache may hold per process; a table larger than that is alone in it.
constexpr size_t kMaxBytes = size_t{256} << 20;
constexpr size_t kMaxTables = 512;

const KernelFamily roots_family{"fft/tables.cl", "fft_roots"};
const KernelFamily chirp_family{"fft/tables.cl", "fft_chirp"};

/// Tables outlive the graph whose replay would write them.
Queue& not_captured(Queue& queue) {
  check_not_captured(queue, "the first Fourier transform of a size");
  return queue;
}

/// Writes tables one after another into one tensor of complex numbers.
class Writer {
 public:
  Writer(Queue& queue, ScalarType precision, size_t entries)
      : queue_(not_captured(queue)),
        precision_(precision),
        tensor_(at::empty({static_cast<int64_t>(entries)},
                          at::TensorOptions()
                              .dtype(c10::toComplexType(precision))
                              .device(at::Device(kDeviceType, queue.device().index())))) {}

  /// rows x columns roots of order `denominator`, with the exponents (first_row + row) * row_step *
  /// (first_column + column).
  void roots(uint64_t first_row, uint64_t row_step, uint64_t rows, uint64_t first_column,
             uint64_t columns, uint64_t denominator) {
    Kernel& kernel = roots_family.get(queue_.device(), {{"R", tag(precision_)}});
    launch(kernel, queue_, NDRange::linear(rows * columns, kLocal), here(), cl_ulong{first_row},
           cl_ulong{row_step}, cl_ulong{rows}, cl_ulong{first_column}, cl_ulong{columns},
           cl_ulong{denominator});
    written_ += rows * columns;
  }

  void chirp(uint64_t n, uint64_t m) {
    Kernel& kernel = chirp_family.get(queue_.device(), {{"R", tag(precision_)}});
    launch(kernel, queue_, NDRange::linear(m > 0 ? m : n, kLocal), here(), cl_ulong{n},
           cl_ulong{m});
  }

  const at::Tensor& tensor() const { return tensor_; }

 private:
  Pointer here() const {
    return {static_cast<char*>(tensor_.mutable_data_ptr()) + written_ * tensor_.element_size()};
  }

  Queue& queue_;
  const ScalarType precision_;
  at::Tensor tensor_;
  size_t written_ = 0;
};

at::Tensor make_passes(Queue& queue, ScalarType precision, uint32_t length) {
  const Schedule passes = schedule(length);
  const auto for_each = [&](const auto& odd, const auto& twiddles) {
    uint32_t before = 1;
    for (int p = 0; p < passes.passes; ++p) {
      const uint32_t radix = passes.radix[p];
      if (!has_own_pass(radix)) odd(radix);
      if (p > 0) twiddles(before, radix);
      before *= radix;
    }
  };
  size_t entries = 1;  // no buffer is empty
  for_each([&](uint32_t radix) { entries += radix; },
           [&](uint32_t before, uint32_t radix) { entries += before * (radix - 1); });
  Writer writer(queue, precision, entries);
  for_each([&](uint32_t radix) { writer.roots(1, 1, 1, 0, radix, radix); },
           [&](uint32_t before, uint32_t radix) {
             writer.roots(0, 1, before, 1, radix - 1, uint64_t{before} * radix);
           });
  return writer.tensor();
}

at::Tensor make_cross(Queue& queue, ScalarType precision, uint32_t length, uint32_t before) {
  const uint64_t columns = ceil_div(before, kFineRoots);
  const uint64_t order = uint64_t{length} * before;
  Writer writer(queue, precision, length * (columns + kFineRoots));
  writer.roots(0, kFineRoots, length, 0, columns, order);
  writer.roots(0, 1, length, 0, kFineRoots, order);
  return writer.tensor();
}

/// For each pass the roots of each element of a butterfly, which adjacent work-items read side by
/// side.
at::Tensor make_register_passes(Queue& queue, ScalarType precision, uint32_t length) {
  const RegisterSchedule schedule = register_schedule(length);
  Writer writer(queue, precision, length - schedule.radix[0]);
  uint32_t before = 1;
  for (const uint32_t radix : schedule.radix) {
    if (before > 1 && radix > 1) writer.roots(1, 1, radix - 1, 0, before, before * radix);
    before *= radix;
  }
  return writer.tensor();
}

/// The roots of a work-item's first element on each line, then those that lead to its other
/// elements.
at::Tensor make_register_cross(Queue& queue, ScalarType precision, uint32_t length,
                               uint32_t before) {
  const RegisterSchedule schedule = register_schedule(length);
  const uint32_t items = schedule.items, radix = schedule.radix[0];
  const uint64_t order = uint64_t{length} * before;
  Writer writer(queue, precision, size_t{before} * (items + radix));
  writer.roots(0, 1, items, 0, before, order);
  writer.roots(0, items, radix, 0, before, order);
  return writer.tensor();
}

at::Tensor make_filter(Queue& queue, ScalarType precision, uint32_t n, uint32_t m) {
  const bool fp64 = queue.device().properties().has_fp64;
  Writer writer(queue, fp64 ? ScalarType::Double : precision, m);
  writer.chirp(n, m);
  const at::Tensor& chirp = writer.tensor();
  transform(chirp, chirp, 0, Kind::complex, Direction::forward, 1.0 / m);
  return chirp.to(c10::toComplexType(precision));
}

at::Tensor make(Queue& queue, ScalarType precision, TableKind kind, uint32_t a, uint32_t b) {
  switch (kind) {
    case TableKind::passes:
      return make_passes(queue, precision, a);
    case TableKind::cross:
      return make_cross(queue, precision, a, b);
    case TableKind::register_passes:
      return make_register_passes(queue, precision, a);
    case TableKind::register_cross:
      return make_register_cross(queue, precision, a, b);
    case TableKind::half: {
      Writer writer(queue, precision, a / 2 + 1);
      writer.roots(1, 1, 1, 0, a / 2 + 1, a);
      return writer.tensor();
    }
    case TableKind::chirp: {
      Writer writer(queue, precision, a);
      writer.chirp(a, 0);
      return writer.tensor();
    }
    case TableKind::filter:
      return make_filter(queue, precision, a, b);
  }
  TORCH_INTERNAL_ASSERT(false);
}

struct Key {
  int device;
  ScalarType precision;
  TableKind kind;
  uint32_t a, b;
  bool operator==(const Key&) const = default;
};

struct Hash {
  size_t operator()(const Key& key) const {
    constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
    uint64_t hash = (uint64_t{key.a} << 32 | key.b) * kOdd;
    hash ^= static_cast<uint64_t>(key.device) << 16 | static_cast<uint64_t>(key.precision) << 8 |
            static_cast<uint64_t>(key.kind);
    return static_cast<size_t>(hash * kOdd >> 16);
  }
};

/// Tables by key, the last used first. Leaked: device memory can't be freed while the process ends.
class Cache {
 public:
  static Cache& instance() {
    static auto* cache = new Cache;
    return *cache;
  }

  struct Entry {
    Key key;
    at::Tensor tensor;
    Queue* queue;  // that its memory belongs to
  };

  std::optional<Entry> find(const Key& key) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = places_.find(key);
    if (it == places_.end()) return std::nullopt;
    entries_.splice(entries_.begin(), entries_, it->second);
    return *it->second;
  }

  void insert(Entry entry) {
    // Forgotten tables are freed past the lock.
    std::list<Entry> forgotten;
    std::lock_guard<std::mutex> lock(mutex_);
    if (places_.contains(entry.key)) return;  // another thread was faster
    bytes_ += entry.tensor.nbytes();
    entries_.push_front(std::move(entry));
    places_[entries_.front().key] = entries_.begin();
    while (entries_.size() > 1 && (bytes_ > kMaxBytes || entries_.size() > kMaxTables)) {
      bytes_ -= entries_.back().tensor.nbytes();
      places_.erase(entries_.back().key);
      forgotten.splice(forgotten.begin(), entries_, std::prev(entries_.end()));
    }
  }

 private:
  std::mutex mutex_;
  std::list<Entry> entries_;
  std::unordered_map<Key, std::list<Entry>::iterator, Hash> places_;
  size_t bytes_ = 0;
};

}  // namespace

at::Tensor table(Queue& queue, ScalarType precision, TableKind kind, uint32_t a, uint32_t b) {
  const Key key{queue.device().index(), precision, kind, a, b};
  if (const auto entry = Cache::instance().find(key)) {
    // Other streams must be done with the memory, too, before it is handed out again.
    if (entry->queue != &queue) {
      allocator()->recordStream(entry->tensor.storage().data_ptr(),
                                current_stream(static_cast<c10::DeviceIndex>(key.device)));
    }
    return entry->tensor;
  }
  const Undeferred here;  // a table that was not written must not be kept
  at::Tensor made = make(queue, precision, kind, a, b);
  queue.finish();  // for the streams that will find it
  Cache::instance().insert({key, made, &queue});
  return made;
}

}  // namespace ocl::fft
