// c10's device guards for `ocl` alone: without the registry and the virtual calls of
// c10::DeviceGuard, which an op that makes its result would take twice.
#pragma once

#include <c10/core/impl/InlineDeviceGuard.h>

#include "runtime/stream.h"

namespace ocl {

/// The calling thread's current device, as c10's guards want it.
struct CurrentDevice {
  static constexpr c10::DeviceType static_type = kDeviceType;

  explicit CurrentDevice(c10::DeviceType) {}
  c10::Device getDevice() const { return {kDeviceType, current_device()}; }
  c10::Device exchangeDevice(c10::Device device) const {
    return {kDeviceType, exchange_device(device.index())};
  }
  void setDevice(c10::Device device) const { set_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept {
    set_device_unchecked(device.index());
  }
};

using DeviceGuard = c10::impl::InlineDeviceGuard<CurrentDevice>;
using OptionalDeviceGuard = c10::impl::InlineOptionalDeviceGuard<CurrentDevice>;

}  // namespace ocl
