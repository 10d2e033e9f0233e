#include "opencl/disk_cache.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "opencl/environment.h"
#include "opencl/log.h"

namespace ocl {
namespace {

namespace fs = std::filesystem;

// The folder's size is looked at when this part of what it may hold has been written.
constexpr uint64_t kLooksPerSize = 8;
constexpr std::chrono::hours kAbandoned{24};

constexpr char kMagic[8] = {'O', 'C', 'L', 'P', 'R', 'O', 'G', '1'};

// The file: this header, the key's text, the payload. The key is stored in full so that a file of
// another device or version that happens to bear the name is told apart.
struct Header {
  char magic[8];
  uint64_t key_bytes;
  uint64_t payload_bytes;
  Digest checksum;  // of key and payload
};

uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t hash(std::string_view text, uint64_t seed) {
  constexpr uint64_t kOdd1 = 0x9e3779b97f4a7c15, kOdd2 = 0xd6e8feb86659fd93;
  uint64_t state = seed ^ mix(text.size() + 1, kOdd1);
  for (; text.size() >= 8; text.remove_prefix(8)) {
    uint64_t word;
    std::memcpy(&word, text.data(), 8);
    // Added, not xored in: a word that equals the state must not wipe out what came before.
    state = mix(state + word, kOdd1) + word * kOdd2;
  }
  uint64_t last = 0;
  std::memcpy(&last, text.data(), text.size());
  return mix(mix(state + last, kOdd1) ^ last, kOdd2 ^ state);
}

std::string home_folder() {
  if (const char* home = std::getenv("HOME"); home && *home) return home;
  const passwd* user = getpwuid(getuid());
  return user == nullptr || user->pw_dir == nullptr ? "" : user->pw_dir;
}

std::string named_folder() {
  const char* enabled = std::getenv("TORCH_OCL_CACHE");
  if (enabled != nullptr && std::strcmp(enabled, "0") == 0) return {};
  if (enabled != nullptr && *enabled != '\0' && std::strcmp(enabled, "1") != 0) {
    warn(std::string("TORCH_OCL_CACHE=") + enabled + ": 0 and 1 are known, kernels are cached");
  }
  if (const char* folder = std::getenv("TORCH_OCL_CACHE_DIR"); folder && *folder) {
    // A shell expands this, a Dockerfile or a service's file does not.
    if (std::strncmp(folder, "~/", 2) == 0) return home_folder() + (folder + 1);
    return folder;
  }
  if (const char* base = std::getenv("XDG_CACHE_HOME"); base && *base)
    return std::string(base) + "/torch_ocl";
  const std::string home = home_folder();
  return home.empty() ? home : home + "/.cache/torch_ocl";
}

/// Why nothing is read from that folder; empty if it may be, or is yet to be made. Binaries are run
/// as they are: as ssh's, the files must be out of others' reach, so that nobody runs code as us.
std::string distrust(const std::string& folder) {
  struct stat status;
  if (stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return {};
  if (status.st_uid != geteuid() && status.st_uid != 0) return "belongs to another user";
  if (status.st_mode & (S_IWGRP | S_IWOTH)) return "can be written by others (chmod go-w mends it)";
  return {};
}

void warn_once(const std::string& text) {
  static std::atomic<bool> warned{false};
  if (!warned.exchange(true)) {
    warn(text +
         "; kernels are built again in every process (TORCH_OCL_CACHE_DIR names another "
         "folder, TORCH_OCL_CACHE=0 turns the cache off)");
  }
}

std::string trusted_folder() {
  const std::string folder = named_folder();
  const std::string reason = distrust(folder);
  if (reason.empty()) return folder;
  warn_once("the program cache " + folder + " is not used: the folder " + reason);
  return {};
}

void warn_damaged(const std::string& path) {
  static std::atomic<bool> warned{false};
  if (!warned.exchange(true)) warn("cache file " + path + " is damaged or foreign: built again");
}

}  // namespace

std::string Digest::hex() const {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(high),
                static_cast<unsigned long long>(low));
  return text;
}

Digest digest(std::string_view text) {
  return {hash(text, 0x243f6a8885a308d3), hash(text, 0x13198a2e03707344)};
}

const std::string& cache_folder() {
  static const std::string folder = trusted_folder();
  return folder;
}

void make_cache_folder() {
  std::error_code failure;
  if (cache_folder().empty() || fs::is_directory(cache_folder(), failure)) return;
  fs::create_directories(fs::path(cache_folder()).parent_path(), failure);
  mkdir(cache_folder().c_str(), 0700);  // see distrust()
}

std::string replace_file(const std::string& path, std::initializer_list<std::string_view> parts) {
  static std::atomic<unsigned> counter{0};
  const std::string temporary =
      path + "." + std::to_string(getpid()) + "." + std::to_string(counter.fetch_add(1)) + ".tmp";
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  for (const std::string_view part : parts) {
    file.write(part.data(), static_cast<std::streamsize>(part.size()));
  }
  file.close();
  if (file && std::rename(temporary.c_str(), path.c_str()) == 0) return {};
  const std::string reason = std::strerror(errno);
  std::remove(temporary.c_str());
  return reason;
}

DiskCache::DiskCache() : folder_(cache_folder()) {
  static const int64_t mebibytes = positive_number("TORCH_OCL_CACHE_SIZE", 1024);
  max_bytes_ = static_cast<uint64_t>(std::min(mebibytes, int64_t{1} << 40)) << 20;
  written_ = max_bytes_;  // the first file written makes it look
}

std::string DiskCache::path_of(const std::string& key) const {
  return folder_ + "/" + digest(key).hex() + ".bin";
}

std::optional<std::string> DiskCache::load(const std::string& key) const {
  if (!enabled()) return std::nullopt;
  std::ifstream file(path_of(key), std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream stream;
  stream << file.rdbuf();
  const std::string text = std::move(stream).str();
  Header header;
  if (text.size() < sizeof header) {
    warn_damaged(path_of(key));
    return std::nullopt;
  }
  std::memcpy(&header, text.data(), sizeof header);
  const std::string_view rest = std::string_view(text).substr(sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.key_bytes != key.size() ||
      header.payload_bytes != rest.size() - std::min(rest.size(), key.size()) ||
      !rest.starts_with(key) || header.checksum != digest(rest)) {
    warn_damaged(path_of(key));
    return std::nullopt;
  }
  // Its time of use, which limit_size() goes by: times of access are often not kept.
  utimensat(AT_FDCWD, path_of(key).c_str(), nullptr, 0);
  return std::string(rest.substr(key.size()));
}

void DiskCache::store(const std::string& key, std::string_view payload) const {
  if (!enabled()) return;
  make_cache_folder();
  std::string content = key;
  content.append(payload);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.key_bytes = key.size();
  header.payload_bytes = payload.size();
  header.checksum = digest(content);

  const std::string_view head(reinterpret_cast<const char*>(&header), sizeof header);
  if (const std::string reason = replace_file(path_of(key), {head, content}); !reason.empty()) {
    warn_once("the program cache in " + folder_ + " can't be written (" + reason + ")");
    return;
  }
  limit_size(sizeof header + content.size());
}

// Several processes may do this at a time: each removes what it finds oldest, and a file that is
// gone or in use elsewhere harms nobody (an open file can still be read; a missing one is built
// again).
void DiskCache::limit_size(uint64_t written) const {
  if (written_.fetch_add(written) + written < max_bytes_ / kLooksPerSize) return;
  written_ = 0;
  struct File {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<File> files;
  uint64_t total = 0;
  std::error_code failure;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator entry(folder_, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    std::error_code vanished;
    const File file{entry->last_write_time(vanished), entry->file_size(vanished), entry->path()};
    if (vanished) continue;
    if (file.path.extension() == ".bin") {
      total += file.bytes;
      files.push_back(file);
    } else if (file.path.extension() == ".tmp" && now - file.used > kAbandoned) {
      fs::remove(file.path, vanished);  // its writer was killed
    }
  }
  if (total <= max_bytes_) return;
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.used < b.used; });
  for (const File& file : files) {
    if (total <= max_bytes_ / 4 * 3) return;  // leaves room, so that the next look has less to do
    fs::remove(file.path, failure);
    total -= file.bytes;
  }
}

}  // namespace ocl
