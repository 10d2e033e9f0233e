// Errors of generated kernels that a driver refuses.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>

namespace ocl::aoti {

inline std::runtime_error refused(const char* name, const char* origin,
                                  const std::exception& error) {
  return std::runtime_error("the driver refuses the generated kernel " + std::string(name) +
                            ", which computes\n" + origin +
                            "\nCompiled with TORCH_OCL_INDUCTOR_FALLBACK=1, these ops run "
                            "eagerly.\n" +
                            error.what());
}

}  // namespace ocl::aoti
