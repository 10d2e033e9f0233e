// Counters a user reads to learn what ran where and what was compiled.
#include <ATen/record_function.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

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

std::unique_ptr<at::ObserverContext> see_first_op(const at::RecordFunction&) {
  // Ops after the first are as fast as before.
  if (!op_ran()) at::disableCallback(first_op);
  note_op();
  return nullptr;
}

/// Notes from now on whether any op runs. Nothing the second time.
void watch_for_ops() {
  if (first_op != at::INVALID_CALLBACK_HANDLE) return;
  first_op = at::addGlobalCallback(
      at::RecordFunctionCallback(&see_first_op).scopes({at::RecordScope::FUNCTION}));
}

}  // namespace

void bind_diagnostics(py::module_& module) {
  module.def("fallback_counts", &fallback_counts);
  module.def("reset_fallback_counts", &reset_fallback_counts);
  module.def("host_staged_counts", &host_staged_counts);
  module.def("reset_host_staged_counts", &reset_host_staged_counts);
  module.def("announce_use", &announce_use);
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
