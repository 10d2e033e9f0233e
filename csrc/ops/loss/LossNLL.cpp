// nll_loss and nll_loss2d, forward and backward. Both see scores as [batch][classes][inner].
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorMeta.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/device_assert.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "ops/nll_loss2d_backward.h"
#include "ops/nll_loss2d_forward.h"
#include "ops/nll_loss_backward.h"
#include "ops/nll_loss_forward.h"
#include "runtime/allocator.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

const KernelFamily each_family{"loss/nll.cl", "nll_each"};
const KernelFamily partial_family{"loss/nll.cl", "nll_partial"};
const KernelFamily combine_family{"loss/nll.cl", "nll_combine"};
const KernelFamily backward_family{"loss/nll.cl", "nll_backward"};

// Samples of a CPU's work-item, and of a GPU's group, whose work-items take few one after the
// other: each waits for the class before it can fetch the score.
constexpr uint64_t kSamplesPerItem = 2048, kSamplesPerGroup = 1024;

// The cost of a sample in NDRange::work.
constexpr int64_t kLookup = 4;

using namespace kernel_types;
#include "loss/arguments.clh"

/// The operands that forward and backward share, and the sizes.
struct Problem {
  Problem(const at::Tensor& self, const at::Tensor& target_, const at::Tensor& weight_,
          int64_t reduction, int64_t ignore_index, const AssertSite& site)
      : device(ocl::device(self.device().index())),
        queue(current_queue(self.device().index())),
        dtype(self.scalar_type()),
        target(target_.contiguous()),
        weight(weight_.defined() ? weight_.contiguous() : weight_) {
    TORCH_CHECK(target.scalar_type() == at::kLong || target.scalar_type() == at::kByte,
                "expected target dtype to be Long or Byte, but got ", target.scalar_type());
    TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(dtype), "\"nll_loss\" not implemented for '",
                                dtype, "'");
    TORCH_CHECK(!weight.defined() || weight.scalar_type() == dtype, "expected scalar type ", dtype,
                " but found ", weight.scalar_type());
    const int64_t classes = self.dim() == 1 ? self.size(0) : self.size(1);
    arguments.classes = static_cast<uint32_t>(classes);
    arguments.samples = static_cast<uint64_t>(target.numel());
    arguments.inner = self.dim() == 4 ? static_cast<uint32_t>(self.size(2) * self.size(3)) : 1;
    arguments.ignore_index = ignore_index;
    arguments.mean = reduction == at::Reduction::Mean;
    arguments.site = site.id();
  }

  Kernel& kernel(const KernelFamily& family, bool each) {
    return family.get(device, {{"T", tag(dtype)},
                               {"ACC", tag(compute_dtype(dtype))},
                               {"TARGET", tag(target.scalar_type())},
                               {"WEIGHTED", weight.defined()},
                               {"EACH", each},
                               {"GROUP", group}});
  }

  /// The classes' weights, null if there are none.
  Pointer weights() const { return {weight.defined() ? weight.const_data_ptr() : nullptr}; }

  Device& device;
  Queue& queue;
  const c10::ScalarType dtype;
  const at::Tensor target, weight;
  NllArguments arguments{};
  // Work-items that add up together.
  const size_t group = device.is_cpu() ? 1 : group_of_elements(device);
};

/// Enqueues with these operands and the arguments.
template <class... Operands>
void enqueue(Problem& problem, Kernel& kernel, size_t items, const Operands&... operands) {
  launch(kernel, problem.queue,
         NDRange::linear(items, items == 1 ? 1 : group_of_elements(problem.device))
             .of_work(kLookup * static_cast<int64_t>(items)),
         operands..., problem.arguments);
}

Pointer pointer(const at::Tensor& tensor) { return {tensor.const_data_ptr()}; }

