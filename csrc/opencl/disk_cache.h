// Program binaries on disk: one file per key, safe against torn, corrupt and foreign files.
//
// Offers: DiskCache, Digest, digest(), cache_folder(), make_cache_folder(), replace_file().
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace ocl {

/// 128 bits of a text; names files and finds damage, no protection against attack.
struct Digest {
  uint64_t high, low;
  std::string hex() const;
  friend bool operator==(const Digest&, const Digest&) = default;
};
Digest digest(std::string_view text);

/// TORCH_OCL_CACHE_DIR, else $XDG_CACHE_HOME/torch_ocl, else ~/.cache/torch_ocl; empty with
/// TORCH_OCL_CACHE=0, where no folder can be named and, with a warning, where the folder belongs to
/// another user (but root) or others can write to it. The environment is read once.
const std::string& cache_folder();
/// Creates that folder where it is missing, for this user alone.
void make_cache_folder();

/// Writes the parts one after another into a file beside `path`, which then takes its place: others
/// see the old file or the new one. Returns why that failed; empty if it did not. Does not throw.
std::string replace_file(const std::string& path, std::initializer_list<std::string_view> parts);

/// The folder is cache_folder(). It holds about TORCH_OCL_CACHE_SIZE MiB (1024): past that the
/// files go that were not used for longest. Thread-safe, and safe among processes. No member throws
/// for what it finds on disk.
class DiskCache {
 public:
  DiskCache();
  /// False with TORCH_OCL_CACHE=0 or where there is no folder to trust.
  bool enabled() const { return !folder_.empty(); }
  /// What was stored under this key; nothing if there is no intact file for it.
  std::optional<std::string> load(const std::string& key) const;
  /// Stores by atomic rename. The first failure of the process warns, once. The first call and then
  /// one in a while look at the folder's size.
  void store(const std::string& key, std::string_view payload) const;

 private:
  std::string path_of(const std::string& key) const;
  void limit_size(uint64_t written) const;
  std::string folder_;
  uint64_t max_bytes_ = 0;
  mutable std::atomic<uint64_t> written_{0};  // bytes since the folder's size was looked at
};

}  // namespace ocl
