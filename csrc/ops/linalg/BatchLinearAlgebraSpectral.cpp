// Eigenvalues of Hermitian matrices and singular values: the kernels behind upstream's stubs, whose
// shape rules and error checks serve this device too.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/ops/_linalg_eigh.h>
#include <ATen/ops/_linalg_svd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "engine/linalg/spectral.h"
#include "ops/HostStaged.h"
#include "ops/linalg/BatchLinearAlgebra.h"

namespace ocl::native {

using at::Tensor;

namespace {

/// Values that are written contiguously: finish() brings a copy back.
class Values {
 public:
  explicit Values(const Tensor& tensor) : tensor_(tensor), contiguous_(tensor.contiguous()) {}
  void* data() const { return contiguous_.mutable_data_ptr(); }
  void finish() const {
    if (!contiguous_.is_same(tensor_)) tensor_.copy_(contiguous_);
  }

 private:
  const Tensor& tensor_;
  Tensor contiguous_;
};

/// a: [batch, rows, columns], rows >= columns, not lazily conjugated. u and vh: 3 dimensions,
/// lazily conjugated or not; undefined where only values are wanted.
void tall_svd(const Tensor& a, const Tensor& u, void* values, const Tensor& vh, int32_t* info) {
  const int64_t batch = a.size(0), rows = a.size(1), columns = a.size(2);
  const bool vectors = u.defined();
  const MatrixBatch right = vectors ? matrices(vh) : MatrixBatch{};
  if (rows == columns) {
    const MatrixBatch left = vectors ? matrices(u) : MatrixBatch{};
    square_svd(matrices(a), values, vectors ? &left : nullptr, vectors ? &right : nullptr, info);
    return;
  }
  // A = Q R: the singular vectors of R, those on the left turned by Q. Infinities would make NaNs,
  // which are another error: they are left to the decomposition of R.
  const Tensor q = at::native::cloneBatchedColumnMajor(a);
  const Tensor tau = at::empty({batch, columns}, a.options());
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor infinite = a.abs().amax({1, 2}, /*keepdim=*/true).eq(infinity);
  q.masked_fill_(infinite, 0);
  householder_factor(q, tau);
  const Tensor r = q.narrow(1, 0, columns).triu().masked_fill_(infinite, infinity);
  if (!vectors) {
    square_svd(matrices(r), values, nullptr, nullptr, info);
    return;
  }
  const Tensor left = at::zeros({batch, u.size(2), rows}, a.options()).mT();
  const MatrixBatch corner = matrices(left).block(0, 0, columns, columns);
  square_svd(matrices(r), values, &corner, &right, info);
  if (u.size(2) > columns) {
    const int64_t rest = rows - columns;
    left.narrow(1, columns, rest).narrow(2, columns, rest).diagonal(0, 1, 2).fill_(1);
  }
  householder_multiply(q, tau, left, /*left=*/true, /*transpose=*/false);
  u.copy_(left);
}

}  // namespace

void hermitian_eigenvectors(const Tensor& eigenvalues, const Tensor& eigenvectors,
                            const Tensor& infos, bool upper, bool compute_eigenvectors) {
  if (eigenvectors.size(-1) > kMostSpectral) {
    HostStage stage("_linalg_eigh");
    const auto [values, vectors] =
        at::_linalg_eigh(stage.in(eigenvectors), upper ? "U" : "L", compute_eigenvectors);
    eigenvalues.copy_(values);
    if (compute_eigenvectors) eigenvectors.copy_(vectors);
    return;
  }
  const InPlace work(eigenvectors);
  const MatrixBatch a = work.matrices();
  const Values values(eigenvalues);
  hermitian_eigen(a, upper, values.data(), compute_eigenvectors ? &a : nullptr,
                  infos.mutable_data_ptr<int32_t>());
  values.finish();
  if (compute_eigenvectors) work.finish();
}

void singular_value_decomposition(const Tensor& A, bool full_matrices, bool compute_uv,
                                  const std::optional<std::string_view>& driver, const Tensor& U,
                                  const Tensor& S, const Tensor& Vh, const Tensor& info) {
  const int64_t rows = A.size(-2), columns = A.size(-1);
  if (std::min(rows, columns) > kMostSpectral) {
    HostStage stage("_linalg_svd");
    const auto [u, s, vh] = at::_linalg_svd(stage.in(A), full_matrices, compute_uv, driver);
    S.copy_(s);
    if (!compute_uv) return;
    U.copy_(u);
    Vh.copy_(vh);
    return;
  }
  // A wide matrix's decomposition is that of its adjoint, turned round.
  const bool wide = rows < columns;
  const Tensor a = batched((wide ? A.mH() : A).resolve_conj().resolve_neg());
  const Values values(S);
  int32_t* infos = info.mutable_data_ptr<int32_t>();
  if (compute_uv) {
    const Tensor left = wide ? Vh.mH() : U, right = wide ? U.mH() : Vh;
    const InPlace u(left), vh(right);
    tall_svd(a, u.tensor(), values.data(), vh.tensor(), infos);
    u.finish();
    vh.finish();
  } else {
    tall_svd(a, Tensor(), values.data(), Tensor(), infos);
  }
  values.finish();
}

}  // namespace ocl::native
