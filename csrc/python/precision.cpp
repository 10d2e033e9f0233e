// torch.backends.ocl.matmul and torch.backends.ocl.conv.
#include <pybind11/pybind11.h>

#include <array>
#include <string>

#include "ops/linalg/Float32Precision.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace ocl::python {

namespace {

using native::Float32Precision;
using native::Float32Use;

struct Name {
  const char* text;
  Float32Precision precision;
};
constexpr std::array<Name, 5> kNames{{{"none", Float32Precision::none},
                                      {"ieee", Float32Precision::ieee},
                                      {"tf32", Float32Precision::tf32},
                                      {"bf16x3", Float32Precision::bf16x3},
                                      {"bf16", Float32Precision::bf16}}};

Float32Use use_of(const std::string& name) {
  if (name == "matmul") return Float32Use::matmul;
  if (name == "conv") return Float32Use::conv;
  throw py::value_error("fp32_precision is for 'matmul' and 'conv', not for '" + name + "'");
}

const char* text_of(Float32Precision precision) {
  for (const Name& name : kNames) {
    if (name.precision == precision) return name.text;
  }
  return "none";
}

}  // namespace

void bind_precision(py::module_& module) {
  module.def("float32_precision", [](const std::string& use) {
    return text_of(native::float32_precision(use_of(use)));
  });
  // The precision that all settings together allow on the current device.
  module.def("allowed_float32_precision", [](const std::string& use) {
    return text_of(native::allowed_precision(use_of(use)));
  });
  module.def("set_float32_precision", [](const std::string& use, const std::string& wanted) {
    for (const Name& name : kNames) {
      if (wanted == name.text) return native::set_float32_precision(use_of(use), name.precision);
    }
    throw py::value_error("fp32_precision is 'none', 'ieee', 'tf32', 'bf16x3' or 'bf16', not '" +
                          wanted + "'");
  });
}

}  // namespace ocl::python
