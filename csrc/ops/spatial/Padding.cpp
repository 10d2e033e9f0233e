// Reflection and replication padding; constant and circular padding are composites of other ops.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Padding.h>
#include <ATen/ops/empty.h>
#include <torch/headeronly/version.h>

#include <array>

#include "engine/dtype.h"
#include "engine/spatial/spatial.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "ops/DtypeChecks.h"
#include "ops/reflection_pad1d.h"
#include "ops/reflection_pad1d_backward.h"
#include "ops/reflection_pad2d.h"
#include "ops/reflection_pad2d_backward.h"
#include "ops/reflection_pad3d.h"
#include "ops/reflection_pad3d_backward.h"
#include "ops/replication_pad1d.h"
#include "ops/replication_pad1d_backward.h"
#include "ops/replication_pad2d.h"
#include "ops/replication_pad2d_backward.h"
#include "ops/replication_pad3d.h"
#include "ops/replication_pad3d_backward.h"
#include "ops/spatial/SpatialShapes.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

const KernelFamily pad_family{"spatial/pad.cl", "pad"};
const KernelFamily backward_family{"spatial/pad.cl", "pad_backward"};

enum class Mode : uint8_t { reflect, replicate };

/// `padding` starts with the last dimension's.
spatial::PadArguments arguments_of(at::IntArrayRef padding) {
  spatial::PadArguments arguments{};
  for (size_t i = 0; i < padding.size() / 2; ++i) {
    arguments.before[2 - i] = static_cast<int32_t>(padding[2 * i]);
  }
  return arguments;
}

int axes_of(at::IntArrayRef padding) { return static_cast<int>(padding.size() / 2); }

/// The lanes in which a CPU copies parts of rows: none where rows aren't contiguous.
int copied_lanes(const spatial::Operand& to, const spatial::Operand& from, int lanes) {
  const bool rows = to.stride[4] == 1 && from.stride[4] == 1;
  return rows && ocl::device(current_device()).is_cpu() ? lanes : 1;
}

void pad(const char* name, const at::Tensor& in, at::IntArrayRef padding, const at::Tensor& out,
         Mode mode) {
  check_supported(name, in.scalar_type(), in.scalar_type() != at::kBool);
  if (out.numel() == 0) return;
  follow_format(out, in);
  const int axes = axes_of(padding);
  const spatial::Operand to = spatial::operand(out, axes), from = spatial::operand(in, axes);
  const size_t element = in.itemsize();
  spatial::run(pad_family,
               {{"E", element == 16 ? "u128" : bits_tag(element)},
                {"REPLICATE", mode == Mode::replicate},
                {"COPY", element <= 8 ? copied_lanes(to, from, 16) : 1}},
               {to, from}, {.channel_lanes = element == 16 ? 1 : 16}, arguments_of(padding));
}

void pad_backward(const char* name, const at::Tensor& grad_out, const at::Tensor& in,
                  at::IntArrayRef padding, const at::Tensor& grad_in, Mode mode) {
  const at::ScalarType dtype = in.scalar_type();
  check_supported(name, dtype, at::isFloatingType(dtype) || at::isComplexType(dtype));
  check_same_dtype(grad_out, dtype);
  if (grad_in.numel() == 0) return;
  follow_format(grad_in, in);
  const int axes = axes_of(padding);
  const at::ScalarType acc = compute_dtype(dtype);
  const int lanes = at::isComplexType(dtype) ? 1 : static_cast<int>(64 / c10::elementSize(acc));
  const spatial::Operand to = spatial::operand(grad_in, axes);
  const spatial::Operand from = spatial::operand(grad_out, axes);
  spatial::run(backward_family,
               {{"IN", tag(dtype)},
                {"ACC", tag(acc)},
                {"REPLICATE", mode == Mode::replicate},
                {"COPY", copied_lanes(to, from, lanes)}},
               {to, from}, {.channel_lanes = lanes, .cost = 2}, arguments_of(padding));
}

