// Work that no OpenCL kernel does sensibly: the eigenvalues of general matrices, and decompositions
// of large ones. LAPACK does it on the host, inside the op's kernel, counted
// (torch.ocl.host_staged_counts()).
#pragma once

#include <ATen/core/Tensor.h>

#include <list>
#include <utility>

namespace ocl::native {

/// One run on the host: in() and out() give the host's twins of device tensors, finish() brings the
/// results back. References stay valid until the stage ends.
class HostStage {
 public:
  /// Counts a run of `op`.
  explicit HostStage(const char* op);

  /// A host copy with the same strides; undefined and empty tensors too.
  at::Tensor& in(const at::Tensor& tensor);
  /// A result that finish() copies into `tensor`, which it resizes to fit where `resize` says so.
  at::Tensor& out(const at::Tensor& tensor, bool resize = false);
  void finish();

 private:
  struct Result {
    at::Tensor device, host;
    bool resize;
  };
  std::list<at::Tensor> inputs_;
  std::list<Result> results_;
};

}  // namespace ocl::native
