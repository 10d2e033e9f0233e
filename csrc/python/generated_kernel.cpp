// Kernels that torch.compile generates (torch_ocl/inductor): how they are called.
//
// A call takes tensors, then numbers, and works out the launch's sizes from the numbers. It is a
// vectorcall of plain Python objects, since a compiled graph makes one for each of its kernels.
#include <ATen/core/Tensor.h>
#include <Python.h>
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <structmember.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/device_table.h"
#include "opencl/ceil_div.h"
#include "opencl/device_assert.h"
#include "opencl/kernel.h"
#include "opencl/platform.h"
#include "opencl/program.h"
#include "opencl/sources.h"
#include "ops/Factories.h"
#include "python/bindings.h"
#include "runtime/stream.h"

namespace py = pybind11;

namespace ocl::python {
namespace {

/// How a kernel's iterations are shared out (torch_ocl/inductor/kernel.py has the loops).
enum class Form : uint8_t {
  item_lanes,   // CPUs: a work-item walks a run of columns in a run of rows
  item_rows,    // CPUs: a work-item walks a run of rows, each reduced
  group_lanes,  // GPUs: a work-item has one vector of columns
  group_rows,   // GPUs: a work-group reduces one row
  group_tiles,  // GPUs: a work-group has a square of columns and rows in local memory
};

/// A size: a constant, or one of the numbers of the call.
struct Size {
  int64_t value = 1;
  bool is_number = false;
};

/// What a kernel needs to know of its calls.
struct Generated {
  int device = 0;
  std::string source, name, file;
  size_t tensors = 0;
  std::string kinds;  // of the numbers: 'l' long, 'd' double, 'f' float
  std::vector<uint64_t> sites;
  Form form = Form::item_lanes;
  size_t width = 1;  // lanes
  size_t group = 1;  // work-items of a work-group
  Size columns, rows, length;
  int64_t work = 1;  // elementary operations for an element
  size_t id = 0;

  cl_program program() const {
    return ocl::device(device).programs().get_from_source(file, source, "");
  }
};

// Work-items of CPUs: enough for all cores, each with enough to do, and none that takes so much
// that the others wait for it.
constexpr int64_t kMostElements = int64_t{1} << 14;
constexpr int64_t kLeastElements = int64_t{1} << 11;

/// The kernels of a thread, by Generated::id.
class ThreadKernels {
 public:
  ~ThreadKernels() {
    if (!process_was_forked()) return;
    for (std::unique_ptr<Kernel>& kernel : kernels_) kernel.release();
  }
  Kernel& get(const Generated& generated) {
    if (generated.id < kernels_.size() && kernels_[generated.id] != nullptr) {
      return *kernels_[generated.id];
    }
    if (generated.id >= kernels_.size()) kernels_.resize(generated.id + 16);
    const py::gil_scoped_release release;
    kernels_[generated.id] =
        std::make_unique<Kernel>(ocl::device(generated.device), generated.program(), generated.name,
                                 generated.file, generated.name);
    return *kernels_[generated.id];
  }
  void forget(size_t id) {
    if (id < kernels_.size()) kernels_[id].reset();
  }

 private:
  std::vector<std::unique_ptr<Kernel>> kernels_;
};
thread_local ThreadKernels thread_kernels;

/// Ids; none is given again.
struct Ids {
  std::mutex mutex;
  size_t next = 0;
};
Ids& ids() {
  static auto* instance = new Ids;
  return *instance;
}

/// The struct that a kernel takes by value: words of eight bytes each.
class Words {
 public:
  template <class T>
  void add(T value) {
    static_assert(sizeof(T) == 8);
    if (count_ == words_.size())
      throw std::runtime_error("a generated kernel has too many operands");
    std::memcpy(&words_[count_++], &value, 8);
  }
  const void* data() const { return words_.data(); }
  size_t bytes() const { return count_ * 8; }

