// Turns the C++ exceptions of this module into the Python ones torch raises for them.
#pragma once

#include <pybind11/pybind11.h>

namespace ocl::python {

/// Registers the translation of c10's exceptions for functions of `module`.
void bind_errors(pybind11::module_& module);

/// Sets the Python error for the C++ exception under way: for what Python calls without pybind11.
void set_python_error();

}  // namespace ocl::python
