#include "opencl/amx.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace ocl {

bool processor_has_amx() {
#if defined(__x86_64__)
  // Leaf 7 of CPUID: AMX-BF16, AMX-TILE, AMX-INT8.
  constexpr unsigned kBits = 1u << 22 | 1u << 24 | 1u << 25;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kBits) == kBits;
#else
  return false;
#endif
}

bool system_allows_amx() {
#if defined(__x86_64__) && defined(__linux__) && defined(SYS_arch_prctl)
  // Linux's Documentation/arch/x86/xstate.rst. Leave given once holds for all threads.
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace ocl
