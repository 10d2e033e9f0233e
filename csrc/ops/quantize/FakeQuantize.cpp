// Fake quantisation per tensor and per channel, its gradients, and the observer of
// quantisation-aware training.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/quantized/FakeQuantAffine.h>
#include <ATen/ops/_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/fake_quantize_per_channel_affine_cachemask.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <limits>

#include "engine/device_table.h"
#include "engine/kernel_types.h"
#include "engine/pointwise/pointwise.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "ops/_fused_moving_avg_obs_fq_helper.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

using pointwise::flag::two_outputs;
const pointwise::Op tensor_op{"fake_quantize", 4, two_outputs};
const pointwise::Op tensor_qparams_op{"fake_quantize_tensor", 2, two_outputs};
const pointwise::Op channel_op{"fake_quantize_channel", 2, two_outputs};
const pointwise::Op backward_op{"fake_quantize_backward", 4, two_outputs};
const pointwise::Op zero_backward_op{"fake_quantize_zero_backward", 4};
const pointwise::Op channel_backward_op{"fake_quantize_channel_backward", 2, two_outputs};
const pointwise::Op channel_zero_backward_op{"fake_quantize_channel_zero_backward", 2};
const KernelFamily observe_family{"quantize/moving_average.cl", "observe"};

/// Outputs and inputs of any dtypes; the last input's is computed in.
void run(const pointwise::Op& op, std::initializer_list<at::TensorBase> outputs,
         std::initializer_list<at::TensorBase> inputs, std::span<const c10::Scalar> scalars) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).resize_outputs(false);
  for (const at::TensorBase& output : outputs) config.add_owned_output(output);
  for (const at::TensorBase& input : inputs) config.add_owned_const_input(input);
  auto iter = config.build();
  pointwise::run(iter, op, scalars);
}

using namespace kernel_types;
#include "quantize/arguments.clh"

}  // namespace

void fake_quant_tensor_cachemask(at::Tensor& output, at::Tensor& mask, const at::Tensor& input,
                                 float scale, int64_t zero_point, int64_t quant_min,
                                 int64_t quant_max) {
  const c10::Scalar scalars[] = {scale, 1.0f / scale, quant_min - zero_point,
                                 quant_max - zero_point};
  run(tensor_op, {output, mask}, {input}, scalars);
}

void fake_quant_tensor_cachemask_tensor_qparams(at::Tensor& output, at::Tensor& mask,
                                                const at::Tensor& input, const at::Tensor& scale,
                                                const at::Tensor& zero_point,
                                                const at::Tensor& enabled, int64_t quant_min,
                                                int64_t quant_max) {
  const c10::Scalar scalars[] = {quant_min, quant_max};
  run(tensor_qparams_op, {output, mask},
      {scale.reshape({}), zero_point.reshape({}), enabled.reshape({}), input}, scalars);
}

void fake_quant_per_channel_cachemask(at::TensorIterator& iter, at::TensorIterator& mask_iter,
                                      int64_t quant_min, int64_t quant_max) {
  const c10::Scalar scalars[] = {quant_min, quant_max};
  run(channel_op, {iter.tensor(0), mask_iter.tensor(0)},
      {iter.tensor(2), iter.tensor(3), iter.tensor(1)}, scalars);
}

void fake_quant_grad_learnable_tensor(at::TensorIterator& iter, float scale, float inv_scale,
                                      int64_t zero_point, int64_t quant_min, int64_t quant_max,
                                      float grad_factor) {
  const c10::Scalar scalars[] = {scale, inv_scale, quant_min - zero_point, quant_max - zero_point};
  const at::Tensor &x = iter.tensor(3), &grad = iter.tensor(4);
  run(backward_op, {iter.tensor(0), iter.tensor(1)}, {x, grad}, scalars);
  run(zero_backward_op, {iter.tensor(2)}, {x, grad}, scalars);
  if (grad_factor == 1) return;
  for (int k : {1, 2}) at::Tensor(iter.tensor(k)).mul_(grad_factor);
}

