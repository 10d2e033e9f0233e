// Kernels from source text, launched from Python: what torch.ocl.compile_kernel runs on, which
// checks arguments and sizes (torch_ocl/source_kernels/kernels.py).
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "opencl/kernel.h"
#include "opencl/platform.h"
#include "opencl/program.h"
#include "opencl/sources.h"
#include "python/bindings.h"
#include "python/sub_buffer.h"
#include "runtime/stream.h"

namespace py = pybind11;

namespace ocl::python {
namespace {

/// One kernel of a program built from source text, for one device.
class SourceKernel {
 public:
  SourceKernel(int index, const std::string& source, const std::string& name,
               const std::string& options, const std::string& file)
      : index_(static_cast<c10::DeviceIndex>(index)),
        kernel_(device(index), device(index).programs().of_text(file, source, options), name) {
    kernel_.handle();
  }

  /// Enqueues on the current stream. An empty `local` leaves the work-group size to the driver. An
  /// argument is the bytes of a scalar or struct, a number of bytes of local memory, or a device
  /// address with the bytes behind it that the kernel may touch: it becomes a buffer that begins
  /// at the last multiple of base_address_align before the address (0: a null buffer).
  void launch(const std::vector<size_t>& global, const std::vector<size_t>& local,
              const py::args& arguments) {
    if (global.empty() || global.size() > 3 || (!local.empty() && local.size() != global.size())) {
      throw py::value_error("global and local must have the same 1 to 3 sizes");
    }
    NDRange range;
    range.dims = static_cast<cl_uint>(global.size());
    if (local.empty()) range.local[0] = 0;
    for (size_t i = 0; i < global.size(); ++i) {
      range.global[i] = global[i];
      if (!local.empty()) range.local[i] = local[i];
    }
    std::vector<Argument> converted;
    converted.reserve(arguments.size());
    for (const py::handle argument : arguments) converted.push_back(convert(argument));
    const py::gil_scoped_release release;
    enqueue(range, converted);
  }

  const std::string& name() const { return kernel_.name(); }
  size_t max_work_group_size() { return kernel_.max_work_group_size(); }
  /// The kernel's own, without its arguments.
  size_t local_memory() { return kernel_.local_memory(); }

  cl_uint argument_count() {
    cl_uint count = 0;
    OCL_CALL(&kernel_.device(), clGetKernelInfo, kernel_.handle(), CL_KERNEL_NUM_ARGS, sizeof count,
             &count, nullptr);
    return count;
  }

  /// The sizes of __attribute__((reqd_work_group_size)); zeros without one.
  std::array<size_t, 3> required_local_size() {
    std::array<size_t, 3> size{};
    OCL_CALL(&kernel_.device(), clGetKernelWorkGroupInfo, kernel_.handle(), kernel_.device().id(),
             CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof size, size.data(), nullptr);
    return size;
  }

 private:
  struct Argument {
    enum { value, local, buffer } kind;
    std::string bytes;
    const void* address = nullptr;
    size_t size = 0;
  };

  static Argument convert(py::handle argument) {
    if (py::isinstance<py::bytes>(argument)) return {Argument::value, argument.cast<std::string>()};
    if (py::isinstance<py::int_>(argument)) {
      return {Argument::local, {}, nullptr, argument.cast<size_t>()};
    }
    const auto [address, size] = argument.cast<std::tuple<uintptr_t, size_t>>();
    return {Argument::buffer, {}, reinterpret_cast<const void*>(address), size};
  }

  /// With the lock: arguments belong to the kernel, and threads share it.
  void enqueue(const NDRange& range, const std::vector<Argument>& arguments) {
    Queue& queue = current_queue(index_);
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<SubBuffer> buffers;
    buffers.reserve(arguments.size());
    cl_uint index = 0;
    for (const Argument& argument : arguments) {
      switch (argument.kind) {
        case Argument::value:
          kernel_.set_bytes(index, argument.bytes.data(), argument.bytes.size());
          break;
        case Argument::local:
          check_local_arguments();
          kernel_.set_local(index, argument.size);
          break;
        case Argument::buffer: {
          cl_mem mem = nullptr;
          if (argument.address != nullptr) {
            mem = buffers.emplace_back(kernel_.device(), argument.address, argument.size).mem();
          }
          kernel_.set_sub_buffer(queue, index, mem);
          break;
        }
      }
      ++index;
    }
    kernel_.enqueue(queue, range);
  }

  /// Raises where the driver would compute wrong results in silence.
  void check_local_arguments() {
    if (!kernel_.device().quirks().fixed_groups_lack_local_arguments ||
        required_local_size()[0] == 0) {
      return;
    }
    throw std::runtime_error(
        "kernel " + kernel_.name() + ": " + kernel_.device().properties().name +
        " has no local memory for the arguments of a kernel with reqd_work_group_size; leave that "
        "attribute out, or declare the memory in the kernel");
  }

  c10::DeviceIndex index_;
  std::mutex mutex_;
  Kernel kernel_;
};

std::vector<std::string> kernel_names(int index, const std::string& source,
                                      const std::string& options, const std::string& file) {
  Device& owner = device(index);
  cl_program program = owner.programs().of_text(file, source, options).wait();
  size_t size = 0;
  const cl_int code = api().clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, 0, nullptr, &size);
  if (code == CL_INVALID_PROGRAM_EXECUTABLE) return {};  // Intel's CPU runtime, of no kernels
  check(code, "clGetProgramInfo", &owner);
  std::string text(size, '\0');
  OCL_CALL(&owner, clGetProgramInfo, program, CL_PROGRAM_KERNEL_NAMES, size, text.data(), nullptr);
  text.resize(text.find_last_not_of('\0') + 1);
  std::vector<std::string> names;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find(';', start), text.size());
    names.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return names;
}

