#include "engine/tuner/results.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <map>
#include <mutex>
#include <sstream>
#include <string_view>

#include "engine/tuner/tuner.h"
#include "opencl/disk_cache.h"
#include "opencl/log.h"

#ifndef TORCH_OCL_VERSION
#define TORCH_OCL_VERSION "unknown"
#endif

namespace ocl::tuner {

namespace {

constexpr std::string_view kValidator = "Validator";

using Key = std::pair<std::string, std::string>;  // operation, problem
using Table = std::map<Key, Result>;

/// The results of one device.
struct Known {
  Table table;
  std::string read_from;  // the file that find() has looked at
};

struct Store {
  std::mutex mutex;
  std::map<int, Known> known;  // by the device's index
};

Store& shared_store() {
  static Store store;
  return store;
}

const char* name_of(DeviceClass device_class) {
  switch (device_class) {
    case DeviceClass::gpu:
      return "gpu";
    case DeviceClass::cpu:
      return "cpu";
    default:
      return "accelerator";
  }
}

/// The warning of a process about files that can't be used.
void warn_once(const std::string& path, const std::string& reason) {
  static std::atomic<bool> warned{false};
  if (!warned.exchange(true)) warn("tuning results in " + path + " are ignored: " + reason);
}

/// Where a file lies. The cache's folder is held by its descriptor; -1 where it is not there.
struct Place {
  int folder;
  std::string name;
};

Place place_of(const std::string& path, bool make_folder) {
  const PrivateFolder& cache = cache_folder();
  const size_t slash = path.rfind('/');
  if (cache.path().empty() || slash == std::string::npos || path.substr(0, slash) != cache.path()) {
    return {AT_FDCWD, path};
  }
  return {make_folder ? cache.make() : cache.open(), path.substr(slash + 1)};
}

FileContent read_text(const std::string& path) {
  const Place place = place_of(path, /*make_folder=*/false);
  if (place.folder == -1) return {};
  if (place.folder == AT_FDCWD) {
    if (const std::string reason = distrust_of_place(path); !reason.empty()) {
      return {std::nullopt, "it " + reason};
    }
  }
  return read_private_file(place.folder, place.name);
}

/// At most `count` comma-separated fields, the last with the rest.
std::vector<std::string_view> fields_of(std::string_view line, size_t count) {
  std::vector<std::string_view> fields;
  while (fields.size() + 1 < count) {
    const size_t comma = line.find(',');
    if (comma == std::string_view::npos) break;
    fields.push_back(line.substr(0, comma));
    line.remove_prefix(comma + 1);
  }
  fields.push_back(line);
  return fields;
}

std::optional<Result> parse_result(std::string_view line) {
  const std::vector<std::string_view> fields = fields_of(line, 4);
  if (fields.size() != 4) return std::nullopt;
  Result result{std::string(fields[0]), std::string(fields[1]), std::string(fields[2])};
  const std::string_view time = fields[3];
  const auto [end, error] = std::from_chars(time.begin(), time.end(), result.milliseconds);
  if (error != std::errc() || end != time.end() || fields[0].empty() || fields[2].empty()) {
    return std::nullopt;
  }
  return result;
}

/// Fills the table, or says why not.
std::optional<std::string> parse(const Device& device, std::string_view text, Table& table) {
  std::map<std::string, std::string> found;
  size_t lines = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++lines;
    if (line.starts_with(kValidator) && line.size() > kValidator.size()) {
      const std::vector<std::string_view> fields = fields_of(line, 3);
      if (fields.size() == 3) found.emplace(fields[1], fields[2]);
      continue;
    }
    std::optional<Result> result = parse_result(line);
    // A file that was cut off ends within a line.
    if (!result || end == std::string_view::npos) {
      return "line " + std::to_string(lines) + " is damaged";
    }
    const Key key{result->operation, result->problem};
    table.insert_or_assign(key, std::move(*result));
  }
  if (lines == 0) return "it is empty";
  for (const auto& [name, value] : validators(device)) {
    const auto it = found.find(name);
    if (it == found.end()) return "it does not say for which " + name;
    if (it->second != value) return "it is for " + name + " " + it->second + ", not " + value;
  }
  return std::nullopt;
}

bool read_locked(const Device& device, const std::string& path, Known& known) {
  Table table;
  const FileContent content = read_text(path);
  if (!content.text) {
    if (!content.reason.empty()) warn_once(path, content.reason);
    return false;
  }
  if (const std::optional<std::string> reason = parse(device, *content.text, table)) {
    warn_once(path, *reason);
    return false;
  }
  for (auto& [key, result] : table) known.table.insert_or_assign(key, std::move(result));
  return true;
}

/// Reads the device's file if that was not done yet.
void look_once(const Device& device, const std::string& path, Known& known) {
  if (known.read_from == path) return;
  known.read_from = path;
  read_locked(device, path, known);
}

bool write_locked(const Device& device, const std::string& path, const Known& known) {
  const FileContent before = read_text(path);
  if (!before.reason.empty()) {  // nothing may take the place of a pipe, or of another's file
    warn_once(path, before.reason);
    return false;
  }
  Table table;
  // A file that holds no results of this device is replaced.
  if (before.text && parse(device, *before.text, table)) table.clear();
  for (const auto& [key, result] : known.table) table.insert_or_assign(key, result);
  std::ostringstream text;
  for (const auto& [name, value] : validators(device)) {
    text << kValidator << ',' << name << ',' << value << '\n';
  }
  for (const auto& [key, result] : table) {
    char time[32];
    std::snprintf(time, sizeof time, "%.5g", result.milliseconds);
    text << result.operation << ',' << result.problem << ',' << result.choice << ',' << time
         << '\n';
  }
  const Place place = place_of(path, /*make_folder=*/true);
  const std::string reason = place.folder == -1
                                 ? "its folder can't be made"
                                 : replace_private_file(place.folder, place.name, {text.str()});
  if (reason.empty()) return true;
  static std::atomic<bool> warned{false};
  if (!warned.exchange(true)) {
    warn("tuning results can't be written to " + path + " (" + reason + ")");
  }
  return false;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> validators(const Device& device) {
  const DeviceProperties& properties = device.properties();
  return {{"TORCH_OCL_VERSION", TORCH_OCL_VERSION},
          {"DEVICE_NAME", properties.name},
          {"DEVICE_CLASS", name_of(properties.tuning_class)},
          {"COMPUTE_UNITS", std::to_string(properties.compute_units)},
          {"PLATFORM", properties.platform},
          {"DRIVER_VERSION", properties.driver_version}};
}

std::string filename(const Device& device) {
  const Settings current = settings();
  if (!current.filename.empty()) {
    if (!current.insert_index) return current.filename;
    // The extension of the path's last part; a dot at its start begins no extension.
    const size_t slash = current.filename.find_last_of('/') + 1;  // npos + 1 is 0
    const size_t dot = current.filename.find_last_of('.');
    const bool extension = dot != std::string::npos && dot > slash;
    std::string name = current.filename;
    return name.insert(extension ? dot : name.size(), std::to_string(device.index()));
  }
  if (cache_folder().path().empty()) return {};
  std::string key;
  for (const auto& [name, value] : validators(device)) key += name + "=" + value + "\n";
  return cache_folder().path() + "/tuned_" + digest(key).hex() + ".csv";
}

std::optional<std::string> find(const Device& device, const std::string& operation,
                                const std::string& problem) {
  const std::string path = filename(device);
  Store& store = shared_store();
  std::lock_guard<std::mutex> lock(store.mutex);
  Known& known = store.known[device.index()];
  look_once(device, path, known);
  const auto it = known.table.find({operation, problem});
  if (it == known.table.end()) return std::nullopt;
  return it->second.choice;
}

void store(const Device& device, const Result& result) {
  const std::string path = filename(device);
  Store& store = shared_store();
  std::lock_guard<std::mutex> lock(store.mutex);
  Known& known = store.known[device.index()];
  known.table.insert_or_assign({result.operation, result.problem}, result);
  if (!path.empty()) write_locked(device, path, known);
}

std::vector<Result> results(const Device& device) {
  const std::string path = filename(device);
  Store& store = shared_store();
  std::lock_guard<std::mutex> lock(store.mutex);
  Known& known = store.known[device.index()];
  look_once(device, path, known);
  std::vector<Result> list;
  for (const auto& [key, result] : known.table) list.push_back(result);
  return list;
}

bool read_file(const Device& device, const std::string& path) {
  bool read = false;
  {
    Store& store = shared_store();
    std::lock_guard<std::mutex> lock(store.mutex);
    read = read_locked(device, path, store.known[device.index()]);
  }
  if (read) forget_choices();
  return read;
}

bool write_file(const Device& device, const std::string& path) {
  Store& store = shared_store();
  std::lock_guard<std::mutex> lock(store.mutex);
  return write_locked(device, path, store.known[device.index()]);
}

}  // namespace ocl::tuner
