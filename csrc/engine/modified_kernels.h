// Kernels with source in front of their files, which torch.compile writes for the places that the
// files leave to it (kernels/attention/modification.clh, kernels/gemm/gemm.clh).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "opencl/kernel_family.h"

namespace ocl {

/// The kernels with one such source.
class ModifiedKernels {
 public:
  /// The kernels with `text`. They live for ever, as kernel families do.
  static const ModifiedKernels& of(const std::string& text);
  const KernelFamily& family(const KernelFamily& base) const;

 private:
  explicit ModifiedKernels(std::string text);

  const std::string text_, folder_;
  mutable std::mutex mutex_;
  mutable std::map<const KernelFamily*, std::unique_ptr<KernelFamily>> families_;
};

}  // namespace ocl
