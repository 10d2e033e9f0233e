// Pointwise functions over lists of tensors, several tensors per launch: what optimisers and
// gradient clipping call. Lists that are not of one floating dtype and shape by shape go tensor by
// tensor.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_abs_native.h>
#include <ATen/ops/_foreach_add_native.h>
#include <ATen/ops/_foreach_addcdiv_native.h>
#include <ATen/ops/_foreach_addcmul_native.h>
#include <ATen/ops/_foreach_clamp_min_native.h>
#include <ATen/ops/_foreach_copy_native.h>
#include <ATen/ops/_foreach_div_native.h>
#include <ATen/ops/_foreach_lerp_native.h>
#include <ATen/ops/_foreach_mul_native.h>
#include <ATen/ops/_foreach_neg_native.h>
#include <ATen/ops/_foreach_reciprocal_native.h>
#include <ATen/ops/_foreach_sqrt_native.h>
#include <ATen/ops/_foreach_sub_native.h>
#include <ATen/ops/_foreach_zero_native.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/multi_tensor/multi_tensor.h"
#include "opencl/kernel_family.h"
#include "ops/_foreach_abs.h"
#include "ops/_foreach_add.h"
#include "ops/_foreach_addcdiv.h"
#include "ops/_foreach_addcmul.h"
#include "ops/_foreach_copy.h"
#include "ops/_foreach_div.h"
#include "ops/_foreach_lerp.h"
#include "ops/_foreach_maximum.h"
#include "ops/_foreach_mul.h"
#include "ops/_foreach_neg.h"
#include "ops/_foreach_reciprocal.h"
#include "ops/_foreach_sqrt.h"
#include "ops/_foreach_sub.h"
#include "ops/_foreach_zero.h"

namespace ocl::native {

namespace {

using Lists = std::initializer_list<at::TensorList>;
using multi_tensor::Operand;

const KernelFamily each_family{"multi_tensor/each.cl", "each_tensors"};

/// Arguments of a function beside the lists: nothing, numbers, or a tensor of one element.
struct Extra {
  Extra() = default;
  Extra(const c10::Scalar& number) : numbers(number) {}
  Extra(c10::ArrayRef<c10::Scalar> each) : numbers(each) {}
  Extra(const at::Tensor& one) : tensor(&one) {}
  c10::ArrayRef<c10::Scalar> numbers;
  const at::Tensor* tensor = nullptr;
};

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

/// Whether the engine's kernel gives what the function would tensor by tensor.
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
}

std::vector<at::Tensor> run(const char* functor, Lists inputs, const Extra& extra) {
  std::vector<at::Tensor> out;
  out.reserve(inputs.begin()->size());
  for (const at::Tensor& tensor : *inputs.begin()) out.push_back(at::empty_like(tensor));
  run(functor, out, inputs, extra);
  return out;
}

}  // namespace

void _foreach_zero_(at::TensorList self) {
  const at::Scalar zero(0.0);
  if (!fits({self}, Extra(zero))) return at::native::foreach_tensor_zero_slow_(self);
  run("fill", self, {}, Extra(zero));
}

void _foreach_copy_(at::TensorList self, at::TensorList src, const bool non_blocking) {
  if (!fits({self, src}, Extra())) {
    return at::native::foreach_tensor_copy_list_kernel_slow_(self, src, non_blocking);
  }
  run("copy", self, {src}, Extra());
}

std::vector<at::Tensor> _foreach_sqrt(at::TensorList self) {
  if (!fits({self}, Extra())) return at::native::foreach_tensor_sqrt_slow(self);
  return run("root", {self}, Extra());
}

void _foreach_sqrt_(at::TensorList self) {
  if (!fits({self}, Extra())) return at::native::foreach_tensor_sqrt_slow_(self);
  run("root", self, {self}, Extra());
}

std::vector<at::Tensor> _foreach_neg(at::TensorList self) {
  if (!fits({self}, Extra())) return at::native::foreach_tensor_neg_slow(self);
  return run("neg", {self}, Extra());
}

