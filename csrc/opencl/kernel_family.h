// From a kernel file and compile parameters to a kernel of this thread.
//
//   static const KernelFamily rows{"reduce/rows.cl", "reduce_rows"};
//   Kernel& kernel = rows.get(device, {{"T", "float"}, {"WIDTH", 8}});
//
// A warm get() hashes the parameters and looks in a table of the calling thread: no lock, no
// string, no allocation.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>

namespace ocl {

class Device;
class Kernel;

/// A compile parameter, passed to the build as -DNAME=value. Text must be a string literal (or live
/// for ever): it is compared by address on the warm path. No white space in it: drivers split
/// options there.
struct Define {
  Define() = default;
  Define(const char* name, const char* text) : name(name), text(text) {}
  template <class Integer, class = std::enable_if_t<std::is_integral_v<Integer>>>
  Define(const char* name, Integer value) : name(name), number(static_cast<int64_t>(value)) {}
  const char* name = nullptr;
  const char* text = nullptr;
  int64_t number = 0;
};

/// One kernel function of one file. Objects are static and live for ever.
class KernelFamily {
 public:
  /// `file` below kernels/, `name` the kernel function; both literals.
  KernelFamily(const char* file, const char* name);
  /// The kernel with these compile parameters for this thread; builds or loads on first use.
  /// Parameters must come in the same order in every call.
  Kernel& get(Device& device, std::span<const Define> defines) const;
  Kernel& get(Device& device, std::initializer_list<Define> defines) const {
    return get(device, std::span<const Define>(defines.begin(), defines.size()));
  }
  const char* file() const { return file_; }
  const char* name() const { return name_; }

 private:
  const char* file_;
  const char* name_;
  uint32_t id_;
};

}  // namespace ocl
