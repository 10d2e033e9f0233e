// torch_ocl::lbfgs_direction and lbfgs_slope: what torch.optim.LBFGS computes between calls of the
// closure (D. Liu and J. Nocedal, "On the Limited Memory BFGS Method", 1989), in one launch.
// torch_ocl/upstream/lbfgs.py calls them.
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

using at::Tensor;
using namespace kernel_types;
#include "multi_tensor/lbfgs_arguments.clh"

const KernelFamily family{"multi_tensor/lbfgs.cl", "lbfgs"};
enum Rule { with_history, first_direction, slope_only };

struct Vectors {
  const Tensor &gradient, &previous, &last, &direction, &steps, &changes, &inverses, &factors;
};

/// `facts` has the dtype that is computed with.
void run(Rule rule, const Vectors& vectors, const Tensor& facts, LbfgsArguments arguments,
         double step = 0) {
  const Tensor& gradient = vectors.gradient;
  TORCH_CHECK(at::isFloatingType(gradient.scalar_type()) && gradient.numel() < (int64_t{1} << 31),
              "lbfgs: expected a gradient of floating point numbers");
  TORCH_CHECK(facts.is_contiguous() && facts.numel() == 4, "lbfgs: expected room for 4 numbers");
  for (const Tensor* vector : {&gradient, &vectors.previous, &vectors.last, &vectors.direction}) {
    TORCH_CHECK(vector->scalar_type() == gradient.scalar_type() && vector->is_contiguous() &&
                    vector->numel() == gradient.numel() && vector->device() == gradient.device(),
                "lbfgs: expected contiguous vectors like the gradient");
  }
  const c10::DeviceGuard guard(gradient.device());
  Queue& queue = current_queue(gradient.device().index());
  Device& device = queue.device();
  arguments.elements = static_cast<uint32_t>(gradient.numel());
  const size_t group = device.is_cpu() ? 1 : group_of_elements(device);
  const at::ScalarType compute = facts.scalar_type();
  const uint32_t width = vector_lanes(device, c10::elementSize(compute));
  const int64_t passes = rule == with_history ? 2 * int64_t{arguments.count} + 6 : 1;
  const auto pointer = [](const Tensor& tensor) { return Pointer{tensor.const_data_ptr()}; };
  launch(family.get(device, {{"E", tag(gradient.scalar_type())},
                             {"C", tag(compute)},
                             {"WIDTH", width},
                             {"GROUP", group},
                             {"RULE", static_cast<int>(rule)}}),
         queue, NDRange::linear(group, group).of_work(passes * gradient.numel()), pointer(gradient),
         pointer(vectors.previous), pointer(vectors.last), pointer(vectors.direction),
         pointer(vectors.steps), pointer(vectors.changes), pointer(vectors.inverses),
         pointer(vectors.factors), pointer(facts), arguments, scalar_argument(compute, step));
}

void lbfgs_first(const Tensor& gradient, Tensor& previous, Tensor& direction, Tensor& facts) {
  run(first_direction, {gradient, previous, gradient, direction, gradient, gradient, facts, facts},
      facts, {});
}

void lbfgs_direction(const Tensor& gradient, Tensor& previous, const Tensor& last, double step,
                     Tensor& direction, Tensor& steps, Tensor& changes, Tensor& inverses,
                     Tensor& factors, Tensor& facts, int64_t first, int64_t count, int64_t most) {
  const int64_t rows = steps.size(0);
  TORCH_CHECK(steps.sizes() == changes.sizes() && steps.dim() == 2 &&
                  steps.size(1) == gradient.numel() && steps.is_contiguous() &&
                  changes.is_contiguous() && inverses.numel() == rows && factors.numel() == rows &&
                  inverses.scalar_type() == facts.scalar_type() &&
                  factors.scalar_type() == facts.scalar_type(),
              "lbfgs: a history has rows of the gradient's size, and a number for each");
  TORCH_CHECK(0 <= first && first < rows && 0 <= count && count <= rows && count <= most &&
                  (count < rows || rows == most),
              "lbfgs: there is no row for another step");
  LbfgsArguments arguments{};
  arguments.rows = static_cast<uint32_t>(rows);
  arguments.first = static_cast<uint32_t>(first);
  arguments.count = static_cast<uint32_t>(count);
  arguments.most = static_cast<uint32_t>(most);
  run(with_history, {gradient, previous, last, direction, steps, changes, inverses, factors}, facts,
      arguments, step);
}

void lbfgs_slope(const Tensor& gradient, const Tensor& direction, Tensor& facts) {
  run(slope_only, {gradient, gradient, gradient, direction, gradient, gradient, facts, facts},
      facts, {});
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ocl, library) {
  library.def(
      "lbfgs_first(Tensor gradient, Tensor(a!) previous, Tensor(b!) direction, Tensor(c!) facts) "
      "-> ()");
  library.def(
      "lbfgs_direction(Tensor gradient, Tensor(a!) previous, Tensor last, float step, Tensor(b!) "
      "direction, Tensor(c!) steps, Tensor(d!) changes, Tensor(e!) inverses, Tensor(f!) factors, "
      "Tensor(g!) facts, int first, int count, int most) -> ()");
  library.def("lbfgs_slope(Tensor gradient, Tensor direction, Tensor(a!) facts) -> ()");
}

TORCH_LIBRARY_IMPL(torch_ocl, PrivateUse1, library) {
  library.impl("lbfgs_first", TORCH_FN(lbfgs_first));
  library.impl("lbfgs_direction", TORCH_FN(lbfgs_direction));
  library.impl("lbfgs_slope", TORCH_FN(lbfgs_slope));
}

}  // namespace ocl::native