void forward(const at::Tensor& self, const at::Tensor& target, const at::Tensor& weight,
             int64_t reduction, int64_t ignore_index, const AssertSite& site,
             const at::Tensor& output, const at::Tensor& total_weight) {
  const bool each = reduction == at::Reduction::None && self.dim() != 1;
  Problem problem(self, target, weight, reduction, ignore_index, site);
  NllArguments& arguments = problem.arguments;
  const cl_mem asserts = problem.device.asserts().mem();
  if (each) {
    total_weight.zero_();
    if (arguments.samples == 0) return;
    const at::Tensor scores = self.contiguous();
    const at::Tensor result = output.is_contiguous() ? output
                                                     : at::empty_like(output, output.options(),
                                                                      at::MemoryFormat::Contiguous);
    enqueue(problem, problem.kernel(each_family, each), arguments.samples, pointer(scores),
            pointer(problem.target), problem.weights(), pointer(result), asserts);
    if (!result.is_same(output)) output.copy_(result);
    return;
  }
  if (arguments.samples == 0) {
    if (arguments.mean) {
      output.fill_(std::numeric_limits<double>::quiet_NaN());
    } else {
      output.zero_();
    }
    total_weight.zero_();
    return;
  }
  const at::Tensor scores = self.contiguous();
  const bool cpu = problem.device.is_cpu();
  const uint64_t most = cpu ? items_of_cores(problem.device)
                            : static_cast<uint64_t>(device_row(problem.device).resident_items);
  const uint64_t each_takes = cpu ? kSamplesPerItem : kSamplesPerGroup;
  arguments.parts =
      static_cast<uint32_t>(std::clamp<uint64_t>(arguments.samples / each_takes, 1, most));
  const c10::DataPtr partial =
      allocator()->allocate(2 * arguments.parts * c10::elementSize(compute_dtype(problem.dtype)));
  const auto enqueue_groups = [&](const KernelFamily& family, size_t groups,
                                  const auto&... operands) {
    launch(problem.kernel(family, each), problem.queue,
           NDRange::linear(groups * problem.group, problem.group)
               .of_work(kLookup * static_cast<int64_t>(arguments.samples)),
           operands..., arguments);
  };
  enqueue_groups(partial_family, arguments.parts, pointer(scores), pointer(problem.target),
                 problem.weights(), Pointer{partial.get()}, asserts);
  enqueue_groups(combine_family, 1, Pointer{partial.get()}, pointer(output), pointer(total_weight));
}

void backward(const at::Tensor& grad_output, const at::Tensor& self, const at::Tensor& target,
              const at::Tensor& weight, int64_t reduction, int64_t ignore_index,
              const at::Tensor& total_weight, const AssertSite& site,
              const at::Tensor& grad_input) {
  grad_input.zero_();
  const bool each = reduction == at::Reduction::None && self.dim() != 1;
  Problem problem(self, target, weight, reduction, ignore_index, site);
  if (problem.arguments.samples == 0) return;
  const at::Tensor grad = grad_output.contiguous();
  at::Tensor result = grad_input;
  if (!grad_input.is_contiguous()) {
    result = at::empty_like(grad_input, grad_input.options(), at::MemoryFormat::Contiguous);
    result.zero_();
  }
  enqueue(problem, problem.kernel(backward_family, each), problem.arguments.samples, pointer(grad),
          pointer(problem.target), problem.weights(), pointer(result), pointer(total_weight),
          problem.device.asserts().mem());
  if (!result.is_same(grad_input)) grad_input.copy_(result);
}

constexpr const char* kOutOfBounds = "Target {} is out of bounds.";
const AssertSite nll_loss_site{"nll_loss", Raises::index_error, kOutOfBounds};
const AssertSite nll_loss2d_site{"nll_loss2d", Raises::index_error, kOutOfBounds};

const at::Tensor& or_undefined(at::OptionalTensorRef weight) {
  static const at::Tensor undefined;
  return weight.has_value() ? *weight : undefined;
}

void check_2d(const at::Tensor& input, const at::Tensor& target, const at::Tensor& weight) {
  TORCH_CHECK(target.dim() == 3,
              "only batches of spatial targets supported (3D tensors) but got targets of "
              "dimension: ",
              target.dim());
  TORCH_CHECK(input.dim() == 4,
              "only batches of spatial inputs supported (4D tensors), but got input of "
              "dimension: ",
              input.dim());
  TORCH_CHECK(!weight.defined() || weight.numel() == input.size(1),
              "weight tensor should be defined either for all or no classes");
  TORCH_CHECK(input.size(0) == target.size(0) && input.size(2) == target.size(1) &&
                  input.size(3) == target.size(2),
              "size mismatch (got input: ", input.sizes(), " , target: ", target.sizes());
}

}  // namespace

