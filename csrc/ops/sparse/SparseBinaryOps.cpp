// Sums, differences and products of sparse COO tensors with each other and with dense tensors.
//
// Upstream's functions make the results and call the ones that write into a given tensor; those are
// here where upstream's walk through the indices on the host. Entries at one place needn't be
// coalesced before they are added to a dense tensor: index_add_ takes them in order.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mul_native.h>
#include <ATen/ops/searchsorted.h>
#include <torch/library.h>

#include "ops/sparse/Sparse.h"

namespace ocl::native {

using at::Tensor;
using c10::Scalar;

namespace {

c10::ScalarType checked_type(const char* op, const Tensor& a, const Tensor& b, const Tensor& out) {
  const c10::ScalarType common = c10::promoteTypes(a.scalar_type(), b.scalar_type());
  TORCH_CHECK(c10::canCast(common, out.scalar_type()), "Can't convert result type ", common,
              " to output ", out.scalar_type(), " in ", op, " operation");
  return common;
}

/// Makes `out` a sparse tensor of the size and dimensions of `like`.
Tensor& set_entries(Tensor& out, const Tensor& like, const Tensor& indices, const Tensor& values,
                    bool coalesced) {
  at::SparseTensorImpl* impl = at::sparse::get_sparse_impl(out);
  const Tensor converted = values.to(out.scalar_type());
  impl->raw_resize_(like.sparse_dim(), like.dense_dim(), like.sizes());
  impl->set_indices_and_values_unsafe(indices, converted);
  return out._coalesced_(coalesced);
}

Tensor& add_to_dense(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  TORCH_CHECK(!out.is_sparse(), "add: expected a dense 'out' for a dense 'self'");
  TORCH_CHECK(self.sizes() == other.sizes(),
              "add: expected 'self' and 'other' to have same sizes, but self has size ",
              self.sizes(), " while other has size ", other.sizes(),
              " (dense-sparse addition does not broadcast)");
  TORCH_CHECK(other.sparse_dim() > 0, "ocl: a sparse tensor without sparse dimensions");
  const c10::ScalarType common = checked_type("add", self, other, out);
  const bool in_place = out.is_same(self);
  if (!in_place) out.resize_as_(self);
  const bool direct = out.scalar_type() == common && out.is_contiguous();
  if (direct && !in_place) out.copy_(self);
  Tensor sum = direct ? out : self.to(common).contiguous();
  if (other._nnz() != 0) {
    // A copy, where the conversion made none.
    if (!direct && sum.is_alias_of(self)) sum = sum.clone(at::MemoryFormat::Contiguous);
    by_places(sum, other).index_add_(0, places(other), other._values().to(common), alpha);
  }
  if (!direct && !out.is_same(sum)) out.copy_(sum);
  return out;
}

Tensor& add_out(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  if (!self.is_sparse()) return add_to_dense(self, other, alpha, out);
  TORCH_CHECK(other.is_sparse(),
              "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  TORCH_CHECK(self.sizes() == other.sizes(),
              "add: expected sizes of 'self' and 'other' to match, but ", self.sizes(),
              " != ", other.sizes());
  const c10::ScalarType common = checked_type("add", self, other, out);
  const bool coalesced = self.is_coalesced() && other.is_coalesced();
  const Tensor values = self._values().to(common);
  Tensor more = other._values().to(common);
  if (!alpha.equal(1)) more = more.mul(alpha);
  if (other._nnz() == 0) return set_entries(out, self, self._indices(), values, coalesced);
  if (self._nnz() == 0) return set_entries(out, other, other._indices(), more, coalesced);
  TORCH_CHECK(self.sparse_dim() == other.sparse_dim(),
              "add: expected 'self' and 'other' to have same density, but 'self' has ",
              self.sparse_dim(), " sparse dimensions while 'other' has ", other.sparse_dim());
  const Tensor indices = at::cat({self._indices(), other._indices()}, 1);
  const Tensor entries = at::cat({values, more}, 0);
  // One entry for a place, but said to be so only where both terms' were: as on the CPU.
  const Tensor sum = with_entries(other, indices, entries, false).coalesce();
  return set_entries(out, other, sum._indices(), sum._values(), coalesced);
}

/// Entries at the places that both have.
Tensor& mul_sparse_out(const Tensor& self, const Tensor& other, Tensor& out) {
  TORCH_CHECK(self.sizes() == other.sizes(),
              "mul: expected 'self' and 'other' to have same sizes when both are sparse, but ",
              self.sizes(), " != ", other.sizes());
  const c10::ScalarType common = checked_type("mul", self, other, out);
  if (self._nnz() == 0 || other._nnz() == 0) {
    const Tensor indices = self._indices().narrow(1, 0, 0);
    return set_entries(out, self, indices, self._values().narrow(0, 0, 0).to(common), true);
  }
  // Entries in order, but said to be only where both factors' were: as upstream's.
  const bool coalesced = self.is_coalesced() && other.is_coalesced();
  const Tensor a = self.coalesce(), b = other.coalesce();
  TORCH_CHECK(a.sparse_dim() == b.sparse_dim(), "mul: expected 'self' and 'other' to have ",
              a.sparse_dim(), " sparse dimensions, but 'other' has ", b.sparse_dim());
  const Tensor place = places(a), wanted = places(b);
  const Tensor found = at::searchsorted(place, wanted).clamp_max_(a._nnz() - 1);
  const Tensor in_b = place.index_select(0, found).eq(wanted).nonzero().select(1, 0);
  const Tensor in_a = found.index_select(0, in_b);
  const Tensor products =
      a._values().index_select(0, in_a).to(common).mul_(b._values().index_select(0, in_b));
  return set_entries(out, b, b._indices().index_select(1, in_b), products, coalesced);
}

Tensor& mul_out(const Tensor& self, const Tensor& other, Tensor& out) {
  if (self.is_sparse() && other.is_sparse()) return mul_sparse_out(self, other, out);
  return at::native::mul_out_sparse_cpu(self, other, out);
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("add.out", TORCH_FN(add_out));
  m.impl("mul.out", TORCH_FN(mul_out));
}

}  // namespace

}  // namespace ocl::native
