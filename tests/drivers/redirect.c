/* Preloaded into a process: what a driver opens below /usr is looked for in $DRIVER_ROOTS first.

   A driver unpacked into a folder knows its compiler's libraries by the paths of an installation.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Folders of libclc, LLVM, PoCL and Mesa. Others, such as Python's, stay the system's. */
static const char* const folders[] = {
    "/usr/lib/clc",
    "/usr/share/clc",
    "/usr/lib/llvm-",
    "/usr/share/pocl",
    "/usr/lib/x86_64-linux-gnu/pocl",
    "/usr/lib/x86_64-linux-gnu/gallium-pipe",
    "/usr/lib/clang",
};

static const char* redirected(const char* path, char* room) {
  const char* root = getenv("DRIVER_ROOTS");
  if (!root || !path) return path;
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    if (strncmp(path, folders[i], strlen(folders[i])) != 0) continue;
    for (size_t size; *root; root += size + (root[size] == ':')) {
      size = strcspn(root, ":");
      snprintf(room, PATH_MAX, "%.*s%s", (int)size, root, path);
      if (faccessat(AT_FDCWD, room, F_OK, 0) == 0) return room;
    }
    return path;
  }
  return path;
}

/* The next function of that name, and the place of a path. */
#define NEXT(name)                                             \
  static __typeof__(name)* next;                               \
  if (!next) next = (__typeof__(next))dlsym(RTLD_NEXT, #name); \
  char room[PATH_MAX]

#define OPEN(name)                                    \
  int name(const char* path, int flags, ...) {        \
    NEXT(name);                                       \
    va_list rest;                                     \
    va_start(rest, flags);                            \
    const int mode = va_arg(rest, int);               \
    va_end(rest);                                     \
    return next(redirected(path, room), flags, mode); \
  }
OPEN(open)
OPEN(open64)

int openat(int folder, const char* path, int flags, ...) {
  NEXT(openat);
  va_list rest;
  va_start(rest, flags);
  const int mode = va_arg(rest, int);
  va_end(rest);
  return next(folder, redirected(path, room), flags, mode);
}

FILE* fopen(const char* path, const char* mode) {
  NEXT(fopen);
  return next(redirected(path, room), mode);
}

FILE* fopen64(const char* path, const char* mode) {
  NEXT(fopen64);
  return next(redirected(path, room), mode);
}

int stat(const char* path, struct stat* found) {
  NEXT(stat);
  return next(redirected(path, room), found);
}

/* The dynamic linker opens files without asking the functions above. */
void* dlopen(const char* path, int flags) {
  NEXT(dlopen);
  return next(redirected(path, room), flags);
}

/* The package's program that counts devices would load the driver with the system's C library. The
   package counts by itself where it can't start. */
int posix_spawn(pid_t* child, const char* path, const posix_spawn_file_actions_t* actions,
                const posix_spawnattr_t* attributes, char* const* arguments,
                char* const* variables) {
  static __typeof__(posix_spawn)* next;
  if (!next) next = (__typeof__(next))dlsym(RTLD_NEXT, "posix_spawn");
  if (strstr(path, "torch_ocl") && strstr(path, "device_count")) return ENOENT;
  return next(child, path, actions, attributes, arguments, variables);
}

int access(const char* path, int mode) {
  NEXT(access);
  return next(redirected(path, room), mode);
}
