// Programs that are built from kernel files: the build, the cache in memory and on disk.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "opencl/compiler.h"
#include "opencl/device.h"

namespace ocl {

class BuildJob;
class Queue;

/// A program of a device's cache: there, or on its way. It lives as long as the cache.
class Program {
 public:
  /// The driver's program; null while it is not there.
  cl_program ready() const noexcept { return program_.load(std::memory_order_acquire); }
  /// Waits for it if a build worker has begun with it, and builds it otherwise. Throws Error with
  /// the file, the options and the build log if it does not build, at every call.
  cl_program wait();
  /// wait() for one of several threads that wait for programs each: one of them builds, and the
  /// others leave theirs to the workers, where there are some.
  cl_program wait_beside_others();
  /// Loads it, or has a worker build it, unless one does; builds it where no worker can. Throws as
  /// wait() does if it is known not to build.
  void begin();

 private:
  friend class ProgramCache;
  void set(cl_program program);

  std::atomic<cl_program> program_{nullptr};
  ProgramCache* cache_ = nullptr;
  std::string name_, options_;
  std::function<std::shared_ptr<const Source>()> source_;
  // Held while the program is built: others wait for this program only.
  std::mutex mutex_;
  std::condition_variable job_over_;
  std::shared_ptr<BuildJob> job_;  // guarded by the mutex, as is what follows
  bool was_sent_ = false;
  std::unique_ptr<Error> failure_;  // of the last build
};

/// A device's programs, in memory and on disk.
///
/// Disk: TORCH_OCL_CACHE_DIR, else $XDG_CACHE_HOME/torch_ocl, else ~/.cache/torch_ocl; one file per
/// (device, driver, source, options), written by atomic rename; TORCH_OCL_CACHE=0 turns it off. A
/// corrupt or foreign file is rebuilt; a folder that can't be written costs one warning.
class ProgramCache {
 public:
  explicit ProgramCache(Device& device);
  ~ProgramCache();

  /// Called before the device's context is made, which takes a GPU's driver a second: where nothing
  /// is on disk yet, build workers make theirs meanwhile.
  void prepare();
  /// The program of kernels/<path> built with `options` (only -D definitions). The cache adds
  /// -cl-std and, each defined to 1 and only where true: OCL_DEVICE_CPU, OCL_DEVICE_GPU (neither on
  /// an accelerator), OCL_HAS_FP64, OCL_HAS_FP16, OCL_HAS_INT64_ATOMICS, OCL_HAS_SUBGROUPS,
  /// OCL_HAS_WORK_GROUP_REDUCE, OCL_SLOW_VLOAD_HALF. Contraction is off: fma happens only where it
  /// is written. -DOCL_PTX_TARGET=... has the driver's PTX retargeted (retarget.h);
  /// -DOCL_MAX_REGISTERS=... limits a work-item's registers where the compiler takes a limit (0:
  /// none). -DOCL_LARGE_REGISTERS=1 asks Intel's compiler for twice as many. What build workers can
  /// build of the package's own files may come later: then this doesn't wait. Throws as
  /// Program::begin() does. Thread-safe.
  Program& request(const std::string& path, const std::string& options);
  /// The program of source text that is not a file; contraction is as OpenCL C has it by default.
  /// This begins nothing: callers wait for it.
  Program& of_text(const std::string& name, const std::string& source, const std::string& options);
  /// Called after a program's first launch, on `queue`: drivers with the quirk compiles_at_launch
  /// finish compiling only then, so the binary is stored now (and with that quirk the launch waited
  /// for, once per program built from source). Cheap when there is nothing to do.
  void store_after_first_launch(cl_program program, Queue& queue);

 private:
  friend class Program;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ocl
