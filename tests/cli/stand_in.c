/* An OpenCL loader whose devices are not what they were, for TORCH_OCL_LOADER. $STAND_IN says what:
   "no_compiler" leaves the compiler out, "broken_compiler" makes it fail, "one_gpu" makes the devices
   of all drivers one GPU in one place, "no_devices" lists none. All else is the real loader's. */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { PCI_BUS_INFO = 0x410F };

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is(const char* what) {
  const char* said = getenv("STAND_IN");
  return said && strcmp(said, what) == 0;
}

static cl_int give(const void* bytes, size_t size, size_t room, void* value, size_t* needed) {
  if (needed) *needed = size;
  if (!value) return CL_SUCCESS;
  if (room < size) return CL_INVALID_VALUE;
  memcpy(value, bytes, size);
  return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clGetDeviceInfo(cl_device_id device, cl_device_info what,
                                                size_t room, void* value, size_t* needed) {
  if (what == CL_DEVICE_COMPILER_AVAILABLE && is("no_compiler")) {
    const cl_bool available = CL_FALSE;
    return give(&available, sizeof available, room, value, needed);
  }
  if (what == CL_DEVICE_TYPE && is("one_gpu")) {
    const cl_device_type type = CL_DEVICE_TYPE_GPU;
    return give(&type, sizeof type, room, value, needed);
  }
  if (what == PCI_BUS_INFO && is("one_gpu")) {
    const cl_uint place[4] = {0, 3, 0, 0};
    return give(place, sizeof place, room, value, needed);
  }
  return REAL(clGetDeviceInfo)(device, what, room, value, needed);
}

CL_API_ENTRY cl_int CL_API_CALL clGetDeviceIDs(cl_platform_id platform, cl_device_type type,
                                               cl_uint room, cl_device_id* ids, cl_uint* count) {
  if (is("no_devices")) return CL_DEVICE_NOT_FOUND;
  return REAL(clGetDeviceIDs)(platform, type, room, ids, count);
}

CL_API_ENTRY cl_int CL_API_CALL clBuildProgram(cl_program program, cl_uint count,
                                               const cl_device_id* ids, const char* options,
                                               void(CL_CALLBACK* done)(cl_program, void*),
                                               void* data) {
  if (is("broken_compiler")) return CL_COMPILER_NOT_AVAILABLE;
  return REAL(clBuildProgram)(program, count, ids, options, done, data);
}
