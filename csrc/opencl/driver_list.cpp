#include "opencl/driver_list.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ranges>
#include <string_view>

#include "opencl/api.h"
#include "opencl/environment.h"
#include "opencl/log.h"

namespace ocl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFiles = "OCL_ICD_FILENAMES";
constexpr const char* kFolder = "OCL_ICD_VENDORS";
constexpr const char* kUsualFolder = "/etc/OpenCL/vendors";

/// Names without a folder are for dlopen to find.
bool may_exist(const std::string& driver) {
  return driver.find('/') == std::string::npos || access(driver.c_str(), R_OK) == 0;
}

/// Those of OCL_ICD_FILENAMES, then ours that exist, each once.
std::vector<std::string> all_of(const std::vector<std::string>& drivers) {
  std::vector<std::string> all;
  const char* named = std::getenv(kFiles);
  for (const std::string_view entry : split_list(named == nullptr ? "" : named, ':')) {
    all.emplace_back(entry);
  }
  for (const std::string& driver : drivers) {
    if (may_exist(driver) && std::ranges::find(all, driver) == all.end()) all.push_back(driver);
  }
  return all;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ":") + part;
  return text;
}

}  // namespace

DriverList::DriverList(const std::vector<std::string>& drivers) {
  // NVIDIA's loader takes a folder only with a slash at its end.
  const char* chosen = std::getenv(kFolder);
  std::error_code failure;
  if (chosen != nullptr && fs::is_directory(chosen, failure)) set(kFolder, fs::path(chosen) / "");
  const std::vector<std::string> all = all_of(drivers);
  if (all.empty()) return;
  if (api().reads_icd_filenames) {
    set(kFiles, joined(all));
  } else {
    make_folder(all);
  }
}

DriverList::~DriverList() {
  for (const Saved& saved : std::views::reverse(saved_)) {
    if (saved.value) {
      setenv(saved.name, saved.value->c_str(), 1);
    } else {
      unsetenv(saved.name);
    }
  }
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

void DriverList::set(const char* name, const std::string& value) {
  const char* before = std::getenv(name);
  saved_.push_back({name, before == nullptr ? std::nullopt : std::optional<std::string>(before)});
  setenv(name, value.c_str(), 1);
}

void DriverList::make_folder(const std::vector<std::string>& drivers) {
  std::error_code failure;
  std::string name = (fs::temp_directory_path(failure) / "torch_ocl_drivers_XXXXXX").string();
  if (failure || mkdtemp(name.data()) == nullptr) {
    warn(
        "drivers outside /etc/OpenCL/vendors can't be named to the ICD loader, for no temporary "
        "folder can be made (TMPDIR)");
    return;
  }
  folder_ = name;
  const char* chosen = std::getenv(kFolder);
  const fs::path system = chosen != nullptr && *chosen != '\0' ? chosen : kUsualFolder;
  const auto add = [&](const fs::path& icd) {
    fs::create_symlink(fs::absolute(icd, failure), fs::path(folder_) / icd.filename(), failure);
  };
  if (fs::is_directory(system, failure)) {
    for (fs::directory_iterator entry(system, failure), end; !failure && entry != end;
         entry.increment(failure)) {
      if (entry->path().extension() == ".icd") add(entry->path());
    }
  } else if (system.extension() == ".icd" && fs::exists(system, failure)) {
    add(system);
  }
  // Ahead of the system's, as OCL_ICD_FILENAMES is for other loaders.
  for (size_t i = 0; i < drivers.size(); ++i) {
    std::ofstream(folder_ + "/00_torch_ocl_" + std::to_string(i) + ".icd") << drivers[i] << '\n';
  }
  set(kFolder, folder_);
}

}  // namespace ocl
