// Names drivers to the ICD loader that it would not find by itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ocl {

/// For as long as it lives, loaders find `drivers` beside those of the system: files, or names as
/// for dlopen; files that don't exist are left out. Loaders read the environment at their first
/// call, which belongs into its life. Afterwards the environment is as before: child processes are
/// not to inherit it, and NVIDIA's loader overwrites the colons in it.
///
/// Loaders of the Khronos group's kind read OCL_ICD_FILENAMES. ocl-icd, the one of Debian and its
/// kin, ignores it: it gets a folder of its own that names the system's drivers, those of
/// OCL_ICD_FILENAMES and ours.
class DriverList {
 public:
  explicit DriverList(const std::vector<std::string>& drivers);
  ~DriverList();
  DriverList(const DriverList&) = delete;
  DriverList& operator=(const DriverList&) = delete;

 private:
  void set(const char* name, const std::string& value);
  void make_folder(const std::vector<std::string>& drivers);

  struct Saved {
    const char* name;
    std::optional<std::string> value;
  };
  std::vector<Saved> saved_;
  std::string folder_;
};

}  // namespace ocl
