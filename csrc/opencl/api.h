// OpenCL's entry points, resolved at run time: `import torch` must work on a machine without
// OpenCL.
#pragma once

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#endif
#ifndef CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#endif
#include <CL/cl.h>

#include <atomic>
#include <string>
#include <vector>

namespace ocl {

// Entry points every OpenCL 1.2 loader has; the backend is unavailable without them.
#define OCL_REQUIRED_FUNCTIONS(X)     \
  X(clGetPlatformIDs)                 \
  X(clGetPlatformInfo)                \
  X(clGetDeviceIDs)                   \
  X(clGetDeviceInfo)                  \
  X(clCreateContext)                  \
  X(clReleaseContext)                 \
  X(clCreateCommandQueue)             \
  X(clRetainCommandQueue)             \
  X(clReleaseCommandQueue)            \
  X(clGetCommandQueueInfo)            \
  X(clCreateBuffer)                   \
  X(clCreateSubBuffer)                \
  X(clGetMemObjectInfo)               \
  X(clRetainMemObject)                \
  X(clReleaseMemObject)               \
  X(clSetMemObjectDestructorCallback) \
  X(clEnqueueReadBuffer)              \
  X(clEnqueueReadBufferRect)          \
  X(clEnqueueWriteBuffer)             \
  X(clEnqueueWriteBufferRect)         \
  X(clEnqueueCopyBuffer)              \
  X(clEnqueueFillBuffer)              \
  X(clEnqueueMapBuffer)               \
  X(clEnqueueUnmapMemObject)          \
  X(clEnqueueMigrateMemObjects)       \
  X(clCreateProgramWithSource)        \
  X(clCreateProgramWithBinary)        \
  X(clBuildProgram)                   \
  X(clGetProgramInfo)                 \
  X(clGetProgramBuildInfo)            \
  X(clReleaseProgram)                 \
  X(clCreateKernel)                   \
  X(clReleaseKernel)                  \
  X(clSetKernelArg)                   \
  X(clGetKernelInfo)                  \
  X(clGetKernelArgInfo)               \
  X(clGetKernelWorkGroupInfo)         \
  X(clEnqueueNDRangeKernel)           \
  X(clEnqueueMarkerWithWaitList)      \
  X(clEnqueueBarrierWithWaitList)     \
  X(clCreateUserEvent)                \
  X(clSetUserEventStatus)             \
  X(clSetEventCallback)               \
  X(clGetEventInfo)                   \
  X(clGetEventProfilingInfo)          \
  X(clWaitForEvents)                  \
  X(clRetainEvent)                    \
  X(clReleaseEvent)                   \
  X(clFlush)                          \
  X(clFinish)

// Entry points of later versions: null where the loader lacks them.
#define OCL_OPTIONAL_FUNCTIONS(X)             \
  X(clCreateCommandQueueWithProperties)       \
  X(clCloneKernel)                            \
  X(clGetExtensionFunctionAddressForPlatform) \
  X(clGetKernelSubGroupInfo)

/// The function table. `unavailable` is empty when every required function was found; otherwise it
/// says in one sentence why OpenCL can't be used and what to install.
struct Api {
#define OCL_DECLARE(name) decltype(&::name) name = nullptr;
  OCL_REQUIRED_FUNCTIONS(OCL_DECLARE)
  OCL_OPTIONAL_FUNCTIONS(OCL_DECLARE)
#undef OCL_DECLARE
  std::string unavailable;
  std::string loader_path;          // the libOpenCL that was opened
  bool reads_icd_filenames = true;  // ocl-icd, the loader of Debian and its kin, does not
};

/// Names the ICD loaders to try, in order, before the system's, and drivers for them to load beside
/// those they find. Called by the Python package, which knows where pip put them; no effect once
/// they are open.
void configure_loader(std::vector<std::string> loaders, std::vector<std::string> drivers);
const std::vector<std::string>& configured_drivers();

namespace detail {
const Api& load_api();
inline constinit std::atomic<const Api*> opened_api{nullptr};
}  // namespace detail
/// The function table; opens the loader on the first call. Never throws. TORCH_OCL_LOADER=<path>
/// names the only loader to try.
inline const Api& api() {
  const Api* opened = detail::opened_api.load(std::memory_order_acquire);
  return __builtin_expect(opened != nullptr, 1) ? *opened : detail::load_api();
}

/// One sentence for messages: what to install where there is no loader or no driver.
const char* install_advice();

}  // namespace ocl
