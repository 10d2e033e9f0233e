/* Programs, kernels and launches of a device that isn't there: they are kept, and run nowhere.

   Programs go to $SILICON_CAPTURED, as <hash>.cl and <hash>.opt. Each launch that differs from
   those before becomes a line of launches.<process>: hash, kernel, three local sizes (0: the
   driver's choice), bytes of local arguments, three global sizes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

/* ---- Programs: kept in files, named by a hash of options and text ---------------------------- */

static uint64_t hash_of(uint64_t hash, const char* bytes, size_t size) { /* FNV-1a */
  for (size_t i = 0; i < size; i++) hash = (hash ^ (unsigned char)bytes[i]) * 1099511628211ull;
  return hash;
}
static const uint64_t kFirstHash = 14695981039346656037ull;

static void keep(uint64_t hash, const char* suffix, const char* bytes, size_t size) {
  const char* folder = getenv("SILICON_CAPTURED");
  char path[4096], part[4096];
  if (!folder) return;
  snprintf(path, sizeof path, "%s/%016llx.%s", folder, (unsigned long long)hash, suffix);
  if (access(path, F_OK) == 0) return;
  /* Whole or not at all: other processes capture the same programs. */
  snprintf(part, sizeof part, "%.3900s.%d", path, getpid());
  FILE* file = fopen(part, "w");
  if (!file) return;
  fwrite(bytes, 1, size, file);
  fclose(file);
  rename(part, path);
}

API cl_program clCreateProgramWithSource(cl_context context, cl_uint count, const char** texts,
                                         const size_t* sizes, cl_int* code) {
  Object* program = make(context);
  for (cl_uint i = 0; i < count; i++) {
    const size_t size = sizes && sizes[i] ? sizes[i] : strlen(texts[i]);
    program->source = realloc(program->source, program->size + size + 1);
    memcpy(program->source + program->size, texts[i], size);
    program->size += size;
  }
  return made(program, code);
}
API cl_program clCreateProgramWithBinary(cl_context context, cl_uint count, const cl_device_id* ids,
                                         const size_t* sizes, const unsigned char** binaries,
                                         cl_int* status, cl_int* code) {
  const char* text = (const char*)binaries[0];
  if (status) *status = CL_SUCCESS;
  Object* program = OBJECT(clCreateProgramWithSource(context, 1, &text, sizes, code));
  program->binary = 1;
  return (cl_program)program;
}
API cl_int clBuildProgram(cl_program handle, cl_uint count, const cl_device_id* ids,
                          const char* options, void(CL_CALLBACK* notify)(cl_program, void*),
                          void* data) {
  Object* program = OBJECT(handle);
  if (!options) options = "";
  program->options = strdup(options);
  program->hash =
      hash_of(hash_of(kFirstHash, options, strlen(options) + 1), program->source, program->size);
  if (!program->binary) {
    keep(program->hash, "opt", options, strlen(options));
    keep(program->hash, "cl", program->source, program->size);
  }
  if (notify) notify(handle, data);
  return CL_SUCCESS;
}
API cl_int clGetProgramInfo(cl_program program, cl_program_info what, size_t room, void* value,
                            size_t* needed) {
  switch (what) {
    case CL_PROGRAM_NUM_DEVICES:
      GIVE(cl_uint, 1);
    case CL_PROGRAM_BINARY_SIZES:
      GIVE(size_t, OBJECT(program)->size);
    case CL_PROGRAM_BINARIES:
      if (value) memcpy(*(unsigned char**)value, OBJECT(program)->source, OBJECT(program)->size);
      return CL_SUCCESS;
  }
  return CL_INVALID_VALUE;
}
API cl_int clGetProgramBuildInfo(cl_program program, cl_device_id id, cl_program_build_info what,
                                 size_t room, void* value, size_t* needed) {
  if (what == CL_PROGRAM_BUILD_STATUS) GIVE(cl_int, CL_SUCCESS);
  const char* text = what == CL_PROGRAM_BUILD_OPTIONS ? OBJECT(program)->options : "";
  return give(text, strlen(text) + 1, room, value, needed);
}
API cl_int clReleaseProgram(cl_program program) { return CL_SUCCESS; } /* kernels name it */

/* ---- Kernels -------------------------------------------------------------------------------- */

