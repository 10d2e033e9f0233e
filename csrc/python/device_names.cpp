// torch.device as programs see it that know "cuda" alone: torch_ocl.cuda_to_ocl().
//
// A device's type, and its text, are those of CUDA to code outside of torch. To torch's own code,
// and to this package's, it is `ocl`: hundreds of places there compare the type with "cuda" in
// order to call CUDA's functions. The module of the caller tells one from the other.
//
// Classes and functions of torch that are written in C are changed in place: each stays the same
// object.
#include <c10/core/Backend.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Device.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "opencl/device_types.h"
#include "python/bindings.h"
#include "runtime/stream.h"

namespace py = pybind11;

namespace ocl::python {
namespace {

PyObject* upstream_type = nullptr;  // the descriptor of torch.device.type
reprfunc upstream_text = nullptr;   // of str()

/// Whether a module is torch's or this package's, by its name.
bool is_of_torch(const char* module) {
  if (std::strncmp(module, "torch", 5) != 0) return false;
  const char* rest = module + 5;
  return *rest == '\0' || *rest == '.' || std::strncmp(rest, "_ocl", 4) == 0;
}

/// Whether code outside of torch is what runs.
bool program_asks() {
  PyObject* const globals = PyEval_GetGlobals();
  if (globals == nullptr) return false;
  static PyObject* const key = PyUnicode_InternFromString("__name__");
  PyObject* const module = PyDict_GetItemWithError(globals, key);
  if (module == nullptr || !PyUnicode_Check(module)) {
    PyErr_Clear();
    return true;
  }
  const char* const name = PyUnicode_AsUTF8(module);
  if (name == nullptr) PyErr_Clear();
  return name == nullptr || !is_of_torch(name);
}

const c10::Device& device_of(PyObject* self) { return reinterpret_cast<THPDevice*>(self)->device; }

PyObject* type_of(PyObject* self, void*) {
  if (device_of(self).type() == kDeviceType && program_asks()) {
    static PyObject* const cuda = PyUnicode_InternFromString("cuda");
    Py_INCREF(cuda);
    return cuda;
  }
  return Py_TYPE(upstream_type)
      ->tp_descr_get(upstream_type, self, reinterpret_cast<PyObject*>(Py_TYPE(self)));
}

PyObject* text_of(PyObject* self) {
  const c10::Device device = device_of(self);
  if (device.type() != kDeviceType || !program_asks()) return upstream_text(self);
  if (!device.has_index()) return PyUnicode_FromString("cuda");
  return PyUnicode_FromFormat("cuda:%d", static_cast<int>(device.index()));
}

PyGetSetDef type_definition = {"type", type_of, nullptr,
                               "The device's type: \"cuda\" to programs, where cuda means ocl.",
                               nullptr};

/// Has code outside of torch see "cuda" where a device is of `ocl`. It can't be undone.
void show_devices_as_cuda() {
  if (upstream_type != nullptr) return;
  PyTypeObject* const type = &THPDeviceType;
  upstream_type = PyDict_GetItemString(type->tp_dict, "type");
  if (upstream_type == nullptr) throw std::runtime_error("torch.device has no attribute `type`");
  Py_INCREF(upstream_type);
  const auto ours = py::reinterpret_steal<py::object>(PyDescr_NewGetSet(type, &type_definition));
  if (!ours) throw py::error_already_set();
  PyDict_SetItemString(type->tp_dict, "type", ours.ptr());
  upstream_text = type->tp_str;
  type->tp_str = text_of;
  PyType_Modified(type);
}

/// `upstream` made a class's objects before. `convert` returns its arguments as (args, kwargs).
struct Constructor {
  newfunc upstream;
  PyObject* convert;
};

std::unordered_map<PyTypeObject*, Constructor>& constructors() {
  static auto* const all = new std::unordered_map<PyTypeObject*, Constructor>;
  return *all;
}

PyObject* make_converted(PyTypeObject* type, PyObject* arguments, PyObject* named) {
  PyTypeObject* base = type;  // classes that are derived later have the slot, too
  while (!constructors().contains(base)) base = base->tp_base;
  const Constructor& found = constructors().at(base);
  const auto converted =
      py::reinterpret_steal<py::object>(PyObject_Call(found.convert, arguments, named));
  if (!converted) return nullptr;
  PyObject *new_arguments = nullptr, *new_named = nullptr;
  if (PyArg_ParseTuple(converted.ptr(), "OO", &new_arguments, &new_named) == 0) return nullptr;
  return found.upstream(type, new_arguments, new_named);
}

/// Has a class written in C convert what its objects are made from. It stays the same class.
void convert_arguments(const py::type& kind, const py::function& convert) {
  auto* const type = reinterpret_cast<PyTypeObject*>(kind.ptr());
  constructors().emplace(type, Constructor{type->tp_new, convert.inc_ref().ptr()});
  type->tp_new = make_converted;
  PyType_Modified(type);
}

/// Functions that were replaced, each with what it does now.
std::unordered_map<PyObject*, PyObject*>& replaced_functions() {
  static auto* const all = new std::unordered_map<PyObject*, PyObject*>;
  return *all;
}

PyObject* call_function(PyObject* function, PyObject* const* arguments, std::size_t count,
                        PyObject* names) {
  return PyObject_Vectorcall(replaced_functions().at(function), arguments, count, names);
}

/// A function's code stays, since its hash and its equals go by it: tables find it as ever.
void replace_function(PyCFunctionObject* function, const py::function& make) {
  PyObject*& replacement = replaced_functions()[reinterpret_cast<PyObject*>(function)];
  const auto upstream = py::reinterpret_steal<py::object>(
      replacement != nullptr
          ? replacement
          : PyCFunction_NewEx(function->m_ml, function->m_self, function->m_module));
  if (!upstream) throw py::error_already_set();
  replacement = make(upstream).release().ptr();
  function->vectorcall = call_function;
}

/// The code of methods that were replaced. It isn't told which method it is called for, so each has
/// code of its own, which knows its number here.
constexpr std::size_t kMostMethods = 64;
std::array<PyObject*, kMostMethods> replaced_methods;
std::size_t replaced_method_count = 0;

template <std::size_t number>
PyObject* call_method(PyObject* self, PyObject* arguments, PyObject* named) {
  const Py_ssize_t count = PyTuple_GET_SIZE(arguments);
  const auto all = py::reinterpret_steal<py::object>(PyTuple_New(count + 1));
  if (!all) return nullptr;
  PyTuple_SET_ITEM(all.ptr(), 0, Py_NewRef(self));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyTuple_SET_ITEM(all.ptr(), i + 1, Py_NewRef(PyTuple_GET_ITEM(arguments, i)));
  }
  return PyObject_Call(replaced_methods[number], all.ptr(), named);
}

template <std::size_t... numbers>
PyCFunctionWithKeywords code_of_method(std::size_t number, std::index_sequence<numbers...>) {
  static constexpr std::array<PyCFunctionWithKeywords, sizeof...(numbers)> all{
      call_method<numbers>...};
  return all.at(number);
}

/// Methods are made anew from the definition where an object has them, so it has the code.
void replace_method(PyMethodDescrObject* method, const py::function& make) {
  const auto code = code_of_method(replaced_method_count, std::make_index_sequence<kMostMethods>{});
  auto* const before = new PyMethodDef(*method->d_method);
  const auto upstream =
      py::reinterpret_steal<py::object>(PyDescr_NewMethod(PyDescr_TYPE(method), before));
  if (!upstream) throw py::error_already_set();
  replaced_methods[replaced_method_count++] = make(upstream).release().ptr();
  method->d_method->ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(code));
}

