// Few output channels with channels last: the kernels for them have positions side by side in
// work-items or lanes, so that what they read is copied to planes.
#include "engine/conv/plan.h"

namespace ocl::conv {

namespace {

const char* refuse(const Plan& plan) {
  if (plan.pass == Pass::weight_gradient) return "it doesn't serve gradients of weights";
  if (plan.window.groups != 1) return "there are groups";
  const Operand& read = plan.source();
  if (read.size[1] == 1 || read.stride[1] != 1) return "channels aren't last";
  // A single position lies both ways.
  if (read.tensor.is_contiguous()) return "it lies in planes";
  const bool cpu = plan.device.is_cpu();
  if (plan.result().size[1] > (cpu ? kNarrowColumns : kFewColumns)) return "channels are many";
  if (plan.window.taps() == 1) return cpu ? "windows have one element" : nullptr;
  return product.refuse(plan) == nullptr ? "a product takes windows side by side" : nullptr;
}

void run(Plan& plan) {
  const at::Tensor copy = plan.source().tensor.contiguous();
  Plan planes(plan.pass, plan.transposed() ? plan.in.tensor : copy,
              plan.transposed() ? copy : plan.out.tensor, plan.weight.tensor, plan.bias,
              plan.window, plan.epilogue);
  run_convolution(planes);
  plan.epilogue_taken = planes.epilogue_taken;
}

}  // namespace

const Method to_planes{"to_planes", refuse, run};

}  // namespace ocl::conv
