#include "opencl/retarget.h"

#include <stdexcept>

namespace ocl {

std::string value_of_define(std::string_view options, std::string_view name) {
  const std::string define = "-D" + std::string(name) + "=";
  const size_t at = options.find(define);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = options.substr(at + define.size());
  return std::string(rest.substr(0, rest.find(' ')));
}

std::string retarget_ptx(std::string ptx, std::string_view target) {
  constexpr std::string_view kDirective = ".target ", kMark = "//@target ";
  const size_t at = ptx.find(kDirective);
  if (at == std::string::npos) {
    throw std::runtime_error("the driver's binary is not PTX: no .target directive");
  }

  const size_t from = at + kDirective.size();
  ptx.replace(from, ptx.find_first_of(",\n", from) - from, target);
  for (size_t mark = ptx.find(kMark); mark != std::string::npos; mark = ptx.find(kMark, mark)) {
    ptx.erase(mark, kMark.size());
  }
  return ptx;
}

std::string resize_local_array(std::string ptx, std::string_view bytes) {
  constexpr std::string_view kShared =
      ".shared ";  // as a declaration has it: ld.shared.f32 has no space
  const size_t at = ptx.find(kShared);
  const size_t open = at == std::string::npos ? at : ptx.find_first_of("[;", at);
  if (open == std::string::npos || ptx[open] != '[' ||
      ptx.find(kShared, open) != std::string::npos) {
    throw std::runtime_error("the driver's PTX has not one array in local memory");
  }
  const size_t close = ptx.find(']', open);
  if (close == std::string::npos) throw std::runtime_error("the driver's PTX has an odd array");
  ptx.replace(open + 1, close - open - 1, bytes);
  return ptx;
}

}  // namespace ocl
