// Memory and queues shared with PyOpenCL, as handles: integers that are cl_mem or cl_command_queue.
// The Python side is torch_ocl/api/exchange.py.
#include <ATen/ops/from_blob.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "opencl/platform.h"
#include "python/bindings.h"
#include "python/sub_buffer.h"
#include "runtime/allocator.h"
#include "runtime/stream.h"
#include "runtime/stream_table.h"

namespace py = pybind11;

namespace ocl::python {
namespace {

/// Python objects that buffers were keeping alive. A driver says that a buffer is gone from any of
/// its threads, maybe with locks held: the interpreter lets go of the object later.
class Kept {
 public:
  static void CL_CALLBACK released(cl_mem, void* object) {
    if (!Py_IsInitialized()) return;
    {
      const std::lock_guard lock(mutex());
      waiting().push_back(static_cast<PyObject*>(object));
    }
    // If the interpreter's list is full, one of its calls comes for this object, too.
    Py_AddPendingCall(&let_go, nullptr);
  }

 private:
  static int let_go(void*) {
    std::vector<PyObject*> objects;
    {
      const std::lock_guard lock(mutex());
      objects.swap(waiting());
    }
    for (PyObject* object : objects) Py_DECREF(object);
    return 0;
  }
  // Neither is ever destroyed: drivers call while the process ends, too.
  static std::mutex& mutex() {
    static auto* instance = new std::mutex;
    return *instance;
  }
  static std::vector<PyObject*>& waiting() {
    static auto* instance = new std::vector<PyObject*>;
    return *instance;
  }
};

/// A buffer of a tensor's memory, which keeps `owner` alive, and where the address lies in it. The
/// caller owns the handle.
std::tuple<uintptr_t, size_t> export_memory(int index, uintptr_t address, size_t bytes,
                                            const py::object& owner) {
  Device& device_of_it = device(index);
  SubBuffer buffer(device_of_it, reinterpret_cast<const void*>(address), bytes);
  OCL_CALL(&device_of_it, clSetMemObjectDestructorCallback, buffer.mem(), &Kept::released,
           owner.ptr());
  Py_INCREF(owner.ptr());
  const size_t offset = buffer.offset();
  return {reinterpret_cast<uintptr_t>(buffer.release()), offset};
}

template <class T>
T info_of(const Device& device, cl_mem mem, cl_mem_info question) {
  T value{};
  OCL_CALL(&device, clGetMemObjectInfo, mem, question, sizeof value, &value, nullptr);
  return value;
}

/// Where a buffer's bytes lie in this process, for a device that shares the process's memory: there
/// mapping is no copy, and the place stays the same.
const void* host_address(Device& device, cl_mem mem, size_t bytes) {
  Queue& queue = current_queue(static_cast<c10::DeviceIndex>(device.index()));
  cl_int code = CL_SUCCESS;
  void* host = api().clEnqueueMapBuffer(queue.handle(), mem, CL_TRUE, CL_MAP_READ, 0, bytes, 0,
                                        nullptr, nullptr, &code);
  queue.count();
  check(code, "clEnqueueMapBuffer", &device);
  OCL_CALL(&device, clEnqueueUnmapMemObject, queue.handle(), mem, host, 0, nullptr, nullptr);
  queue.count();
  return host;
}

/// A buffer that others made, with a place in the address space. It goes when the tensors do.
class Import {
 public:
  Import(Device& device, cl_mem mem) : device_(device) {
    // A sub-buffer's memory is that of the whole buffer; kernels need sub-buffers of that one.
    auto* whole = info_of<cl_mem>(device, mem, CL_MEM_ASSOCIATED_MEMOBJECT);
    offset_ = whole != nullptr ? info_of<size_t>(device, mem, CL_MEM_OFFSET) : 0;
    if (whole == nullptr) whole = mem;
    const auto bytes = info_of<size_t>(device, whole, CL_MEM_SIZE);
    const bool shared = device.properties().has_system_svm;
    const void* host = shared ? host_address(device, whole, bytes) : nullptr;
    OCL_CALL(&device, clRetainMemObject, mem);
    mem_ = mem;
    try {
      base_ = device.addresses().map(whole, bytes, host);
    } catch (...) {
      api().clReleaseMemObject(mem);
      throw;
    }
  }
  ~Import() {
    if (process_was_forked() || is_exiting()) return;
    try {
      // Kernels that were given the memory's address itself are not known to the driver, nor are
      // those that wait for their programs.
      if (device_.properties().has_system_svm || Queue::records()) {
        finish_device(static_cast<c10::DeviceIndex>(device_.index()));
      }
      device_.addresses().unmap(base_);
    } catch (const std::exception&) {  // a device that fails says so at the next call
    }
    api().clReleaseMemObject(mem_);
  }
  Import(const Import&) = delete;
  Import& operator=(const Import&) = delete;

  void* address() const { return static_cast<char*>(base_) + offset_; }

 private:
  static bool is_exiting() { return !Py_IsInitialized(); }

  Device& device_;
  cl_mem mem_ = nullptr;
  void* base_ = nullptr;
  size_t offset_ = 0;
};

/// Bytes of a buffer as a tensor of uint8, without a copy.
py::object import_memory(int index, uintptr_t handle, py::object owner_object) {
  Device& owner = device(index);
  auto* mem = reinterpret_cast<cl_mem>(handle);
  if (info_of<cl_context>(owner, mem, CL_MEM_CONTEXT) != owner.context()) {
    throw py::value_error(
        "the buffer belongs to another OpenCL context than the tensors: make it in the context of "
        "torch.ocl.pyopencl_queue(), or copy it through the host");
  }
  const auto bytes = static_cast<int64_t>(info_of<size_t>(owner, mem, CL_MEM_SIZE));
  auto import = std::make_shared<Import>(owner, mem);
  // The owner of the memory, a pool for one, lives as long: the tensor may die in any thread.
  const auto let_go = [](PyObject* object) {
    if (Py_IsInitialized() == 0) return;
    const py::gil_scoped_acquire gil;
    Py_DECREF(object);
  };
  std::shared_ptr<PyObject> object(owner_object.release().ptr(), let_go);
  const c10::Device where(kDeviceType, static_cast<c10::DeviceIndex>(index));
  void* address = import->address();
  at::Tensor tensor = at::for_blob(address, {bytes})
                          .deleter([import = std::move(import), object](void*) mutable {
                            import.reset();
                            object.reset();
                          })
                          .options(at::TensorOptions().dtype(at::kByte).device(where))
                          .target_device(where)
                          .make_tensor();
  PyObject* wrapped = THPVariable_Wrap(std::move(tensor));
  if (wrapped == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(wrapped);
}

}  // namespace

void bind_pyopencl(py::module_& module) {
  module.def("export_memory", &export_memory);
  module.def("import_memory", &import_memory);
  // Whoever gets the queue enqueues commands that are not counted.
  module.def(
      "shared_queue",
      [](int index) {
        return reinterpret_cast<uintptr_t>(
            current_queue(static_cast<c10::DeviceIndex>(index)).share());
      },
      release_gil());
  module.def("context_handle",
             [](int index) { return reinterpret_cast<uintptr_t>(device(index).context()); });
}

}  // namespace ocl::python
