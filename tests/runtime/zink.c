/* A loader with local arguments as Mesa's zink has them: a kernel of a fixed work-group size can't
   have one, and all launches of another must have as much local memory together. All else is the
   loader's that this library is linked to. */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <dlfcn.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

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
  const int local = v == NULL && n != sizeof(cl_mem); /* others are buffers that aren't there */
  if (local && is_of_fixed_groups(k)) return CL_OUT_OF_RESOURCES;
  locals[place_of(k)].sizes[i] = local ? n : 0;
  return REAL(clSetKernelArg)(k, i, n, v);
}

cl_int clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint d, const size_t* o,
                              const size_t* g, const size_t* l, cl_uint c, const cl_event* w,
                              cl_event* e) {
  const int at = place_of(k);
  size_t total = 0;
  for (int i = 0; i < ARGUMENTS; i++) total += locals[at].sizes[i];
  if (locals[at].first == 0) locals[at].first = total;
  if (locals[at].first != total) return CL_OUT_OF_RESOURCES;
  return REAL(clEnqueueNDRangeKernel)(q, k, d, o, g, l, c, w, e);
}
