// The pybind11 module torch_ocl._distributed, which torch_ocl/distributed.py loads with the first
// process group that has a backend for `ocl`.
#include <torch/csrc/utils/pybind.h>

#include "distributed/backend.h"

PYBIND11_MODULE(_distributed, module) {
  namespace py = pybind11;
  module.doc() = "Process groups for ocl tensors; use torch.distributed instead.";
  // The inner backend's class and the store's are torch's.
  py::module_::import("torch._C._distributed_c10d");
  module.def(
      "wrap",
      [](const c10::intrusive_ptr<c10d::Backend>& inner,
         const c10::intrusive_ptr<c10d::Store>& store,
         int64_t chunk) -> c10::intrusive_ptr<c10d::Backend> {
        return c10::make_intrusive<ocl::distributed::Backend>(inner, store, chunk);
      },
      py::arg("inner"), py::arg("store"), py::arg("chunk"),
      py::call_guard<py::gil_scoped_release>());
}
