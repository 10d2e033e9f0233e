// Sums and products of compressed sparse matrices: with dense ones, with each other, and at the
// entries of one.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_sparse_sparse_matmul.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/resize_as_sparse_native.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "ops/sparse/Compressed.h"

namespace at::native::sparse {
// Upstream's own check, which is exported without a header.
void sparse_sampled_addmm_check_inputs(const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                                       const Scalar& beta, const Scalar& alpha,
                                       const Tensor& result);
}  // namespace at::native::sparse

namespace ocl::native {

using at::Tensor;
using c10::Scalar;

namespace {

bool is_compressed(const Tensor& tensor) {
  return at::sparse_csr::is_sparse_compressed(tensor.layout());
}

/// Compressed, but not in blocks.
bool is_plain(const Tensor& tensor) {
  return tensor.layout() == at::kSparseCsr || tensor.layout() == at::kSparseCsc;
}

/// Gives `result` the entries of `from`, which has its layout and device.
Tensor& take(Tensor& result, const Tensor& from) {
  at::native::resize_as_sparse_compressed_(result, from);
  return result.copy_(from);
}

Tensor as_layout(const Tensor& coo, const Tensor& like) {
  if (like.layout() == at::kSparseCsr) return coo.to_sparse_csr();
  if (like.layout() == at::kSparseCsc) return coo.to_sparse_csc();
  const Tensor values = like.values();
  const int64_t block[2] = {values.size(1), values.size(2)};
  return like.layout() == at::kSparseBsr ? coo.to_sparse_bsr(block) : coo.to_sparse_bsc(block);
}

void check_dense_sum(const Tensor& sparse) {
  TORCH_CHECK(is_plain(sparse), "add: expected a CSR or CSC tensor beside a dense one, but got ",
              sparse.layout());
}

Tensor& add_out(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  if (self.layout() == at::kStrided) {
    check_dense_sum(other);
    return at::add_out(out, self, other.to_sparse(), alpha);
  }
  if (other.layout() == at::kStrided) {
    check_dense_sum(self);
    return at::add_out(out, alpha.equal(1) ? other : other.mul(alpha), self.to_sparse());
  }
  TORCH_CHECK(is_compressed(other) && is_compressed(out),
              "add: expected compressed sparse 'other' and 'out', but got ", other.layout(),
              " and ", out.layout());
  TORCH_CHECK(self.layout() == other.layout(), "add: expected 'self' and 'other' of one layout, ",
              "but got ", self.layout(), " and ", other.layout());
  TORCH_CHECK(self.sizes().equals(other.sizes()),
              "torch.add: Expected input tensors to have the same shape, but got tensor `self` "
              "with shape ",
              self.sizes(), " and tensor `other` with shape ", other.sizes());
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "expected scalar type ",
              self.scalar_type(), " but found ", other.scalar_type());
  const Tensor sum = self.to_sparse().add(other.to_sparse(), alpha).coalesce();
  return take(out, as_layout(sum, self));
}

void check_dtypes(const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "expected scalar type ", a.scalar_type(),
              " but found ", b.scalar_type());
}

[[noreturn]] void refuse_layouts(const Tensor& result, const Tensor& a, const Tensor& b) {
  TORCH_CHECK(false, "addmm: computation on OCL is not implemented for ", result.layout(), " + ",
              a.layout(), " @ ", b.layout());
}

void start(const Tensor& self, const Scalar& beta, at::IntArrayRef sizes, Tensor& result) {
  const c10::MaybeOwned<Tensor> expanded = at::expand_size(self, sizes);
  if (result.is_same(self)) return;
  at::native::resize_output(result, expanded->sizes());
  if (!beta.equal(0)) result.copy_(*expanded);
}

/// result = beta * self + alpha * a @ b, of dense matrices but for one or both factors.
Tensor& dense_addmm(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
                    const Scalar& alpha, Tensor& result) {
  start(self, beta, {a.size(0), b.size(1)}, result);
  check_dtypes(result, a);
  check_dtypes(a, b);
  if (is_compressed(a) && (b.layout() == at::kStrided || is_compressed(b))) {
    const Tensor dense = b.layout() == at::kStrided ? b : b.to_dense();
    sparse::product(sparse::rows_of_compressed(a), dense, beta, alpha, result);
  } else if (a.layout() == at::kStrided && is_compressed(b)) {
    sparse::product(sparse::rows_of_compressed(b.transpose(0, 1)), a.t(), beta, alpha, result.t());
  } else {
    refuse_layouts(result, a, b);
  }
  return result;
}