API cl_kernel clCreateKernel(cl_program program, const char* name, cl_int* code) {
  Object* kernel = make(program);
  snprintf(kernel->name, sizeof kernel->name, "%s", name);
  return made(kernel, code);
}
API cl_kernel clCloneKernel(cl_kernel from, cl_int* code) {
  Object* kernel = make(NULL);
  *kernel = *OBJECT(from);
  kernel->references = 1;
  return made(kernel, code);
}
API cl_int clReleaseKernel(cl_kernel kernel) { return CL_SUCCESS; }
API cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size, const void* value) {
  /* A buffer that isn't there has the size of a handle. */
  const int local = value == NULL && size != sizeof(cl_mem);
  if (index < MOST_ARGUMENTS) OBJECT(kernel)->local_arguments[index] = local ? size : 0;
  return CL_SUCCESS;
}
API cl_int clGetKernelInfo(cl_kernel kernel, cl_kernel_info what, size_t room, void* value,
                           size_t* needed) {
  switch (what) {
    case CL_KERNEL_FUNCTION_NAME:
      return give(OBJECT(kernel)->name, strlen(OBJECT(kernel)->name) + 1, room, value, needed);
    case CL_KERNEL_PROGRAM:
      GIVE(cl_program, OBJECT(kernel)->parent);
    case CL_KERNEL_NUM_ARGS:
      GIVE(cl_uint, 0);
  }
  return CL_INVALID_VALUE;
}
API cl_int clGetKernelArgInfo(cl_kernel kernel, cl_uint index, cl_kernel_arg_info what, size_t room,
                              void* value, size_t* needed) {
  return CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
}
API cl_int clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id id,
                                    cl_kernel_work_group_info what, size_t room, void* value,
                                    size_t* needed) {
  const size_t none[3] = {0, 0, 0};
  switch (what) {
    case CL_KERNEL_WORK_GROUP_SIZE:
      GIVE(size_t, number(CL_DEVICE_MAX_WORK_GROUP_SIZE));
    case CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE:
      GIVE(size_t, number(CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE));
    case CL_KERNEL_LOCAL_MEM_SIZE:
    case CL_KERNEL_PRIVATE_MEM_SIZE:
      GIVE(cl_ulong, 0);
    case CL_KERNEL_COMPILE_WORK_GROUP_SIZE:
      return give(none, sizeof none, room, value, needed);
  }
  return CL_INVALID_VALUE;
}
API cl_int clGetKernelSubGroupInfo(cl_kernel kernel, cl_device_id id, cl_kernel_sub_group_info what,
                                   size_t input_size, const void* input, size_t room, void* value,
                                   size_t* needed) {
  GIVE(size_t, number(CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE));
}

/* Notes a launch unless one like it was noted: a table of hashes, with the next place for the next.
 */
static void note(const char* line, int size) {
  enum { PLACES = 1 << 18, STEPS = 64 };
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static uint64_t noted[PLACES];
  static FILE* file;
  const uint64_t hash = hash_of(kFirstHash, line, size) | 1;
  pthread_mutex_lock(&lock);
  size_t at = hash >> 46;
  for (int step = 0; noted[at] && noted[at] != hash && step < STEPS; step++) at = (at + 1) % PLACES;
  if (noted[at] != hash) {
    noted[at] = hash;
    if (!file && getenv("SILICON_CAPTURED")) {
      char path[4096];
      snprintf(path, sizeof path, "%s/launches.%d", getenv("SILICON_CAPTURED"), getpid());
      file = fopen(path, "a");
    }
    if (file) fprintf(file, "%s\n", line), fflush(file);
  }
  pthread_mutex_unlock(&lock);
}

API cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel handle, cl_uint dims,
                                  const size_t* offset, const size_t* global, const size_t* local,
                                  WAITS) {
  const Object* kernel = OBJECT(handle);
  size_t locals[3] = {0, 0, 0}, globals[3] = {1, 1, 1}, items = 1, local_memory = 0;
  for (cl_uint i = 0; i < dims; i++) {
    globals[i] = global[i];
    if (!local) continue;
    if (local[i] == 0 || global[i] % local[i] != 0) return CL_INVALID_WORK_GROUP_SIZE;
    locals[i] = local[i];
    items *= local[i];
  }
  if (local && items > number(CL_DEVICE_MAX_WORK_GROUP_SIZE)) return CL_INVALID_WORK_GROUP_SIZE;
  for (int i = 0; i < MOST_ARGUMENTS; i++) local_memory += kernel->local_arguments[i];
  if (local_memory > number(CL_DEVICE_LOCAL_MEM_SIZE)) return CL_OUT_OF_RESOURCES;
  char line[512];
  const int size = snprintf(line, sizeof line, "%016llx %s %zu %zu %zu %zu %zu %zu %zu",
                            (unsigned long long)kernel->parent->hash, kernel->name, locals[0],
                            locals[1], locals[2], local_memory, globals[0], globals[1], globals[2]);
  note(line, size);
  return done(event, CL_COMMAND_NDRANGE_KERNEL, queue);
}
