#include "opencl/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "opencl/environment.h"
#include "opencl/log.h"

namespace ocl {
namespace {

// The folder's size is looked at when this part of what it may hold has been written.
constexpr uint64_t kLooksPerSize = 8;
constexpr time_t kAbandonedSeconds = 24 * 3600;

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

void warn_once(const std::string& text) {
  static std::atomic<bool> warned{false};
  if (!warned.exchange(true)) {
    warn(text +
         "; kernels are built again in every process (TORCH_OCL_CACHE_DIR names another "
         "folder, TORCH_OCL_CACHE=0 turns the cache off)");
  }
}

std::string file_of(const std::string& key) { return digest(key).hex() + ".bin"; }

void warn_of_file(const std::string& path, const std::string& reason) {
  static std::atomic<bool> warned{false};
  if (!warned.exchange(true))
    warn("cache file " + path + " is not used, and built again: " + reason);
}

/// The payload, if `text` is an intact file of that key.
std::optional<std::string_view> payload_of(std::string_view text, const std::string& key) {
  Header header;
  if (text.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, text.data(), sizeof header);
  const std::string_view rest = text.substr(sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.key_bytes != key.size() ||
      header.payload_bytes != rest.size() - std::min(rest.size(), key.size()) ||
      !rest.starts_with(key) || header.checksum != digest(rest)) {
    return std::nullopt;
  }
  return rest.substr(key.size());
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

const PrivateFolder& cache_folder() {
  static const PrivateFolder* const folder = [] {
    auto* made = new PrivateFolder(named_folder());  // programs are stored while the process ends
    made->open();
    const std::string reason = made->reason();
    if (reason.empty()) return made;
    warn_once("the program cache " + made->path() + " is not used: the folder " + reason);
    delete made;
    return new PrivateFolder("");
  }();
  return *folder;
}

DiskCache::DiskCache() : folder_(cache_folder()) {
  static const int64_t mebibytes = positive_number("TORCH_OCL_CACHE_SIZE", 1024);
  max_bytes_ = static_cast<uint64_t>(std::min(mebibytes, int64_t{1} << 40)) << 20;
  written_ = max_bytes_;  // the first file written makes it look
}

std::optional<std::string> DiskCache::load(const std::string& key) const {
  const int folder = folder_.open();
  if (folder < 0) return std::nullopt;
  const std::string name = file_of(key), path = folder_.path() + "/" + name;
  const FileContent content = read_private_file(folder, name);
  if (!content.text) {
    if (!content.reason.empty()) warn_of_file(path, content.reason);
    return std::nullopt;
  }
  const std::optional<std::string_view> payload = payload_of(*content.text, key);
  if (!payload) {
    warn_of_file(path, "it is damaged or foreign");
    return std::nullopt;
  }
  // Its time of use, which limit_size() goes by: times of access are often not kept.
  utimensat(folder, name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return std::string(*payload);
}

bool DiskCache::empty() const {
  const int folder = enabled() ? folder_.open() : -1;
  if (folder < 0) return true;
  const int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(own < 0 ? nullptr : fdopendir(own), &closedir);
  if (!listing) return true;
  while (const dirent* entry = readdir(listing.get())) {
    if (std::string_view(entry->d_name).ends_with(".bin")) return false;
  }
  return true;
}

bool DiskCache::store(const std::string& key, std::string_view payload) const {
  if (!enabled()) return false;
  std::string content = key;
  content.append(payload);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.key_bytes = key.size();
  header.payload_bytes = payload.size();
  header.checksum = digest(content);

  const std::string_view head(reinterpret_cast<const char*>(&header), sizeof header);
  const int folder = folder_.make();
  const std::string reason = folder >= 0
                                 ? replace_private_file(folder, file_of(key), {head, content})
                             : folder_.reason().empty() ? "the folder can't be made"
                                                        : "the folder " + folder_.reason();
  if (!reason.empty()) {
    warn_once("the program cache in " + folder_.path() + " can't be written (" + reason + ")");
    return false;
  }
  limit_size(folder, sizeof header + content.size());
  return true;
}

// Several processes may do this at a time: each removes what it finds oldest, and a file that is
// gone or in use elsewhere harms nobody (an open file can still be read; a missing one is built
// again).
void DiskCache::limit_size(int folder, uint64_t written) const {
  if (written_.fetch_add(written) + written < max_bytes_ / kLooksPerSize) return;
  written_ = 0;
  struct File {
    timespec used;
    uint64_t bytes;
    std::string name;
  };
  std::vector<File> files;
  uint64_t total = 0;
  const int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(own < 0 ? nullptr : fdopendir(own), &closedir);
  if (!listing) return;
  while (const dirent* entry = readdir(listing.get())) {
    struct stat status;
    const std::string name = entry->d_name;
    if (fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (name.ends_with(".bin")) {
      total += static_cast<uint64_t>(status.st_size);
      files.push_back({status.st_mtim, static_cast<uint64_t>(status.st_size), name});
    } else if (name.ends_with(".tmp") && std::time(nullptr) - status.st_mtime > kAbandonedSeconds) {
      unlinkat(folder, name.c_str(), 0);  // its writer was killed
    }
  }
  if (total <= max_bytes_) return;
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  for (const File& file : files) {
    if (total <= max_bytes_ / 4 * 3) return;  // leaves room, so that the next look has less to do
    unlinkat(folder, file.name.c_str(), 0);
    total -= file.bytes;
  }
}

}  // namespace ocl
