// The parts of the `_C` module, one function per concept.
#pragma once

#include <c10/core/Device.h>
#include <pybind11/pybind11.h>

#include <cstdint>

namespace ocl::python {

void bind_device(pybind11::module_& module);
void bind_device_names(pybind11::module_& module);
void bind_script_names(pybind11::module_& module);
void bind_stream(pybind11::module_& module);
void bind_memory(pybind11::module_& module);
void bind_memory_history(pybind11::module_& module);
void bind_diagnostics(pybind11::module_& module);
void bind_origin();
void bind_dispatch(pybind11::module_& module);
void bind_precision(pybind11::module_& module);
void bind_source_kernel(pybind11::module_& module);
void bind_generated_kernel(pybind11::module_& module);
void bind_fused_product(pybind11::module_& module);
void bind_profiler(pybind11::module_& module);
void bind_graph(pybind11::module_& module);
void bind_pyopencl(pybind11::module_& module);
void bind_tunable(pybind11::module_& module);

/// The index as PyTorch keeps it, in 8 bits. Throws std::runtime_error if there is no such device.
c10::DeviceIndex checked_index(int64_t index);

/// For calls that may build, wait or allocate: other Python threads go on meanwhile.
using release_gil = pybind11::call_guard<pybind11::gil_scoped_release>;

}  // namespace ocl::python
