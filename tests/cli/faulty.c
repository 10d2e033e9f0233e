/* An OpenCL loader some of whose kernels fail, for TORCH_OCL_LOADER: $FAULTY_KERNELS lists them as
   name=wrong, name=crash or name=hang, separated by commas. All calls but one are the real loader's,
   which this library is linked to. */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef cl_int(CL_API_CALL* Enqueue)(cl_command_queue, cl_kernel, cl_uint, const size_t*,
                                     const size_t*, const size_t*, cl_uint, const cl_event*,
                                     cl_event*);

/* The fault that the list names for a kernel: 'w', 'c', 'h', or 0. */
static char fault_of(cl_kernel kernel) {
  char name[256], wanted[260];
  const char* list = getenv("FAULTY_KERNELS");
  if (!list || clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL)) return 0;
  strcat(strcpy(wanted, name), "=");
  for (const char* at = list; (at = strstr(at, wanted)); at++) {
    if (at == list || at[-1] == ',') return at[strlen(wanted)];
  }
  return 0;
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueNDRangeKernel(
    cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t* offset,
    const size_t* global, const size_t* local, cl_uint waits, const cl_event* wait_list,
    cl_event* event) {
  switch (fault_of(kernel)) {
    case 'w': /* it writes nothing, as with local memory of size 0 */
      return clEnqueueMarkerWithWaitList(queue, waits, wait_list, event);
    case 'c':
      abort();
    case 'h':
      for (;;) pause();
  }
  const Enqueue real = (Enqueue)dlsym(RTLD_NEXT, "clEnqueueNDRangeKernel");
  return real(queue, kernel, dimensions, offset, global, local, waits, wait_list, event);
}
