// torch_ocl::rnnt_loss: the loss of an RNN transducer and its gradient, as torchaudio asks for it
// (A. Graves, "Sequence Transduction with Recurrent Neural Networks", 2012). The sums over paths
// are a kernel's. torch_ocl/integrations/torchaudio.py registers it.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <limits>
#include <tuple>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

using at::Tensor;

const KernelFamily family{"loss/transducer.cl", "transducer"};

using namespace kernel_types;
#include "loss/transducer_arguments.clh"

void check_inputs(const Tensor& logits, const Tensor& targets, const Tensor& logit_lengths,
                  const Tensor& target_lengths, int64_t blank) {
  TORCH_CHECK(logits.scalar_type() == at::kFloat || logits.scalar_type() == at::kHalf,
              "logits must be float32 or float16 (half) type");
  for (const Tensor* lengths : {&targets, &logit_lengths, &target_lengths}) {
    TORCH_CHECK(lengths->scalar_type() == at::kInt,
                "targets, logit_lengths and target_lengths must be int32 type");
  }
  TORCH_CHECK(logits.dim() == 4, "logits must be 4-D (batch, time, target, class)");
  TORCH_CHECK(targets.dim() == 2, "targets must be 2-D (batch, max target length)");
  TORCH_CHECK(logit_lengths.dim() == 1, "logit_lengths must be 1-D");
  TORCH_CHECK(target_lengths.dim() == 1, "target_lengths must be 1-D");
  TORCH_CHECK(logit_lengths.size(0) == logits.size(0),
              "batch dimension mismatch between logits and logit_lengths");
  TORCH_CHECK(target_lengths.size(0) == logits.size(0),
              "batch dimension mismatch between logits and target_lengths");
  TORCH_CHECK(targets.size(0) == logits.size(0),
              "batch dimension mismatch between logits and targets");
  TORCH_CHECK(blank >= 0 && blank < logits.size(-1), "blank must be within [0, logits.shape[-1])");
  TORCH_CHECK(logits.size(2) == targets.size(1) + 1, "output length mismatch");
  TORCH_CHECK(logits.size(1) == logit_lengths.max().item<int>(), "input length mismatch");
  TORCH_CHECK(logits.size(2) == target_lengths.max().item<int>() + 1, "output length mismatch");
}

/// Minus infinity beyond the table's end.
Tensor shifted(const Tensor& table, int64_t dim) {
  Tensor moved = at::full(table.sizes(), -std::numeric_limits<double>::infinity(), table.options());
  const int64_t rest = table.size(dim) - 1;
  if (rest > 0) moved.narrow(dim, 0, rest).copy_(table.narrow(dim, 1, rest));
  return moved;
}

/// The losses [batch] and the gradient of their sum to the logits.
std::tuple<Tensor, Tensor> rnnt_loss(const Tensor& logits, const Tensor& targets,
                                     const Tensor& logit_lengths, const Tensor& target_lengths,
                                     int64_t blank, double clamp, bool fused_log_softmax) {
  const c10::DeviceGuard guard(logits.device());
  check_inputs(logits, targets, logit_lengths, target_lengths, blank);
  const int64_t batch = logits.size(0), times = logits.size(1), labels = logits.size(2);
  const Tensor scores = logits.to(at::kFloat);
  // Logarithms of probabilities, of which torchaudio hands on those or scores.
  const Tensor known =
      fused_log_softmax ? scores.sub(at::logsumexp(scores, {3}, /*keepdim=*/true)) : scores;
  const Tensor of_blank = known.select(3, blank).contiguous();
  // The label that comes next; after the last one any, which no path takes.
  Tensor next = at::zeros({batch, labels}, targets.options().dtype(at::kLong));
  if (labels > 1) next.narrow(1, 0, labels - 1).copy_(targets);
  next = next.view({batch, 1, labels, 1}).expand({batch, times, labels, 1});
  const Tensor of_label = known.gather(3, next).squeeze(3).contiguous();

  const double none = -std::numeric_limits<double>::infinity();
  const Tensor forward = at::full({batch, times, labels}, none, scores.options());
  const Tensor backward = at::full({batch, times, labels}, none, scores.options());
  const Tensor lengths = logit_lengths.contiguous(), counts = target_lengths.contiguous();
  Queue& queue = current_queue(logits.device().index());
  Device& device = queue.device();
  const size_t group = device.is_cpu() ? 1 : group_of_lanes(device);
  const TransducerArguments arguments{static_cast<uint32_t>(times), static_cast<uint32_t>(labels)};
  launch(family.get(device, {{"GROUP", group}, {"C", tag(at::kFloat)}}), queue,
         NDRange::linear(static_cast<size_t>(batch) * group, group),
         Pointer{of_blank.const_data_ptr()}, Pointer{of_label.const_data_ptr()},
         Pointer{lengths.const_data_ptr()}, Pointer{counts.const_data_ptr()},
         Pointer{forward.mutable_data_ptr()}, Pointer{backward.mutable_data_ptr()}, arguments);

  const Tensor likelihood = backward.select(1, 0).select(1, 0);  // [batch]
  const Tensor total = likelihood.view({batch, 1, 1});
  // A step of each kind leads here: after the very last blank, the end.
  Tensor after_blank = shifted(backward, 1);
  const auto index_options = targets.options().dtype(at::kLong);
  const Tensor time = at::arange(times, index_options).view({1, times, 1});
  const Tensor label = at::arange(labels, index_options).view({1, 1, labels});
  const Tensor at_end =
      time.eq(lengths.view({batch, 1, 1}).sub(1)).logical_and(label.eq(counts.view({batch, 1, 1})));
  after_blank = after_blank.masked_fill(at_end, 0);
  const Tensor reached = forward.sub(total);
  const Tensor by_blank = reached.add(of_blank).add_(after_blank).exp_();
  const Tensor by_label = reached.add(of_label).add_(shifted(backward, 2)).exp_();
  Tensor grad = fused_log_softmax ? known.add(reached.add(backward).unsqueeze(3)).exp_()
                                  : at::zeros(logits.sizes(), scores.options());
  grad.select(3, blank).sub_(by_blank);
  grad.scatter_add_(3, next, by_label.neg().unsqueeze(3));
  if (clamp > 0) grad.clamp_(-clamp, clamp);
  return {likelihood.neg().to(logits.scalar_type()), grad.to(logits.scalar_type())};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ocl, library) {
  library.def(
      "rnnt_loss(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, int "
      "blank, float clamp, bool fused_log_softmax) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(torch_ocl, PrivateUse1, library) {
  library.impl("rnnt_loss", TORCH_FN(rnnt_loss));
}

}  // namespace ocl::native
