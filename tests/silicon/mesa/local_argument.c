/* Mesa's zink has no memory for local arguments of a kernel with a fixed work-group size, and other
   kernels keep the amount that their first launch had.

   Both kernels reverse numbers through local memory, and differ in reqd_work_group_size alone. They
   run with 64 numbers, and with 4096. Expected: all four lines say "right". Mesa 26.2.6 says
   "wrong" for `fixed`, and for `free` with 4096. 25.0.7 over lavapipe writes past the end of what
   it allocated: it says "right", or dies of a damaged heap.

     cc local_argument.c -lOpenCL -o local_argument
     RUSTICL_ENABLE=llvmpipe GALLIUM_DRIVER=zink LIBGL_ALWAYS_SOFTWARE=true ./local_argument

   The specialisation constant ZINK_VARIABLE_SHARED_MEM has the size. In src/gallium/drivers/zink:
   - create_compute_program() lets a program with a fixed size be compiled ahead (can_precompile),
     also if has_variable_shared_mem is set. That pipeline has no constant, and launches take it.
   - zink_compute_pipeline_state has variable_shared_mem behind `hash`, so it is no part of the key
     that pipelines are found by. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <stdio.h>
#include <string.h>

static const char* source =
    "#define PARAMETERS (global int* out, local int* shared, const uint n)\n"
    "#define BODY {"
    "  for (uint i = get_local_id(0); i < n; i += 64) shared[i] = i;"
    "  barrier(CLK_LOCAL_MEM_FENCE);"
    "  for (uint i = get_local_id(0); i < n; i += 64) out[i] = shared[n - 1 - i]; }\n"
    "kernel void free PARAMETERS BODY\n"
    "kernel __attribute__((reqd_work_group_size(64, 1, 1))) void fixed PARAMETERS BODY\n";

int main(void) {
  enum { MOST = 8, MOST_NUMBERS = 4096 };
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
  const cl_uint counts[] = {64, MOST_NUMBERS};
  int wrong = 0;
  for (int k = 0; k < 2; k++) {
    cl_kernel kernel = clCreateKernel(program, names[k], NULL);
    for (int c = 0; c < 2; c++) {
      static int out[MOST_NUMBERS];
      const cl_uint n = counts[c];
      const size_t items = 64, bytes = n * sizeof(int);
      memset(out, 0, sizeof out);
      cl_mem buffer = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, bytes, out, NULL);
      clSetKernelArg(kernel, 0, sizeof buffer, &buffer);
      clSetKernelArg(kernel, 1, bytes, NULL);
      clSetKernelArg(kernel, 2, sizeof n, &n);
      clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, &items, 0, NULL, NULL);
      clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, bytes, out, 0, NULL, NULL);
      cl_uint bad = 0;
      for (cl_uint i = 0; i < n; i++) bad += out[i] != (int)(n - 1 - i);
      printf("%s, %u numbers: %s, %u of them\n", names[k], n, bad ? "wrong" : "right",
             bad ? bad : n);
      wrong |= bad != 0;
    }
  }
  return wrong;
}
