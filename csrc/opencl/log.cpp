#include "opencl/log.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "opencl/environment.h"

namespace ocl {
namespace {

uint32_t topic_bit(std::string_view name) {
  if (name == "build") return static_cast<uint32_t>(Verbose::build);
  if (name == "launch") return static_cast<uint32_t>(Verbose::launch);
  if (name == "dispatch") return static_cast<uint32_t>(Verbose::dispatch);
  if (name == "memory") return static_cast<uint32_t>(Verbose::memory);
  if (name == "tune") return static_cast<uint32_t>(Verbose::tune);
  if (name == "integrations") return 32;  // the Python package's own
  if (name == "all") return ~uint32_t{0};
  return 0;
}

}  // namespace

uint32_t verbose_topics() {
  const char* text = std::getenv("TORCH_OCL_VERBOSE");
  if (text == nullptr) return 0;
  uint32_t topics = 0;
  for (const std::string_view name : split_list(text)) {
    const uint32_t bit = topic_bit(name);
    if (bit == 0 && name != "0") {
      warn("TORCH_OCL_VERBOSE: no topic \"" + std::string(name) +
           "\" (there are build, launch, dispatch, memory, tune, integrations, all)");
    }
    topics |= bit;
  }
  return topics;
}

// One fprintf per line: stderr is locked per call, so lines of several threads don't mix.
void trace(const std::string& line) { std::fprintf(stderr, "torch_ocl: %s\n", line.c_str()); }
void warn(const std::string& line) {
  std::fprintf(stderr, "torch_ocl: warning: %s\n", line.c_str());
}

}  // namespace ocl
