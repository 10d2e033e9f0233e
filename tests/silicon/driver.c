/* An OpenCL loader with one device that isn't there, for TORCH_OCL_LOADER.

   It answers questions as the file of $SILICON_ANSWERS says, builds every program, and runs none:
   memory reads as zeros. Programs go to $SILICON_CAPTURED, as <hash>.cl and <hash>.opt. Each launch
   that differs from those before becomes a line of launches.<process>: hash, kernel, three local
   sizes (0: the driver's choice), bytes of local arguments, three global sizes. driver.py builds it
   and writes the answers. */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define WAITS cl_uint waits, const cl_event *wait_list, cl_event *event

/* ---- Answers: a line each, of a question and bytes, both in hexadecimal ---------------------- */

enum { MOST_ANSWERS = 256, MOST_ARGUMENTS = 64 };
static struct {
  cl_uint question;
  size_t size;
  unsigned char* bytes;
} answers[MOST_ANSWERS];
static int answer_count;

__attribute__((constructor)) static void read_answers(void) {
  const char* path = getenv("SILICON_ANSWERS");
  FILE* file = path ? fopen(path, "r") : NULL;
  char* line = NULL;
  size_t room = 0;
  while (file && answer_count < MOST_ANSWERS && getline(&line, &room, file) > 0) {
    char* text;
    answers[answer_count].question = (cl_uint)strtoul(line, &text, 16);
    text += strspn(text, " ");
    const size_t size = strcspn(text, "\n") / 2;
    unsigned char* bytes = malloc(size + 1);
    for (size_t i = 0; i < size; i++) sscanf(text + 2 * i, "%2hhx", &bytes[i]);
    answers[answer_count].size = size;
    answers[answer_count++].bytes = bytes;
  }
  free(line);
  if (file) fclose(file);
}

static cl_int give(const void* bytes, size_t size, size_t room, void* value, size_t* needed) {
  if (needed) *needed = size;
  if (!value) return CL_SUCCESS;
  if (room < size) return CL_INVALID_VALUE;
  memcpy(value, bytes, size);
  return CL_SUCCESS;
}
#define GIVE(type, what)                                    \
  do {                                                      \
    const type given = (type)(what);                        \
    return give(&given, sizeof given, room, value, needed); \
  } while (0)

static cl_int answer(cl_uint question, size_t room, void* value, size_t* needed) {
  for (int i = 0; i < answer_count; i++) {
    if (answers[i].question != question) continue;
    return give(answers[i].bytes, answers[i].size, room, value, needed);
  }
  return CL_INVALID_VALUE;
}

static size_t number(cl_uint question) {
  size_t value = 0;
  answer(question, sizeof value, &value, NULL);
  return value;
}

/* ---- Objects: one struct serves for all --------------------------------------------------- */

typedef struct Object {
  long references;
  struct Object* parent; /* a context, a program, the buffer of a part */
  /* Buffers */
  char* memory;
  size_t size;
  int owns;
  cl_ulong flags; /* or properties of a queue */
  void(CL_CALLBACK* gone)(cl_mem, void*);
  void* gone_data;
  /* Programs */
  char *source, *options;
  uint64_t hash;
  int binary;
  /* Kernels */
  char name[128];
  size_t local_arguments[MOST_ARGUMENTS];
  /* Events */
  cl_command_type command;
  cl_ulong time;
  cl_int status;
} Object;

static Object the_platform, the_device;
#define PLATFORM ((cl_platform_id) & the_platform)
#define DEVICE ((cl_device_id) & the_device)
#define OBJECT(handle) ((Object*)(handle))

static Object* make(void* parent) {
  Object* object = calloc(1, sizeof *object);
  object->references = 1;
  object->parent = parent;
  return object;
}
static cl_int retain(void* handle) {
  __sync_fetch_and_add(&OBJECT(handle)->references, 1);
  return CL_SUCCESS;
}
static int released(void* handle) {
  return __sync_sub_and_fetch(&OBJECT(handle)->references, 1) == 0;
}
static void* made(Object* object, cl_int* code) {
  if (code) *code = object ? CL_SUCCESS : CL_MEM_OBJECT_ALLOCATION_FAILURE;
  return object;
}

/* ---- Platform, device, context, queue ------------------------------------------------------ */

