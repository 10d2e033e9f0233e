// Matrix products whose results a text of torch.compile's takes on
// (torch_ocl/inductor/epilogue.py): how Python calls them.
#include <ATen/core/Tensor.h>
#include <Python.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/gemm/epilogue.h"
#include "engine/modified_kernels.h"
#include "opencl/error.h"
#include "ops/GemmEpilogue.h"
#include "python/bindings.h"
#include "python/errors.h"

namespace py = pybind11;

namespace ocl::python {
namespace {

/// What stays the same from call to call.
struct FusedProduct {
  const ModifiedKernels& kernels;
  int lanes;
  size_t tensors, numbers;
  double alpha, beta;
  py::object refuse;  // raises, given the driver's log
};

constexpr const char* kCapsule = "torch_ocl fused product";

const at::Tensor& tensor_of(PyObject* object) {
  if (!THPVariable_Check(object)) throw py::type_error("a fused product takes tensors here");
  return THPVariable_Unpack(object);
}

/// The function's arguments: a, b, c or None, the tensors of the text, its numbers.
PyObject* call(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  const auto& product = *static_cast<const FusedProduct*>(PyCapsule_GetPointer(self, kCapsule));
  try {
    const size_t expected = 3 + product.tensors + product.numbers;
    if (static_cast<size_t>(count) != expected) {
      throw py::type_error("a fused product takes " + std::to_string(expected) +
                           " arguments, got " + std::to_string(count));
    }
    const at::Tensor &a = tensor_of(arguments[0]), &b = tensor_of(arguments[1]);
    const at::Tensor c = arguments[2] == Py_None ? at::Tensor() : tensor_of(arguments[2]);
    arguments += 3;
    gemm::Epilogue epilogue{product.kernels, product.lanes, {}, {}};
    for (size_t i = 0; i < product.tensors; ++i) {
      epilogue.operands.push_back(tensor_of(arguments[i]).const_data_ptr());
    }
    for (size_t i = 0; i < product.numbers; ++i) {
      const int64_t number = PyLong_AsLongLong(arguments[product.tensors + i]);
      if (number == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
      epilogue.numbers.push_back(number);
    }
    const py::gil_scoped_release release;  // kernels may have to be built
    native::run_gemm_with_epilogue(a, b, c, product.alpha, product.beta, epilogue);
  } catch (const Error& error) {
    if (error.call() != std::string_view("clBuildProgram")) {
      set_python_error();
      return nullptr;
    }
    PyObject* result = PyObject_CallFunction(product.refuse.ptr(), "s", error.what());
    Py_XDECREF(result);
    return nullptr;
  } catch (...) {
    set_python_error();
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyMethodDef method{"fused_product",
                   reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call)),
                   METH_FASTCALL, "alpha * a @ b + beta * c, which a text takes on."};

/// A function of a, b, c or None, so many tensors and numbers. Where the driver refuses the text,
/// it calls `refuse` with the driver's log, which has to raise.
py::object fused_product(const std::string& text, int lanes, size_t tensors, size_t numbers,
                         double alpha, double beta, py::object refuse) {
  auto product = std::make_unique<FusedProduct>(FusedProduct{
      ModifiedKernels::of(text), lanes, tensors, numbers, alpha, beta, std::move(refuse)});
  const py::capsule capsule(product.release(), kCapsule, [](PyObject* self) {
    delete static_cast<FusedProduct*>(PyCapsule_GetPointer(self, kCapsule));
  });
  PyObject* function = PyCFunction_New(&method, capsule.ptr());
  if (function == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(function);
}

}  // namespace

void bind_fused_product(py::module_& module) { module.def("fused_product", &fused_product); }

}  // namespace ocl::python