TORCH_IMPL_FUNC(nll_loss_forward_out)(const at::Tensor& self, const at::Tensor& target,
                                      at::OptionalTensorRef weight, int64_t reduction,
                                      int64_t ignore_index, const at::Tensor& output,
                                      const at::Tensor& total_weight) {
  forward(self, target, or_undefined(weight), reduction, ignore_index, nll_loss_site, output,
          total_weight);
}

TORCH_IMPL_FUNC(nll_loss_backward_out)(const at::Tensor& grad_output, const at::Tensor& self,
                                       const at::Tensor& target, at::OptionalTensorRef weight,
                                       int64_t reduction, int64_t ignore_index,
                                       const at::Tensor& total_weight,
                                       const at::Tensor& grad_input) {
  backward(grad_output, self, target, or_undefined(weight), reduction, ignore_index, total_weight,
           nll_loss_site, grad_input);
}

std::tuple<at::Tensor&, at::Tensor&> nll_loss2d_forward_output(
    const at::Tensor& self, const at::Tensor& target, const std::optional<at::Tensor>& weight,
    int64_t reduction, int64_t ignore_index, at::Tensor& output, at::Tensor& total_weight) {
  const at::Tensor weight_ = weight.value_or(at::Tensor());
  check_2d(self, target, weight_);
  at::native::resize_output(output,
                            reduction == at::Reduction::None ? target.sizes() : c10::IntArrayRef{});
  at::native::resize_output(total_weight, {});
  forward(self, target, weight_, reduction, ignore_index, nll_loss2d_site, output, total_weight);
  return {output, total_weight};
}

std::tuple<at::Tensor, at::Tensor> nll_loss2d_forward(const at::Tensor& self,
                                                      const at::Tensor& target,
                                                      const std::optional<at::Tensor>& weight,
                                                      int64_t reduction, int64_t ignore_index) {
  at::Tensor output = at::empty({0}, self.options());
  at::Tensor total_weight = at::empty({0}, self.options());
  nll_loss2d_forward_output(self, target, weight, reduction, ignore_index, output, total_weight);
  return {output, total_weight};
}

at::Tensor& nll_loss2d_backward_grad_input(const at::Tensor& grad_output, const at::Tensor& self,
                                           const at::Tensor& target,
                                           const std::optional<at::Tensor>& weight,
                                           int64_t reduction, int64_t ignore_index,
                                           const at::Tensor& total_weight, at::Tensor& grad_input) {
  const at::Tensor weight_ = weight.value_or(at::Tensor());
  check_2d(self, target, weight_);
  TORCH_CHECK(total_weight.numel() == 1,
              "expected total_weight to be a single element tensor, got: ", total_weight.sizes(),
              " (", total_weight.numel(), " elements)");
  if (reduction == at::Reduction::None) {
    TORCH_CHECK(grad_output.dim() == 3,
                "grad_output must have same dimension as target (3) but "
                "got dimension: ",
                grad_output.sizes());
    TORCH_CHECK(grad_output.sizes() == target.sizes(),
                "size mismatch (got grad_output: ", grad_output.sizes(),
                " target: ", target.sizes());
  } else {
    TORCH_CHECK(grad_output.dim() <= 1 && grad_output.numel() == 1,
                "Expected a single element grad_output tensor, but got: ", grad_output.sizes());
  }
  at::native::resize_output(grad_input, self.sizes());
  backward(grad_output, self, target, weight_, reduction, ignore_index, total_weight,
           nll_loss2d_site, grad_input);
  return grad_input;
}

at::Tensor nll_loss2d_backward(const at::Tensor& grad_output, const at::Tensor& self,
                               const at::Tensor& target, const std::optional<at::Tensor>& weight,
                               int64_t reduction, int64_t ignore_index,
                               const at::Tensor& total_weight) {
  at::Tensor grad_input = at::empty(self.sizes(), self.options());
  return nll_loss2d_backward_grad_input(grad_output, self, target, weight, reduction, ignore_index,
                                        total_weight, grad_input);
}

}  // namespace ocl::native
