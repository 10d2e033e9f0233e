// The engines' choices of kernels, for tests and diagnosis (torch_ocl.testing), and the ops of
// other libraries.
#include "engine/dispatch.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <vector>

#include "engine/quarantine.h"
#include "opencl/platform.h"
#include "ops/bitsandbytes/bitsandbytes.h"
#include "ops/vision/vision.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace ocl::python {

namespace {

Engine& engine_of(const std::string& name) {
  std::string known;
  for (Engine* engine : Engine::all()) {
    if (name == engine->name()) return *engine;
    known += std::string(" ") + engine->name();
  }
  throw py::value_error("no engine is called '" + name + "'; there are:" + known);
}

using LeftOut = std::tuple<std::string, std::string, std::string>;

/// The list of those left out on a device: engine, implementation and reason of each.
void bind_quarantine(py::module_& module) {
  module.def("left_out", [](int index) {
    std::vector<LeftOut> all;
    for (auto& one : quarantine::left_out(device(index))) {
      all.emplace_back(one.engine, one.implementation, one.reason);
    }
    return all;
  });
  module.def("set_left_out", [](int index, const std::vector<LeftOut>& left_out) {
    std::vector<quarantine::LeftOut> all;
    for (const auto& [engine, implementation, reason] : left_out) {
      all.push_back({engine, implementation, reason});
    }
    quarantine::set_left_out(device(index), all);
  });
  module.def("keep_left_out", [](int index, const std::string& tried) {
    return quarantine::keep(device(index), tried);
  });
  module.def("forget_left_out", [](int index) { return quarantine::forget(device(index)); });
  module.def("quarantine_file", [](int index) { return quarantine::filename(device(index)); });
}

}  // namespace

void bind_dispatch(py::module_& module) {
  bind_quarantine(module);
  // False: only implementations of the device's own lists.
  module.def("force_any_implementation", &Engine::force_any);
  module.def("engines", [] {
    py::dict engines;
    for (const Engine* engine : Engine::all()) {
      engines[engine->name()] = py::cast(engine->implementations());
    }
    return engines;
  });
  // Returns what was forced before; an empty name is none.
  module.def("force_implementation", [](const std::string& name, const std::string& wanted) {
    Engine& engine = engine_of(name);
    const char* before = engine.forced();
    if (!engine.force(wanted)) {
      std::string known;
      for (const char* implementation : engine.implementations()) {
        known += std::string(" ") + implementation;
      }
      throw py::value_error("engine " + name + " has no implementation '" + wanted +
                            "'; there are:" + known);
    }
    return std::string(before == nullptr ? "" : before);
  });
  module.def("record_dispatch", &record_dispatch);
  module.def("take_recorded_dispatch", &take_recorded_dispatch);
  // Once torchvision has declared them (torch_ocl/integrations/torchvision.py).
  module.def("register_vision_ops", &vision::register_ops);
  // Registers bitsandbytes' ops; returns why ops were refused.
  module.def("register_bitsandbytes_ops", &bitsandbytes::register_ops);
}

}  // namespace ocl::python
