#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/HostStaged.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/_linalg_eigh.h>
#include <ATen/ops/_linalg_eigvals.h>
#include <ATen/ops/_linalg_svd.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/linalg_eig.h>
#include <ATen/ops/linalg_eigvals.h>
#include <ATen/ops/linalg_ldl_factor_ex.h>
#include <ATen/ops/linalg_ldl_solve.h>
#include <ATen/ops/linalg_lstsq.h>

#include "ops/_linalg_eigh.h"
#include "ops/_linalg_eigvals.h"
#include "ops/_linalg_svd.h"
#include "ops/linalg_eig.h"
#include "ops/linalg_eigvals.h"
#include "ops/linalg_ldl_factor_ex.h"
#include "ops/linalg_ldl_solve.h"
#include "ops/linalg_lstsq.h"
#include "runtime/counters.h"

namespace ocl::native {

using at::Tensor;

namespace {

Tensor on_host(const Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const Tensor plain = tensor.resolve_conj().resolve_neg();
  Tensor host = at::empty_strided(plain.sizes(), plain.strides(), plain.options().device(at::kCPU));
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

TORCH_IMPL_FUNC(_linalg_eigh_out)(const Tensor& A, std::string_view UPLO, bool compute_v,
                                  const Tensor& eigenvalues, const Tensor& eigenvectors) {
  HostStage stage("_linalg_eigh");
  at::_linalg_eigh_outf(stage.in(A), UPLO, compute_v, stage.out(eigenvalues),
                        stage.out(eigenvectors));
  stage.finish();
}

TORCH_IMPL_FUNC(_linalg_svd_out)(const Tensor& A, bool full_matrices, bool compute_uv,
                                 std::optional<std::string_view> driver, const Tensor& U,
                                 const Tensor& S, const Tensor& Vh) {
  HostStage stage("_linalg_svd");
  at::_linalg_svd_outf(stage.in(A), full_matrices, compute_uv, driver, stage.out(U), stage.out(S),
                       stage.out(Vh));
  stage.finish();
}

TORCH_IMPL_FUNC(linalg_ldl_factor_ex_out)(const Tensor& self, bool hermitian, bool check_errors,
                                          const Tensor& LD, const Tensor& pivots,
                                          const Tensor& info) {
  HostStage stage("linalg_ldl_factor_ex");
  at::linalg_ldl_factor_ex_outf(stage.in(self), hermitian, check_errors, stage.out(LD),
                                stage.out(pivots), stage.out(info));
  stage.finish();
}

TORCH_IMPL_FUNC(linalg_ldl_solve_out)(const Tensor& LD, const Tensor& pivots, const Tensor& B,
                                      bool hermitian, const Tensor& result) {
  HostStage stage("linalg_ldl_solve");
  at::linalg_ldl_solve_outf(stage.in(LD), stage.in(pivots), stage.in(B), hermitian,
                            stage.out(result));
  stage.finish();
}

std::tuple<Tensor, Tensor> linalg_eig(const Tensor& self) {
  HostStage stage("linalg_eig");
  const auto [values, vectors] = at::linalg_eig(stage.in(self));
  return {values.to(self.device()), vectors.to(self.device())};
}

std::tuple<Tensor&, Tensor&> linalg_eig_out(const Tensor& self, Tensor& eigenvalues,
                                            Tensor& eigenvectors) {
  HostStage stage("linalg_eig");
  at::linalg_eig_outf(stage.in(self), stage.out(eigenvalues, true), stage.out(eigenvectors, true));
  stage.finish();
  return {eigenvalues, eigenvectors};
}

Tensor _linalg_eigvals(const Tensor& self) {
  HostStage stage("linalg_eigvals");
  return at::_linalg_eigvals(stage.in(self)).to(self.device());
}

Tensor& linalg_eigvals_out(const Tensor& self, Tensor& out) {
  HostStage stage("linalg_eigvals");
  at::linalg_eigvals_outf(stage.in(self), stage.out(out, true));
  stage.finish();
  return out;
}

std::tuple<Tensor&, Tensor&, Tensor&, Tensor&> linalg_lstsq_out(
    const Tensor& self, const Tensor& b, std::optional<double> rcond,
    std::optional<std::string_view> driver, Tensor& solution, Tensor& residuals, Tensor& rank,
    Tensor& singular_values) {
  HostStage stage("linalg_lstsq");
  at::linalg_lstsq_outf(stage.in(self), stage.in(b), rcond, driver, stage.out(solution, true),
                        stage.out(residuals, true), stage.out(rank, true),
                        stage.out(singular_values, true));
  stage.finish();
  return {solution, residuals, rank, singular_values};
}

}  // namespace ocl::native
