// Cholesky and LU factors, triangular systems and what is solved with them: the kernels behind
// upstream's stubs, whose shape rules and error checks serve this device too.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/linalg/BatchLinearAlgebra.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/TransposeType.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include "engine/device_table.h"
#include "opencl/device_assert.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "ops/DtypeChecks.h"
#include "ops/_cholesky_solve_helper.h"
#include "runtime/stream.h"

namespace ocl::native {

using at::Tensor;
using at::native::TransposeType;

namespace {

const KernelFamily unpack_family{"linalg/permutation.cl", "unpack_pivots"};

/// a, transposed as `transpose` says; `upper` says which triangle is the result's.
MatrixBatch transposed_as(const MatrixBatch& a, TransposeType transpose, bool& upper) {
  if (transpose == TransposeType::NoTranspose) return a;
  upper = !upper;
  return transpose == TransposeType::ConjTranspose ? a.transposed().conjugated() : a.transposed();
}

Tensor readable(const Tensor& tensor) { return batched(tensor.resolve_neg()); }

/// Solves L L^H x = b, or U^H U x = b, in place of b.
void solve_cholesky(const MatrixBatch& factor, const MatrixBatch& b, bool upper) {
  const MatrixBatch adjoint = factor.transposed().conjugated();
  solve_triangular(upper ? adjoint : factor, b, /*upper=*/false, /*unit=*/false);
  solve_triangular(upper ? factor : adjoint, b, /*upper=*/true, /*unit=*/false);
}

}  // namespace

Tensor batched(const Tensor& tensor) {
  const int64_t dims = tensor.dim();
  if (dims == 3) return tensor;
  if (dims == 2) return tensor.unsqueeze(0);
  int64_t batch = 1;
  for (int64_t d = 0; d < dims - 2; ++d) batch *= tensor.size(d);
  return tensor.reshape({batch, tensor.size(-2), tensor.size(-1)});
}

void check_factored_dtype(at::ScalarType dtype) {
  check_supported("linalg", dtype,
                  dtype == at::kFloat || dtype == at::kDouble || dtype == at::kComplexFloat ||
                      dtype == at::kComplexDouble);
}

MatrixBatch matrices(const Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  check_factored_dtype(dtype);
  return {static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())),
          dtype,
          tensor.device().index(),
          tensor.size(1),
          tensor.size(2),
          tensor.size(0),
          tensor.stride(1),
          tensor.stride(2),
          tensor.stride(0),
          tensor.is_conj()};
}

void cholesky_factor(const Tensor& input, const Tensor& info, bool upper) {
  const InPlace work(input);
  const MatrixBatch a = work.matrices();
  info.zero_();
  // A = U^H U is A^T = U^T conj(U): the transpose's lower factor.
  cholesky(upper ? a.transposed() : a, info.mutable_data_ptr<int32_t>());
  work.finish();
}

Tensor& cholesky_inverse_from(Tensor& result, Tensor& infos, bool upper) {
  check_factored_dtype(result.scalar_type());
  if (result.numel() == 0) return result;
  const Tensor factor = batched(result);
  // As LAPACK's trtri does: the number of the first zero on the diagonal.
  const Tensor zero = factor.diagonal(0, -2, -1).eq(0).to(at::kInt);
  infos.copy_(zero.argmax(-1).add(1).mul(zero.amax(-1)).view(infos.sizes()));
  const Tensor inverse = at::eye(factor.size(-1), factor.options()).expand_as(factor).contiguous();
  solve_triangular(matrices(factor), matrices(inverse), upper, /*unit=*/false);
  const Tensor product =
      upper ? at::matmul(inverse, inverse.mH()) : at::matmul(inverse.mH(), inverse);
  result.copy_(product.view(result.sizes()));
  return result;
}

Tensor _cholesky_solve_helper(const Tensor& self, const Tensor& A, bool upper) {
  Tensor result = at::native::cloneBatchedColumnMajor(self);
  const Tensor factor = readable(A);
  const InPlace work(result);
  solve_cholesky(matrices(factor), work.matrices(), upper);
  work.finish();
  return result;
}

