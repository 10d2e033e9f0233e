/* The parts of the driver of devices that aren't there share this: an answer to a question, and an
   object behind a handle. */
#ifndef DRIVER_H
#define DRIVER_H
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))
#define WAITS cl_uint waits, const cl_event *wait_list, cl_event *event

enum { MOST_ARGUMENTS = 64 };

/* Returns so many bytes as OpenCL's functions of information do. */
cl_int give(const void* bytes, size_t size, size_t room, void* value, size_t* needed);
#define GIVE(type, what)                                    \
  do {                                                      \
    const type given = (type)(what);                        \
    return give(&given, sizeof given, room, value, needed); \
  } while (0)

/* The number that $SILICON_ANSWERS has for a question about the device. */
size_t number(cl_uint question);

/* One struct serves for all objects. */
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

#define OBJECT(handle) ((Object*)(handle))

Object* make(void* parent);
/* A new object as a function that creates returns it. */
void* made(Object* object, cl_int* code);
/* The event of a command, which is over at once. */
cl_int done(cl_event* event, cl_command_type command, cl_command_queue queue);

#endif
