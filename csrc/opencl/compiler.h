// From source text to a driver's program, and from and to binaries: what a process that only builds
// needs, too.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "opencl/device.h"
#include "opencl/disk_cache.h"

namespace ocl {

/// How many programs were built from source, those of build workers among them, and how many were
/// loaded from the disk cache. The times are sums over programs: those of workers overlap.
struct ProgramStats {
  std::atomic<uint64_t> built{0}, built_by_workers{0}, loaded{0};
  std::atomic<uint64_t> build_ns{0}, load_ns{0};
};
ProgramStats& program_stats();

/// A program's source text with its hash.
struct Source {
  explicit Source(std::string text) : text(std::move(text)), hash(digest(this->text)) {}
  std::string text;
  Digest hash;
};

/// The compiler of a device's driver, with the options that the device asks for. Thread-safe.
class Compiler {
 public:
  explicit Compiler(const Device& device);

  /// The device's options and those of one program, whose own -cl-std takes the other's place:
  /// drivers differ in which of two they take.
  std::string with_options(const std::string& extra) const;
  /// The key of the disk cache: a binary depends on the device, its driver and settings, and on the
  /// three given.
  std::string key(const std::string& name, const std::string& all_options,
                  const Digest& source) const;
  /// Whether a key is of this device and driver.
  bool owns(const std::string& key) const { return key.starts_with(head_); }
  /// Throws Error, with the file, the options and the build log, if it does not build.
  cl_program build(const std::string& name, const Source& source,
                   const std::string& all_options) const;
  /// Null if the driver won't have it.
  cl_program load(const std::string& name, const std::string& binary,
                  const std::string& all_options) const;
  std::string binary_of(cl_program program) const;

 private:
  cl_program assemble(const std::string& name, cl_program compiled,
                      const std::string& all_options) const;

  const Device& device_;
  const std::string options_;
  const std::string head_;
};

}  // namespace ocl