void triangular_solve(const Tensor& A, const Tensor& B, bool left, bool upper,
                      TransposeType transpose, bool unitriangular) {
  // Upstream passes what BLAS gets: memory, read as column-major and without lazy conjugation, and
  // flags to match.
  const Tensor stored = A.is_conj() ? A.conj() : A;
  const bool column_major = stored.mT().is_contiguous() || !stored.is_contiguous();
  const Tensor triangle = readable(column_major ? stored : stored.mT());
  const Tensor right_side = B.is_conj() ? B.conj() : B;
  const InPlace work(right_side);
  MatrixBatch a = transposed_as(matrices(triangle), transpose, upper), b = work.matrices();
  if (!left) {
    a = a.transposed();
    b = b.transposed();
    upper = !upper;
  }
  solve_triangular(a, b, upper, unitriangular);
  work.finish();
}

void lu_factor_in_place(const Tensor& input, const Tensor& pivots, const Tensor& infos,
                        bool compute_pivots) {
  const InPlace work(input);
  infos.zero_();
  lu_factor(work.matrices(), {pivots.mutable_data_ptr<int32_t>(), pivots.size(-1)},
            infos.mutable_data_ptr<int32_t>(), compute_pivots);
  work.finish();
}

void lu_solve_in_place(const Tensor& LU, const Tensor& pivots, const Tensor& B,
                       TransposeType transpose) {
  if (B.numel() == 0) return;
  const at::IntArrayRef batch(B.sizes().data(), B.dim() - 2);
  const auto expanded = [&](const Tensor& tensor, int64_t matrix_dims) {
    at::DimVector sizes(batch);
    for (int64_t d = -matrix_dims; d < 0; ++d) sizes.push_back(tensor.size(d));
    return tensor.expand(sizes);
  };
  const Tensor factors = readable(expanded(LU, 2));
  const Tensor swaps = expanded(pivots, 1).contiguous();
  const InPlace work(B);
  MatrixBatch lu = matrices(factors), b = work.matrices();
  const Pivots rows{swaps.mutable_data_ptr<int32_t>(), swaps.size(-1)};
  const int64_t n = b.rows;
  if (b.conjugate) {
    lu = lu.conjugated();
    b.conjugate = false;
  }
  if (transpose == TransposeType::NoTranspose) {
    swap_rows(b, rows, 0, n, /*undo=*/false);
    solve_triangular(lu, b, /*upper=*/false, /*unit=*/true);
    solve_triangular(lu, b, /*upper=*/true, /*unit=*/false);
  } else {
    bool upper = true;
    const MatrixBatch adjoint = transposed_as(lu, transpose, upper);
    solve_triangular(adjoint, b, /*upper=*/false, /*unit=*/false);
    solve_triangular(adjoint, b, /*upper=*/true, /*unit=*/true);
    swap_rows(b, rows, 0, n, /*undo=*/true);
  }
  work.finish();
}

void unpack_pivots(at::TensorIterator& iter, int64_t dim_size, int64_t max_pivot) {
  // Both are contiguous: upstream made them for this.
  const at::TensorBase &permutation = iter.tensor(0), &pivots = iter.tensor(1);
  if (dim_size == 0 || max_pivot == 0) return;
  static const uint32_t site =
      message_site("pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive");
  const int64_t batch = pivots.numel() / dim_size;
  Queue& queue = current_queue(pivots.device().index());
  launch(unpack_family.get(queue.device(), {}), queue,
         NDRange::linear(batch, group_of_lanes(queue.device())),
         Pointer{permutation.mutable_data_ptr()}, Pointer{pivots.const_data_ptr()},
         static_cast<uint64_t>(batch), static_cast<uint32_t>(max_pivot),
         static_cast<uint32_t>(dim_size), queue.device().asserts().mem(), site);
}

}  // namespace ocl::native
