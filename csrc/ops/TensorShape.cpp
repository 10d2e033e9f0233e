// Ops that place elements elsewhere: flip, ...
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "engine/row_major.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "ops/DtypeChecks.h"
#include "ops/equal.h"
#include "ops/narrow_copy.h"
#include "ops/native_channel_shuffle.h"
#include "ops/repeat_interleave.h"
#include "ops/trace.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

// Rows of flip on CPUs: the shortest, the most that a work-item takes together, and its elements.
constexpr uint32_t kMinRow = 16, kMaxTogether = 64;

const KernelFamily flip_family{"shape/flip.cl", "copy_signed"};
const KernelFamily flip_rows_family{"shape/flip.cl", "copy_signed_rows"};
const KernelFamily unfold_family{"shape/unfold_backward.cl", "unfold_backward"};

const char* element_tag(at::ScalarType dtype) {
  const size_t size = c10::elementSize(dtype);
  return size == 16 ? "u128" : bits_tag(size);
}

using namespace kernel_types;
#include "shape/arguments.clh"
static_assert(kMaxDims == RowMajor::kMaxKernelDims);

void move_to_front(FlipArguments& layout, uint32_t dim) {
  std::rotate(layout.size, layout.size + dim, layout.size + dim + 1);
  for (auto& strides : layout.stride) std::rotate(strides, strides + dim, strides + dim + 1);
}

void flip_rows(Queue& queue, at::ScalarType dtype, Pointer out, Pointer in, FlipArguments layout) {
  // Behind dimensions too short for vectors a longer one takes their place, and they share a
  // work-item.
  layout.together = 1;
  for (uint32_t d = 0, before = 1; d < layout.dims && before <= kMaxTogether;
       before *= layout.size[d++]) {
    if (layout.size[d] < kMinRow) continue;
    layout.together = before;
    move_to_front(layout, d);
    break;
  }
  const auto element = static_cast<int32_t>(c10::elementSize(dtype));
  const auto out_step = static_cast<int32_t>(layout.stride[0][0]);
  const auto in_step = static_cast<int32_t>(layout.stride[1][0]);
  int turn = 0;
  if (element < 16 && std::abs(out_step) == element && std::abs(in_step) == element) {
    turn = out_step == in_step ? 1 : 2;
  }
  const uint32_t width = std::min(16, 64 / element);
  const uint32_t length = layout.size[0], rows = layout.n / length;
  const auto worthwhile = static_cast<uint32_t>(device_row(queue.device()).item_elements);
  layout.run = std::max(width, worthwhile / layout.together);
  layout.together *= std::max(1u, worthwhile / (std::min(layout.run, length) * layout.together));
  const size_t runs = ceil_div(length, layout.run);
  const size_t items = ceil_div(rows, layout.together);
  launch(flip_rows_family.get(queue.device(),
                              {{"E", element_tag(dtype)}, {"WIDTH", width}, {"TURN", turn}}),
         queue, NDRange::grid(runs, items, 1, 1), out, in, layout);
}

}  // namespace

// Upstream's iterator holds out (with negative strides in the dimensions to turn round), self and a
// dummy that keeps those dimensions apart.
void flip(at::TensorIterator& iter, const bool) {
  if (iter.numel() == 0) return;
  if (!iter.can_use_32bit_indexing()) {
    for (auto& part : iter.with_32bit_indexing()) flip(part, false);
    return;
  }
  const auto is_long = [](int64_t size) { return size > 1; };
  if (std::count_if(iter.shape().begin(), iter.shape().end(), is_long) > RowMajor::kMaxKernelDims) {
    at::TensorIterator rest(iter);
    const auto part = rest.split(rest.get_dim_to_split());
    flip(static_cast<at::TensorIterator&>(*part), false);
    flip(rest, false);
    return;
  }
  Queue& queue = current_queue(iter.device(0).index());
  FlipArguments layout{};
  const Pointer out{iter.data_ptr(0)}, in{iter.data_ptr(1)};
  layout.n = static_cast<uint32_t>(iter.numel());
  for (int d = 0; d < iter.ndim(); ++d) {
    if (!is_long(iter.shape()[d])) continue;  // what is left of one that was split
    layout.size[layout.dims] = static_cast<uint32_t>(iter.shape()[d]);
    for (int k = 0; k < 2; ++k)
      layout.stride[k][layout.dims] = static_cast<uint32_t>(iter.strides(k)[d]);
    ++layout.dims;
  }
  if (queue.device().is_cpu() && layout.dims > 0) {
    flip_rows(queue, iter.dtype(0), out, in, layout);
    return;
  }
  launch(flip_family.get(queue.device(), {{"E", element_tag(iter.dtype(0))}}), queue,
         element_range(queue.device(), layout.n), out, in, layout);
}

