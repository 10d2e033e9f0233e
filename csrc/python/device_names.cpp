// torch.device as programs see it that know "cuda" alone: torch_ocl.cuda_to_ocl().
//
// A device's type, and its text, are those of CUDA to code outside of torch. To torch's own code,
// and to this package's, it is `ocl`: hundreds of places there compare the type with "cuda" in
// order to call CUDA's functions. The module of the caller tells one from the other.
#include <c10/core/Backend.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Device.h>

#include <cstring>
#include <stdexcept>
#include <unordered_map>

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
  module.def("add_attribute", &add_attribute, py::arg("kind"), py::arg("name"), py::arg("value"));
  module.def("make_tensor_type_ours", &make_tensor_type_ours, py::arg("kind"));
}

}  // namespace ocl::python
