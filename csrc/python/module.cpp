// The pybind11 module torch_ocl._C: what the Python face needs beyond torch's own generic APIs.
// Light headers only: torch's pybind casters would cost 20 seconds per file.
#include <pybind11/pybind11.h>

#include "python/bindings.h"
#include "python/errors.h"

PYBIND11_MODULE(_C, module) {
  module.doc() = "Native part of torch_ocl; use torch.ocl instead.";
  ocl::python::bind_errors(module);
  ocl::python::bind_device(module);
  ocl::python::bind_device_names(module);
  ocl::python::bind_script_names(module);
  ocl::python::bind_stream(module);
  ocl::python::bind_memory(module);
  ocl::python::bind_memory_history(module);
  ocl::python::bind_diagnostics(module);
  ocl::python::bind_origin();
  ocl::python::bind_source_kernel(module);
  ocl::python::bind_generated_kernel(module);
  ocl::python::bind_fused_product(module);
  ocl::python::bind_profiler(module);
  ocl::python::bind_graph(module);
  ocl::python::bind_pyopencl(module);
  ocl::python::bind_tunable(module);
  ocl::python::bind_dispatch(module);
  ocl::python::bind_precision(module);
}
