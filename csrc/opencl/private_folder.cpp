#include "opencl/private_folder.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

namespace ocl {
namespace {

namespace fs = std::filesystem;

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(Descriptor&& other) : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) {
    std::swap(number_, other.number_);
    return *this;
  }

  bool valid() const { return number_ >= 0; }
  operator int() const { return number_; }
  int release() { return std::exchange(number_, -1); }
  /// False if what was written may not have arrived.
  bool close() { return ::close(release()) == 0; }

 private:
  int number_;
};

/// Whether nobody but this user is in the group: many systems give every user such a one, and files
/// that its members may write to.
bool is_own_group(gid_t group) {
  const passwd* user = getpwuid(geteuid());
  if (user == nullptr || user->pw_gid != group) return false;
  const std::string name = user->pw_name;
  const struct group* entry = getgrgid(group);
  if (entry == nullptr || name != entry->gr_name) return false;
  for (char** member = entry->gr_mem; *member != nullptr; ++member) {
    if (name != *member) return false;
  }
  return true;
}

bool others_may_write(const struct stat& status) {
  if (status.st_mode & S_IWOTH) return true;
  return (status.st_mode & S_IWGRP) && status.st_gid != 0 && !is_own_group(status.st_gid);
}

/// Why others could have put something there; empty if they could not.
std::string distrust(const struct stat& status) {
  if (status.st_uid != geteuid() && status.st_uid != 0) return "belongs to another user";
  if (others_may_write(status)) return "can be written by others (chmod go-w mends it)";
  return {};
}

/// Why the folders above can't be trusted; `path` is without links.
std::string distrust_of_parents(const fs::path& path) {
  for (fs::path parent = path.parent_path(); !parent.empty(); parent = parent.parent_path()) {
    struct stat status;
    if (stat(parent.c_str(), &status) != 0) continue;
    // Sticky: others may add something, but not take what is not theirs away.
    const bool owned = status.st_uid == geteuid() || status.st_uid == 0;
    if (!owned || (!(status.st_mode & S_ISVTX) && others_may_write(status))) {
      return "is in " + parent.string() + ", which " + distrust(status);
    }
    if (parent == parent.parent_path()) break;
  }
  return {};
}

void make_for_this_user(const fs::path& path) {
  std::error_code failure;
  if (path.empty() || fs::is_directory(path, failure)) return;
  make_for_this_user(path.parent_path());
  // The umask may take more than it should.
  if (mkdir(path.c_str(), 0700) == 0) chmod(path.c_str(), 0700);
}

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

std::string distrust_of_place(const std::string& file) {
  std::error_code failure;
  const fs::path parent = fs::path(file).parent_path();
  const fs::path folder = fs::canonical(parent.empty() ? "." : parent, failure);
  return failure ? std::string() : distrust_of_parents(folder / fs::path(file).filename());
}

FileContent read_private_file(int folder, const std::string& name) {
  const Descriptor file(
      openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) {
    if (errno == ENOENT || errno == ENOTDIR) return {};
    return {std::nullopt, errno == ELOOP ? "it is a link" : std::strerror(errno)};
  }
  struct stat status;
  if (fstat(file, &status) != 0) return {std::nullopt, std::strerror(errno)};
  if (!S_ISREG(status.st_mode)) return {std::nullopt, "it is no regular file"};
  if (const std::string reason = distrust(status); !reason.empty()) {
    return {std::nullopt, "it " + reason};
  }
  std::string text(static_cast<size_t>(status.st_size), '\0');
  size_t size = 0;
  for (;;) {
    if (size == text.size()) text.resize(size + 4096);  // it may have grown
    const ssize_t part = read(file, text.data() + size, text.size() - size);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) return {std::nullopt, std::strerror(errno)};
    if (part == 0) break;
    size += static_cast<size_t>(part);
  }
  text.resize(size);
  return {std::move(text), {}};
}

namespace {

/// A write past the limit of a file's size (ulimit -f) is an error of this thread's, and no signal:
/// compilers in drivers catch that one, and do not come back.
class SizeSignalBlock {
 public:
  SizeSignalBlock() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~SizeSignalBlock() {
    const timespec none{};
    if (sigismember(&before_, SIGXFSZ) == 0) sigtimedwait(&signal_, nullptr, &none);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SizeSignalBlock(const SizeSignalBlock&) = delete;
  SizeSignalBlock& operator=(const SizeSignalBlock&) = delete;

 private:
  sigset_t signal_, before_;
};

}  // namespace

std::string replace_private_file(int folder, const std::string& name,
                                 std::initializer_list<std::string_view> parts) {
  static std::atomic<unsigned> counter{0};
  const std::string temporary =
      name + "." + std::to_string(getpid()) + "." + std::to_string(counter.fetch_add(1)) + ".tmp";
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  Descriptor file(openat(folder, temporary.c_str(), kFlags, 0600));
  if (!file.valid() && errno == EEXIST) {  // a process of the same number was killed
    unlinkat(folder, temporary.c_str(), 0);
    file = Descriptor(openat(folder, temporary.c_str(), kFlags, 0600));
  }
  if (!file.valid()) return std::strerror(errno);
  const SizeSignalBlock block;
  bool done = fchmod(file, 0600) == 0;
  for (const std::string_view part : parts) done = done && write_all(file, part);
  done = file.close() && done;
  if (done && renameat(folder, temporary.c_str(), folder, name.c_str()) == 0) return {};
  const std::string reason = std::strerror(errno);
  unlinkat(folder, temporary.c_str(), 0);
  return reason;
}

PrivateFolder::~PrivateFolder() {
  if (descriptor_ >= 0) close(descriptor_);
}

int PrivateFolder::open() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return open_locked();
}

int PrivateFolder::make() const {
  std::lock_guard<std::mutex> lock(mutex_);
  struct stat status;
  if (descriptor_ >= 0 && fstat(descriptor_, &status) == 0 && status.st_nlink == 0) {
    close(std::exchange(descriptor_, -1));  // it was removed since
  }
  const int descriptor = open_locked();
  if (descriptor >= 0 || path_.empty() || !reason_.empty()) return descriptor;
  make_for_this_user(path_);
  return open_locked();
}

std::string PrivateFolder::reason() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return reason_;
}

int PrivateFolder::open_locked() const {
  if (descriptor_ >= 0 || path_.empty() || !reason_.empty()) return descriptor_;
  std::error_code failure;
  const fs::path path = fs::canonical(path_, failure);
  if (failure) return -1;
  Descriptor opened(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status;
  if (!opened.valid() || fstat(opened, &status) != 0) return -1;
  reason_ = distrust(status);
  if (reason_.empty()) reason_ = distrust_of_parents(path);
  return reason_.empty() ? descriptor_ = opened.release() : -1;
}

}  // namespace ocl
