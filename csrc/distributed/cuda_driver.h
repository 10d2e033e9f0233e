// CUDA's driver API, as far as memory shared with OpenCL needs it. Resolved at run time, without
// CUDA's headers: the module is the same for every build of PyTorch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ocl::distributed::cuda {

using Address = unsigned long long;  // CUdeviceptr
using Handle = unsigned long long;   // CUmemGenericAllocationHandle
struct Context;                      // behind CUcontext

/// CUmemLocation, of a device.
struct Location {
  int type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int id = 0;
};
/// CUmemAllocationProp, of memory that can be exported as a file descriptor.
struct AllocationProperties {
  int type = 1;     // CU_MEM_ALLOCATION_TYPE_PINNED
  int handles = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  Location location;
  void* win32 = nullptr;
  uint8_t flags[8] = {};
};
/// CUmemAccessDesc.
struct Access {
  Location location;
  int flags = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};

/// Name here, name in the library, parameters.
#define OCL_CUDA_FUNCTIONS(X)                                                                \
  X(init, cuInit, (unsigned))                                                                \
  X(error_name, cuGetErrorName, (int, const char**))                                         \
  X(get_device, cuDeviceGet, (int*, int))                                                    \
  X(get_uuid, cuDeviceGetUuid_v2, (void*, int))                                              \
  X(retain_context, cuDevicePrimaryCtxRetain, (Context**, int))                              \
  X(push_context, cuCtxPushCurrent_v2, (Context*))                                           \
  X(pop_context, cuCtxPopCurrent_v2, (Context**))                                            \
  X(granularity, cuMemGetAllocationGranularity, (size_t*, const AllocationProperties*, int)) \
  X(create, cuMemCreate, (Handle*, size_t, const AllocationProperties*, unsigned long long)) \
  X(release, cuMemRelease, (Handle))                                                         \
  X(export_handle, cuMemExportToShareableHandle, (void*, Handle, int, unsigned long long))   \
  X(reserve, cuMemAddressReserve, (Address*, size_t, size_t, Address, unsigned long long))   \
  X(free_address, cuMemAddressFree, (Address, size_t))                                       \
  X(map, cuMemMap, (Address, size_t, size_t, Handle, unsigned long long))                    \
  X(unmap, cuMemUnmap, (Address, size_t))                                                    \
  X(set_access, cuMemSetAccess, (Address, size_t, const Access*, size_t))

/// The functions; they return 0 for success.
struct Driver {
#define OCL_CUDA_DECLARE(name, symbol, parameters) int(*name) parameters = nullptr;
  OCL_CUDA_FUNCTIONS(OCL_CUDA_DECLARE)
#undef OCL_CUDA_DECLARE
};

/// Opens the driver with the first call. Throws c10::Error with what is missing.
const Driver& driver();
/// Throws c10::Error, with CUDA's name of the error, for any code but 0.
void check(int code, const char* function);

/// OCL_CUDA(function, ...): calls the driver and checks.
#define OCL_CUDA(function, ...)                                                             \
  ::ocl::distributed::cuda::check(::ocl::distributed::cuda::driver().function(__VA_ARGS__), \
                                  #function)

}  // namespace ocl::distributed::cuda
