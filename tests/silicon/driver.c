/* An OpenCL loader with one device that isn't there, for TORCH_OCL_LOADER.

   It answers questions as the file of $SILICON_ANSWERS says, builds every program, and runs none:
   memory reads as zeros. programs.c keeps programs and launches. driver.py builds both and writes
   the answers. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* ---- Answers: a line each, of a question and bytes, both in hexadecimal ---------------------- */

enum { MOST_ANSWERS = 256 };
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

cl_int give(const void* bytes, size_t size, size_t room, void* value, size_t* needed) {
  if (needed) *needed = size;
  if (!value) return CL_SUCCESS;
  if (room < size) return CL_INVALID_VALUE;
  memcpy(value, bytes, size);
  return CL_SUCCESS;
}
static cl_int answer(cl_uint question, size_t room, void* value, size_t* needed) {
  for (int i = 0; i < answer_count; i++) {
    if (answers[i].question != question) continue;
    return give(answers[i].bytes, answers[i].size, room, value, needed);
  }
  return CL_INVALID_VALUE;
}

size_t number(cl_uint question) {
  size_t value = 0;
  answer(question, sizeof value, &value, NULL);
  return value;
}

/* ---- Objects ------------------------------------------------------------------------------- */

static Object the_platform, the_device;
#define PLATFORM ((cl_platform_id) & the_platform)
#define DEVICE ((cl_device_id) & the_device)

Object* make(void* parent) {
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
void* made(Object* object, cl_int* code) {
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

cl_int done(cl_event* event, cl_command_type command, cl_command_queue queue) {
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
