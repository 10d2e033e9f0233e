#include "opencl/external_memory.h"

#include <dlfcn.h>
#include <unistd.h>

#include <sstream>

#include "opencl/error.h"

namespace ocl {
namespace {

// As in CL/cl_ext.h, which older headers of OpenCL lack.
constexpr cl_mem_properties kOpaqueDescriptor = 0x2060;  // CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR
constexpr cl_device_info kDeviceUuid = 0x106A;           // CL_DEVICE_UUID_KHR
using Acquire = cl_int(CL_API_CALL*)(cl_command_queue, cl_uint, const cl_mem*, cl_uint,
                                     const cl_event*, cl_event*);

/// Few programs share memory with others, so these are in no table; null where the loader lacks
/// one.
struct Functions {
  decltype(&clCreateBufferWithProperties) create = nullptr;
  decltype(&clGetExtensionFunctionAddressForPlatform) extension = nullptr;
};

const Functions& functions() {
  static const Functions found = [] {
    Functions them;
    void* loader = dlopen(api().loader_path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (loader == nullptr) return them;
    them.create =
        reinterpret_cast<decltype(them.create)>(dlsym(loader, "clCreateBufferWithProperties"));
    them.extension = reinterpret_cast<decltype(them.extension)>(
        dlsym(loader, "clGetExtensionFunctionAddressForPlatform"));
    dlclose(loader);  // it stays open: api() holds it
    return them;
  }();
  return found;
}

Acquire acquire_of(const Device& device) {
  if (functions().extension == nullptr) return nullptr;
  return reinterpret_cast<Acquire>(
      functions().extension(device.platform(), "clEnqueueAcquireExternalMemObjectsKHR"));
}

bool has_extension(const Device& device, const std::string& name) {
  std::istringstream words(device.properties().extensions);
  for (std::string word; words >> word;) {
    if (word == name) return true;
  }
  return false;
}

}  // namespace

std::string external_memory_refusal(const Device& device) {
  for (const char* name : {"cl_khr_external_memory", "cl_khr_external_memory_opaque_fd"}) {
    if (!has_extension(device, name)) return device.description() + " has no " + name;
  }
  if (functions().create == nullptr) {
    return "the OpenCL loader " + api().loader_path + " has no clCreateBufferWithProperties";
  }
  if (acquire_of(device) == nullptr) {
    return device.description() + " has no clEnqueueAcquireExternalMemObjectsKHR";
  }
  return {};
}

cl_mem import_external_memory(Queue& queue, int descriptor, size_t bytes) {
  Device& device = queue.device();
  const cl_mem_properties properties[] = {kOpaqueDescriptor,
                                          static_cast<cl_mem_properties>(descriptor), 0};
  cl_int code = CL_INVALID_OPERATION;
  cl_mem mem = nullptr;
  if (functions().create != nullptr) {
    mem =
        functions().create(device.context(), properties, CL_MEM_READ_WRITE, bytes, nullptr, &code);
  }
  if (code != CL_SUCCESS) close(descriptor);  // the driver owns it otherwise
  check(code, "clCreateBufferWithProperties", &device);
  const Acquire acquire = acquire_of(device);
  {
    const Queue::Submission submission(queue);
    code = acquire == nullptr ? CL_INVALID_OPERATION
                              : acquire(submission.handle(), 1, &mem, 0, nullptr, nullptr);
  }
  if (code != CL_SUCCESS) api().clReleaseMemObject(mem);
  check(code, "clEnqueueAcquireExternalMemObjectsKHR", &device);
  queue.count();
  return mem;
}

std::optional<DeviceUuid> device_uuid(const Device& device) {
  DeviceUuid uuid{};
  const cl_int code =
      api().clGetDeviceInfo(device.id(), kDeviceUuid, sizeof uuid, uuid.data(), nullptr);
  if (code != CL_SUCCESS) return std::nullopt;
  return uuid;
}

}  // namespace ocl
