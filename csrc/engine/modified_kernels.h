// Kernels with a text in front of their files: what torch.compile writes for the places that the
// files leave to it (kernels/attention/modification.clh, kernels/gemm/gemm.clh).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "opencl/kernel_family.h"

namespace ocl {

/// The kernels with one text.
class ModifiedKernels {
 public:
  /// Those of a text. They live for ever, as kernel families do.
  static const ModifiedKernels& of(const std::string& text);
  const KernelFamily& family(const KernelFamily& base) const;

 private:
  explicit ModifiedKernels(std::string text);

  const std::string text_, folder_;
  mutable std::mutex mutex_;
  mutable std::map<const KernelFamily*, std::unique_ptr<KernelFamily>> families_;
};

}  // namespace ocl
