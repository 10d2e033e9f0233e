// torch.ocl.profiler's native part: the commands of a stretch of time and their ops' costs.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <unordered_map>

#include "opencl/profile.h"
#include "python/bindings.h"
#include "runtime/op_costs.h"

namespace py = pybind11;

namespace ocl::python {
namespace {

const char* name_of(const profile::Command& command) {
  switch (command.kind) {
    case profile::Kind::kernel:
      return command.name.c_str();
    case profile::Kind::host_to_device:
      return "Memcpy HtoD";
    case profile::Kind::device_to_host:
      return "Memcpy DtoH";
    case profile::Kind::device_to_device:
      return "Memcpy DtoD";
    case profile::Kind::fill:
      break;
  }
  return "Memset";
}

class Profile {
 public:
  Profile() { session_.start(); }

  /// Ends it. A tuple for every command: name, whether it is a kernel, device, stream, start and
  /// end in nanoseconds, bytes of a copy, and the op's id, or 0. And one for every op: id, name,
  /// dtype, bytes, flops.
  py::tuple stop() {
    std::vector<profile::Command> commands;
    std::vector<OpCost> costs;
    {
      const py::gil_scoped_release others_go_on;
      commands = session_.stop();
      costs = costs_.take();
    }
    py::list ran, ops;
    for (const profile::Command& c : commands) {
      ran.append(py::make_tuple(name_of(c), c.kind == profile::Kind::kernel, c.device, c.stream,
                                c.start, c.end, c.bytes, c.tags.op));
    }
    for (const OpCost& cost : costs) {
      ops.append(py::make_tuple(cost.id, cost.name, cost.dtype, cost.bytes, cost.flops));
    }
    return py::make_tuple(ran, ops);
  }

 private:
  OpCosts costs_;
  profile::Session session_;
};

}  // namespace

void bind_profiler(py::module_& module) {
  py::class_<Profile>(module, "Profile")
      .def(py::init<>(), release_gil())
      .def("stop", &Profile::stop);
}

}  // namespace ocl::python
