#include "opencl/api.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>

namespace ocl {
namespace {

struct Configuration {
  std::vector<std::string> loaders, drivers;
};

// Never destroyed: api() may be called while the process exits.
Configuration& configuration() {
  static auto* instance = new Configuration;
  return *instance;
}

// The loader in Intel's wheel is linked against Intel's compiler runtime, which lies beside it, but
// has no run path: dlopen of the loader alone fails with "libimf.so: cannot open shared object".
void open_neighbours(const std::string& loader) {
  const size_t slash = loader.rfind('/');
  if (slash == std::string::npos) return;
  const std::string folder = loader.substr(0, slash + 1);
  for (const char* name : {"libintlc.so.5", "libimf.so", "libirng.so", "libsvml.so"}) {
    const std::string path = folder + name;
    if (access(path.c_str(), R_OK) == 0) dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
}

template <class Function>
bool resolve(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

/// Whether the file of the library that a function belongs to holds that word. True if that can't
/// be told.
template <class Function>
bool mentions(Function function, const std::string& word) {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(function), &info) == 0) return true;
  std::ifstream file(info.dli_fname, std::ios::binary);
  if (!file) return true;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return text.find(word) != std::string::npos;
}

/// Fills in the table from one loader; the reason if that fails, empty otherwise.
std::string open_loader(const std::string& path, Api& api) {
  api = Api{};
  open_neighbours(path);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return reason == nullptr ? path + ": dlopen failed" : reason;
  }
#define OCL_RESOLVE(name) \
  if (!resolve(library, #name, api.name)) return path + ": has no " #name " (OpenCL 1.2)";
  OCL_REQUIRED_FUNCTIONS(OCL_RESOLVE)
#undef OCL_RESOLVE
#define OCL_RESOLVE(name) resolve(library, #name, api.name);
  OCL_OPTIONAL_FUNCTIONS(OCL_RESOLVE)
#undef OCL_RESOLVE
  api.loader_path = path;
  api.reads_icd_filenames = mentions(api.clGetPlatformIDs, "OCL_ICD_FILENAMES");
  return {};
}

void open_api(Api& api) {
  std::vector<std::string> candidates;
  const char* forced = std::getenv("TORCH_OCL_LOADER");
  if (forced != nullptr && *forced != '\0') {
    candidates = {forced};
  } else {
    candidates = configuration().loaders;
    candidates.insert(candidates.end(), {"libOpenCL.so.1", "libOpenCL.so"});
  }
  std::string reasons;
  for (const std::string& path : candidates) {
    // A configured file that does not exist is no news: the package names all places it knows.
    if (forced == nullptr && path.find('/') != std::string::npos && access(path.c_str(), F_OK) != 0)
      continue;
    const std::string reason = open_loader(path, api);
    if (reason.empty()) return;
    reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  api = Api{};
  api.unavailable = "OpenCL is not available: no ICD loader (libOpenCL.so.1) could be opened (" +
                    reasons + "). " + install_advice();
}

}  // namespace

void configure_loader(std::vector<std::string> loaders, std::vector<std::string> drivers) {
  configuration() = {std::move(loaders), std::move(drivers)};
}

const std::vector<std::string>& configured_drivers() { return configuration().drivers; }

const char* install_advice() {
  return "Install your GPU vendor's OpenCL driver, or a CPU runtime: `pip install intel-opencl-rt "
         "nvidia-cuda-opencl` (no root needed) or `apt install pocl-opencl-icd`.";
}

const Api& detail::load_api() {
  static const Api* const table = [] {
    auto* opened = new Api;  // never destroyed, see configuration()
    try {
      open_api(*opened);
    } catch (...) {
      opened->unavailable = "OpenCL is not available: out of memory while opening the ICD loader.";
    }
    return opened;
  }();
  opened_api.store(table, std::memory_order_release);
  return *table;
}

}  // namespace ocl
