/* Mesa's zink gives a kernel of a fixed work-group size no local memory for its arguments.

   Both kernels reverse 64 numbers through local memory, and differ in reqd_work_group_size alone.
   Expected: both print "right". Mesa 26.2.6 prints "wrong: 0 ..." for `fixed`. 25.0.7 over lavapipe
   writes past the end of what it allocated: it prints "right", or dies of a damaged heap.

     cc local_argument.c -lOpenCL -o local_argument
     RUSTICL_ENABLE=llvmpipe GALLIUM_DRIVER=zink LIBGL_ALWAYS_SOFTWARE=true ./local_argument

   src/gallium/drivers/zink/zink_program.c: create_compute_program() lets a program with a fixed
   size be compiled ahead (can_precompile), also if has_variable_shared_mem is set. The pipeline
   made then has no specialisation constant for the size of shared memory, so it is 0, and later
   launches take that pipeline. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <stdio.h>
#include <string.h>

static const char* source =
    "#define BODY { uint i = get_local_id(0); shared[i] = i; barrier(CLK_LOCAL_MEM_FENCE);"
    "               out[i] = shared[63 - i]; }\n"
    "kernel void free(global int* out, local int* shared) BODY\n"
    "kernel __attribute__((reqd_work_group_size(64, 1, 1)))\n"
    "void fixed(global int* out, local int* shared) BODY\n";

int main(void) {
  enum { MOST = 8, ITEMS = 64 };
  cl_platform_id platforms[MOST];
  cl_uint count = 0;
  cl_device_id device = NULL;
  clGetPlatformIDs(MOST, platforms, &count);
  for (cl_uint i = 0; i < count && device == NULL; i++) {
    char name[64] = "";
    clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof name, name, NULL);
    if (strcmp(name, "rusticl") == 0) {
      clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &device, NULL);
    }
  }
  if (device == NULL) return puts("no device of rusticl"), 2;
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
  cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, NULL, NULL);
  cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, NULL);
  if (clBuildProgram(program, 1, &device, "-cl-std=CL3.0", NULL, NULL) != CL_SUCCESS) return 3;
  const char* names[] = {"free", "fixed"};
  int wrong = 0;
  for (int k = 0; k < 2; k++) {
    int out[ITEMS];
    const size_t size = ITEMS;
    memset(out, 0, sizeof out);
    cl_mem buffer = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof out, out, NULL);
    cl_kernel kernel = clCreateKernel(program, names[k], NULL);
    clSetKernelArg(kernel, 0, sizeof buffer, &buffer);
    clSetKernelArg(kernel, 1, sizeof out, NULL);
    clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &size, &size, 0, NULL, NULL);
    clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof out, out, 0, NULL, NULL);
    int right = 1;
    for (int i = 0; i < ITEMS; i++) right &= out[i] == ITEMS - 1 - i;
    printf("%s: %s", names[k], right ? "right\n" : "wrong:");
    for (int i = 0; i < ITEMS && !right; i++) printf(" %d%s", out[i], i == ITEMS - 1 ? "\n" : "");
    wrong |= !right;
  }
  return wrong;
}
