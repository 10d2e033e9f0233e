// Turns the C++ exceptions of this module into the Python ones torch raises for them.
#pragma once

#include <pybind11/pybind11.h>

namespace ocl::python {

/// Registers the translation of c10's exceptions for functions of `module`.
void bind_errors(pybind11::module_& module);

}  // namespace ocl::python