 private:
  std::array<uint64_t, 480> words_;
  size_t count_ = 0;
};

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

struct Sizes {
  int64_t columns, rows, length;
};

/// The launch's range, and the runs of columns and rows to a work-item.
struct Geometry {
  NDRange range;
  int64_t columns_each = 1, rows_each = 1;
};

Geometry geometry_of(const Generated& generated, const Device& device, const Sizes& sizes) {
  Geometry geometry;
  const int64_t items = items_of_cores(device, 2);
  const auto width = static_cast<int64_t>(generated.width);
  const auto group = static_cast<int64_t>(generated.group);
  switch (generated.form) {
    case Form::item_lanes: {
      const int64_t total = sizes.columns * sizes.rows * sizes.length;
      const int64_t each =
          std::clamp(ceil_div(total, items), std::min(kLeastElements, total), kMostElements);
      // Columns first; what is left of the share are rows.
      const int64_t columns = std::max<int64_t>(each / sizes.length, 1);
      geometry.columns_each = std::min(ceil_div(columns, 4 * width) * 4 * width,
                                       ceil_div(sizes.columns, width) * width);
      geometry.rows_each = std::clamp<int64_t>(
          each /
              std::max<int64_t>(std::min(geometry.columns_each, sizes.columns) * sizes.length, 1),
          1, sizes.rows);
      geometry.range = NDRange::grid(ceil_div(sizes.columns, geometry.columns_each),
                                     ceil_div(sizes.rows, geometry.rows_each), 1, 1);
      break;
    }
    case Form::item_rows: {
      const int64_t least = ceil_div(kLeastElements, std::max<int64_t>(sizes.length, 1));
      const int64_t even =
          ceil_div(sizes.rows, static_cast<int64_t>(device.properties().compute_units));
      geometry.rows_each = std::clamp<int64_t>(
          std::max(ceil_div(sizes.rows, items), std::min(least, even)), 1, sizes.rows);
      geometry.range = NDRange::linear(ceil_div(sizes.rows, geometry.rows_each), 1);
      break;
    }
    case Form::group_lanes: {
      // Short lines share a work-group.
      const auto items = static_cast<size_t>(ceil_div(sizes.columns, width));
      const size_t local = std::min(std::bit_ceil(std::max<size_t>(items, 1)), generated.group);
      geometry.range = NDRange::grid(
          items, static_cast<size_t>(sizes.rows), local,
          std::min(std::bit_ceil(static_cast<size_t>(std::max<int64_t>(sizes.rows, 1))),
                   generated.group / local));
      break;
    }
    case Form::group_tiles: {
      // loops.py has the square's side and lines.
      constexpr size_t kSide = 32, kLines = 8;
      geometry.range = NDRange::grid(static_cast<size_t>(sizes.columns),
                                     static_cast<size_t>(sizes.rows) * kLines, kSide, kLines);
      break;
    }
    case Form::group_rows:
      geometry.range = NDRange::linear(sizes.rows * group, group);
      break;
  }
  const double operations = static_cast<double>(sizes.columns) * sizes.rows * sizes.length *
                            static_cast<double>(generated.work);
  geometry.range.work = operations < 1e15 ? static_cast<int64_t>(operations) : int64_t{1} << 50;
  return geometry;
}

void launch_generated(const Generated& generated, PyObject* const* arguments, size_t count) {
  const size_t numbers = generated.kinds.size();
  if (count != generated.tensors + numbers) {
    throw py::type_error(generated.name + " takes " + std::to_string(generated.tensors + numbers) +
                         " arguments, got " + std::to_string(count));
  }
  Kernel& kernel = thread_kernels.get(generated);
  Device& device = kernel.device();
  Words words;
  cl_uint index = 0;
  const bool svm = device.properties().has_system_svm;
  for (size_t i = 0; i < generated.tensors; ++i) {
    if (!THPVariable_Check(arguments[i])) throw py::type_error(generated.name + ": not a tensor");
    const at::Tensor& tensor = THPVariable_Unpack(arguments[i]);
    const void* address = tensor.const_data_ptr();
    if (tensor.device().type() != kDeviceType) {
      throw std::runtime_error(generated.name + ": expected a tensor on ocl, got one on " +
                               tensor.device().str());
    }
    if (svm) {
      words.add(static_cast<uint64_t>(device.addresses().find_host(address)));
    } else {
      const Location location = device.addresses().find(address);
      kernel.set_buffer(index++, location.mem);
      kernel.set_value(index++, location.offset);
    }
  }
  std::array<int64_t, 64> integers;
  if (numbers > integers.size())
    throw std::runtime_error("a generated kernel has too many numbers");
  for (size_t i = 0; i < numbers; ++i) {
    PyObject* argument = arguments[generated.tensors + i];
    if (generated.kinds[i] == 'd') {
      words.add(real_of(argument));
    } else if (generated.kinds[i] == 'f') {
      words.add(std::array<float, 2>{static_cast<float>(real_of(argument)), 0.0f});
    } else {
      integers[i] = integer_of(argument);
      words.add(integers[i]);
    }
  }
  const auto size = [&](const Size& of) { return of.is_number ? integers[of.value] : of.value; };
  const Sizes sizes{size(generated.columns), size(generated.rows), size(generated.length)};
  if (sizes.columns <= 0 || sizes.rows <= 0) return;
  for (const uint64_t site : generated.sites) words.add(site);
  const Geometry geometry = geometry_of(
      generated, device, {sizes.columns, sizes.rows, std::max<int64_t>(sizes.length, 1)});
  words.add(geometry.columns_each);
  words.add(geometry.rows_each);
  kernel.set_bytes(index++, words.data(), words.bytes());
  if (!generated.sites.empty()) kernel.set_buffer(index++, device.asserts().mem());
  kernel.enqueue(current_queue(static_cast<c10::DeviceIndex>(generated.device)), geometry.range);
}

/// Sets the Python error for the C++ exception under way.
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
  Generated* generated = reinterpret_cast<KernelObject*>(self)->generated;
  if (!process_was_forked()) thread_kernels.forget(generated->id);
  delete generated;
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

Size size_of(const py::handle& value) {
  const auto [is_number, number] = value.cast<std::pair<bool, int64_t>>();
  return {number, is_number};
}

/// sizes: of the columns, rows and the reduced length, each as (is a number of the call, which one
/// or how much).
py::object generated_kernel(int device, std::string source, std::string name, std::string file,
                            size_t tensors, std::string kinds, std::vector<uint64_t> sites,
                            const std::string& form, size_t width, size_t group,
                            const py::tuple& sizes, int64_t work) {
  static const std::map<std::string, Form> forms{{"item_lanes", Form::item_lanes},
                                                 {"item_rows", Form::item_rows},
                                                 {"group_lanes", Form::group_lanes},
                                                 {"group_rows", Form::group_rows},
                                                 {"group_tiles", Form::group_tiles}};
  auto generated = std::make_unique<Generated>();
  *generated = {device,
                std::move(source),
                std::move(name),
                std::move(file),
                tensors,
                std::move(kinds),
                std::move(sites),
                forms.at(form),
                width,
                group,
                size_of(sizes[0]),
                size_of(sizes[1]),
                size_of(sizes[2]),
                work,
                0};
  {
    const std::lock_guard<std::mutex> lock(ids().mutex);
    generated->id = ids().next++;
  }
  PyTypeObject* type = kernel_type();
  auto* object = reinterpret_cast<KernelObject*>(type->tp_alloc(type, 0));
  if (object == nullptr) throw py::error_already_set();
  object->call = &call_kernel;
  object->generated = generated.release();
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(object));
}

/// The id of a device-side check's failure: an index out of range in `text`, or a message.
uint64_t assert_site(const std::string& text, bool is_message) {
  if (is_message) return message_site(text);
  static std::mutex mutex;
  static auto* sites = new std::map<std::string, const AssertSite*>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [entry, is_new] = sites->try_emplace(text, nullptr);
  if (is_new) entry->second = new AssertSite(entry->first.c_str());  // names live for ever
  return entry->second->id();
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
  module.def("assert_site", &assert_site);
  module.def(
      "build_generated",
      [](int index, const std::string& source, const std::string& file) {
        ocl::device(index).programs().get_from_source(file, source, "");
      },
      release_gil());
  module.def("generated_kernel", &generated_kernel);
  module.add_object("empty_strided", py::reinterpret_steal<py::object>(
                                         PyCFunction_New(&empty_strided_method, nullptr)));
}

}  // namespace ocl::python
