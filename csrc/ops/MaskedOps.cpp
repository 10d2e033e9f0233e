// Ops over a mask, and the coordinates of nonzero elements.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index.h>
#include <ATen/ops/scalar_tensor.h>

#include "engine/dtype.h"
#include "engine/index_nonzero.h"
#include "engine/pointwise.h"
#include "ops/DtypeChecks.h"
#include "ops/masked_scatter.h"
#include "ops/masked_select.h"
#include "ops/nonzero.h"
#include "ops/nonzero_static.h"

namespace ocl::native {

namespace {

const pointwise::Op where_op{"where", 0, pointwise::flag::bits};

using OptionalTensors = c10::List<std::optional<at::Tensor>>;

void check_nonzero_out(const at::Tensor& self, const at::Tensor& out) {
  check_supported("nonzero", self.scalar_type(), !c10::isFloat8Type(self.scalar_type()));
  TORCH_CHECK(out.scalar_type() == at::kLong,
              "nonzero: Expected out tensor to have scalar type Long but got scalar type ",
              out.scalar_type());
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
}

}  // namespace

// Upstream's iterator holds self and mask.
void masked_fill(at::TensorIterator& iter, const c10::Scalar& value) {
  const at::Tensor self = iter.tensor(0);
  check_scalar(self.scalar_type(), value);
  // A host scalar of the iterator becomes a kernel argument.
  const at::Tensor fill =
      at::scalar_tensor(value, at::TensorOptions().dtype(self.scalar_type()).device(at::kCPU));
  auto select = at::TensorIteratorConfig()
                    .set_check_mem_overlap(false)
                    .check_all_same_dtype(false)
                    .resize_outputs(false)
                    .allow_cpu_scalars(true)
                    .add_output(self)
                    .add_const_input(iter.tensor(1))
                    .add_const_input(fill)
                    .add_const_input(self)
                    .build();
  pointwise::run(select, where_op);
}

at::Tensor& masked_select_out(const at::Tensor& self, const at::Tensor& mask, at::Tensor& out) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "masked_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, mask);
  const auto [mask_expanded, self_expanded] = at::expand_outplace(mask, self);
  OptionalTensors indices;
  at::Tensor source = *self_expanded;
  if (source.dim() == 0) source = source.unsqueeze(0);
  indices.push_back(mask_expanded->dim() == 0 ? mask_expanded->unsqueeze(0) : *mask_expanded);
  const at::Tensor selected = at::index(source, indices);
  at::native::resize_output(out, selected.sizes());
  return out.copy_(selected);
}

at::Tensor masked_select(const at::Tensor& self, const at::Tensor& mask) {
  at::Tensor out = at::empty({0}, self.options());
  return masked_select_out(self, mask, out);
}

at::Tensor& masked_scatter_(at::Tensor& self, const at::Tensor& mask, const at::Tensor& source) {
  at::assert_no_internal_overlap(self);
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "masked_scatter: expected self and source to have same dtypes but got",
              self.scalar_type(), " and ", source.scalar_type());
  if (mask.scalar_type() == at::kByte) {
    TORCH_WARN(
        "masked_scatter_ received a mask with dtype torch.uint8, this behavior is now "
        "deprecated,please use a mask with dtype torch.bool instead.");
  }
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "masked_scatter_ only supports boolean masks, "
              "but got mask with dtype ",
              mask.scalar_type());
  const auto expanded = at::expand_inplace(self, mask, "masked_scatter_");
  const at::Tensor flat_mask = expanded->contiguous().view(-1);
  const index::NonzeroScan scan(flat_mask);
  const int64_t count = scan.total();
  TORCH_CHECK(count <= source.numel(), "masked_scatter: expected number of source elements (",
              source.numel(), ") to be at least the number of ones in the mask (", count, ")");
  if (count == 0) return self;
  const at::Tensor places = at::empty({count, 1}, self.options().dtype(at::kLong));
  scan.write(places);
  const at::Tensor dense = self.contiguous();
  dense.view(-1).index_copy_(0, places.view(-1), source.contiguous().view(-1).narrow(0, 0, count));
  if (!dense.is_same(self)) self.copy_(dense);
  return self;
}

at::Tensor& nonzero_out(const at::Tensor& self, at::Tensor& out) {
  check_nonzero_out(self, out);
  const index::NonzeroScan scan(self);
  const int64_t total = scan.total();
  if (at::native::resize_output(out, {total, self.dim()})) {
    // As on the CPU: the coordinates along one dimension, which indexing takes apart, are
    // contiguous.
    out.as_strided_({total, self.dim()}, {1, total});
  }
  scan.write(out);
  return out;
}

at::Tensor nonzero(const at::Tensor& self) {
  at::Tensor out = at::empty({0}, self.options().dtype(at::kLong));
  return nonzero_out(self, out);
}

at::Tensor& nonzero_static_out(const at::Tensor& self, int64_t size, int64_t fill_value,
                               at::Tensor& out) {
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  check_nonzero_out(self, out);
  at::native::resize_output(out, {size, self.dim()});
  if (out.numel() == 0) return out;
  out.fill_(fill_value);
  index::NonzeroScan(self).write(out);
  return out;
}

at::Tensor nonzero_static(const at::Tensor& self, int64_t size, int64_t fill_value) {
  at::Tensor out = at::empty({size < 0 ? 0 : size, self.dim()}, self.options().dtype(at::kLong));
  return nonzero_static_out(self, size, fill_value, out);
}

}  // namespace ocl::native