/// The sizes of `in` with padding added; throws RuntimeError where it is negative.
c10::DimVector padded_sizes(const char* name, const at::Tensor& in, at::IntArrayRef padding) {
  c10::DimVector sizes(in.sizes().begin(), in.sizes().end());
  for (size_t i = 0; i < padding.size() / 2; ++i) {
    int64_t& size = sizes[sizes.size() - 1 - i];
    size += padding[2 * i] + padding[2 * i + 1];
    TORCH_CHECK(size >= 0, name, ": input of shape ", in.sizes(), " is too small for padding ",
                padding);
  }
  return sizes;
}

/// For reflections: padding has to be smaller than the dimension it mirrors.
void check_reflection(const at::Tensor& in, at::IntArrayRef padding) {
  for (size_t i = 0; i < padding.size(); ++i) {
    const int64_t dim = in.dim() - 1 - static_cast<int64_t>(i / 2);
    TORCH_CHECK(padding[i] < in.size(dim), "Argument #", 4 + i,
                ": Padding size should be less than the corresponding input dimension, but got: "
                "padding ",
                padding, " at dimension ", dim, " of input ", in.sizes());
  }
}

template <int axes>
void check_input(const at::Tensor& in, at::IntArrayRef padding) {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
  at::native::padding::check_valid_input(in, padding, axes);
#else
  at::native::padding::check_valid_input<axes>(in, padding);
#endif
}

template <int axes>
void resize_padded(const char* name, const at::Tensor& in, at::IntArrayRef padding,
                   at::Tensor& out) {
  check_input<axes>(in, padding);
  const c10::DimVector sizes = padded_sizes(name, in, padding);
  bool empty = false;
  for (size_t i = sizes.size() - axes; i < sizes.size(); ++i) empty |= sizes[i] == 0;
  TORCH_CHECK(!empty, name, ": input of shape ", in.sizes(), " is too small for padding ", padding);
  out.resize_(sizes, in.suggest_memory_format());
}

/// Checks of a gradient where upstream has no meta function.
template <int axes>
void check_gradient(const char* name, const at::Tensor& grad_out, const at::Tensor& in,
                    at::IntArrayRef padding) {
  check_input<axes>(in, padding);
  const c10::DimVector sizes = padded_sizes(name, in, padding);
  TORCH_CHECK(grad_out.sizes() == at::IntArrayRef(sizes), name, ": expected grad_output of shape ",
              at::IntArrayRef(sizes), ", but got ", grad_out.sizes());
}

at::Tensor empty_like_format(const at::Tensor& in) {
  return at::empty(in.sizes(), in.options().memory_format(in.suggest_memory_format()));
}

}  // namespace

void structured_reflection_pad1d_out::impl(const at::Tensor& self, at::IntArrayRef padding,
                                           const at::Tensor& out) {
  pad("reflection_pad1d", self, padding, out, Mode::reflect);
}

void structured_reflection_pad1d_backward_out::impl(const at::Tensor& grad_output,
                                                    const at::Tensor& self, at::IntArrayRef padding,
                                                    const at::Tensor& grad_input) {
  pad_backward("reflection_pad1d_backward", grad_output, self, padding, grad_input, Mode::reflect);
}

at::Tensor& reflection_pad2d_out(const at::Tensor& self, at::IntArrayRef padding, at::Tensor& out) {
  check_same_dtype(out, self.scalar_type());
  check_input<2>(self, padding);
  check_reflection(self, padding);
  resize_padded<2>("reflection_pad2d", self, padding, out);
  pad("reflection_pad2d", self, padding, out, Mode::reflect);
  return out;
}

at::Tensor reflection_pad2d(const at::Tensor& self, at::IntArrayRef padding) {
  at::Tensor out = at::empty({0}, self.options());
  return reflection_pad2d_out(self, padding, out);
}

