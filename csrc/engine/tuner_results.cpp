#include "engine/tuner_results.h"

#include <atomic>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string_view>

#include "engine/tuner.h"
#include "opencl/disk_cache.h"
#include "opencl/log.h"

#ifndef TORCH_OCL_VERSION
#define TORCH_OCL_VERSION "unknown"
#endif

namespace ocl::tuning {

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

/// Whether there is something else than a file: reading a pipe or a device may never end, and
/// nothing may take its place.
bool is_no_file(const std::string& path) {
  std::error_code failure;
  const auto status = std::filesystem::status(path, failure);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
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

/// Fills the table, or says why not; a missing file is "".
std::optional<std::string> parse_file(const Device& device, const std::string& path, Table& table) {
  if (is_no_file(path)) return "it is no regular file";
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  std::map<std::string, std::string> found;
  size_t lines = 0;
  for (std::string line; std::getline(file, line);) {
    ++lines;
    if (line.starts_with(kValidator) && line.size() > kValidator.size()) {
      const std::vector<std::string_view> fields = fields_of(line, 3);
      if (fields.size() == 3) found.emplace(fields[1], fields[2]);
      continue;
    }
    std::optional<Result> result = parse_result(line);
    // A file that was cut off ends within a line.
    if (!result || file.eof()) return "line " + std::to_string(lines) + " is damaged";
    const Key key{result->operation, result->problem};
    table.insert_or_assign(key, std::move(*result));
  }
  if (file.bad() || lines == 0) return "it can't be read, or is empty";
  for (const auto& [name, value] : validators(device)) {
    const auto it = found.find(name);
    if (it == found.end()) return "it does not say for which " + name;
    if (it->second != value) return "it is for " + name + " " + it->second + ", not " + value;
  }
  return std::nullopt;
}

bool read_locked(const Device& device, const std::string& path, Known& known) {
  Table table;
  if (const std::optional<std::string> reason = parse_file(device, path, table)) {
    if (!reason->empty()) warn_once(path, *reason);
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
  if (is_no_file(path)) {
    warn_once(path, "it is no regular file");
    return false;
  }
  Table table;
  // Whatever is not a file of results of this device is replaced.
  if (parse_file(device, path, table)) table.clear();
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
  if (!cache_folder().empty() && path.starts_with(cache_folder())) make_cache_folder();
  const std::string reason = replace_file(path, {text.str()});
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
    // Of the last part of the path; a dot at its start begins no extension.
    const size_t slash = current.filename.find_last_of('/') + 1;  // npos + 1 is 0
    const size_t dot = current.filename.find_last_of('.');
    const bool extension = dot != std::string::npos && dot > slash;
    std::string name = current.filename;
    return name.insert(extension ? dot : name.size(), std::to_string(device.index()));
  }
  if (cache_folder().empty()) return {};
  std::string key;
  for (const auto& [name, value] : validators(device)) key += name + "=" + value + "\n";
  return cache_folder() + "/tuned_" + digest(key).hex() + ".csv";
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

}  // namespace ocl::tuning
