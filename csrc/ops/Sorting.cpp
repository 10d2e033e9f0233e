// Sorting and order statistics along a dimension.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorMeta.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/SortingUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <limits>

#include "engine/sort/sort.h"
#include "ops/DtypeChecks.h"
#include "ops/kthvalue.h"
#include "ops/median.h"
#include "ops/mode.h"
#include "ops/nanmedian.h"
#include "ops/sort.h"
#include "ops/topk.h"

namespace ocl::native {

namespace {

/// `self`, or a copy if it shares memory with `out`.
at::Tensor apart_from(const at::Tensor& self, const at::Tensor& out) {
  return self.is_alias_of(out) ? self.clone() : self;
}

/// The shape of `self` with one element along `dim`.
c10::DimVector reduced_shape(const at::Tensor& self, int64_t dim) {
  c10::DimVector shape(self.sizes().begin(), self.sizes().end());
  if (!shape.empty()) shape[dim] = 1;
  return shape;
}

/// Whether a given result that is to lose dimension `dim` first gets it, so that it is resized,
/// with a warning that says so, as CPU torch's kthvalue and mode do. Null: it is resized at once.
using Unsqueezes = bool (*)(const at::Tensor& out, const at::Tensor& self, int64_t dim);

bool lacks_one_dimension(const at::Tensor& out, const at::Tensor& self, int64_t) {
  return out.dim() == self.dim() - 1;
}

bool reaches_dimension(const at::Tensor& out, const at::Tensor&, int64_t dim) {
  return out.dim() >= dim;
}

/// Resizes values and indices to the shape of `self` reduced along `dim`, calls
/// compute(values, indices) with views that keep the dimension, and checks what CPU torch checks.
template <class Compute>
void reduce_with_indices(const char* name, const at::Tensor& self, int64_t dim, bool keepdim,
                         at::Tensor& values, at::Tensor& indices, Unsqueezes unsqueezes,
                         const Compute& compute) {
  TORCH_CHECK(values.scalar_type() == self.scalar_type(), name, "(): expected values of dtype ",
              self.scalar_type(), ", got ", values.scalar_type());
  TORCH_CHECK(indices.scalar_type() == at::kLong, name, "(): expected indices of dtype Long, got ",
              indices.scalar_type());
  TORCH_CHECK(values.device() == self.device() && indices.device() == self.device(), name,
              "(): expected values and indices on ", self.device());
  at::assert_no_internal_overlap(values);
  at::assert_no_internal_overlap(indices);
  at::assert_no_overlap(values, indices);
  const bool drops = !keepdim && self.dim() > 0;
  c10::DimVector shape = reduced_shape(self, dim);
  if (drops && unsqueezes == nullptr) shape.erase(shape.begin() + dim);
  const at::Tensor input = apart_from(apart_from(self, values), indices);
  for (at::Tensor* out : {&values, &indices}) {
    if (drops && unsqueezes != nullptr && unsqueezes(*out, self, dim)) out->unsqueeze_(dim);
    at::native::resize_output(*out, shape);
    if (drops && unsqueezes != nullptr) out->squeeze_(dim);
  }
  if (values.numel() == 0) return;
  if (drops) {
    compute(input, values.unsqueeze(dim), indices.unsqueeze(dim));
  } else {
    compute(input, values, indices);
  }
}

/// The result of ops along a dimension for a tensor without one.
void give_number(const at::Tensor& self, const at::Tensor& values, const at::Tensor& indices) {
  values.copy_(self);
  indices.zero_();
}

using Statistic = void (sort::Rows::*)(const at::Tensor&, const at::Tensor&) const;

void statistic_out(const char* name, Statistic statistic, const at::Tensor& self, int64_t dim_,
                   bool keepdim, at::Tensor& values, at::Tensor& indices,
                   Unsqueezes unsqueezes = nullptr) {
  const int64_t dim = at::maybe_wrap_dim(dim_, self.dim());
  at::native::zero_numel_check_dims(self, dim, name);
  reduce_with_indices(
      name, self, dim, keepdim, values, indices, unsqueezes,
      [&](const at::Tensor& input, const at::Tensor& values, const at::Tensor& indices) {
        sort::Rows rows(name, input, dim);
        rows.sort();
        (rows.*statistic)(values, indices);
      });
}

/// Also where there is nothing to compare.
void check_ordered(const char* name, const at::Tensor& self) {
  const at::ScalarType dtype = self.scalar_type();
  check_supported(name, dtype, dtype != at::kBool && !self.is_complex());
}

/// The statistic of all elements, in any shape. That of no elements is there for bool, too, as on
/// the CPU.
at::Tensor statistic_of_all(const char* name, Statistic statistic, const at::Tensor& self) {
  if (self.numel() == 0) {
    // NaN as whatever the dtype makes of it.
    return at::full({}, std::numeric_limits<float>::quiet_NaN(), at::device(at::kCPU))
        .to(self.options());
  }
  check_supported(name, self.scalar_type(), self.scalar_type() != at::kBool);
  const at::Tensor flat = self.reshape(-1);
  at::Tensor values = at::empty({1}, self.options());
  at::Tensor indices = at::empty({1}, self.options().dtype(at::kLong));
  sort::Rows rows(name, flat, 0);
  rows.sort();
  (rows.*statistic)(values, indices);
  return values.squeeze(0);
}

void check_writable(const at::Tensor& self, const at::Tensor& values, const at::Tensor& indices) {
  at::assert_no_internal_overlap(values);
  at::assert_no_internal_overlap(indices);
  at::assert_no_partial_overlap(values, self);
}

}  // namespace

TORCH_IMPL_FUNC(sort_stable_out)(const at::Tensor& self, std::optional<bool>, int64_t dim,
                                 bool descending, const at::Tensor& values,
                                 const at::Tensor& indices) {
  const int64_t wrapped = at::maybe_wrap_dim(dim, self.dim());
  check_writable(self, values, indices);
  if (self.dim() == 0) return give_number(self, values, indices);  // of any dtype
  const at::Tensor input = apart_from(apart_from(self, values), indices);
  sort::Rows rows("sort", input, wrapped, descending);
  rows.sort();
  rows.take(values, indices);
}

TORCH_IMPL_FUNC(topk_out)(const at::Tensor& self, int64_t k, int64_t dim, bool largest, bool,
                          const at::Tensor& values, const at::Tensor& indices) {
  TORCH_CHECK(self.scalar_type() != at::kBool, "topk does not support bool dtypes");
  const int64_t wrapped = at::maybe_wrap_dim(dim, self.dim());
  if (values.numel() == 0) return;
  check_writable(self, values, indices);
  // The result for a number of any dtype is that number, even with k = 0.
  if (self.dim() == 0) return give_number(self, values, indices);
  const at::Tensor input = apart_from(apart_from(self, values), indices);
  sort::Rows rows("topk", input, wrapped, largest);
  rows.sort_first(k);
  rows.take(values, indices);
}

std::tuple<at::Tensor&, at::Tensor&> kthvalue_values(const at::Tensor& self, int64_t k,
                                                     int64_t dim_, bool keepdim, at::Tensor& values,
                                                     at::Tensor& indices) {
  const int64_t dim = at::maybe_wrap_dim(dim_, self.dim());
  const int64_t size = self.dim() == 0 ? 1 : self.size(dim);
  at::native::zero_numel_check_dims(self, dim, "kthvalue()");
  TORCH_CHECK(k >= 1 && k <= size, "kthvalue(): selected number k out of range for dimension ",
              dim);
  const bool ordered = self.scalar_type() != at::kBool && !self.is_complex();
  check_supported("kthvalue", self.scalar_type(), ordered || self.dim() == 0);
  at::assert_no_overlap(self, values);
  reduce_with_indices(
      "kthvalue", self, dim, keepdim, values, indices, lacks_one_dimension,
      [&](const at::Tensor& input, const at::Tensor& values, const at::Tensor& indices) {
        if (input.dim() == 0) return give_number(input, values, indices);  // of any dtype
        sort::Rows rows("kthvalue", input, dim);
        rows.sort_first(k);
        rows.pick(k - 1, values, indices);
      });
  return {values, indices};
}

std::tuple<at::Tensor&, at::Tensor&> median_dim_values(const at::Tensor& self, int64_t dim,
                                                       bool keepdim, at::Tensor& values,
                                                       at::Tensor& indices) {
  at::native::zero_numel_check_dims(self, at::maybe_wrap_dim(dim, self.dim()), "median()");
  check_ordered("median", self);
  statistic_out("median", &sort::Rows::median, self, dim, keepdim, values, indices);
  return {values, indices};
}

std::tuple<at::Tensor&, at::Tensor&> nanmedian_dim_values(const at::Tensor& self, int64_t dim,
                                                          bool keepdim, at::Tensor& values,
                                                          at::Tensor& indices) {
  at::native::zero_numel_check_dims(self, at::maybe_wrap_dim(dim, self.dim()), "nanmedian()");
  check_ordered("nanmedian", self);
  statistic_out("nanmedian", &sort::Rows::nanmedian, self, dim, keepdim, values, indices);
  return {values, indices};
}

at::Tensor median(const at::Tensor& self) {
  return statistic_of_all("median", &sort::Rows::median, self);
}

at::Tensor nanmedian(const at::Tensor& self) {
  return statistic_of_all("nanmedian", &sort::Rows::nanmedian, self);
}

std::tuple<at::Tensor&, at::Tensor&> mode_values(const at::Tensor& self, int64_t dim, bool keepdim,
                                                 at::Tensor& values, at::Tensor& indices) {
  at::assert_no_overlap(values, self);
  at::assert_no_overlap(indices, self);
  if (self.dim() == 0) {  // of any dtype
    (void)at::maybe_wrap_dim(dim, int64_t{0});
    values.resize_({});  // without a warning, as on the CPU
    indices.resize_({});
    reduce_with_indices("mode", self, 0, keepdim, values, indices, nullptr, give_number);
  } else {
    statistic_out("mode", &sort::Rows::mode, self, dim, keepdim, values, indices,
                  self.numel() == 0 ? nullptr : reaches_dimension);
  }
  return {values, indices};
}

std::tuple<at::Tensor, at::Tensor> mode(const at::Tensor& self, int64_t dim, bool keepdim) {
  at::Tensor values = at::empty({0}, self.options());
  at::Tensor indices = at::empty({0}, self.options().dtype(at::kLong));
  mode_values(self, dim, keepdim, values, indices);
  return {values, indices};
}

}  // namespace ocl::native