void unfold_backward(at::Tensor& grad_in, const at::Tensor& grad, int64_t dim, int64_t size,
                     int64_t step) {
  // grad_in is written: upstream's names are those of the forward pass.
  if (grad_in.numel() == 0) return;
  const at::Tensor out = grad_in.dim() == 0 ? grad_in.unsqueeze(0) : grad_in;
  dim = at::maybe_wrap_dim(dim, out.dim());
  const at::Tensor windows = grad_in.dim() == 0 ? grad.unsqueeze(0) : grad;
  const int64_t item = grad.itemsize();
  // The unfolded dimension goes innermost, and stands still in the gradient of the windows.
  const at::Tensor out_last = out.movedim(dim, -1);
  const at::Tensor in_last = windows.select(-1, 0).movedim(dim, -1);
  c10::DimVector strides(in_last.strides().begin(), in_last.strides().end());
  strides.back() = 0;
  const at::Tensor in_still = in_last.as_strided(out_last.sizes(), strides);
  const RowMajor layout = row_major(out_last.sizes(), {out_last, in_still}, /*merge=*/false);
  const int64_t extent =
      (windows.size(dim) - 1) * windows.stride(dim) * item + (size - 1) * windows.stride(-1) * item;
  TORCH_CHECK_NOT_IMPLEMENTED(layout.fits && extent < std::numeric_limits<int32_t>::max(),
                              "unfold_backward: more than 16 dimensions or 2 GiB");
  Queue& queue = current_queue(out.device().index());
  UnfoldArguments argument{};
  argument.n = static_cast<uint32_t>(layout.n);
  put_layout(argument, layout);
  argument.windows = static_cast<uint32_t>(windows.size(dim));
  argument.window_size = static_cast<uint32_t>(size);
  argument.window_distance = static_cast<uint32_t>(step);
  argument.window_step = static_cast<uint32_t>(windows.stride(dim) * item);
  argument.inside_step = static_cast<uint32_t>(windows.stride(-1) * item);
  launch(unfold_family.get(queue.device(), {{"E", tag(grad.scalar_type())},
                                            {"C", tag(compute_dtype(grad.scalar_type()))}}),
         queue, element_range(queue.device(), layout.n), Pointer{out.data_ptr()},
         Pointer{grad.data_ptr()}, argument);
}

// Upstream's function for other devices views the input as groups, which not all strides allow.
at::Tensor native_channel_shuffle(const at::Tensor& self, int64_t groups) {
  TORCH_CHECK(self.dim() > 2,
              "channel_shuffle expects input with > 2 dims, but got input with sizes ",
              self.sizes());
  TORCH_CHECK(groups > 0,
              "Number of groups to divide channels in must be positive. Value of groups:", groups);
  TORCH_CHECK(self.size(1) % groups == 0, "Number of channels must be divisible by groups. Got ",
              self.size(1), " channels and ", groups, " groups.");
  const std::array<int64_t, 2> split = {groups, self.size(1) / groups},
                               shuffled = {split[1], split[0]};
  const at::Tensor out = at::empty(self.sizes(), self.options(), self.suggest_memory_format());
  out.unflatten(1, shuffled).copy_(self.unflatten(1, split).transpose(1, 2));
  return out;
}

