// Files whose content is run or relied on: nobody but this user and root can have written them.
#pragma once

#include <initializer_list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace ocl {

/// A file's content, or why it is not taken. Neither where there is no such file.
struct FileContent {
  std::optional<std::string> text;
  std::string reason;
};

/// Reads a file of a folder (a descriptor; AT_FDCWD: `name` is a path). Links, and what is no
/// regular file, belongs to another user (but root) or can be written by others, are not taken.
/// Does not wait for a pipe's writer.
FileContent read_private_file(int folder, const std::string& name);

/// Why others could put another file in this one's place: "is in <folder>, which ..."; empty if
/// they can't, or if there is no such folder.
std::string distrust_of_place(const std::string& file);

/// Writes the parts one after another into a file beside `name`, mode 0600 whatever the umask,
/// which then takes its place: others see the old file or the new one. Returns why that failed;
/// empty if it did not. Does not throw.
std::string replace_private_file(int folder, const std::string& name,
                                 std::initializer_list<std::string_view> parts);

/// A folder that is out of others' reach, held by its descriptor once it was opened: what is put in
/// its place later changes nothing. As ssh's files, neither it nor a folder above it may be
/// writable by others, unless that one is sticky, as /tmp is. Thread-safe.
class PrivateFolder {
 public:
  /// An empty path: there is none.
  explicit PrivateFolder(std::string path) : path_(std::move(path)) {}
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  const std::string& path() const { return path_; }
  /// Its descriptor; -1 if it is not there, or is not to be trusted, which reason() then says.
  int open() const;
  /// Opens the folder; it is made where it is missing, for this user alone, and so are those above
  /// it.
  int make() const;
  std::string reason() const;

 private:
  int open_locked() const;

  const std::string path_;
  mutable std::mutex mutex_;
  mutable int descriptor_ = -1;
  mutable std::string reason_;
};

}  // namespace ocl
