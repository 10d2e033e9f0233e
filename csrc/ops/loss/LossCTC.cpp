// _ctc_loss and its gradient. Lengths are host numbers, which shapes depend on; a launch takes
// those of as many samples as fit a kernel's parameters.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <vector>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/device_assert.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "ops/_ctc_loss.h"
#include "ops/_ctc_loss_backward.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

const KernelFamily forward_family{"loss/ctc.cl", "ctc_forward"};
const KernelFamily beta_family{"loss/ctc.cl", "ctc_beta"};
const KernelFamily gradient_family{"loss/ctc.cl", "ctc_gradient"};
const AssertSite target_site{"ctc_loss"};

using namespace kernel_types;
#include "loss/arguments.clh"

struct Problem {
  /// Checks as CPU torch does.
  Problem(const at::Tensor& log_probs_, const at::Tensor& targets_, c10::IntArrayRef input_lengths_,
          c10::IntArrayRef target_lengths_, int64_t blank)
      : queue(current_queue(log_probs_.device().index())),
        device(queue.device()),
        targets(targets_),
        input_lengths(input_lengths_),
        target_lengths(target_lengths_) {
    TORCH_CHECK(log_probs_.numel() > 0, "log_probs tensor must not be empty");
    TORCH_CHECK(targets.scalar_type() == at::kInt || targets.scalar_type() == at::kLong,
                "Expected tensor for argument #2 'targets' to have scalar type Int or Long; but "
                "got ",
                targets.toString(), " instead (while checking arguments for ctc_loss)");
    TORCH_CHECK(log_probs_.dim() == 3, "Expected 3-dimensional tensor, but got ", log_probs_.dim(),
                "-dimensional tensor for argument #1 'log_probs' (while checking arguments for "
                "ctc_loss)");
    TORCH_CHECK(targets.dim() == 1 || targets.dim() == 2, "Expected 1 to 2 dimensions, but got ",
                targets.dim(),
                "-dimensional tensor for argument #2 'targets' (while checking arguments for "
                "ctc_loss)");
    const at::ScalarType dtype = log_probs_.scalar_type();
    TORCH_CHECK_NOT_IMPLEMENTED(dtype == at::kFloat || dtype == at::kDouble,
                                "\"ctc_loss\" not implemented for '", dtype, "'");
    log_probs = log_probs_.contiguous();
    const int64_t time = log_probs.size(0), batch = log_probs.size(1), classes = log_probs.size(2);
    TORCH_CHECK(0 <= blank && blank < classes, "blank must be in label range");
    check_lengths("input_lengths", input_lengths, batch);
    check_lengths("target_lengths", target_lengths, batch);
    const int64_t longest = *std::max_element(target_lengths.begin(), target_lengths.end());
    const int64_t longest_input = *std::max_element(input_lengths.begin(), input_lengths.end());
    TORCH_CHECK(longest_input <= time, "Expected input_lengths to have value at most ", time,
                ", but got value ", longest_input, " (while checking arguments for ctc_loss)");
    begins.resize(batch);
    int64_t position = 0;
    for (int64_t n = 0; n < batch; ++n) {
      begins[n] = targets.dim() == 1 ? position * targets.stride(0) : n * targets.stride(0);
      position += target_lengths[n];
    }
    const int64_t rows = targets.dim() == 1 ? position : batch;
    TORCH_CHECK(targets.size(0) == rows, "Expected tensor to have size ", rows,
                " at dimension 0, but got size ", targets.size(0),
                " for argument #2 'targets' (while checking arguments for ctc_loss)");
    TORCH_CHECK(targets.dim() == 1 || targets.size(1) >= longest,
                "Expected tensor to have size at least ", longest, " at dimension 1, but got size ",
                targets.dim() == 1 ? 0 : targets.size(1),
                " for argument #2 'targets' (while checking arguments for ctc_loss)");
    arguments.batch = batch;
    arguments.classes = classes;
    arguments.time = time;
    arguments.width = 2 * longest + 1;
    arguments.blank = blank;
    arguments.site = target_site.id();
    arguments.target_stride = targets.stride(-1);
    group = device.is_cpu() ? 1 : group_of_rows(device);
  }

  static void check_lengths(const char* name, c10::IntArrayRef lengths, int64_t batch) {
    TORCH_CHECK(lengths.size() == static_cast<size_t>(batch), name, " must be of size batch_size");
    const int64_t shortest = *std::min_element(lengths.begin(), lengths.end());
    TORCH_CHECK(shortest >= 0, "Expected ", name, " to have value at least 0, but got value ",
                shortest, " (while checking arguments for ctc_loss)");
  }

