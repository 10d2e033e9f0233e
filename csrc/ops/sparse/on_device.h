// Runs a function of upstream's with the device of its arguments current, as CUDA's registration
// does: what the function makes from options without an index lands there.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <type_traits>
#include <utility>

#include "runtime/device_guard.h"

namespace ocl {
namespace detail {

/// The device that an op's parameter names comes before those of its tensors.
struct DeviceOfArguments {
  std::optional<c10::Device> named, first;

  void see(const std::optional<c10::Device>& device) {
    if (device && device->type() == kDeviceType) named = device;
  }
  void see(const at::Tensor& tensor) {
    if (!first && tensor.defined() && tensor.device().type() == kDeviceType) {
      first = tensor.device();
    }
  }
  void see(const std::optional<at::Tensor>& tensor) {
    if (tensor) see(*tensor);
  }
  template <class T>
  void see(const T& argument) {
    if constexpr (std::is_convertible_v<T, at::TensorList>) {
      for (const at::Tensor& tensor : at::TensorList(argument)) see(tensor);
    }
  }
};

}  // namespace detail

template <auto function>
struct OnDevice;

template <class Result, class... Arguments, Result (*function)(Arguments...)>
struct OnDevice<function> {
  static Result call(Arguments... arguments) {
    detail::DeviceOfArguments devices;
    (devices.see(arguments), ...);
    const OptionalDeviceGuard guard(devices.named ? devices.named : devices.first);
    return function(std::forward<Arguments>(arguments)...);
  }
};

}  // namespace ocl
