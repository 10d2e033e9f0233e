// Programs that are built from kernel files: the build, the cache in memory and on disk.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "opencl/device.h"

namespace ocl {

/// How many programs this process built from source, loaded from the disk cache, and the time
/// spent.
struct ProgramStats {
  std::atomic<uint64_t> built{0}, loaded{0};
  std::atomic<uint64_t> build_ns{0}, load_ns{0};
};
ProgramStats& program_stats();

class Queue;

/// A device's programs, in memory and on disk.
///
/// Disk: TORCH_OCL_CACHE_DIR, else $XDG_CACHE_HOME/torch_ocl, else ~/.cache/torch_ocl; one file per
/// (device, driver, source, options), written by atomic rename; TORCH_OCL_CACHE=0 turns it off. A
/// corrupt or foreign file is rebuilt; a folder that can't be written costs one warning.
class ProgramCache {
 public:
  explicit ProgramCache(Device& device);
  ~ProgramCache();

  /// The program of kernels/<path> built with `options` (only -D definitions). The cache adds
  /// -cl-std and, each defined to 1 and only where true: OCL_DEVICE_CPU, OCL_DEVICE_GPU (neither on
  /// an accelerator), OCL_HAS_FP64, OCL_HAS_FP16, OCL_HAS_INT64_ATOMICS, OCL_HAS_SUBGROUPS,
  /// OCL_HAS_WORK_GROUP_REDUCE, OCL_SLOW_VLOAD_HALF. Contraction is off: fma happens only where it
  /// is written. -DOCL_PTX_TARGET=... has the driver's PTX retargeted (retarget.h);
  /// -DOCL_MAX_REGISTERS=... limits a work-item's registers where the compiler takes a limit (0:
  /// none). -DOCL_LARGE_REGISTERS=1 asks Intel's compiler for twice as many. Throws Error with the
  /// file, the options and the build log if it does not build; programs live as long as the cache.
  /// Thread-safe.
  cl_program get(const std::string& path, const std::string& options);
  /// As get, for source text that is not a file (torch.ocl.compile_kernel); contraction is as
  /// OpenCL C has it by default.
  cl_program get_from_source(const std::string& name, const std::string& source,
                             const std::string& options);
  /// Called after a program's first launch, on `queue`: drivers with the quirk compiles_at_launch
  /// finish compiling only then, so the binary is stored now (and with that quirk the launch waited
  /// for, once per program built from source). Cheap when there is nothing to do.
  void store_after_first_launch(cl_program program, Queue& queue);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ocl
