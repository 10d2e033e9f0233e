// Program binaries on disk: one file per key, safe against torn, corrupt and foreign files.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "opencl/private_folder.h"

namespace ocl {

/// 128 bits of a text; names files and finds damage, no protection against attack.
struct Digest {
  uint64_t high, low;
  std::string hex() const;
  friend bool operator==(const Digest&, const Digest&) = default;
};
Digest digest(std::string_view text);

/// TORCH_OCL_CACHE_DIR, else $XDG_CACHE_HOME/torch_ocl, else ~/.cache/torch_ocl. Its path is empty
/// with TORCH_OCL_CACHE=0, where no folder can be named and, with a warning, where others could
/// have put something there. The environment is read once.
const PrivateFolder& cache_folder();

/// The folder is cache_folder(). It holds about TORCH_OCL_CACHE_SIZE MiB (1024): past that the
/// files go that were not used for longest. Thread-safe, and safe among processes. No member throws
/// for what it finds on disk.
class DiskCache {
 public:
  DiskCache();
  /// False with TORCH_OCL_CACHE=0 or where there is no folder to trust.
  bool enabled() const { return !folder_.path().empty(); }
  /// Whether no program is stored, as before a machine's first use of a device.
  bool empty() const;
  /// The content that was stored under this key; nothing if there is no intact file for it.
  std::optional<std::string> load(const std::string& key) const;
  /// Stores by atomic rename; false if that failed, of which the first time warns. The first call
  /// and then one in a while look at the folder's size.
  bool store(const std::string& key, std::string_view payload) const;

 private:
  void limit_size(int folder, uint64_t written) const;
  const PrivateFolder& folder_;
  uint64_t max_bytes_ = 0;
  mutable std::atomic<uint64_t> written_{0};  // bytes since the folder's size was looked at
};

}  // namespace ocl