  Kernel& kernel(const KernelFamily& family) {
    return family.get(device, {{"E", tag(log_probs.scalar_type())},
                               {"TARGET", tag(targets.scalar_type())},
                               {"GROUP", group}});
  }

  /// Calls enqueue() for every stretch of samples, whose numbers stand in the arguments.
  template <class Enqueue>
  void for_samples(const Enqueue& enqueue) {
    for (uint32_t first = 0; first < arguments.batch; first += kSamples) {
      arguments.first = first;
      arguments.samples = std::min<uint32_t>(kSamples, arguments.batch - first);
      for (uint32_t k = 0; k < arguments.samples; ++k) {
        arguments.target_begin[k] = begins[first + k];
        arguments.input_length[k] = static_cast<uint32_t>(input_lengths[first + k]);
        arguments.target_length[k] = static_cast<uint32_t>(target_lengths[first + k]);
      }
      enqueue();
    }
  }
  /// Enqueues with the scores, the targets, and then `operands`. A target without labels has no
  /// memory; nothing of it is read then.
  template <class... Operands>
  void run(Kernel& kernel, const NDRange& range, const Operands&... operands) {
    launch(kernel, queue, range, Pointer{log_probs.const_data_ptr()},
           Pointer{targets.const_data_ptr()}, Pointer{operands.const_data_ptr()}..., arguments,
           device.asserts().mem());
  }
  NDRange by_sample() const { return NDRange::linear(arguments.samples * group, group); }

  Queue& queue;
  Device& device;
  at::Tensor log_probs, targets;
  c10::IntArrayRef input_lengths, target_lengths;
  std::vector<int64_t> begins;
  CtcArguments arguments{};
  size_t group;
};

}  // namespace

std::tuple<at::Tensor, at::Tensor> _ctc_loss(const at::Tensor& log_probs, const at::Tensor& targets,
                                             at::IntArrayRef input_lengths,
                                             at::IntArrayRef target_lengths, int64_t blank,
                                             bool zero_infinity) {
  // The composite ctc_loss replaces infinite losses; here it changes only the gradient.
  (void)zero_infinity;
  Problem problem(log_probs, targets, input_lengths, target_lengths, blank);
  CtcArguments& arguments = problem.arguments;
  const at::Tensor alpha =
      at::empty({arguments.batch, arguments.time, arguments.width}, log_probs.options());
  const at::Tensor nll = at::empty({arguments.batch}, log_probs.options());
  Kernel& kernel = problem.kernel(forward_family);
  problem.for_samples([&] { problem.run(kernel, problem.by_sample(), alpha, nll); });
  return {nll, alpha};
}

at::Tensor _ctc_loss_backward(const at::Tensor& grad, const at::Tensor& log_probs,
                              const at::Tensor& targets, at::IntArrayRef input_lengths,
                              at::IntArrayRef target_lengths, const at::Tensor& neg_log_likelihood,
                              const at::Tensor& log_alpha, int64_t blank, bool zero_infinity) {
  Problem problem(log_probs, targets, input_lengths, target_lengths, blank);
  CtcArguments& arguments = problem.arguments;
  arguments.zero_infinity = zero_infinity;
  const at::Tensor alpha = log_alpha.contiguous(), nll = neg_log_likelihood.contiguous();
  TORCH_CHECK(alpha.dim() == 3 && alpha.size(0) == arguments.batch &&
                  alpha.size(1) == arguments.time && alpha.size(2) == arguments.width,
              "_ctc_loss_backward: log_alpha of sizes ", alpha.sizes());
  TORCH_CHECK(grad.numel() == 1 || (grad.dim() == 1 && grad.size(0) == arguments.batch),
              "_ctc_loss_backward: grad of sizes ", grad.sizes());
  const at::Tensor beta = at::empty_like(alpha);
  const at::Tensor grad_input =
      at::empty_like(log_probs, log_probs.options(), at::MemoryFormat::Contiguous);
  arguments.grad_out_stride = grad.dim() == 0 ? 0 : grad.stride(0);
  Kernel& recursion = problem.kernel(beta_family);
  Kernel& gradient = problem.kernel(gradient_family);
  problem.for_samples([&] {
    problem.run(recursion, problem.by_sample(), beta, nll);
    problem.run(gradient,
                element_range(problem.queue.device(), size_t{arguments.samples} * arguments.time),
                alpha, beta, nll, grad, grad_input);
  });
  return grad_input;
}

}  // namespace ocl::native
