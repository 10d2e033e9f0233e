// The device guard c10 calls through: devices, streams and events of PrivateUse1.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <torch/headeronly/version.h>

#include <algorithm>

#include "opencl/device.h"
#include "opencl/event.h"
#include "opencl/platform.h"
#include "runtime/allocator.h"
#include "runtime/device_count.h"
#include "runtime/stream.h"
#include "runtime/stream_table.h"

namespace ocl {
namespace {

// c10 keeps events as void*; an Event is created by its first record().
Event& event_of(void* event) { return *static_cast<Event*>(event); }

struct GuardImpl final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kDeviceType;

  GuardImpl() = default;
  explicit GuardImpl(c10::DeviceType) {}

  c10::DeviceType type() const override { return kDeviceType; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device previous = getDevice();
    set_device(device.index());
    return previous;
  }
  c10::Device getDevice() const override { return c10::Device(kDeviceType, current_device()); }
  void setDevice(c10::Device device) const override { set_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    set_device_unchecked(device.index());
  }
  // Autograd asks at its first backward pass, starts a thread for each device and then refuses to
  // work in forked children: a program that only uses the CPU must not be told of any, nor a child
  // that can't use them. See AutogradEngine in hooks.cpp.
  c10::DeviceIndex deviceCount() const noexcept override {
    if (process_was_forked() || (!is_initialized() && !autograd_knows())) return 0;
    return static_cast<c10::DeviceIndex>(std::min<int>(count_devices(), kMaxDevices));
  }

  c10::DeviceCapability getDeviceCapability(c10::Device where) const override {
    const c10::DeviceIndex index = where.has_index() ? where.index() : current_device();
    const bool fp64 = device(index).properties().has_fp64;
    c10::DeviceCapability capability;
    auto& types = capability.capability_data.supported_scalar_types;
    capability.capability_data.capability_bits = 0;
    types.has_Byte = types.has_Char = types.has_Short = types.has_Int = types.has_Long = true;
    types.has_UInt16 = types.has_UInt32 = types.has_UInt64 = true;
    types.has_Bool = types.has_Half = types.has_BFloat16 = types.has_Float = true;
    types.has_ComplexHalf = types.has_ComplexFloat = true;
    types.has_Double = types.has_ComplexDouble = fp64;
    types.has_Float8_e5m2 = types.has_Float8_e4m3fn = true;
    types.has_Float8_e5m2fnuz = types.has_Float8_e4m3fnuz = types.has_Float8_e8m0fnu = true;
    return capability;
  }

  // Each node of autograd's graph that takes a gradient on the device asks, also if that is a fake
  // tensor, for which OpenCL need not be started.
  c10::Stream getStream(c10::Device device) const override {
    if (C10_UNLIKELY(!autograd_knows())) tell_autograd();
    return current_stream(device.index());
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return default_stream(device.index());
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return stream_from_pool(device.index(), high_priority ? -1 : 0);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return stream_from_pool(device.index(), priority);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }
  bool queryStream(const c10::Stream& stream) const override { return stream_is_idle(stream); }
  // Nothing was enqueued before the first use, and waiting for nothing must not initialise.
  void synchronizeStream(const c10::Stream& stream) const override {
    if (is_initialized()) synchronize(stream);
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    if (is_initialized()) synchronize_device(index);
  }
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 12
  bool isStreamCapturing(const c10::Stream&) const override { return false; }
#endif
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return queue_of(stream).share();
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex index,
              const c10::EventFlag flag) const override {
    TORCH_CHECK(index == -1 || index == stream.device_index(), "Event device index ",
                static_cast<int>(index), " does not match recording stream's device index ",
                static_cast<int>(stream.device_index()), ".");
    if (!*event) *event = new Event();
    event_of(*event).record(queue_of(stream), flag == c10::EventFlag::BACKEND_DEFAULT);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) event_of(event).block(queue_of(stream));
  }
  bool queryEvent(void* event) const override { return !event || event_of(event).query(); }
  void synchronizeEvent(void* event) const override {
    if (!event) return;
    event_of(event).synchronize();
    if (Queue* queue = event_of(event).queue()) raise_device_assertions(*queue);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    // The driver's threads are gone in a forked child: its event is left alone.
    if (event && !process_was_forked()) delete static_cast<Event*>(event);
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start && end, "Both events must be recorded before calculating elapsed time.");
    return Event::elapsed_ms(event_of(start), event_of(end));
  }

  void recordDataPtrOnStream(const c10::DataPtr& pointer,
                             const c10::Stream& stream) const override {
    allocator()->recordStream(pointer, stream);
  }
};

// Leaked, as c10's registry asks.
const c10::impl::DeviceGuardImplRegistrar registrar(kDeviceType, new GuardImpl());

}  // namespace
}  // namespace ocl