void _foreach_neg_(at::TensorList self) {
  if (!fits({self}, Extra())) return at::native::foreach_tensor_neg_slow_(self);
  run("neg", self, {self}, Extra());
}

std::vector<at::Tensor> _foreach_abs(at::TensorList self) {
  if (!fits({self}, Extra())) return at::native::foreach_tensor_abs_slow(self);
  return run("magnitude", {self}, Extra());
}

void _foreach_abs_(at::TensorList self) {
  if (!fits({self}, Extra())) return at::native::foreach_tensor_abs_slow_(self);
  run("magnitude", self, {self}, Extra());
}

std::vector<at::Tensor> _foreach_reciprocal(at::TensorList self) {
  if (!fits({self}, Extra())) return at::native::foreach_tensor_reciprocal_slow(self);
  return run("reciprocal", {self}, Extra());
}

void _foreach_reciprocal_(at::TensorList self) {
  if (!fits({self}, Extra())) return at::native::foreach_tensor_reciprocal_slow_(self);
  run("reciprocal", self, {self}, Extra());
}

std::vector<at::Tensor> _foreach_add_scalar(at::TensorList self, const at::Scalar& scalar) {
  if (!fits({self}, Extra(scalar)))
    return at::native::foreach_tensor_add_scalar_kernel_slow(self, scalar);
  return run("add_scalar", {self}, Extra(scalar));
}

void _foreach_add__scalar(at::TensorList self, const at::Scalar& scalar) {
  if (!fits({self}, Extra(scalar)))
    return at::native::foreach_tensor_add_scalar_kernel_slow_(self, scalar);
  run("add_scalar", self, {self}, Extra(scalar));
}

std::vector<at::Tensor> _foreach_add_list(at::TensorList self, at::TensorList other,
                                          const at::Scalar& alpha) {
  if (!fits({self, other}, Extra(alpha)))
    return at::native::foreach_tensor_add_list_kernel_slow(self, other, alpha);
  return run("add", {self, other}, Extra(alpha));
}

void _foreach_add__list(at::TensorList self, at::TensorList other, const at::Scalar& alpha) {
  if (!fits({self, other}, Extra(alpha)))
    return at::native::foreach_tensor_add_list_kernel_slow_(self, other, alpha);
  run("add", self, {self, other}, Extra(alpha));
}

std::vector<at::Tensor> _foreach_mul_scalar(at::TensorList self, const at::Scalar& scalar) {
  if (!fits({self}, Extra(scalar)))
    return at::native::foreach_tensor_mul_scalar_kernel_slow(self, scalar);
  return run("mul_scalar", {self}, Extra(scalar));
}

void _foreach_mul__scalar(at::TensorList self, const at::Scalar& scalar) {
  if (!fits({self}, Extra(scalar)))
    return at::native::foreach_tensor_mul_scalar_kernel_slow_(self, scalar);
  run("mul_scalar", self, {self}, Extra(scalar));
}

std::vector<at::Tensor> _foreach_mul_list(at::TensorList self, at::TensorList other) {
  if (!fits({self, other}, Extra()))
    return at::native::foreach_tensor_mul_list_kernel_slow(self, other);
  return run("mul", {self, other}, Extra());
}

void _foreach_mul__list(at::TensorList self, at::TensorList other) {
  if (!fits({self, other}, Extra()))
    return at::native::foreach_tensor_mul_list_kernel_slow_(self, other);
  run("mul", self, {self, other}, Extra());
}

std::vector<at::Tensor> _foreach_mul_tensor(at::TensorList self, const at::Tensor& other) {
  if (!fits({self}, Extra(other)))
    return at::native::foreach_tensor_mul_tensor_kernel_slow(self, other);
  return run("mul_scalar", {self}, Extra(other));
}

void _foreach_mul__tensor(at::TensorList self, const at::Tensor& other) {
  if (!fits({self}, Extra(other)))
    return at::native::foreach_tensor_mul_tensor_kernel_slow_(self, other);
  run("mul_scalar", self, {self}, Extra(other));
}

