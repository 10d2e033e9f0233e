// The line of a Python program that the calling thread is at, for errors that come later.
#include <pybind11/pybind11.h>

#include <string>

#include "opencl/deferred.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace ocl::python {
namespace {

std::string text_of(PyObject* attribute) {
  const char* text = attribute == nullptr ? nullptr : PyUnicode_AsUTF8(attribute);
  if (text == nullptr) PyErr_Clear();
  return text == nullptr ? "" : text;
}

/// "file:line" of the innermost frame outside torch. Empty in threads without one, as autograd's.
std::string line_of_caller() {
  if (!Py_IsInitialized()) return {};
  const py::gil_scoped_acquire gil;
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  std::string found;
  while (frame != nullptr && found.empty()) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const std::string file = text_of(code->co_filename);
    const bool of_torch = file.find("/torch/") != std::string::npos;
    if (!of_torch) found = file + ":" + std::to_string(PyFrame_GetLineNumber(frame));
    Py_DECREF(code);
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  return found;
}

}  // namespace

void bind_origin() { DeferredCommands::set_origin(&line_of_caller); }

}  // namespace ocl::python