API cl_int clGetPlatformIDs(cl_uint room, cl_platform_id* ids, cl_uint* count) {
  if (count) *count = 1;
  if (ids && room) *ids = PLATFORM;
  return CL_SUCCESS;
}
API cl_int clGetPlatformInfo(cl_platform_id id, cl_platform_info what, size_t room, void* value,
                             size_t* needed) {
  return answer(what, room, value, needed);
}
API cl_int clGetDeviceIDs(cl_platform_id id, cl_device_type type, cl_uint room, cl_device_id* ids,
                          cl_uint* count) {
  if (count) *count = 1;
  if (ids && room) *ids = DEVICE;
  return CL_SUCCESS;
}
API cl_int clGetDeviceInfo(cl_device_id id, cl_device_info what, size_t room, void* value,
                           size_t* needed) {
  if (what == CL_DEVICE_PLATFORM) GIVE(cl_platform_id, PLATFORM);
  return answer(what, room, value, needed);
}
API cl_context clCreateContext(const cl_context_properties* properties, cl_uint count,
                               const cl_device_id* ids,
                               void(CL_CALLBACK* notify)(const char*, const void*, size_t, void*),
                               void* data, cl_int* code) {
  return made(make(NULL), code);
}
API cl_int clReleaseContext(cl_context context) { return CL_SUCCESS; }
API cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id id,
                                          cl_command_queue_properties properties, cl_int* code) {
  Object* queue = make(context);
  queue->flags = properties;
  return made(queue, code);
}
API cl_command_queue clCreateCommandQueueWithProperties(cl_context context, cl_device_id id,
                                                        const cl_queue_properties* properties,
                                                        cl_int* code) {
  const int given = properties && properties[0] == CL_QUEUE_PROPERTIES;
  return clCreateCommandQueue(context, id, given ? properties[1] : 0, code);
}
API cl_int clRetainCommandQueue(cl_command_queue queue) { return CL_SUCCESS; }
API cl_int clReleaseCommandQueue(cl_command_queue queue) { return CL_SUCCESS; }
API cl_int clGetCommandQueueInfo(cl_command_queue queue, cl_command_queue_info what, size_t room,
                                 void* value, size_t* needed) {
  switch (what) {
    case CL_QUEUE_CONTEXT:
      GIVE(cl_context, OBJECT(queue)->parent);
    case CL_QUEUE_DEVICE:
      GIVE(cl_device_id, DEVICE);
    case CL_QUEUE_PROPERTIES:
      GIVE(cl_ulong, OBJECT(queue)->flags);
  }
  return CL_INVALID_VALUE;
}
API cl_int clFlush(cl_command_queue queue) { return CL_SUCCESS; }
API cl_int clFinish(cl_command_queue queue) { return CL_SUCCESS; }
API void* clGetExtensionFunctionAddressForPlatform(cl_platform_id id, const char* name) {
  return NULL;
}

/* ---- Events: all is over at once ------------------------------------------------------------ */

static cl_int done(cl_event* event, cl_command_type command, cl_command_queue queue) {
  if (!event) return CL_SUCCESS;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  Object* made_event = make(queue);
  made_event->command = command;
  made_event->time = now.tv_sec * 1000000000ull + now.tv_nsec;
  *event = (cl_event)made_event;
  return CL_SUCCESS;
}
API cl_int clGetEventInfo(cl_event event, cl_event_info what, size_t room, void* value,
                          size_t* needed) {
  switch (what) {
    case CL_EVENT_COMMAND_EXECUTION_STATUS:
      GIVE(cl_int, OBJECT(event)->status);
    case CL_EVENT_COMMAND_TYPE:
      GIVE(cl_command_type, OBJECT(event)->command);
    case CL_EVENT_COMMAND_QUEUE:
      GIVE(cl_command_queue, OBJECT(event)->parent);
  }
  return CL_INVALID_VALUE;
}
API cl_int clGetEventProfilingInfo(cl_event event, cl_profiling_info what, size_t room, void* value,
                                   size_t* needed) {
  GIVE(cl_ulong, OBJECT(event)->time + (what == CL_PROFILING_COMMAND_END ? 1000 : 0));
}
API cl_int clSetEventCallback(cl_event event, cl_int status,
                              void(CL_CALLBACK* call)(cl_event, cl_int, void*), void* data) {
  call(event, CL_COMPLETE, data);
  return CL_SUCCESS;
}
API cl_event clCreateUserEvent(cl_context context, cl_int* code) {
  Object* event = make(NULL);
  event->command = CL_COMMAND_USER;
  event->status = CL_SUBMITTED;
  return made(event, code);
}
API cl_int clSetUserEventStatus(cl_event event, cl_int status) {
  OBJECT(event)->status = status;
  return CL_SUCCESS;
}
API cl_int clWaitForEvents(cl_uint count, const cl_event* events) { return CL_SUCCESS; }
API cl_int clRetainEvent(cl_event event) { return retain(event); }
API cl_int clReleaseEvent(cl_event event) {
  if (released(event)) free(event);
  return CL_SUCCESS;
}
API cl_int clEnqueueMarkerWithWaitList(cl_command_queue queue, WAITS) {
  return done(event, CL_COMMAND_MARKER, queue);
}
API cl_int clEnqueueBarrierWithWaitList(cl_command_queue queue, WAITS) {
  return done(event, CL_COMMAND_BARRIER, queue);
}

/* ---- Memory: pages that are zeros until the host writes them ----------------------------------
 */

API cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void* host,
                          cl_int* code) {
  if (size > number(CL_DEVICE_MAX_MEM_ALLOC_SIZE)) return made(NULL, code);
  Object* buffer = make(context);
  buffer->size = size;
  buffer->flags = flags;
  buffer->memory = host;
  if (!(flags & CL_MEM_USE_HOST_PTR)) {
    buffer->memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (buffer->memory == MAP_FAILED) return made(NULL, code);
    buffer->owns = 1;
    if (flags & CL_MEM_COPY_HOST_PTR) memcpy(buffer->memory, host, size);
  }
  return made(buffer, code);
}
API cl_mem clCreateSubBuffer(cl_mem whole, cl_mem_flags flags, cl_buffer_create_type type,
                             const void* info, cl_int* code) {
  const cl_buffer_region* region = info;
  Object* part = make(whole);
  part->size = region->size;
  part->memory = OBJECT(whole)->memory + region->origin;
  return made(part, code);
}
API cl_int clGetMemObjectInfo(cl_mem buffer, cl_mem_info what, size_t room, void* value,
                              size_t* needed) {
  switch (what) {
    case CL_MEM_SIZE:
      GIVE(size_t, OBJECT(buffer)->size);
    case CL_MEM_FLAGS:
      GIVE(cl_ulong, OBJECT(buffer)->flags);
    case CL_MEM_TYPE:
      GIVE(cl_uint, CL_MEM_OBJECT_BUFFER);
    case CL_MEM_CONTEXT:
      GIVE(cl_context, OBJECT(buffer)->parent);
    case CL_MEM_REFERENCE_COUNT:
      GIVE(cl_uint, OBJECT(buffer)->references);
    case CL_MEM_ASSOCIATED_MEMOBJECT:
    case CL_MEM_OFFSET:
    case CL_MEM_HOST_PTR:
      GIVE(size_t, 0);
  }
  return CL_INVALID_VALUE;
}
API cl_int clRetainMemObject(cl_mem buffer) { return retain(buffer); }
API cl_int clReleaseMemObject(cl_mem buffer) {
  if (!released(buffer)) return CL_SUCCESS;
  Object* object = OBJECT(buffer);
  if (object->gone) object->gone(buffer, object->gone_data);
  if (object->owns) munmap(object->memory, object->size);
  free(object);
  return CL_SUCCESS;
}
API cl_int clSetMemObjectDestructorCallback(cl_mem buffer, void(CL_CALLBACK* call)(cl_mem, void*),
                                            void* data) {
  OBJECT(buffer)->gone = call;
  OBJECT(buffer)->gone_data = data;
  return CL_SUCCESS;
}
API cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                               size_t offset, size_t size, void* to, WAITS) {
  memset(to, 0, size);
  return done(event, CL_COMMAND_READ_BUFFER, queue);
}
API cl_int clEnqueueReadBufferRect(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                   const size_t* buffer_origin, const size_t* host_origin,
                                   const size_t* region, size_t buffer_row, size_t buffer_slice,
                                   size_t host_row, size_t host_slice, void* to, WAITS) {
  if (!host_row) host_row = region[0];
  if (!host_slice) host_slice = host_row * region[1];
  char* start =
      (char*)to + host_origin[0] + host_origin[1] * host_row + host_origin[2] * host_slice;
  for (size_t z = 0; z < region[2]; z++) {
    for (size_t y = 0; y < region[1]; y++)
      memset(start + y * host_row + z * host_slice, 0, region[0]);
  }
  return done(event, CL_COMMAND_READ_BUFFER_RECT, queue);
}
/* Writes are lost. Zeros are harmless as sizes, indices and flags, which what was left
   there would not be: the kernels that come between do nothing. */
API cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                size_t offset, size_t size, const void* from, WAITS) {
  return done(event, CL_COMMAND_WRITE_BUFFER, queue);
}
API cl_int clEnqueueWriteBufferRect(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                    const size_t* buffer_origin, const size_t* host_origin,
                                    const size_t* region, size_t buffer_row, size_t buffer_slice,
                                    size_t host_row, size_t host_slice, const void* from, WAITS) {
  return done(event, CL_COMMAND_WRITE_BUFFER_RECT, queue);
}
API cl_int clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset,
                               size_t to_offset, size_t size, WAITS) {
  return done(event, CL_COMMAND_COPY_BUFFER, queue);
}
API cl_int clEnqueueFillBuffer(cl_command_queue queue, cl_mem buffer, const void* pattern,
                               size_t pattern_size, size_t offset, size_t size, WAITS) {
  return done(event, CL_COMMAND_FILL_BUFFER, queue);
}
API void* clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                             cl_map_flags flags, size_t offset, size_t size, WAITS, cl_int* code) {
  if (code) *code = CL_SUCCESS;
  done(event, CL_COMMAND_MAP_BUFFER, queue);
  return OBJECT(buffer)->memory + offset;
}
API cl_int clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem buffer, void* at, WAITS) {
  return done(event, CL_COMMAND_UNMAP_MEM_OBJECT, queue);
}
API cl_int clEnqueueMigrateMemObjects(cl_command_queue queue, cl_uint count, const cl_mem* buffers,
                                      cl_mem_migration_flags flags, WAITS) {
  return done(event, CL_COMMAND_MIGRATE_MEM_OBJECTS, queue);
}

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
