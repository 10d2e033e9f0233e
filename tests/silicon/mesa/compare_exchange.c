/* Mesa's zink gives OpAtomicCompareExchange floats for operands, where what is compared or written
   is the result of an operation on floats, or a constant that the kernel also has as a float.

   The kernel sums floats by compare-and-swap. Expected: "right". Mesa 26.2.6 over NVIDIA's Vulkan
   (580.159) says "NVVM compilation failed: 1" and "vkCreateComputePipelines failed", and dies of a
   null pipeline. lavapipe takes the program, and says "right".

     cc compare_exchange.c -lOpenCL -o compare_exchange
     RUSTICL_ENABLE=llvmpipe GALLIUM_DRIVER=zink ZINK_DEBUG=spirv ./compare_exchange
     for dump in dump*.spv; do spirv-val --target-env vulkan1.3 --scalar-block-layout $dump; done

   spirv-val: "AtomicCompareExchange: expected Value to be of type Result Type". In
   src/gallium/drivers/zink/nir_to_spirv the operands of nir_intrinsic_global_atomic_swap are taken as
   they are: a value of a float's type needs a bitcast to the type of the result. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <stdio.h>
#include <string.h>

static const char* source =
    "kernel void sum(global const float* x, global uint* out) {"
    "  const float value = x[get_global_id(0)];"
    "  uint seen = *out;"
    "  for (;;) {"
    "    const uint found = atomic_cmpxchg(out, seen, as_uint(as_float(seen) + value));"
    "    if (found == seen) return;"
    "    seen = found;"
    "  }"
    "}\n";

int main(void) {
  enum { MOST = 8, NUMBERS = 256 };
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
  cl_kernel kernel = clCreateKernel(program, "sum", NULL);
  static float numbers[NUMBERS];
  float sum = 0;
  for (int i = 0; i < NUMBERS; i++) numbers[i] = 1;
  cl_mem x = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof numbers, numbers, NULL);
  cl_mem out = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof sum, &sum, NULL);
  clSetKernelArg(kernel, 0, sizeof x, &x);
  clSetKernelArg(kernel, 1, sizeof out, &out);
  const size_t items = NUMBERS;
  clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL);
  clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof sum, &sum, 0, NULL, NULL);
  puts(sum == NUMBERS ? "right" : "wrong");
  return sum != NUMBERS;
}