Tensor& addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                  const Scalar& alpha, Tensor& result) {
  TORCH_CHECK(mat1.dim() == 2 && mat2.dim() == 2, "addmm: matrices expected, got ", mat1.dim(),
              "-D and ", mat2.dim(), "-D tensors");
  TORCH_CHECK(mat1.size(1) == mat2.size(0), "mat1 and mat2 shapes cannot be multiplied (",
              mat1.size(0), "x", mat1.size(1), " and ", mat2.size(0), "x", mat2.size(1), ")");
  if (result.layout() == at::kStrided) {
    return dense_addmm(self, mat1, mat2, beta, alpha, result);
  }
  if (!is_plain(result) || !is_plain(mat1) || !is_plain(mat2)) refuse_layouts(result, mat1, mat2);
  check_dtypes(mat1, mat2);
  Tensor sum = at::_sparse_sparse_matmul(mat1.to_sparse(), mat2.to_sparse());
  if (!alpha.equal(1)) sum = sum.mul(alpha);
  if (!beta.equal(0) && self._nnz() != 0) sum = sum.add(self.to_sparse().mul(beta)).coalesce();
  return take(result, as_layout(sum, result));
}

Tensor& addmv_out(const Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta,
                  const Scalar& alpha, Tensor& result) {
  TORCH_CHECK(mat.layout() != at::kSparseBsc,
              "torch.addmv: operation not supported for mat with SparseBsc layout");
  TORCH_CHECK(mat.dim() == 2, "addmv: Expected mat to be 2-D");
  TORCH_CHECK(vec.dim() == 1, "addmv: Expected vec to be 1-D");
  start(self, beta, {mat.size(0)}, result);
  check_dtypes(result, mat);
  check_dtypes(mat, vec);
  sparse::product(sparse::rows_of_compressed(mat), vec.unsqueeze(1), beta, alpha,
                  result.unsqueeze(1));
  return result;
}

Tensor& sampled_addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                          const Scalar& beta, const Scalar& alpha, Tensor& result) {
  at::native::sparse::sparse_sampled_addmm_check_inputs(self, mat1, mat2, beta, alpha, result);
  const at::ScalarType dtype = self.scalar_type();
  TORCH_CHECK(dtype == at::kDouble || dtype == at::kFloat || c10::isComplexType(dtype),
              "sparse_sampled_addmm: Expected self to be a floating-point or complex tensor, but "
              "got ",
              dtype);
  if (!result.is_same(self)) {
    c10::DimVector sizes(mat1.sizes().slice(0, mat1.dim() - 2));
    sizes.push_back(self.size(-2));
    sizes.push_back(self.size(-1));
    at::sparse_csr::get_sparse_csr_impl(result)->resize_(self._nnz(), sizes);
    result.copy_(self);
  }
  if (mat1.numel() == 0 || mat2.numel() == 0 || result._nnz() == 0) return result.mul_(beta);
  const int64_t matrices = result.values().numel() / result._nnz();
  const Tensor offsets = result.crow_indices().reshape({matrices, -1});
  const Tensor columns = result.col_indices().reshape({matrices, -1});
  const Tensor values = result.values().view({matrices, -1});
  const Tensor a = mat1.reshape({matrices, mat1.size(-2), mat1.size(-1)});
  const Tensor b = mat2.reshape({matrices, mat2.size(-2), mat2.size(-1)});
  for (int64_t m = 0; m < matrices; ++m) {
    const sparse::Rows matrix{offsets.select(0, m).contiguous(), columns.select(0, m).contiguous(),
                              values.select(0, m)};
    sparse::sampled_product(matrix, a.select(0, m), b.select(0, m), beta, alpha);
  }
  return result;
}

Tensor sampled_addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                     const Scalar& alpha) {
  Tensor result = at::empty({0, 0}, self.options());
  return sampled_addmm_out(self, mat1, mat2, beta, alpha, result);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("add.out", TORCH_FN(add_out));
  m.impl("addmm.out", TORCH_FN(addmm_out));
  m.impl("addmv.out", TORCH_FN(addmv_out));
  m.impl("sparse_sampled_addmm", TORCH_FN(sampled_addmm));
  m.impl("sparse_sampled_addmm.out", TORCH_FN(sampled_addmm_out));
}

}  // namespace

}  // namespace ocl::native