std::vector<at::Tensor> _foreach_div_scalar(at::TensorList self, const at::Scalar& scalar) {
  if (!fits({self}, Extra(scalar)))
    return at::native::foreach_tensor_div_scalar_kernel_slow(self, scalar);
  return run("div_scalar", {self}, Extra(scalar));
}

void _foreach_div__scalar(at::TensorList self, const at::Scalar& scalar) {
  if (!fits({self}, Extra(scalar)))
    return at::native::foreach_tensor_div_scalar_kernel_slow_(self, scalar);
  run("div_scalar", self, {self}, Extra(scalar));
}

std::vector<at::Tensor> _foreach_div_list(at::TensorList self, at::TensorList other) {
  if (!fits({self, other}, Extra()))
    return at::native::foreach_tensor_div_list_kernel_slow(self, other);
  return run("div", {self, other}, Extra());
}

void _foreach_div__list(at::TensorList self, at::TensorList other) {
  if (!fits({self, other}, Extra()))
    return at::native::foreach_tensor_div_list_kernel_slow_(self, other);
  run("div", self, {self, other}, Extra());
}

std::vector<at::Tensor> _foreach_add_scalarlist(at::TensorList self,
                                                at::ArrayRef<at::Scalar> scalars) {
  if (!fits({self}, Extra(scalars)))
    return at::native::foreach_tensor_add_scalarlist_kernel_slow(self, scalars);
  return run("add_scalar", {self}, Extra(scalars));
}

void _foreach_add__scalarlist(at::TensorList self, at::ArrayRef<at::Scalar> scalars) {
  if (!fits({self}, Extra(scalars)))
    return at::native::foreach_tensor_add_scalarlist_kernel_slow_(self, scalars);
  run("add_scalar", self, {self}, Extra(scalars));
}

std::vector<at::Tensor> _foreach_mul_scalarlist(at::TensorList self,
                                                at::ArrayRef<at::Scalar> scalars) {
  if (!fits({self}, Extra(scalars)))
    return at::native::foreach_tensor_mul_scalarlist_kernel_slow(self, scalars);
  return run("mul_scalar", {self}, Extra(scalars));
}

void _foreach_mul__scalarlist(at::TensorList self, at::ArrayRef<at::Scalar> scalars) {
  if (!fits({self}, Extra(scalars)))
    return at::native::foreach_tensor_mul_scalarlist_kernel_slow_(self, scalars);
  run("mul_scalar", self, {self}, Extra(scalars));
}

std::vector<at::Tensor> _foreach_sub_list(at::TensorList self, at::TensorList other,
                                          const at::Scalar& alpha) {
  if (!fits({self, other}, Extra(alpha)))
    return at::native::foreach_tensor_sub_list_kernel_slow(self, other, alpha);
  return run("sub", {self, other}, Extra(alpha));
}

void _foreach_sub__list(at::TensorList self, at::TensorList other, const at::Scalar& alpha) {
  if (!fits({self, other}, Extra(alpha)))
    return at::native::foreach_tensor_sub_list_kernel_slow_(self, other, alpha);
  run("sub", self, {self, other}, Extra(alpha));
}

std::vector<at::Tensor> _foreach_maximum_list(at::TensorList self, at::TensorList other) {
  if (!fits({self, other}, Extra()))
    return at::native::foreach_tensor_clamp_min_list_kernel_slow(self, other);
  return run("maximum", {self, other}, Extra());
}

void _foreach_maximum__list(at::TensorList self, at::TensorList other) {
  if (!fits({self, other}, Extra()))
    return at::native::foreach_tensor_clamp_min_list_kernel_slow_(self, other);
  run("maximum", self, {self, other}, Extra());
}

