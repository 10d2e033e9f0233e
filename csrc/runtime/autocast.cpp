// Autocast for ocl tensors: the op lists are upstream's, the policies the ones CUDA uses.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace {

// Ops without a policy run as they are.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

}  // namespace

// The macros name functions of this namespace unqualified.
namespace at::autocast {
namespace {

#define OCL_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define OCL_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define OCL_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define OCL_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(OCL_LOWER_PRECISION)
  AT_FORALL_FP32(OCL_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(OCL_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(OCL_PROMOTE)
  // As on the CPU: their kernels take no half types there, and so not here.
  OCL_FP32(avg_pool3d)
  OCL_FP32(ctc_loss, IntList)
  OCL_FP32(ctc_loss, Tensor)
  // As on the CPU too: cross_entropy_loss names the dtype of its log_softmax, which is not widened
  // then.
  OCL_FP32(binary_cross_entropy)
  OCL_FP32(cross_entropy_loss)
}

}  // namespace
}  // namespace at::autocast
