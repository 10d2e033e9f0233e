// Streams, as (stream_id, device_index, device_type): what torch.Stream is made from.
#include "runtime/stream.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <tuple>

#include "opencl/device.h"
#include "opencl/platform.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace ocl::python {
namespace {

using StreamIds = std::tuple<int64_t, int, int>;

StreamIds ids_of(c10::Stream stream) {
  return {stream.id(), stream.device_index(), static_cast<int>(stream.device_type())};
}

c10::Stream stream_of(int64_t id, int index) {
  return c10::Stream(c10::Stream::UNSAFE,
                     c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(index)), id);
}

}  // namespace

void bind_stream(py::module_& module) {
  module.def(
      "current_stream",
      [](int index) { return ids_of(current_stream(static_cast<c10::DeviceIndex>(index))); },
      release_gil());
  module.def(
      "default_stream",
      [](int index) { return ids_of(default_stream(static_cast<c10::DeviceIndex>(index))); },
      release_gil());
  module.def(
      "new_stream",
      [](int index, int priority) {
        return ids_of(stream_from_pool(static_cast<c10::DeviceIndex>(index), priority));
      },
      release_gil());
  module.def(
      "external_stream",
      [](int index, uintptr_t queue) {
        return ids_of(stream_from_external(static_cast<c10::DeviceIndex>(index),
                                           reinterpret_cast<cl_command_queue>(queue)));
      },
      release_gil());
  module.def("stream_priority",
             [](int64_t id, int index) { return priority_of(stream_of(id, index)); });
  module.def("set_sync_debug_mode", &set_sync_debug_mode);
  module.def("sync_debug_mode", &sync_debug_mode);
  module.def("waits_of_thread", &waits_of_thread);
  module.def(
      "set_stream",
      [](int64_t id, int index) { return ids_of(exchange_stream(stream_of(id, index))); },
      release_gil());
  module.def(
      "synchronize",
      [](int64_t index) {
        // Nothing need be known of the default device where nothing ran.
        const bool used = is_initialized() || process_was_forked();
        if (used || index != 0) synchronize_device(checked_index(index));
      },
      release_gil());
}

}  // namespace ocl::python