std::vector<at::Tensor> _foreach_div_scalarlist(at::TensorList self,
                                                at::ArrayRef<at::Scalar> scalars) {
  if (!fits({self}, Extra(scalars)))
    return at::native::foreach_tensor_div_scalarlist_kernel_slow(self, scalars);
  return run("div_scalar", {self}, Extra(scalars));
}

void _foreach_div__scalarlist(at::TensorList self, at::ArrayRef<at::Scalar> scalars) {
  if (!fits({self}, Extra(scalars)))
    return at::native::foreach_tensor_div_scalarlist_kernel_slow_(self, scalars);
  run("div_scalar", self, {self}, Extra(scalars));
}

std::vector<at::Tensor> _foreach_lerp_scalar(at::TensorList self, at::TensorList tensors1,
                                             const at::Scalar& weight) {
  if (!fits({self, tensors1}, Extra(weight)))
    return at::native::foreach_tensor_lerp_list_kernel_slow(self, tensors1, weight);
  return run("lerp", {self, tensors1}, Extra(weight));
}

void _foreach_lerp__scalar(at::TensorList self, at::TensorList tensors1, const at::Scalar& weight) {
  if (!fits({self, tensors1}, Extra(weight)))
    return at::native::foreach_tensor_lerp_list_kernel_slow_(self, tensors1, weight);
  run("lerp", self, {self, tensors1}, Extra(weight));
}

std::vector<at::Tensor> _foreach_addcmul_scalar(at::TensorList self, at::TensorList tensor1,
                                                at::TensorList tensor2, const at::Scalar& value) {
  if (!fits({self, tensor1, tensor2}, Extra(value)))
    return at::native::foreach_tensor_addcmul_scalar_slow(self, tensor1, tensor2, value);
  return run("addcmul", {self, tensor1, tensor2}, Extra(value));
}

void _foreach_addcmul__scalar(at::TensorList self, at::TensorList tensor1, at::TensorList tensor2,
                              const at::Scalar& value) {
  if (!fits({self, tensor1, tensor2}, Extra(value)))
    return at::native::foreach_tensor_addcmul_scalar_slow_(self, tensor1, tensor2, value);
  run("addcmul", self, {self, tensor1, tensor2}, Extra(value));
}

std::vector<at::Tensor> _foreach_addcdiv_scalar(at::TensorList self, at::TensorList tensor1,
                                                at::TensorList tensor2, const at::Scalar& value) {
  if (!fits({self, tensor1, tensor2}, Extra(value)))
    return at::native::foreach_tensor_addcdiv_scalar_slow(self, tensor1, tensor2, value);
  return run("addcdiv", {self, tensor1, tensor2}, Extra(value));
}

void _foreach_addcdiv__scalar(at::TensorList self, at::TensorList tensor1, at::TensorList tensor2,
                              const at::Scalar& value) {
  if (!fits({self, tensor1, tensor2}, Extra(value)))
    return at::native::foreach_tensor_addcdiv_scalar_slow_(self, tensor1, tensor2, value);
  run("addcdiv", self, {self, tensor1, tensor2}, Extra(value));
}

std::vector<at::Tensor> _foreach_addcdiv_scalarlist(at::TensorList self, at::TensorList tensor1,
                                                    at::TensorList tensor2,
                                                    at::ArrayRef<at::Scalar> scalars) {
  if (!fits({self, tensor1, tensor2}, Extra(scalars)))
    return at::native::foreach_tensor_addcdiv_scalarlist_slow(self, tensor1, tensor2, scalars);
  return run("addcdiv", {self, tensor1, tensor2}, Extra(scalars));
}

void _foreach_addcdiv__scalarlist(at::TensorList self, at::TensorList tensor1,
                                  at::TensorList tensor2, at::ArrayRef<at::Scalar> scalars) {
  if (!fits({self, tensor1, tensor2}, Extra(scalars)))
    return at::native::foreach_tensor_addcdiv_scalarlist_slow_(self, tensor1, tensor2, scalars);
  run("addcdiv", self, {self, tensor1, tensor2}, Extra(scalars));
}

}  // namespace ocl::native
