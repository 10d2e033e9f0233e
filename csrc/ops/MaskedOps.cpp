// Ops over a mask, and the coordinates of nonzero elements.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <vector>

#include "engine/dtype.h"
#include "engine/index/nonzero.h"
#include "engine/pointwise/pointwise.h"
#include "ops/DtypeChecks.h"
#include "ops/masked_scatter.h"
#include "ops/masked_select.h"
#include "ops/nonzero.h"
#include "ops/nonzero_static.h"

namespace ocl::native {

namespace {

const pointwise::Op where_op{"where", 0, pointwise::flag::bits};

using OptionalTensors = c10::List<std::optional<at::Tensor>>;

void check_nonzero_in(const at::Tensor& self) {
  check_supported("nonzero", self.scalar_type(), !c10::isFloat8Type(self.scalar_type()));
}

void check_nonzero_out(const at::Tensor& self, const at::Tensor& out) {
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

namespace {

/// The elements of `source`, which overlaps `self`, that arrive at `places`, in order: one that was
/// written by then has got an earlier element's value, as on the CPU, which writes one after the
/// other. `places` are ascending positions among self's elements.
at::Tensor taken_in_order(const at::Tensor& self, const at::Tensor& source,
                          const at::Tensor& places) {
  const int64_t count = places.numel(), unwritten = count;
  const auto last = [](const at::Tensor& tensor) {
    int64_t at = tensor.storage_offset();
    for (int64_t d = 0; d < tensor.dim(); ++d) at += (tensor.size(d) - 1) * tensor.stride(d);
    return at;
  };
  // Which write comes to an element of the memory, and which has come before it is read.
  const at::Tensor writes =
      at::full({std::max(last(self), last(source)) + 1}, unwritten, places.options());
  const at::Tensor order = at::full({self.numel()}, unwritten, places.options());
  const at::Tensor numbers = at::arange(count, places.options());
  order.index_copy_(0, places, numbers);
  writes.as_strided(self.sizes(), self.strides(), self.storage_offset()).copy_(order.view_as(self));
  const at::Tensor read = writes.narrow(0, source.storage_offset(), count);
  at::Tensor origin = at::where(read.lt(numbers), read, numbers);
  // Each step doubles how far back the values are followed.
  for (int64_t reach = 1; reach < count; reach *= 2) origin = origin.index_select(0, origin);
  return source.view(-1).index_select(0, origin);
}

}  // namespace

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
  const at::Tensor places = native::nonzero(flat_mask).view(-1);
  const int64_t count = places.numel();
  TORCH_CHECK(count <= source.numel(), "masked_scatter: expected number of source elements (",
              source.numel(), ") to be at least the number of ones in the mask (", count, ")");
  if (count == 0) return self;
  const at::Tensor values = source.contiguous();
  const at::Tensor taken = values.is_alias_of(self) ? taken_in_order(self, values, places)
                                                    : values.view(-1).narrow(0, 0, count);
  const at::Tensor dense = self.contiguous();
  dense.view(-1).index_copy_(0, places, taken);
  if (!dense.is_same(self)) self.copy_(dense);
  return self;
}

namespace {

/// The most elements that the kernels number.
constexpr int64_t kMaxScanned = int64_t{1} << 30;

bool is_scanned(const at::Tensor& self) {
  return self.dim() <= index::NonzeroScan::kMaxDims && self.numel() <= kMaxScanned;
}

/// nonzero() of what the kernels don't take at once: the positions in the tensor laid out as a
/// vector, piece by piece, and what they are as coordinates.
at::Tensor nonzero_in_pieces(const at::Tensor& self) {
  const at::Tensor flat = self.reshape(-1);
  std::vector<at::Tensor> pieces;
  for (int64_t start = 0; start < flat.numel(); start += kMaxScanned) {
    const int64_t size = std::min(kMaxScanned, flat.numel() - start);
    pieces.push_back(native::nonzero(flat.narrow(0, start, size)).view(-1).add_(start));
  }
  at::Tensor position = at::cat(pieces);
  std::vector<at::Tensor> coordinates(self.dim());
  for (int64_t d = self.dim() - 1; d >= 0; --d) {
    coordinates[d] = position.remainder(self.size(d));
    position = position.div(self.size(d), "floor");
  }
  return at::stack(coordinates).t();
}

}  // namespace

at::Tensor& nonzero_out(const at::Tensor& self, at::Tensor& out) {
  check_nonzero_in(self);
  check_nonzero_out(self, out);
  // As on the CPU: the coordinates along one dimension, which indexing takes apart, are contiguous.
  const auto resize = [&](int64_t total) {
    if (at::native::resize_output(out, {total, self.dim()})) {
      out.as_strided_({total, self.dim()}, {1, total});
    }
  };
  if (self.numel() == 0 || is_scanned(self)) {
    const index::NonzeroScan scan(self);
    resize(scan.total());
    scan.write(out);
  } else {
    const at::Tensor found = nonzero_in_pieces(self);
    resize(found.size(0));
    out.copy_(found);
  }
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
  if (out.numel() == 0) return out;  // of any dtype
  check_nonzero_in(self);
  out.fill_(fill_value);
  if (self.numel() == 0 || is_scanned(self)) {
    index::NonzeroScan(self).write(out);
  } else {
    const at::Tensor found = nonzero_in_pieces(self);
    const int64_t rows = std::min(size, found.size(0));
    out.narrow(0, 0, rows).copy_(found.narrow(0, 0, rows));
  }
  return out;
}

at::Tensor nonzero_static(const at::Tensor& self, int64_t size, int64_t fill_value) {
  at::Tensor out = at::empty({size < 0 ? 0 : size, self.dim()}, self.options().dtype(at::kLong));
  return nonzero_static_out(self, size, fill_value, out);
}

}  // namespace ocl::native
