// Kernels from source text, launched from Python: what the benchmarks' probes and naive kernels run
// on.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "opencl/kernel.h"
#include "opencl/platform.h"
#include "opencl/program.h"
#include "opencl/sources.h"
#include "python/bindings.h"
#include "runtime/stream.h"

namespace py = pybind11;

namespace ocl::python {
namespace {

/// One kernel of a program built from source text, for one device.
class SourceKernel {
 public:
  SourceKernel(int index, const std::string& source, const std::string& name,
               const std::string& options)
      : index_(static_cast<c10::DeviceIndex>(index)),
        kernel_(device(index), device(index).programs().get_from_source(name, source, options),
                name) {}

  /// Enqueues on the current stream. An argument is the bytes of a scalar or struct, or a device
  /// address, which takes two of the kernel's arguments: the buffer and the offset in bytes.
  void launch(const std::vector<size_t>& global, const std::vector<size_t>& local,
              const py::args& arguments) {
    if (global.empty() || global.size() > 3 || local.size() != global.size()) {
      throw py::value_error("global and local must have the same 1 to 3 sizes");
    }
    NDRange range;
    range.dims = static_cast<cl_uint>(global.size());
    for (size_t i = 0; i < global.size(); ++i) {
      range.global[i] = global[i];
      range.local[i] = local[i];
    }
    cl_uint index = 0;
    for (const py::handle argument : arguments) {
      if (py::isinstance<py::bytes>(argument)) {
        const auto bytes = py::cast<std::string>(argument);
        kernel_.set_bytes(index++, bytes.data(), bytes.size());
      } else {
        const auto address = py::cast<uintptr_t>(argument);
        const Location location =
            kernel_.device().addresses().find(reinterpret_cast<const void*>(address));
        kernel_.set_buffer(index++, location.mem);
        kernel_.set_value(index++, location.offset);
      }
    }
    kernel_.enqueue(current_queue(index_), range);
  }

 private:
  c10::DeviceIndex index_;
  Kernel kernel_;
};

}  // namespace

void bind_source_kernel(py::module_& module) {
  module.def("kernel_source", &kernel_source);
  py::class_<SourceKernel>(module, "SourceKernel")
      .def(py::init<int, const std::string&, const std::string&, const std::string&>())
      .def("launch", &SourceKernel::launch);
}

}  // namespace ocl::python
