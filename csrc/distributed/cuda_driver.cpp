#include "distributed/cuda_driver.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <string>

namespace ocl::distributed::cuda {
namespace {

struct Opened {
  Driver driver;
  std::string missing;
};

Opened open_driver() {
  Opened opened;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    opened.missing = reason == nullptr ? "libcuda.so.1: dlopen failed" : reason;
    return opened;
  }
#define OCL_CUDA_RESOLVE(name, symbol, parameters)                                        \
  opened.driver.name = reinterpret_cast<decltype(Driver::name)>(dlsym(library, #symbol)); \
  if (opened.driver.name == nullptr && opened.missing.empty())                            \
    opened.missing = "CUDA's driver has no " #symbol;
  OCL_CUDA_FUNCTIONS(OCL_CUDA_RESOLVE)
#undef OCL_CUDA_RESOLVE
  if (!opened.missing.empty()) return opened;
  if (const int code = opened.driver.init(0); code != 0) {
    opened.missing = "cuInit failed with " + std::to_string(code);
  }
  return opened;
}

const char* symbol_of(const std::string& function) {
#define OCL_CUDA_NAME(name, symbol, parameters) \
  if (function == #name) return #symbol;
  OCL_CUDA_FUNCTIONS(OCL_CUDA_NAME)
#undef OCL_CUDA_NAME
  return "CUDA";
}

}  // namespace

const Driver& driver() {
  static const Opened opened = open_driver();
  TORCH_CHECK(opened.missing.empty(),
              "NCCL for ocl tensors needs NVIDIA's driver: ", opened.missing);
  return opened.driver;
}

void check(int code, const char* function) {
  if (code == 0) return;
  const char* name = nullptr;
  driver().error_name(code, &name);
  TORCH_CHECK(false, symbol_of(function), " failed: ", name == nullptr ? "?" : name, " (", code,
              "), for memory that NCCL shares with ocl");
}

}  // namespace ocl::distributed::cuda
