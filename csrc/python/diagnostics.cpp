// Counters a user reads to learn what ran where and what was compiled.
#include <ATen/record_function.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>

#include "opencl/device.h"
#include "opencl/disk_cache.h"
#include "opencl/platform.h"
#include "opencl/program.h"
#include "python/bindings.h"
#include "runtime/counters.h"

namespace py = pybind11;

namespace ocl::python {
namespace {

at::CallbackHandle first_op = at::INVALID_CALLBACK_HANDLE;

bool is_meta(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().is_meta();
  if (value.isDevice()) return value.toDevice().is_meta();
  if (!value.isTensorList()) return false;
  const auto tensors = value.toTensorVector();
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& t) { return t.is_meta(); });
}

std::unique_ptr<at::ObserverContext> see_first_op(const at::RecordFunction& op) {
  // One on device meta computes nothing, and so doesn't count.
  if (std::any_of(op.inputs().begin(), op.inputs().end(), is_meta)) return nullptr;
  // Ops after the first are as fast as before.
  if (!op_ran()) at::disableCallback(first_op);
  note_op();
  return nullptr;
}

/// Notes from now on whether any op runs. Nothing the second time.
void watch_for_ops() {
  if (first_op != at::INVALID_CALLBACK_HANDLE) return;
  first_op = at::addGlobalCallback(at::RecordFunctionCallback(&see_first_op)
                                       .needsInputs(true)
                                       .scopes({at::RecordScope::FUNCTION}));
}

initproc make_exit = nullptr;
PyObject* hears_status = nullptr;  // never released

int tell_status(PyObject* exit, PyObject* arguments, PyObject* keywords) {
  const int failed = make_exit(exit, arguments, keywords);
  if (failed != 0) return failed;
  PyObject* status = PyObject_GetAttrString(exit, "code");
  PyObject* done = status != nullptr ? PyObject_CallOneArg(hears_status, status) : nullptr;
  if (done == nullptr) PyErr_Clear();  // the program ends as it would
  Py_XDECREF(status);
  Py_XDECREF(done);
  return 0;
}

/// Calls a function with the status of each SystemExit that is made from now on. Functions at exit
/// aren't told, and Python has no hook for it. Nothing the second time.
void listen_for_exits(const py::function& hear) {
  if (make_exit != nullptr) return;
  auto* type = reinterpret_cast<PyTypeObject*>(PyExc_SystemExit);
  hears_status = hear.inc_ref().ptr();
  make_exit = type->tp_init;
  type->tp_init = &tell_status;
}

}  // namespace

void bind_diagnostics(py::module_& module) {
  module.def("fallback_counts", &fallback_counts);
  module.def("reset_fallback_counts", &reset_fallback_counts);
  module.def("host_staged_counts", &host_staged_counts);
  module.def("reset_host_staged_counts", &reset_host_staged_counts);
  module.def("announce_use", &announce_use);
  module.def("listen_for_exits", &listen_for_exits);
  module.def("watch_for_ops", &watch_for_ops);
  module.def("was_used", &was_used);
  module.def("op_ran", &op_ran);
  module.def("launch_count", [](int index) { return device(index).launches(); });
  module.def("reset_launch_count", [](int index) { device(index).reset_launches(); });
  module.def("cache_folder", [] { return cache_folder().path(); });
  module.def("program_stats", [] {
    const ProgramStats& stats = program_stats();
    py::dict out;
    out["built"] = stats.built.load();
    out["built_by_workers"] = stats.built_by_workers.load();
    out["loaded"] = stats.loaded.load();
    out["build_seconds"] = static_cast<double>(stats.build_ns.load()) * 1e-9;
    out["load_seconds"] = static_cast<double>(stats.load_ns.load()) * 1e-9;
    return out;
  });
}

}  // namespace ocl::python
