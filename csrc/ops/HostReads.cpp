// Composite functions of upstream that read a tensor's elements by their addresses, as if all were
// CPUs, and what they do on this device. Those that it lacks are named in Fallback.cpp.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/_nested_from_padded_native.h>
#include <ATen/ops/_nested_view_from_buffer_native.h>
#include <ATen/ops/_reshape_from_tensor_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/grid_sampler_2d_backward.h>
#include <ATen/ops/gru_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/lstm_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/rnn_relu_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/rnn_tanh_compositeimplicitautograd_dispatch.h>
#include <torch/library.h>

#include "ops/_grid_sampler_2d_cpu_fallback.h"
#include "ops/_nested_from_padded.h"
#include "ops/_nested_view_from_buffer.h"
#include "ops/grid_sampler_2d.h"

namespace ocl::native {

using at::Tensor;

namespace {

void check_on_host(const char* op, const char* name, const Tensor& tensor) {
  TORCH_CHECK(tensor.is_cpu(), op, ": ", name, " must be on the CPU, but is on ", tensor.device());
}

namespace composite = at::compositeimplicitautograd;

Tensor _reshape_from_tensor(const Tensor& self, const Tensor& shape) {
  return composite::_reshape_from_tensor(self, shape.cpu());
}

Tensor _saturate_weight_to_fp16(const Tensor& weight) {
  TORCH_CHECK(weight.scalar_type() == at::kFloat, "expected scalar type Float but found ",
              weight.scalar_type());
  constexpr double kMost = 65504;
  weight.contiguous().clamp_(-kMost, kMost);
  return weight;
}

std::tuple<Tensor, Tensor> _grid_sampler_2d_cpu_fallback_backward(
    const Tensor& grad_output, const Tensor& input, const Tensor& grid, int64_t interpolation_mode,
    int64_t padding_mode, bool align_corners) {
  return at::grid_sampler_2d_backward(grad_output, input, grid, interpolation_mode, padding_mode,
                                      align_corners, {true, true});
}

using Layers = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                          at::TensorList, bool, int64_t, double, bool, bool);

template <Layers* layers>
std::tuple<Tensor, Tensor> packed_layers(const Tensor& data, const Tensor& batch_sizes,
                                         const Tensor& hx, at::TensorList params, bool has_biases,
                                         int64_t num_layers, double dropout, bool train,
                                         bool bidirectional) {
  check_on_host("rnn", "batch_sizes", batch_sizes);
  return layers(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train,
                bidirectional);
}

std::tuple<Tensor, Tensor, Tensor> packed_lstm(const Tensor& data, const Tensor& batch_sizes,
                                               at::TensorList hx, at::TensorList params,
                                               bool has_biases, int64_t num_layers, double dropout,
                                               bool train, bool bidirectional) {
  check_on_host("lstm", "batch_sizes", batch_sizes);
  return composite::lstm(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train,
                         bidirectional);
}

void implement(torch::Library& m) {
  m.impl("_grid_sampler_2d_cpu_fallback_backward",
         TORCH_FN(_grid_sampler_2d_cpu_fallback_backward));
  m.impl("_reshape_from_tensor", TORCH_FN(_reshape_from_tensor));
  m.impl("_saturate_weight_to_fp16", TORCH_FN(_saturate_weight_to_fp16));
  m.impl("gru.data", TORCH_FN(packed_layers<composite::gru>));
  m.impl("lstm.data", TORCH_FN(packed_lstm));
  m.impl("rnn_relu.data", TORCH_FN(packed_layers<composite::rnn_relu>));
  m.impl("rnn_tanh.data", TORCH_FN(packed_layers<composite::rnn_tanh>));
}

}  // namespace

Tensor _grid_sampler_2d_cpu_fallback(const Tensor& input, const Tensor& grid,
                                     int64_t interpolation_mode, int64_t padding_mode,
                                     bool align_corners) {
  return grid_sampler_2d(input, grid, interpolation_mode, padding_mode, align_corners);
}

Tensor _nested_from_padded(const Tensor& padded, const Tensor& cpu_nested_shape_example,
                           bool fuse_transform_0213) {
  check_on_host("_nested_from_padded", "cpu_nested_shape_example", cpu_nested_shape_example);
  return at::native::nested_from_padded_generic(padded, cpu_nested_shape_example,
                                                fuse_transform_0213);
}

Tensor _nested_view_from_buffer(const Tensor& self, const Tensor& nested_size,
                                const Tensor& nested_strides, const Tensor& offsets) {
  check_on_host("_nested_view_from_buffer", "nested_size", nested_size);
  check_on_host("_nested_view_from_buffer", "nested_strides", nested_strides);
  check_on_host("_nested_view_from_buffer", "offsets", offsets);
  return at::native::_nested_view_from_buffer(self, nested_size, nested_strides, offsets);
}

// Composite functions are registered below autograd too, for inference mode.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { implement(m); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { implement(m); }

}  // namespace ocl::native
