// The tuner: its settings, its results and their files (torch.ocl.tunable).
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/tuner/constants.h"
#include "engine/tuner/results.h"
#include "engine/tuner/tuner.h"
#include "opencl/platform.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace ocl::python {

void bind_tunable(py::module_& module) {
  using tuner::Settings;
  py::class_<Settings>(module, "TunableSettings")
      .def_readonly("enabled", &Settings::enabled)
      .def_readonly("tuning", &Settings::tuning)
      .def_readonly("duration_ms", &Settings::duration_ms)
      .def_readonly("iterations", &Settings::iterations);
  module.attr("CLEARLY_FASTER") = tuner::kClearlyFaster;
  module.def("tunable_settings", &tuner::settings);
  // Only what is given changes.
  module.def(
      "change_tunable_settings",
      [](std::optional<bool> enabled, std::optional<bool> tuning,
         std::optional<int64_t> duration_ms, std::optional<int64_t> iterations,
         const std::optional<std::string>& filename, std::optional<bool> insert_index) {
        tuner::change([&](Settings& settings) {
          const auto set = [](auto& setting, const auto& value) {
            if (value) setting = *value;
          };
          set(settings.enabled, enabled);
          set(settings.tuning, tuning);
          set(settings.duration_ms, duration_ms);
          set(settings.iterations, iterations);
          set(settings.filename, filename);
          set(settings.insert_index, insert_index);
        });
      },
      py::kw_only(), py::arg("enabled") = py::none(), py::arg("tuning") = py::none(),
      py::arg("duration_ms") = py::none(), py::arg("iterations") = py::none(),
      py::arg("filename") = py::none(), py::arg("insert_index") = py::none(), release_gil());
  module.def(
      "tunable_filename", [](int index) { return tuner::filename(device(index)); }, release_gil());
  module.def(
      "tunable_results",
      [](int index) {
        std::vector<std::tuple<std::string, std::string, std::string, double>> list;
        for (const tuner::Result& r : tuner::results(device(index))) {
          list.emplace_back(r.operation, r.problem, r.choice, r.milliseconds);
        }
        return list;
      },
      release_gil());
  module.def(
      "tunable_validators", [](int index) { return tuner::validators(device(index)); },
      release_gil());
  module.def(
      "tunable_constants", [](int index) { return tuner::constants(device(index)); },
      release_gil());
  module.def(
      "set_tunable_constant",
      [](int index, const std::string& name, double value) {
        tuner::set_constant(device(index), name, value);
      },
      release_gil());
  module.def(
      "read_tunable_file",
      [](int index, const std::string& path) { return tuner::read_file(device(index), path); },
      release_gil());
  module.def(
      "write_tunable_file",
      [](int index, const std::string& path) { return tuner::write_file(device(index), path); },
      release_gil());
}

}  // namespace ocl::python
