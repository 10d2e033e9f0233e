#include "python/errors.h"

#include <c10/util/Exception.h>

namespace py = pybind11;

namespace ocl::python {

// pybind11 would make a RuntimeError of each, with a C++ backtrace in its text. Torch's own
// translator is out of reach: it belongs to torch's pybind11.
void bind_errors(py::module_&) {
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const c10::IndexError& error) {
      PyErr_SetString(PyExc_IndexError, error.what_without_backtrace());
    } catch (const c10::ValueError& error) {
      PyErr_SetString(PyExc_ValueError, error.what_without_backtrace());
    } catch (const c10::TypeError& error) {
      PyErr_SetString(PyExc_TypeError, error.what_without_backtrace());
    } catch (const c10::NotImplementedError& error) {
      PyErr_SetString(PyExc_NotImplementedError, error.what_without_backtrace());
    } catch (const c10::OutOfMemoryError& error) {
      const py::object type = py::module_::import("torch").attr("OutOfMemoryError");
      PyErr_SetString(type.ptr(), error.what_without_backtrace());
    } catch (const c10::Error& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
    }
  });
}

void set_python_error() {
  try {
    throw;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const py::builtin_exception& error) {
    error.set_error();
  } catch (const c10::OutOfMemoryError& error) {
    const py::object type = py::module_::import("torch").attr("OutOfMemoryError");
    PyErr_SetString(type.ptr(), error.what_without_backtrace());
  } catch (const c10::IndexError& error) {
    PyErr_SetString(PyExc_IndexError, error.what_without_backtrace());
  } catch (const c10::TypeError& error) {
    PyErr_SetString(PyExc_TypeError, error.what_without_backtrace());
  } catch (const c10::Error& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

}  // namespace ocl::python