/// Address space, type and name.
using Parameter = std::tuple<std::string, std::string, std::string>;

std::optional<Parameter> parameter(cl_kernel kernel, cl_uint index) {
  cl_kernel_arg_address_qualifier space = 0;
  if (api().clGetKernelArgInfo(kernel, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof space, &space,
                               nullptr) != CL_SUCCESS) {
    return std::nullopt;
  }
  std::array<std::string, 2> texts;
  constexpr cl_kernel_arg_info kQuestions[] = {CL_KERNEL_ARG_TYPE_NAME, CL_KERNEL_ARG_NAME};
  for (size_t i = 0; i < texts.size(); ++i) {
    size_t size = 0;
    if (api().clGetKernelArgInfo(kernel, index, kQuestions[i], 0, nullptr, &size) != CL_SUCCESS) {
      return std::nullopt;
    }
    texts[i].resize(size);
    if (api().clGetKernelArgInfo(kernel, index, kQuestions[i], size, texts[i].data(), nullptr) !=
        CL_SUCCESS) {
      return std::nullopt;
    }
    texts[i] = texts[i].c_str();
  }
  const char* name = space == CL_KERNEL_ARG_ADDRESS_GLOBAL     ? "global"
                     : space == CL_KERNEL_ARG_ADDRESS_CONSTANT ? "constant"
                     : space == CL_KERNEL_ARG_ADDRESS_LOCAL    ? "local"
                                                               : "private";
  return Parameter{name, texts[0], texts[1]};
}

/// The options that a program was built with.
std::string build_options(const Device& device, cl_program program) {
  size_t size = 0;
  OCL_CALL(&device, clGetProgramBuildInfo, program, device.id(), CL_PROGRAM_BUILD_OPTIONS, 0,
           nullptr, &size);
  std::string options(size, '\0');
  OCL_CALL(&device, clGetProgramBuildInfo, program, device.id(), CL_PROGRAM_BUILD_OPTIONS, size,
           options.data(), nullptr);
  return options.c_str();
}

/// The driver's words on a kernel's parameters, or nothing where it does not know. Builds the
/// source once more: drivers forget parameters in the binaries that the cache keeps.
std::optional<std::vector<Parameter>> kernel_parameters(int index, const std::string& source,
                                                        const std::string& name,
                                                        const std::string& options,
                                                        const std::string& file) {
  Device& owner = device(index);
  const std::string all =
      build_options(owner, owner.programs().of_text(file, source, options).wait()) +
      " -cl-kernel-arg-info";
  struct Program {
    ~Program() {
      if (handle != nullptr) api().clReleaseProgram(handle);
    }
    cl_program handle;
  };
  const char* text = source.data();
  const size_t size = source.size();
  cl_int code = CL_SUCCESS;
  const Program program{api().clCreateProgramWithSource(owner.context(), 1, &text, &size, &code)};
  check(code, "clCreateProgramWithSource", &owner);
  const cl_device_id id = owner.id();
  OCL_CALL(&owner, clBuildProgram, program.handle, 1, &id, all.c_str(), nullptr, nullptr);
  const struct Handle {
    ~Handle() {
      if (handle != nullptr) api().clReleaseKernel(handle);
    }
    cl_kernel handle;
  } kernel{api().clCreateKernel(program.handle, name.c_str(), &code)};
  check(code, "clCreateKernel", &owner);
  cl_uint count = 0;
  OCL_CALL(&owner, clGetKernelInfo, kernel.handle, CL_KERNEL_NUM_ARGS, sizeof count, &count,
           nullptr);
  std::vector<Parameter> parameters;
  for (cl_uint i = 0; i < count; ++i) {
    std::optional<Parameter> found = parameter(kernel.handle, i);
    if (!found) return std::nullopt;
    parameters.push_back(*std::move(found));
  }
  return parameters;
}

/// CL_DEVICE_MAX_WORK_ITEM_SIZES, and bytes: of a work-group's local memory, and that a buffer's
/// place in another is a multiple of.
py::dict launch_limits(int index) {
  const Device& owner = device(index);
  size_t bytes = 0;
  OCL_CALL(&owner, clGetDeviceInfo, owner.id(), CL_DEVICE_MAX_WORK_ITEM_SIZES, 0, nullptr, &bytes);
  std::vector<size_t> sizes(bytes / sizeof(size_t));
  OCL_CALL(&owner, clGetDeviceInfo, owner.id(), CL_DEVICE_MAX_WORK_ITEM_SIZES, bytes, sizes.data(),
           nullptr);
  py::dict limits;
  limits["work_item_sizes"] = sizes;
  limits["local_memory"] = owner.properties().local_memory;
  limits["alignment"] = owner.properties().base_address_align;
  return limits;
}

}  // namespace

void bind_source_kernel(py::module_& module) {
  module.def("kernel_source", &kernel_source);
  module.def("kernel_names", &kernel_names, release_gil());
  module.def("kernel_parameters", &kernel_parameters, release_gil());
  module.def("launch_limits", &launch_limits);
  py::class_<SourceKernel>(module, "SourceKernel")
      .def(py::init<int, const std::string&, const std::string&, const std::string&,
                    const std::string&>(),
           py::arg("device"), py::arg("source"), py::arg("name"), py::arg("options"),
           py::arg("file") = "<kernel>", release_gil())
      .def("launch", &SourceKernel::launch)
      .def_property_readonly("name", &SourceKernel::name)
      .def_property_readonly("argument_count", &SourceKernel::argument_count)
      .def_property_readonly("max_work_group_size", &SourceKernel::max_work_group_size)
      .def_property_readonly("local_memory", &SourceKernel::local_memory)
      .def_property_readonly("required_local_size", &SourceKernel::required_local_size);
}

}  // namespace ocl::python
