/* An OpenCL loader whose calls fail when a test says so; all others are the real loader's, which
   this library is linked against.

   fault(name, mode, code, skip, count): of the next calls of that function, `skip` are left alone,
   then `count` fail with `code`: FAIL does nothing, FAIL_AFTER makes the call first. */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { FAIL, FAIL_AFTER };

static struct Fault {
  const char* name;
  int mode, code, skip, count;
} armed;

__attribute__((visibility("default"))) void fault(const char* name, int mode, int code, int skip,
                                                  int count) {
  armed = (struct Fault){strdup(name), mode, code, skip, count};
}

/* FAULT=name:code:count arms one before the process can call fault(). */
__attribute__((constructor)) static void from_environment(void) {
  const char* text = getenv("FAULT");
  if (text == NULL) return;
  char* name = strdup(text);
  char* code = strchr(name, ':');
  char* count = strchr(code + 1, ':');
  *code = *count = 0;
  fault(name, FAIL, atoi(code + 1), 0, atoi(count + 1));
}

static int strikes(const char* name) {
  if (armed.name == NULL || armed.count == 0 || strcmp(armed.name, name) != 0) return 0;
  if (armed.skip > 0) return armed.skip--, 0;
  armed.count--;
  return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRAP(name, parameters, ...)                              \
  cl_int name parameters {                                       \
    static __typeof__(&name) real;                               \
    if (real == NULL) real = REAL(name);                         \
    if (!strikes(#name)) return real(__VA_ARGS__);               \
    if (armed.mode == FAIL_AFTER) real(__VA_ARGS__);             \
    return armed.code;                                           \
  }

WRAP(clFlush, (cl_command_queue q), q)
WRAP(clFinish, (cl_command_queue q), q)
WRAP(clBuildProgram,
     (cl_program p, cl_uint n, const cl_device_id* d, const char* o,
      void(CL_CALLBACK* f)(cl_program, void*), void* u),
     p, n, d, o, f, u)
WRAP(clEnqueueMarkerWithWaitList,
     (cl_command_queue q, cl_uint n, const cl_event* w, cl_event* e), q, n, w, e)
WRAP(clGetEventInfo, (cl_event e, cl_event_info i, size_t n, void* v, size_t* r), e, i, n, v, r)
WRAP(clSetEventCallback,
     (cl_event e, cl_int s, void(CL_CALLBACK* f)(cl_event, cl_int, void*), void* d), e, s, f, d)
WRAP(clSetMemObjectDestructorCallback,
     (cl_mem m, void(CL_CALLBACK* f)(cl_mem, void*), void* d), m, f, d)
WRAP(clEnqueueReadBuffer,
     (cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t n, void* p, cl_uint c,
      const cl_event* w, cl_event* e),
     q, m, b, o, n, p, c, w, e)

/* With FAULT_LOCAL_ARGUMENTS a kernel of a fixed work-group size can't have a local argument, and
   all launches of another must have local arguments of the same size together. */
enum { KERNELS = 256, ARGUMENTS = 64 };
static struct {
  cl_kernel kernel;
  size_t sizes[ARGUMENTS], first;
} locals[KERNELS];

static int place_of(cl_kernel kernel) {
  int at = 0;
  while (locals[at].kernel != NULL && locals[at].kernel != kernel) at++;
  locals[at].kernel = kernel;
  return at;
}

static int is_of_fixed_groups(cl_kernel kernel) {
  size_t sizes[3] = {0, 0, 0};
  cl_context context;
  cl_device_id device;
  REAL(clGetKernelInfo)(kernel, CL_KERNEL_CONTEXT, sizeof context, &context, NULL);
  REAL(clGetContextInfo)(context, CL_CONTEXT_DEVICES, sizeof device, &device, NULL);
  REAL(clGetKernelWorkGroupInfo)
  (kernel, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof sizes, sizes, NULL);
  return sizes[0] != 0;
}

cl_int clSetKernelArg(cl_kernel k, cl_uint i, size_t n, const void* v) {
  if (strikes("clSetKernelArg")) {
    if (armed.mode == FAIL_AFTER) REAL(clSetKernelArg)(k, i, n, v);
    return armed.code;
  }
  const int local = v == NULL && n != sizeof(cl_mem); /* others are buffers that aren't there */
  if (getenv("FAULT_LOCAL_ARGUMENTS")) {
    if (local && is_of_fixed_groups(k)) return CL_OUT_OF_RESOURCES;
    locals[place_of(k)].sizes[i] = local ? n : 0;
  }
  return REAL(clSetKernelArg)(k, i, n, v);
}

cl_int clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint d, const size_t* o,
                              const size_t* g, const size_t* l, cl_uint c, const cl_event* w,
                              cl_event* e) {
  if (getenv("FAULT_LOCAL_ARGUMENTS")) {
    const int at = place_of(k);
    size_t total = 0;
    for (int i = 0; i < ARGUMENTS; i++) total += locals[at].sizes[i];
    if (locals[at].first == 0) locals[at].first = total;
    if (locals[at].first != total) return CL_OUT_OF_RESOURCES;
  }
  return REAL(clEnqueueNDRangeKernel)(q, k, d, o, g, l, c, w, e);
}

/* The answers of a platform and its devices, where the environment names it. */
static cl_int answer(const char* text, size_t size, void* value, size_t* needed) {
  const size_t length = strlen(text) + 1;
  if (needed != NULL) *needed = length;
  if (value != NULL) memcpy(value, text, size < length ? size : length);
  return CL_SUCCESS;
}

cl_int clGetPlatformInfo(cl_platform_id p, cl_platform_info what, size_t n, void* v, size_t* r) {
  const char* name = getenv("FAULT_PLATFORM_NAME");
  if (what == CL_PLATFORM_NAME && name != NULL) return answer(name, n, v, r);
  return REAL(clGetPlatformInfo)(p, what, n, v, r);
}

cl_int clGetDeviceInfo(cl_device_id d, cl_device_info what, size_t n, void* v, size_t* r) {
  const char* version = getenv("FAULT_DRIVER_VERSION");
  const char* units = getenv("FAULT_COMPUTE_UNITS");
  const char* name = getenv("FAULT_DEVICE_NAME");
  if (what == CL_DEVICE_NAME && name != NULL) return answer(name, n, v, r);
  if (what == CL_DRIVER_VERSION && version != NULL) return answer(version, n, v, r);
  if (what == CL_DEVICE_MAX_COMPUTE_UNITS && units != NULL) {
    *(cl_uint*)v = (cl_uint)atoi(units);
    return CL_SUCCESS;
  }
  return REAL(clGetDeviceInfo)(d, what, n, v, r);
}

cl_int clGetDeviceIDs(cl_platform_id p, cl_device_type t, cl_uint n, cl_device_id* d, cl_uint* c) {
  if (getenv("FAULT_NO_DEVICES") != NULL) return CL_DEVICE_NOT_FOUND;
  if (strikes("clGetDeviceIDs")) return armed.code;
  return REAL(clGetDeviceIDs)(p, t, n, d, c);
}
