// The backend's lines on stderr: warnings, and traces asked for by TORCH_OCL_VERBOSE.
#pragma once

#include <cstdint>
#include <string>

namespace ocl {

/// Topics of TORCH_OCL_VERBOSE, a comma-separated list of their names ("all" for every one).
enum class Verbose : uint32_t { build = 1, launch = 2, dispatch = 4, memory = 8, tune = 16 };

/// The topics asked for; the environment is read once.
uint32_t verbose_topics();

inline bool verbose(Verbose topic) {
  static const uint32_t topics = verbose_topics();
  return (topics & static_cast<uint32_t>(topic)) != 0;
}

/// One line on stderr, prefixed "torch_ocl: ".
void trace(const std::string& line);
/// One line on stderr, prefixed "torch_ocl: warning: ".
void warn(const std::string& line);

}  // namespace ocl
