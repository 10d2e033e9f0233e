// Devices: enumeration, the current device, properties, seeding.
#include "opencl/device.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Generator.h>

#include <array>
#include <optional>
#include <stdexcept>
#include <string>

#include "engine/device_table.h"
#include "opencl/api.h"
#include "opencl/build_workers.h"
#include "opencl/platform.h"
#include "python/bindings.h"
#include "runtime/device_count.h"
#include "runtime/generator.h"
#include "runtime/generator_seed.h"
#include "runtime/stream.h"

namespace py = pybind11;

namespace ocl::python {
namespace {

const char* class_name(DeviceClass device_class) {
  switch (device_class) {
    case DeviceClass::gpu:
      return "gpu";
    case DeviceClass::accelerator:
      return "accelerator";
    case DeviceClass::cpu:
      return "cpu";
  }
  return "unknown";
}

/// The powers of two that a sum consists of.
py::tuple sizes_of(uint32_t sum) {
  py::list sizes;
  for (uint32_t size = 1; size != 0; size <<= 1) {
    if ((sum & size) != 0) sizes.append(size);
  }
  return py::tuple(sizes);
}

// cl_khr_device_uuid and cl_khr_pci_bus_info, which CL/cl_ext.h of some headers lacks.
constexpr cl_device_info kUuid = 0x106A;
constexpr cl_device_info kPciBusInfo = 0x410F;

/// The driver's answer; nullopt if it doesn't know the question.
template <class T>
std::optional<T> answer(const Device& device, cl_device_info question) {
  T value{};
  const cl_int code = api().clGetDeviceInfo(device.id(), question, sizeof value, &value, nullptr);
  return code == CL_SUCCESS ? std::optional(value) : std::nullopt;
}

/// Numbers that only this asks for.
void add_identity(py::dict& d, const Device& device) {
  const auto uuid = answer<std::array<char, 16>>(device, kUuid);
  d["uuid_bytes"] = uuid ? py::object(py::bytes(uuid->data(), uuid->size())) : py::none();
  const auto pci = answer<std::array<cl_uint, 4>>(device, kPciBusInfo);
  d["pci"] = pci ? py::object(py::make_tuple((*pci)[0], (*pci)[1], (*pci)[2])) : py::none();
}

py::dict properties_dict(const DeviceProperties& p) {
  py::dict d;
  d["name"] = p.name;
  d["vendor"] = p.vendor;
  d["platform_name"] = p.platform;
  d["driver_version"] = p.driver_version;
  d["version"] = p.version;
  d["type"] = class_name(p.device_class);
  d["opencl_c_version"] = py::make_tuple(p.opencl_c_major, p.opencl_c_minor);
  d["total_memory"] = p.global_memory;
  d["max_allocation"] = p.max_allocation;
  d["local_mem_size"] = p.local_memory;
  d["global_cache_size"] = p.global_cache;
  d["last_level_cache_size"] = p.last_level_cache;
  d["cache_line_size"] = p.cache_line;
  d["max_compute_units"] = p.compute_units;
  const uint32_t capability = p.compute_capability;
  d["compute_capability"] =
      capability != 0 ? py::object(py::make_tuple(capability / 10, capability % 10)) : py::none();
  d["max_clock_mhz"] = p.max_clock_mhz;
  d["max_work_group_size"] = p.max_work_group_size;
  d["max_sub_group_size"] = p.max_sub_group_size;
  d["required_sub_group_sizes"] = sizes_of(p.required_sub_group_sizes);
  d["subgroup_matrix_size"] = p.subgroup_matrix_size;
  d["host_unified_memory"] = p.host_unified_memory;
  d["has_fp64"] = p.has_fp64;
  d["vector_width_float"] = p.vector_width_float;
  d["has_fp16"] = p.has_fp16;
  d["has_subgroups"] = p.has_subgroups;
  d["has_int64_atomics"] = p.has_int64_atomics;
  d["has_work_group_reduce"] = p.has_work_group_reduce;
  d["has_tensor_cores"] = p.has_tensor_cores;
  d["has_warpgroup_mma"] = p.has_warpgroup_mma;
  d["has_assembled_local_memory"] = p.has_assembled_local_memory;
  d["has_avx512"] = p.has_avx512;
  d["has_bf16_dot"] = p.has_bf16_dot;
  d["has_int8_dot"] = p.has_int8_dot;
  d["has_amx"] = p.has_amx;
  d["extensions"] = p.extensions;
  return d;
}

}  // namespace

c10::DeviceIndex checked_index(int64_t index) {
  if (index != static_cast<int>(index)) {
    throw std::runtime_error("OpenCL device index " + std::to_string(index) + " is out of range.");
  }
  device(static_cast<int>(index));  // which says what devices there are
  return static_cast<c10::DeviceIndex>(index);
}

void bind_device(py::module_& module) {
  module.def("configure_loader", &configure_loader, py::arg("loaders"), py::arg("drivers"));
  module.def("configure_device_count", &configure_device_count, py::arg("command"));
  module.def("configure_build_workers", &BuildWorkers::configure, py::arg("command"));
  module.def("device_count", &count_devices, release_gil());
  module.def("device_types", &types_of_devices, release_gil());
  module.def("unavailable_reason", &unavailable_reason, release_gil());
  module.def("left_out_devices", &left_out_devices, release_gil());
  module.def("is_initialized", [] { return is_initialized() && !process_was_forked(); });
  module.def("is_in_bad_fork", &process_was_forked);
  module.def("loader_path", [] { return api().loader_path; }, release_gil());

  // device() raises for an index that does not exist, with the list of those that do.
  module.def("check_device", &checked_index, release_gil());
  module.def("current_device", [] { return int{current_device()}; });
  module.def(
      "set_device", [](int index) { set_device(static_cast<c10::DeviceIndex>(index)); },
      release_gil());
  module.def(
      "exchange_device",
      [](int64_t index) {
        const int previous = current_device();
        // Entering the current device's context, as checkpoints do, is no use of it.
        const bool is_current = index == previous && index < count_devices();
        if (index >= 0 && !is_current) set_device(checked_index(index));
        return previous;
      },
      release_gil());
  module.def("properties", [](int64_t index) {
    const Device* found = nullptr;
    {
      py::gil_scoped_release release;
      found = &device(checked_index(index));
    }
    py::dict properties = properties_dict(found->properties());
    properties["registers_per_item"] = device_row(*found).hardware.item_registers;
    add_identity(properties, *found);
    return properties;
  });

  // The device's row of engine/device_table.h.
  module.def("device_row", [](int64_t index) {
    const DeviceRow& row = device_row(device(checked_index(index)));
    py::dict d;
    d["device_class"] = row.device_class;
    d["source"] = row.source;
    d["row_group"] = row.row_group;
    d["element_group"] = row.element_group;
    return d;
  });

  // Before the first use the caller checks the index.
  module.def("default_generator", [](c10::DeviceIndex index) {
    const at::Generator* generator = nullptr;
    {
      py::gil_scoped_release release;
      generator = &default_generator(index);
    }
    PyObject* wrapped = THPGenerator_Wrap(*generator);
    if (!wrapped) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(wrapped);
  });
  module.def("seed_all", &seed_all_generators, release_gil());
  module.def(
      "reserve_philox",
      [](int index, uint64_t increment) {
        const PhiloxState state =
            reserve_philox(std::nullopt, static_cast<c10::DeviceIndex>(index), increment);
        return std::make_pair(state.seed, state.offset);
      },
      release_gil());
}

}  // namespace ocl::python
