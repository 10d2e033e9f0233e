// _ctc_loss and its gradient. Lengths are host numbers, which shapes depend on; a launch takes
// those of as many samples as fit a kernel's parameters.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <vector>

#include "engine/dtype.h"
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

constexpr size_t kSamples = 40;
constexpr size_t kGpuGroup = 128;
constexpr size_t kLocalSize = 64;

/// CtcArgs of kernels/loss/ctc.cl.
struct Arguments {
  uint64_t log_probs_offset, target_offset, alpha_offset, beta_offset, nll_offset, grad_offset,
      grad_out_offset;
  uint64_t target_begin[kSamples];
  uint32_t input_length[kSamples], target_length[kSamples];
  uint64_t target_stride, grad_out_stride;
  uint32_t first, samples, batch, classes, time, width, blank, zero_infinity, site, unused;
};
static_assert(sizeof(Arguments) + 9 * sizeof(void*) <= 1024);

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
    log_probs_mem = place(log_probs, arguments.log_probs_offset);
    // A target without labels has no memory; nothing of it is read then.
    target_mem = targets.numel() == 0 ? log_probs_mem : place(targets, arguments.target_offset);
    group = device.is_cpu() ? 1 : kGpuGroup;
  }

  static void check_lengths(const char* name, c10::IntArrayRef lengths, int64_t batch) {
    TORCH_CHECK(lengths.size() == static_cast<size_t>(batch), name, " must be of size batch_size");
    const int64_t shortest = *std::min_element(lengths.begin(), lengths.end());
    TORCH_CHECK(shortest >= 0, "Expected ", name, " to have value at least 0, but got value ",
                shortest, " (while checking arguments for ctc_loss)");
  }

  cl_mem place(const at::Tensor& tensor, uint64_t& offset) {
    const Location location = device.addresses().find(tensor.const_data_ptr());
    offset = location.offset;
    return location.mem;
  }

  Kernel& kernel(const KernelFamily& family) {
    return family.get(device, {{"E", tag(log_probs.scalar_type())},
                               {"TARGET", tag(targets.scalar_type())},
                               {"GROUP", group},
                               {"SAMPLES", kSamples}});
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
  NDRange by_sample() const { return NDRange::linear(arguments.samples * group, group); }

  Queue& queue;
  Device& device;
  at::Tensor log_probs, targets;
  c10::IntArrayRef input_lengths, target_lengths;
  std::vector<int64_t> begins;
  Arguments arguments{};
  cl_mem log_probs_mem, target_mem;
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
  Arguments& arguments = problem.arguments;
  const at::Tensor alpha =
      at::empty({arguments.batch, arguments.time, arguments.width}, log_probs.options());
  const at::Tensor nll = at::empty({arguments.batch}, log_probs.options());
  const cl_mem alpha_mem = problem.place(alpha, arguments.alpha_offset);
  const cl_mem nll_mem = problem.place(nll, arguments.nll_offset);
  const cl_mem asserts = problem.device.asserts().mem();
  Kernel& kernel = problem.kernel(forward_family);
  problem.for_samples([&] {
    launch(kernel, problem.queue, problem.by_sample(), problem.log_probs_mem, problem.target_mem,
           alpha_mem, nll_mem, arguments, asserts);
  });
  return {nll, alpha};
}

at::Tensor _ctc_loss_backward(const at::Tensor& grad, const at::Tensor& log_probs,
                              const at::Tensor& targets, at::IntArrayRef input_lengths,
                              at::IntArrayRef target_lengths, const at::Tensor& neg_log_likelihood,
                              const at::Tensor& log_alpha, int64_t blank, bool zero_infinity) {
  Problem problem(log_probs, targets, input_lengths, target_lengths, blank);
  Arguments& arguments = problem.arguments;
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
  const cl_mem alpha_mem = problem.place(alpha, arguments.alpha_offset);
  const cl_mem beta_mem = problem.place(beta, arguments.beta_offset);
  const cl_mem nll_mem = problem.place(nll, arguments.nll_offset);
  const cl_mem grad_out_mem = problem.place(grad, arguments.grad_out_offset);
  const cl_mem grad_mem = problem.place(grad_input, arguments.grad_offset);
  const cl_mem asserts = problem.device.asserts().mem();
  Kernel& recursion = problem.kernel(beta_family);
  Kernel& gradient = problem.kernel(gradient_family);
  problem.for_samples([&] {
    launch(recursion, problem.queue, problem.by_sample(), problem.log_probs_mem, problem.target_mem,
           beta_mem, nll_mem, arguments, asserts);
    launch(gradient, problem.queue,
           NDRange::linear(size_t{arguments.samples} * arguments.time, kLocalSize),
           problem.log_probs_mem, problem.target_mem, alpha_mem, beta_mem, nll_mem, grad_out_mem,
           grad_mem, arguments, asserts);
  });
  return grad_input;
}

}  // namespace ocl::native
