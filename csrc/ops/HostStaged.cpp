#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/HostStaged.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/_linalg_eigvals.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/linalg_eig.h>
#include <ATen/ops/linalg_eigvals.h>

#include "ops/_linalg_eigvals.h"
#include "ops/linalg_eig.h"
#include "ops/linalg_eigvals.h"
#include "runtime/counters.h"

namespace ocl::native {

using at::Tensor;

namespace {

Tensor on_host(const Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const Tensor plain = tensor.resolve_conj().resolve_neg();
  const at::TensorOptions options = plain.options().device(at::kCPU);
  Tensor host = plain.is_non_overlapping_and_dense()
                    ? at::empty_strided(plain.sizes(), plain.strides(), options)
                    : at::empty(plain.sizes(), options);
  return host.copy_(plain);
}

}  // namespace

HostStage::HostStage(const char* op) { count_host_staged(op); }

Tensor& HostStage::in(const Tensor& tensor) { return inputs_.emplace_back(on_host(tensor)); }

Tensor& HostStage::out(const Tensor& tensor, bool resize) {
  results_.push_back({tensor, on_host(tensor), resize});
  return results_.back().host;
}

void HostStage::finish() {
  for (Result& result : results_) {
    if (!result.device.defined()) continue;
    if (result.resize) at::native::resize_output(result.device, result.host.sizes());
    result.device.copy_(result.host);
  }
}

namespace {

/// LAPACK may not return from matrices that are not finite.
const Tensor& finite(const Tensor& matrix, const char* op) {
  TORCH_CHECK(matrix.isfinite().all().item<bool>(), op,
              ": the input must not contain infinities or NaN.");
  return matrix;
}

}  // namespace

std::tuple<Tensor, Tensor> linalg_eig(const Tensor& self) {
  HostStage stage("linalg_eig");
  const auto [values, vectors] = at::linalg_eig(finite(stage.in(self), "torch.linalg.eig"));
  return {values.to(self.device()), vectors.to(self.device())};
}

std::tuple<Tensor&, Tensor&> linalg_eig_out(const Tensor& self, Tensor& eigenvalues,
                                            Tensor& eigenvectors) {
  HostStage stage("linalg_eig");
  at::linalg_eig_outf(finite(stage.in(self), "torch.linalg.eig"), stage.out(eigenvalues, true),
                      stage.out(eigenvectors, true));
  stage.finish();
  return {eigenvalues, eigenvectors};
}

Tensor _linalg_eigvals(const Tensor& self) {
  HostStage stage("linalg_eigvals");
  return at::_linalg_eigvals(finite(stage.in(self), "torch.linalg.eigvals")).to(self.device());
}

Tensor& linalg_eigvals_out(const Tensor& self, Tensor& out) {
  HostStage stage("linalg_eigvals");
  at::linalg_eigvals_outf(finite(stage.in(self), "torch.linalg.eigvals"), stage.out(out, true));
  stage.finish();
  return out;
}

}  // namespace ocl::native
