// Graphs: what torch_ocl/api/graphs.py is made of.
#include "runtime/graph.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "python/bindings.h"

namespace py = pybind11;

namespace ocl::python {

void bind_graph(py::module_& module) {
  py::class_<StreamGraph>(module, "StreamGraph")
      .def(py::init<>())
      .def("capture_begin", &StreamGraph::capture_begin, py::arg("pool"),
           py::arg("may_give_up") = false, release_gil())
      .def("give_up", &StreamGraph::give_up, release_gil())
      .def("given_up", &StreamGraph::given_up)
      .def("capture_end", &StreamGraph::capture_end, release_gil())
      .def("replay", &StreamGraph::replay, release_gil())
      .def("reset", &StreamGraph::reset, release_gil())
      .def("pool", &StreamGraph::pool)
      .def("describe", &StreamGraph::describe);
  module.def("is_capturing", &is_capturing);
}

}  // namespace ocl::python
