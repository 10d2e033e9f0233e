// Kernels that torch.compile generates (torch_ocl/inductor): how Python calls them.
//
// A call is a vectorcall of plain Python objects, since a compiled graph makes one for each of its
// kernels.
#include <ATen/core/Tensor.h>
#include <Python.h>
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <structmember.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/generated/kernel.h"
#include "opencl/platform.h"
#include "opencl/program.h"
#include "opencl/sources.h"
#include "ops/Factories.h"
#include "python/bindings.h"
#include "python/errors.h"
#include "runtime/stream.h"

namespace py = pybind11;

namespace ocl::python {
namespace {

using generated::Generated;

/// A number of the call: a Python one, or a tensor of one element on the CPU.
int64_t integer_of(PyObject* object) {
  if (THPVariable_Check(object)) return THPVariable_Unpack(object).item().toLong();
  const int64_t value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return value;
}
double real_of(PyObject* object) {
  if (THPVariable_Check(object)) return THPVariable_Unpack(object).item().toDouble();
  const double value = PyFloat_AsDouble(object);
  if (value == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return value;
}

void launch_generated(const Generated& kernel, PyObject* const* arguments, size_t count) {
  const generated::Description& of = kernel.description();
  const size_t numbers = of.kinds.size();
  if (count != of.tensors + numbers) {
    throw py::type_error(of.name + " takes " + std::to_string(of.tensors + numbers) +
                         " arguments, got " + std::to_string(count));
  }
  if (!kernel.is_ready()) {
    const py::gil_scoped_release release;  // it may have to be built
    kernel.kernel();
  }
  generated::Call call(kernel);
  for (size_t i = 0; i < of.tensors; ++i) {
    if (!THPVariable_Check(arguments[i])) throw py::type_error(of.name + ": not a tensor");
    call.add(THPVariable_Unpack(arguments[i]));
  }
  for (size_t i = 0; i < numbers; ++i) {
    PyObject* argument = arguments[of.tensors + i];
    if (of.kinds[i] == 'l') {
      call.add_integer(integer_of(argument));
    } else {
      call.add_real(real_of(argument));
    }
  }
  call.launch();
}

struct KernelObject {
  PyObject_HEAD;
  vectorcallfunc call;
  Generated* generated;
};

PyObject* call_kernel(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  try {
    if (names != nullptr && PyTuple_GET_SIZE(names) != 0) {
      throw py::type_error("a generated kernel takes no keyword arguments");
    }
    launch_generated(*reinterpret_cast<KernelObject*>(self)->generated, arguments,
                     static_cast<size_t>(PyVectorcall_NARGS(flags)));
  } catch (...) {
    set_python_error();
    return nullptr;
  }
  Py_RETURN_NONE;
}

void free_kernel(PyObject* self) {
  delete reinterpret_cast<KernelObject*>(self)->generated;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyTypeObject* kernel_type() {
  static PyTypeObject* type = [] {
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(KernelObject, call), READONLY, nullptr},
        {nullptr, 0, 0, 0, nullptr}};
    static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(&free_kernel)},
                                  {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
                                  {Py_tp_members, members},
                                  {0, nullptr}};
    static PyType_Spec spec{"torch_ocl._C.GeneratedKernel", sizeof(KernelObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, slots};
    PyObject* made = PyType_FromSpec(&spec);
    if (made == nullptr) throw py::error_already_set();
    return reinterpret_cast<PyTypeObject*>(made);
  }();
  return type;
}

generated::Size size_of(const py::handle& value) {
  const auto [is_number, number] = value.cast<std::pair<bool, int64_t>>();
  return {number, is_number};
}

/// sizes: of the columns, rows and the reduced length, each as (is a number of the call, which one
/// or how much).
py::object generated_kernel(int device, std::string source, std::string name, std::string file,
                            size_t tensors, std::string kinds, std::vector<uint64_t> sites,
                            const std::string& form, size_t width, size_t group, size_t lines,
                            const py::tuple& sizes, int64_t work) {
  auto generated = std::make_unique<Generated>(generated::Description{
      device, std::move(source), std::move(name), std::move(file), tensors, std::move(kinds),
      std::move(sites), generated::form_of(form), width, group, lines, size_of(sizes[0]),
      size_of(sizes[1]), size_of(sizes[2]), work});
  PyTypeObject* type = kernel_type();
  auto* object = reinterpret_cast<KernelObject*>(type->tp_alloc(type, 0));
  if (object == nullptr) throw py::error_already_set();
  object->call = &call_kernel;
  object->generated = generated.release();
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(object));
}

/// torch.empty_strided(sizes, strides, device=(ocl, index), dtype), for tuples of ints.
PyObject* empty_strided(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  try {
    if (count != 4) throw py::type_error("empty_strided takes sizes, strides, a dtype, a device");
    const auto numbers = [](PyObject* tuple) {
      if (!PyTuple_Check(tuple)) throw py::type_error("sizes and strides must be tuples");
      c10::SmallVector<int64_t, 8> values(static_cast<size_t>(PyTuple_GET_SIZE(tuple)));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = integer_of(PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i)));
      }
      return values;
    };
    const auto sizes = numbers(arguments[0]), strides = numbers(arguments[1]);
    if (!THPDtype_Check(arguments[2])) throw py::type_error("the third argument must be a dtype");
    const c10::Device device(kDeviceType, static_cast<c10::DeviceIndex>(integer_of(arguments[3])));
    at::Tensor made = native::empty_strided_with(
        sizes, strides,
        c10::TensorOptions(device).dtype(reinterpret_cast<THPDtype*>(arguments[2])->scalar_type));
    return THPVariable_Wrap(std::move(made));
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyMethodDef empty_strided_method{
    "empty_strided", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&empty_strided)),
    METH_FASTCALL, "torch.empty_strided on a device of this package."};

}  // namespace

void bind_generated_kernel(py::module_& module) {
  module.def("expand_kernel_source", &expand_kernel_source);
  module.def("assert_site", &generated::assert_site);
  module.def(
      "build_generated",
      [](int index, const std::string& source, const std::string& file) {
        ocl::device(index).programs().of_text(file, source, "").wait_beside_others();
      },
      release_gil());
  module.def("generated_kernel", &generated_kernel);
  module.add_object("empty_strided", py::reinterpret_steal<py::object>(
                                         PyCFunction_New(&empty_strided_method, nullptr)));
}

}  // namespace ocl::python