/// Has a function or method written in C do what `make` returns for the function as it was. It
/// stays the same object wherever it is held: it pickles, prints and compares as ever. False for
/// functions of other kinds, and for methods past the last code.
bool replace_calls(const py::object& function, const py::function& make) {
  constexpr int kind = METH_VARARGS | METH_KEYWORDS;
  if (PyCFunction_CheckExact(function.ptr())) {
    auto* const builtin = reinterpret_cast<PyCFunctionObject*>(function.ptr());
    if ((builtin->m_ml->ml_flags & ~METH_STATIC) != kind) return false;
    replace_function(builtin, make);
    return true;
  }
  if (!Py_IS_TYPE(function.ptr(), &PyMethodDescr_Type)) return false;
  auto* const method = reinterpret_cast<PyMethodDescrObject*>(function.ptr());
  if (method->d_method->ml_flags != kind || replaced_method_count == kMostMethods) return false;
  replace_method(method, make);
  return true;
}

/// Gives a class written in C an attribute.
void add_attribute(const py::type& kind, const char* name, const py::object& value) {
  auto* const type = reinterpret_cast<PyTypeObject*>(kind.ptr());
  if (PyDict_SetItemString(type->tp_dict, name, value.ptr()) != 0) throw py::error_already_set();
  PyType_Modified(type);
}

/// An object of upstream's class of tensor types, which no header has
/// (torch/csrc/tensor/python_tensor.cpp).
struct TensorType {
  PyTypeObject base;
  PyObject* dtype;
  PyObject* layout;
  bool is_cuda;
  bool is_xpu;
  char name[64];
  int backend;
  int scalar_type;
};

/// Has one of upstream's types, torch.cuda.FloatTensor and its kin, be a type of `ocl`.
/// Upstream's list of types is fixed, and only its members can be the default type.
void make_tensor_type_ours(const py::type& kind) {
  auto* const type = reinterpret_cast<TensorType*>(kind.ptr());
  const bool is_known = type->dtype == kind.attr("dtype").ptr() &&
                        type->layout == kind.attr("layout").ptr() &&
                        std::strncmp(type->name, "torch.cuda.", 11) == 0;
  const int ours = static_cast<int>(c10::Backend::PrivateUse1);
  if (is_known && type->backend == ours) return;
  if (!is_known || !type->is_cuda || type->backend != static_cast<int>(c10::Backend::CUDA)) {
    throw std::runtime_error("PyTorch's tensor types are laid out in another way");
  }
  type->is_cuda = false;  // or upstream says that it was built without CUDA
  type->backend = ours;
}

}  // namespace

void bind_device_names(py::module_& module) {
  module.def("show_devices_as_cuda", &show_devices_as_cuda);
  module.def("convert_arguments", &convert_arguments, py::arg("kind"), py::arg("convert"));
  module.def("replace_calls", &replace_calls, py::arg("function"), py::arg("make"));
  module.def("add_attribute", &add_attribute, py::arg("kind"), py::arg("name"), py::arg("value"));
  module.def("make_tensor_type_ours", &make_tensor_type_ours, py::arg("kind"));
}

}  // namespace ocl::python