at::Tensor& narrow_copy_out(const at::Tensor& self, int64_t dim, int64_t start, int64_t length,
                            at::Tensor& out) {
  TORCH_CHECK(self.dim() > 0, "narrow() cannot be applied to a 0-dim tensor.");
  TORCH_CHECK(self.scalar_type() == out.scalar_type(), "Expected tensor to have dtype ",
              self.scalar_type(), " but got ", out.scalar_type());
  TORCH_CHECK(dim < self.dim(), "narrow_copy(): dimension ", dim, " of ", self.dim());
  // A start out of range counts before a length that is, an out= of another size is not warned of.
  const int64_t size = self.size(dim);
  TORCH_CHECK_INDEX(-size <= start && start <= size,
                    "start out of range (expected to be in range of [", -size, ", ", size,
                    "], but got ", start, ")");
  TORCH_CHECK(length >= 0, "narrow(): length must be non-negative.");
  const at::Tensor part = self.narrow(dim, start, length);
  out.resize_(part.sizes());
  return out.copy_(part);
}

at::Tensor narrow_copy(const at::Tensor& self, int64_t dim, int64_t start, int64_t length) {
  at::Tensor out = at::empty({0}, self.options());
  return narrow_copy_out(self, dim, start, length, out);
}

at::Tensor repeat_interleave_tensor(const at::Tensor& repeats, std::optional<int64_t> output_size) {
  check_supported("repeat_interleave", repeats.scalar_type(),
                  repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt);
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  if (repeats.numel() == 0) return at::empty_like(repeats);
  const at::Tensor ends = repeats.cumsum(0, at::kLong);
  // The host reads both at once: each would be a wait.
  const at::Tensor known = at::stack({repeats.min().to(at::kLong), ends[-1]}).cpu();
  const int64_t least = known.const_data_ptr<int64_t>()[0];
  const int64_t total = known.const_data_ptr<int64_t>()[1];
  TORCH_CHECK(least >= 0, "repeats can not be negative");
  TORCH_CHECK(!output_size || *output_size == total,
              "allocated size does not match required size: output_size is ",
              output_size.value_or(0), ", the repeats add up to ", total);
  // Position i belongs to the first element whose end is past i.
  return at::searchsorted(ends, at::arange(total, ends.options()), /*out_int32=*/false,
                          /*right=*/true)
      .to(repeats.scalar_type());
}

at::Tensor trace(const at::Tensor& self) {
  check_supported("trace", self.scalar_type(), self.scalar_type() != at::kBool);
  TORCH_CHECK(self.dim() == 2, "trace: expected a matrix, but got tensor with dim ", self.dim());
  return self.diagonal().sum();
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(),
              "Expected all tensors to be on the same device, but "
              "found at least two devices, ",
              self.device(), " and ", other.device(), "!");
  if (self.sizes() != other.sizes()) return false;
  if (self.numel() == 0) return true;
  if (self.is_alias_of(other) && self.dtype() == other.dtype() &&
      self.storage_offset() == other.storage_offset() && self.strides() == other.strides() &&
      self.is_neg() == other.is_neg() && self.is_conj() == other.is_conj() &&
      !self.is_floating_point() && !self.is_complex()) {
    return true;  // the same memory; only a NaN differs from itself
  }
  const auto same = [](const at::Tensor& x, const at::Tensor& y) {
    return at::eq(x, y).all().item<bool>();
  };
  constexpr int64_t kFirstPart = 1 << 16, kLargestPart = 1 << 26;
  const int64_t n = self.numel();
  if (n <= 4 * kFirstPart || !self.is_contiguous() || !other.is_contiguous()) {
    return same(self, other);
  }
  // In growing parts: tensors that differ mostly do so early, and no part's result is large.
  const at::Tensor x = self.view(-1), y = other.view(-1);
  for (int64_t first = 0, part = kFirstPart; first < n; first += part) {
    if (first > 0) part = std::min({16 * part, kLargestPart, n - first});
    if (!same(x.narrow(0, first, part), y.narrow(0, first, part))) return false;
  }
  return true;
}

}  // namespace ocl::native
