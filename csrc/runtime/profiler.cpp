// The device's part of torch's legacy profiler and the kineto fallback: events with timestamps.
#include <c10/util/ApproximateClock.h>
#include <c10/util/Exception.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <memory>

#include "opencl/device.h"
#include "opencl/event.h"
#include "opencl/platform.h"
#include "runtime/stream.h"

namespace ocl {
namespace {

using torch::profiler::impl::ProfilerStubs;
using torch::profiler::impl::ProfilerVoidEventStub;

struct Stubs final : ProfilerStubs {
  void record(c10::DeviceIndex* index, ProfilerVoidEventStub* event,
              int64_t* cpu_ns) const override {
    if (index) *index = current_device();
    auto recorded = std::make_shared<Event>();
    recorded->record(current_queue(current_device()), /*timing=*/true);
    *event = std::move(recorded);
    if (cpu_ns) *cpu_ns = c10::getTime();
  }
  /// Microseconds.
  float elapsed(const ProfilerVoidEventStub* start,
                const ProfilerVoidEventStub* end) const override {
    const auto& first = *static_cast<const Event*>(start->get());
    const auto& last = *static_cast<const Event*>(end->get());
    first.synchronize();
    last.synchronize();
    return static_cast<float>(Event::elapsed_ms(first, last) * 1000.0);
  }
  // OpenCL has no markers or ranges that a vendor's tool would show.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return !process_was_forked() && device_count() > 0; }
  void onEachDevice(std::function<void(int)> visit) const override {
    const c10::DeviceIndex previous = current_device();
    for (int index = 0; index < device_count(); ++index) {
      set_device(static_cast<c10::DeviceIndex>(index));
      visit(index);
    }
    set_device(previous);
  }
  void synchronize() const override {
    if (is_initialized()) synchronize_device(current_device());
  }
};

const bool registered = [] {
  torch::profiler::impl::registerPrivateUse1Methods(new Stubs());
  return true;
}();

}  // namespace
}  // namespace ocl
