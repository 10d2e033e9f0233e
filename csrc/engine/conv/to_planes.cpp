// Few output channels with channels last: the kernels for them have positions side by side in
// work-items or lanes, so that what they read is copied to planes.
#include <utility>

#include "engine/conv/description.h"

namespace ocl::conv {

namespace {

const char* refuse(const Description& description) {
  if (description.pass == Pass::weight_gradient) return "it doesn't serve gradients of weights";
  if (description.window.groups != 1) return "there are groups";
  const Operand& read = description.source();
  if (read.size[1] == 1 || read.stride[1] != 1) return "channels aren't last";
  // A single position lies both ways.
  if (read.tensor.is_contiguous()) return "it lies in planes";
  const bool cpu = description.device.is_cpu();
  if (description.result().size[1] > (cpu ? kNarrowColumns : kFewColumns))
    return "channels are many";
  if (description.window.taps() == 1) return cpu ? "windows have one element" : nullptr;
  const bool one_product = !cpu && side_by_side.refuse(description) == nullptr;
  return one_product ? "a product takes windows side by side" : nullptr;
}

void run(Description& description) {
  const at::Tensor copy = description.source().tensor.contiguous();
  Description planes(description.pass, description.transposed() ? description.in.tensor : copy,
                     description.transposed() ? copy : description.out.tensor,
                     description.weight.tensor, description.bias, description.window,
                     description.precision, std::exchange(description.epilogue, nullptr));
  run_convolution(planes);
}

}  // namespace

const Implementation to_planes{"to_planes", refuse, run};

}  // namespace ocl::conv
