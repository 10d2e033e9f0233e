#include "opencl/command_buffer.h"

#include <map>
#include <mutex>

#include "opencl/device.h"
#include "opencl/environment.h"
#include "opencl/error.h"
#include "opencl/kernel.h"
#include "opencl/platform.h"
#include "opencl/quirks.h"

namespace ocl {

// As in CL/cl_ext.h, which has them in some versions, and behind a macro. From 0.9.0 to 1.0 neither
// these functions' parameters nor the numbers have changed. (Barriers, copies and fills got one
// parameter more in 0.9.5: they are not used here.)
using Handle = _cl_command_buffer_khr*;
struct CommandBufferFunctions {
  Handle(CL_API_CALL* create)(cl_uint, const cl_command_queue*, const cl_ulong*, cl_int*) = nullptr;
  cl_int(CL_API_CALL* finalize)(Handle) = nullptr;
  cl_int(CL_API_CALL* release)(Handle) = nullptr;
  cl_int(CL_API_CALL* enqueue)(cl_uint, cl_command_queue*, Handle, cl_uint, const cl_event*,
                               cl_event*) = nullptr;
  cl_int(CL_API_CALL* kernel)(Handle, cl_command_queue, const cl_ulong*, cl_kernel, cl_uint,
                              const size_t*, const size_t*, const size_t*, cl_uint, const cl_uint*,
                              cl_uint*, void*) = nullptr;

  bool complete() const {
    return create != nullptr && finalize != nullptr && release != nullptr && enqueue != nullptr &&
           kernel != nullptr;
  }
};

namespace {

constexpr cl_ulong kFlags = 0x1293;  // CL_COMMAND_BUFFER_FLAGS_KHR

template <class Function>
void resolve(cl_platform_id platform, const char* name, Function& function) {
  function =
      reinterpret_cast<Function>(api().clGetExtensionFunctionAddressForPlatform(platform, name));
}

/// Extension functions belong to a platform: another driver's must not be called.
const CommandBufferFunctions& functions_of(cl_platform_id platform) {
  static std::mutex mutex;
  static auto* known = new std::map<cl_platform_id, CommandBufferFunctions>;  // as api()'s
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [entry, added] = known->try_emplace(platform);
  CommandBufferFunctions& found = entry->second;
  if (added && api().clGetExtensionFunctionAddressForPlatform != nullptr) {
    resolve(platform, "clCreateCommandBufferKHR", found.create);
    resolve(platform, "clFinalizeCommandBufferKHR", found.finalize);
    resolve(platform, "clReleaseCommandBufferKHR", found.release);
    resolve(platform, "clEnqueueCommandBufferKHR", found.enqueue);
    resolve(platform, "clCommandNDRangeKernelKHR", found.kernel);
  }
  return found;
}

[[noreturn]] void fail(const char* call, cl_int code, const Device& device,
                       const std::string& what) {
  throw Error(call, code, &device,
              what + " (with TORCH_OCL_WITHOUT=command_buffers graphs do without)");
}

}  // namespace

bool uses_command_buffers(const Device& device) {
  return device.properties().has_command_buffers && functions_of(device.platform()).complete() &&
         switched_on("TORCH_OCL_COMMAND_BUFFERS", !device.quirks().slow_command_buffers);
}

CommandBuffer::CommandBuffer(const Device& device, cl_command_queue queue)
    : device_(device), functions_(functions_of(device.platform())), queue_(queue) {
  check_not_forked();
  const cl_ulong request[] = {kFlags, device.properties().command_buffer_flags, 0};
  cl_int code = CL_SUCCESS;
  // Some versions know no flags any more.
  handle_ = functions_.create(1, &queue_, request[1] == 0 ? nullptr : request, &code);
  if (code != CL_SUCCESS) fail("clCreateCommandBufferKHR", code, device, "for a graph");
  code = api().clRetainCommandQueue(queue_);
  if (code != CL_SUCCESS) {
    functions_.release(handle_);
    check(code, "clRetainCommandQueue", &device);
  }
}

CommandBuffer::~CommandBuffer() {
  if (process_was_forked()) return;
  functions_.release(handle_);
  api().clReleaseCommandQueue(queue_);
}

void CommandBuffer::add(cl_kernel kernel, const NDRange& range, const std::string& label) {
  const size_t* local = range.local[0] == 0 ? nullptr : range.local.data();
  // Sync points would order kernels of out-of-order queues; those of an in-order one are in order.
  const cl_int code = functions_.kernel(handle_, nullptr, nullptr, kernel, range.dims, nullptr,
                                        range.global.data(), local, 0, nullptr, nullptr, nullptr);
  if (code != CL_SUCCESS) {
    fail("clCommandNDRangeKernelKHR", code, device_, label + " of a graph");
  }
}

void CommandBuffer::finalize() {
  const cl_int code = functions_.finalize(handle_);
  if (code != CL_SUCCESS) fail("clFinalizeCommandBufferKHR", code, device_, "for a graph");
}

void CommandBuffer::enqueue() {
  check_not_forked();
  const cl_int code = functions_.enqueue(0, nullptr, handle_, 0, nullptr, nullptr);
  if (code != CL_SUCCESS) fail("clEnqueueCommandBufferKHR", code, device_, "of a graph");
}

}  // namespace ocl
