// Pointwise functions over lists of tensors, several tensors per launch: optimisers and gradient
// clipping call them. The functions themselves are generated from the op table
// (codegen/foreach.py).
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/optimizer/Foreach.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_zero_native.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/multi_tensor/multi_tensor.h"
#include "opencl/kernel_family.h"
#include "ops/_foreach_zero.h"

namespace ocl::native {

namespace foreach {
namespace {

using multi_tensor::Operand;

const KernelFamily each_family{"multi_tensor/each.cl", "each_tensors"};

/// The largest finite number of a real dtype.
double largest_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return std::numeric_limits<c10::Half>::max();
    case at::kBFloat16:
      return std::numeric_limits<c10::BFloat16>::max();
    case at::kFloat:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

/// Whether it is real and not beyond the dtype's range: of some functions that is an error, which
/// those of single tensors know.
bool takes(at::ScalarType dtype, const c10::Scalar& number) {
  if (!number.isFloatingPoint() && !number.isIntegral(false)) return false;
  const double size = std::abs(number.toDouble());
  return !(size > largest_of(dtype)) || std::isinf(size);
}

}  // namespace

bool fits(Lists lists, const Extra& extra) {
  const at::TensorList& first = *lists.begin();
  if (first.empty() || !at::isFloatingType(first[0].scalar_type())) return false;
  const at::ScalarType dtype = first[0].scalar_type();
  const at::Device device = first[0].device();
  for (const at::TensorList& list : lists) {
    if (list.size() != first.size()) return false;
    for (size_t i = 0; i < list.size(); ++i) {
      const at::Tensor& tensor = list[i];
      if (tensor.scalar_type() != dtype || tensor.device() != device ||
          tensor.sizes() != first[i].sizes() || tensor.layout() != at::kStrided ||
          at::get_overlap_status(tensor.unsafeGetTensorImpl(), first[i].unsafeGetTensorImpl()) ==
              at::MemOverlapStatus::Partial) {
        return false;
      }
    }
  }
  if (extra.tensor) {
    return extra.tensor->dim() == 0 && extra.tensor->scalar_type() == dtype &&
           extra.tensor->device() == device;
  }
  return (extra.numbers.size() <= 1 || extra.numbers.size() == first.size()) &&
         std::all_of(extra.numbers.begin(), extra.numbers.end(),
                     [&](const c10::Scalar& number) { return takes(dtype, number); });
}

void run(const char* functor, at::TensorList out, Lists inputs, const Extra& extra) {
  c10::SmallVector<Operand, 5> operands{{out, Operand::written}};
  for (const at::TensorList& input : inputs) operands.push_back({input, Operand::read});
  if (extra.tensor) operands.push_back({*extra.tensor, Operand::single});
  if (!extra.numbers.empty()) operands.push_back({{}, Operand::number, extra.numbers});
  const Define defines[] = {{"EACH", functor},
                            {"INPUTS", inputs.size()},
                            {"SCALAR", extra.tensor            ? 2
                                       : extra.numbers.empty() ? 0
                                                               : 1}};
  multi_tensor::run(each_family, operands, defines, [](Kernel&, cl_uint) {});
  // Autograd sees the list alone, and counts no versions of its tensors.
  for (const at::Tensor& tensor : out) tensor.unsafeGetTensorImpl()->bump_version();
}

std::vector<at::Tensor> run(const char* functor, Lists inputs, const Extra& extra) {
  std::vector<at::Tensor> out;
  out.reserve(inputs.begin()->size());
  for (const at::Tensor& tensor : *inputs.begin()) out.push_back(at::empty_like(tensor));
  run(functor, out, inputs, extra);
  return out;
}

}  // namespace foreach

void _foreach_zero_(at::TensorList self) {
  const at::Scalar zero(0.0);
  const foreach::Extra extra(zero);
  if (!foreach::fits({self}, extra)) return at::native::foreach_tensor_zero_slow_(self);
  foreach
    ::run("fill", self, {}, extra);
}

}  // namespace ocl::native