void fake_quant_grad_learnable_channel(at::TensorIterator& iter, int64_t quant_min,
                                       int64_t quant_max, float grad_factor) {
  const c10::Scalar scalars[] = {quant_min, quant_max};
  const at::Tensor &x = iter.tensor(3), &grad = iter.tensor(4), &scale = iter.tensor(5),
                   &zero_point = iter.tensor(6);
  run(channel_backward_op, {iter.tensor(0), iter.tensor(1)}, {scale, zero_point, x, grad}, scalars);
  run(channel_zero_backward_op, {iter.tensor(2)}, {scale, zero_point, x, grad}, scalars);
  if (grad_factor == 1) return;
  for (int k : {1, 2}) at::Tensor(iter.tensor(k)).mul_(grad_factor);
}

std::tuple<at::Tensor, at::Tensor> _fused_moving_avg_obs_fq_helper(
    const at::Tensor& self, const at::Tensor& observer_on, const at::Tensor& fake_quant_on,
    at::Tensor& running_min, at::Tensor& running_max, at::Tensor& scale, at::Tensor& zero_point,
    double averaging_const, int64_t quant_min, int64_t quant_max, int64_t ch_axis,
    bool per_row_fake_quant, bool symmetric_quant) {
  TORCH_CHECK(ch_axis < self.dim(),
              "Error in fused_moving_avg_obs_fake_quant: ch_axis must be < "
              "self.dim()");
  const int64_t channels = per_row_fake_quant ? self.size(ch_axis) : 1;
  if (per_row_fake_quant) {
    // An observer that has seen nothing may come with a scale and zero point of one element.
    const bool unseen = running_min.numel() == 0;
    const auto fill = [&](at::Tensor& tensor, double value) {
      if (unseen || tensor.numel() == 0) tensor.resize_({channels}).fill_(value);
    };
    const double infinity = std::numeric_limits<double>::infinity();
    fill(running_min, infinity);
    fill(running_max, -infinity);
    fill(scale, 1);
    fill(zero_point, 0);
  }
  for (const at::Tensor* tensor : {&running_min, &running_max, &scale, &zero_point}) {
    const bool whole = tensor == &zero_point;
    TORCH_CHECK(tensor->numel() == channels && tensor->is_contiguous() &&
                    tensor->scalar_type() == (whole ? at::kInt : at::kFloat),
                "fused_moving_avg_obs_fake_quant: running_min, running_max and scale must be "
                "floats and zero_point ints, ",
                channels, " of each");
  }
  const auto [low, high] =
      per_row_fake_quant ? at::aminmax(self.transpose(0, ch_axis).reshape({channels, -1}), 1, false)
                         : at::aminmax(self, std::nullopt, false);
  const at::Tensor seen_low = low.to(at::kFloat).contiguous();
  const at::Tensor seen_high = high.to(at::kFloat).contiguous();
  const at::Tensor observes = observer_on.to(at::kLong).contiguous();
  const at::Tensor quantises = fake_quant_on.to(at::kLong).contiguous();
  Queue& queue = current_queue(self.device().index());
  ObserverArguments arguments{};
  arguments.channels = static_cast<uint32_t>(channels);
  arguments.symmetric = symmetric_quant;
  arguments.rate = static_cast<float>(averaging_const);
  arguments.lowest = static_cast<float>(quant_min);
  arguments.highest = static_cast<float>(quant_max);
  const auto pointer = [](const at::Tensor& operand) { return Pointer{operand.const_data_ptr()}; };
  launch(observe_family.get(queue.device(), {}), queue,
         NDRange::linear(channels, group_of_lanes(queue.device())), pointer(seen_low),
         pointer(seen_high), pointer(running_min), pointer(running_max), pointer(scale),
         pointer(zero_point), pointer(observes), pointer(quantises), arguments);
  if (!per_row_fake_quant) {
    return at::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
        self, scale, zero_point, fake_quant_on, quant_min, quant_max);
  }
  // Chosen on the device: asking there whether it is on would make the host wait.
  const auto [output, mask] = at::fake_quantize_per_channel_affine_cachemask(
      self, scale, zero_point, ch_axis, quant_min, quant_max);
  const at::Tensor quantise = fake_quant_on.ne(0).reshape({});
  return {at::where(quantise, output, self), mask.logical_or(quantise.logical_not())};
}

}  // namespace ocl::native