at::Tensor& reflection_pad2d_backward_grad_input(const at::Tensor& grad_output,
                                                 const at::Tensor& self, at::IntArrayRef padding,
                                                 at::Tensor& grad_input) {
  check_gradient<2>("reflection_pad2d_backward", grad_output, self, padding);
  check_same_dtype(grad_input, self.scalar_type());
  grad_input.resize_(self.sizes(), self.suggest_memory_format());
  pad_backward("reflection_pad2d_backward", grad_output, self, padding, grad_input, Mode::reflect);
  return grad_input;
}

at::Tensor reflection_pad2d_backward(const at::Tensor& grad_output, const at::Tensor& self,
                                     at::IntArrayRef padding) {
  at::Tensor grad_input = empty_like_format(self);
  return reflection_pad2d_backward_grad_input(grad_output, self, padding, grad_input);
}

void structured_reflection_pad3d_out::impl(const at::Tensor& self, at::IntArrayRef padding,
                                           const at::Tensor& out) {
  pad("reflection_pad3d", self, padding, out, Mode::reflect);
}

void structured_reflection_pad3d_backward_out::impl(const at::Tensor& grad_output,
                                                    const at::Tensor& self, at::IntArrayRef padding,
                                                    const at::Tensor& grad_input) {
  pad_backward("reflection_pad3d_backward", grad_output, self, padding, grad_input, Mode::reflect);
}

void structured_replication_pad1d_out::impl(const at::Tensor& self, at::IntArrayRef padding,
                                            const at::Tensor& out) {
  pad("replication_pad1d", self, padding, out, Mode::replicate);
}

void structured_replication_pad1d_backward_out::impl(const at::Tensor& grad_output,
                                                     const at::Tensor& self,
                                                     at::IntArrayRef padding,
                                                     const at::Tensor& grad_input) {
  pad_backward("replication_pad1d_backward", grad_output, self, padding, grad_input,
               Mode::replicate);
}

void structured_replication_pad2d_out::impl(const at::Tensor& self, at::IntArrayRef padding,
                                            const at::Tensor& out) {
  pad("replication_pad2d", self, padding, out, Mode::replicate);
}

at::Tensor& replication_pad2d_backward_grad_input(const at::Tensor& grad_output,
                                                  const at::Tensor& self, at::IntArrayRef padding,
                                                  at::Tensor& grad_input) {
  check_gradient<2>("replication_pad2d_backward", grad_output, self, padding);
  check_same_dtype(grad_input, self.scalar_type());
  grad_input.resize_(self.sizes(), self.suggest_memory_format());
  pad_backward("replication_pad2d_backward", grad_output, self, padding, grad_input,
               Mode::replicate);
  return grad_input;
}

at::Tensor replication_pad2d_backward(const at::Tensor& grad_output, const at::Tensor& self,
                                      at::IntArrayRef padding) {
  at::Tensor grad_input = empty_like_format(self);
  return replication_pad2d_backward_grad_input(grad_output, self, padding, grad_input);
}

void structured_replication_pad3d_out::impl(const at::Tensor& self, at::IntArrayRef padding,
                                            const at::Tensor& out) {
  pad("replication_pad3d", self, padding, out, Mode::replicate);
}

at::Tensor& replication_pad3d_backward_grad_input(const at::Tensor& grad_output,
                                                  const at::Tensor& self, at::IntArrayRef padding,
                                                  at::Tensor& grad_input) {
  check_gradient<3>("replication_pad3d_backward", grad_output, self, padding);
  check_same_dtype(grad_input, self.scalar_type());
  grad_input.resize_(self.sizes(), self.suggest_memory_format());
  pad_backward("replication_pad3d_backward", grad_output, self, padding, grad_input,
               Mode::replicate);
  return grad_input;
}

at::Tensor replication_pad3d_backward(const at::Tensor& grad_output, const at::Tensor& self,
                                      at::IntArrayRef padding) {
  at::Tensor grad_input = empty_like_format(self);
  return replication_pad3d_backward_grad_input(grad_output, self, padding, grad_input);
}

}  // namespace ocl::native
