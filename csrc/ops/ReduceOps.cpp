// Reductions of values, and positions: sum, prod, norms, any, max, argmax, ...
//
// Upstream's implementations cast the input to the result's dtype first; these read it as it is,
// but where the cast shows. mean() sums halves in float.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/sum.h>

#include <cmath>

#include "engine/dtype.h"
#include "engine/reduce/reduce.h"
#include "ops/DtypeChecks.h"
#include "ops/all.h"
#include "ops/amax.h"
#include "ops/amin.h"
#include "ops/aminmax.h"
#include "ops/any.h"
#include "ops/argmax.h"
#include "ops/argmin.h"
#include "ops/count_nonzero.h"
#include "ops/max.h"
#include "ops/mean.h"
#include "ops/min.h"
#include "ops/nansum.h"
#include "ops/prod.h"
#include "ops/sum.h"

namespace ocl::native {

namespace {

using reduce::Op;
using reduce::State;
using reduce::Types;

constexpr Op sum_op{"sum"};
constexpr Op mean_op{"mean"};
constexpr Op nansum_op{"nansum"};
constexpr Op prod_op{"prod"};
constexpr Op amax_op{"amax", State::value, Types::input};
constexpr Op amin_op{"amin", State::value, Types::input};
constexpr Op all_op{"all_true", State::value, Types::boolean};
constexpr Op any_op{"any_true", State::value, Types::boolean};
constexpr Op count_nonzero_op{"count_nonzero", State::value, Types::count};
constexpr Op norm_0_op{"norm_0", State::value, Types::magnitude};
constexpr Op norm_1_op{"norm_1", State::value, Types::magnitude};
constexpr Op norm_2_op{"norm_2", State::value, Types::magnitude};
constexpr Op norm_max_op{"norm_max", State::value, Types::magnitude};
constexpr Op norm_min_op{"norm_min", State::value, Types::magnitude};
constexpr Op norm_p_op{"norm_p", State::value, Types::magnitude};
constexpr Op powsum_op{"powsum", State::value, Types::magnitude};
constexpr Op xor_bits_op{"xor_bits", State::value, Types::mapped};
constexpr Op argmax_op{"argmax", State::arg, Types::input, /*index_only=*/true};
constexpr Op argmin_op{"argmin", State::arg, Types::input, /*index_only=*/true};
constexpr Op max_dim_op{"argmax", State::arg, Types::input};
constexpr Op min_dim_op{"argmin", State::arg, Types::input};

std::bitset<64> mask_of(at::OptionalIntArrayRef dims, const at::Tensor& self,
                        bool allow_empty = false) {
  return at::native::make_dim_mask(dims, self.dim(), allow_empty);
}

std::bitset<64> mask_of(int64_t dim, const at::Tensor& self) {
  return mask_of(at::OptionalIntArrayRef(dim), self);
}

std::bitset<64> all_dims() { return std::bitset<64>().set(); }

/// A half type loses something, and so does a real one of complex numbers, with a warning. The
/// kernels know float8 types only where all that matters is whether an element is zero.
at::Tensor cast_where_it_shows(const at::Tensor& self, const at::Tensor& out) {
  const bool shows = narrows_to_half(self.scalar_type(), out.scalar_type()) ||
                     (self.is_complex() && !out.is_complex()) ||
                     c10::isFloat8Type(self.scalar_type());
  return shows ? self.to(out.scalar_type()) : self;
}

/// An empty tensor gives a result in every dtype.
void reduce_values(const Op& op, const at::Tensor& self, std::bitset<64> reduced, bool keepdim,
                   const at::Tensor& out, int64_t of_nothing) {
  if (self.numel() == 0) {
    out.fill_(of_nothing);
  } else {
    reduce::run(op, cast_where_it_shows(self, out), reduced, keepdim, out);
  }
}

/// Elements that each output stands for.
double reduced_count(const at::Tensor& self, const at::Tensor& out) {
  return out.numel() == 0 ? 0 : static_cast<double>(self.numel() / out.numel());
}

void find_position(const Op& op, const at::Tensor& self, std::optional<int64_t> dim, bool keepdim,
                   const at::Tensor& out) {
  if (dim && self.dim() > 0 && self.size(*dim) == 1) {  // of any dtype
    out.zero_();
  } else if (dim) {
    reduce::run(op, self, mask_of(*dim, self), keepdim, out);
  } else {
    reduce::run(op, self.contiguous(), all_dims(), keepdim, out);
  }
}

void find_extreme(const Op& op, const at::Tensor& self, int64_t dim, bool keepdim,
                  const at::Tensor& values, const at::Tensor& indices) {
  if (self.dim() == 0) {  // of any dtype
    values.copy_(self);
    indices.zero_();
    return;
  }
  for (const at::Tensor& written : {values, indices}) {
    at::assert_no_internal_overlap(written);
    at::assert_no_overlap(written, self);
  }
  reduce::run(op, self, mask_of(dim, self), keepdim, values, indices);
}

void find_extreme_of_all(const Op& op, const at::Tensor& self, const at::Tensor& out) {
  if (!out.is_complex()) return reduce::run(op, self, all_dims(), false, out);
  const at::Tensor real = at::empty({}, self.options());
  reduce::run(op, self, all_dims(), false, real);
  out.copy_(real);
}

}  // namespace

TORCH_IMPL_FUNC(sum_dim_intlist_out)(const at::Tensor& self, at::OptionalIntArrayRef dim,
                                     bool keepdim, std::optional<at::ScalarType>,
                                     const at::Tensor& out) {
  reduce_values(sum_op, self, mask_of(dim, self), keepdim, out, 0);
}

TORCH_IMPL_FUNC(mean_dim_out)(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                              std::optional<at::ScalarType>, const at::Tensor& out) {
  // Imaginary parts are dropped, with upstream's warning, where the result has none.
  const bool drops = self.is_complex() && !out.is_complex();
  const at::Tensor input =
      drops || c10::isFloat8Type(self.scalar_type()) ? self.to(out.scalar_type()) : self;
  if (!drops || !at::isFloatingType(out.scalar_type())) check_can_cast(self, out);
  at::assert_no_internal_overlap(out);
  reduce::run(mean_op, input, mask_of(dim, input), keepdim, out, {}, {reduced_count(input, out)});
}

at::Tensor& nansum_out(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                       std::optional<at::ScalarType> dtype, at::Tensor& out) {
  TORCH_CHECK(!self.is_complex(), "nansum does not support complex inputs");
  if (c10::isIntegralType(dtype.value_or(self.scalar_type()), /*includeBool=*/true) ||
      c10::isIntegralType(self.scalar_type(), /*includeBool=*/true)) {
    return at::sum_out(out, self, dim, keepdim, dtype);
  }
  const at::ScalarType result = dtype.value_or(out.scalar_type());
  TORCH_CHECK(out.scalar_type() == result,
              "nansum: provided dtype must match dtype of result. Got ", out.scalar_type(), " and ",
              result, ".");
  const auto mask = mask_of(dim, self);
  at::native::resize_reduction_result(out, self, mask, keepdim, result);
  check_supported("nansum", result, self.numel() == 0 || at::isFloatingType(result));
  reduce_values(nansum_op, self, mask, keepdim, out, 0);
  return out;
}

at::Tensor nansum(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                  std::optional<at::ScalarType> dtype) {
  const at::ScalarType result = at::native::get_dtype_from_self(self, dtype, true);
  at::Tensor out = at::native::create_reduction_result(self, dim, keepdim, result);
  return nansum_out(self, dim, keepdim, dtype, out);
}

TORCH_IMPL_FUNC(prod_dim_int_out)(const at::Tensor& self, int64_t dim, bool keepdim,
                                  std::optional<at::ScalarType>, const at::Tensor& out) {
  reduce_values(prod_op, self, mask_of(dim, self), keepdim, out, 1);
}

at::Tensor prod(const at::Tensor& self, std::optional<at::ScalarType> dtype) {
  at::Tensor out =
      at::empty({}, self.options().dtype(at::native::get_dtype_from_self(self, dtype, true)));
  reduce_values(prod_op, self, all_dims(), false, out, 1);
  return out;
}

at::Tensor count_nonzero_dim_intlist(const at::Tensor& self, at::IntArrayRef dim) {
  at::Tensor out = at::native::create_reduction_result(self, dim, false, at::kLong);
  if (c10::isFloat8Type(self.scalar_type())) {
    check_supported("count_nonzero", self.scalar_type(), !dim.empty());
    // To be compared, the number becomes float8: float8_e8m0fnu's smallest value stands for 0.
    reduce::run(count_nonzero_op, at::ne(self, 0), mask_of(dim, self), false, out);
  } else {
    reduce::run(count_nonzero_op, self, mask_of(dim, self), false, out);
  }
  return out;
}

TORCH_IMPL_FUNC(amax_out)(const at::Tensor& self, at::IntArrayRef dim, bool keepdim,
                          const at::Tensor& out) {
  reduce::run(amax_op, self, mask_of(dim, self), keepdim, out);
}

TORCH_IMPL_FUNC(amin_out)(const at::Tensor& self, at::IntArrayRef dim, bool keepdim,
                          const at::Tensor& out) {
  reduce::run(amin_op, self, mask_of(dim, self), keepdim, out);
}

TORCH_IMPL_FUNC(all_out)(const at::Tensor& self, const at::Tensor& out) {
  reduce::run(all_op, self, all_dims(), false, out);
}

TORCH_IMPL_FUNC(all_dim_out)(const at::Tensor& self, int64_t dim, bool keepdim,
                             const at::Tensor& out) {
  reduce::run(all_op, self, mask_of(dim, self), keepdim, out);
}

TORCH_IMPL_FUNC(all_dims_out)(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                              const at::Tensor& out) {
  reduce::run(all_op, self, mask_of(dim, self, /*allow_empty=*/true), keepdim, out);
}

TORCH_IMPL_FUNC(any_out)(const at::Tensor& self, const at::Tensor& out) {
  reduce::run(any_op, self, all_dims(), false, out);
}

TORCH_IMPL_FUNC(any_dim_out)(const at::Tensor& self, int64_t dim, bool keepdim,
                             const at::Tensor& out) {
  reduce::run(any_op, self, mask_of(dim, self), keepdim, out);
}

TORCH_IMPL_FUNC(any_dims_out)(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                              const at::Tensor& out) {
  reduce::run(any_op, self, mask_of(dim, self, /*allow_empty=*/true), keepdim, out);
}

TORCH_IMPL_FUNC(argmax_out)(const at::Tensor& self, std::optional<int64_t> dim, bool keepdim,
                            const at::Tensor& out) {
  find_position(argmax_op, self, dim, keepdim, out);
}

TORCH_IMPL_FUNC(argmin_out)(const at::Tensor& self, std::optional<int64_t> dim, bool keepdim,
                            const at::Tensor& out) {
  find_position(argmin_op, self, dim, keepdim, out);
}

TORCH_IMPL_FUNC(max_dim_out)(const at::Tensor& self, int64_t dim, bool keepdim,
                             const at::Tensor& values, const at::Tensor& indices) {
  find_extreme(max_dim_op, self, dim, keepdim, values, indices);
}

TORCH_IMPL_FUNC(min_dim_out)(const at::Tensor& self, int64_t dim, bool keepdim,
                             const at::Tensor& values, const at::Tensor& indices) {
  find_extreme(min_dim_op, self, dim, keepdim, values, indices);
}

TORCH_IMPL_FUNC(aminmax_out)(const at::Tensor& self, std::optional<int64_t> dim, bool keepdim,
                             const at::Tensor& min, const at::Tensor& max) {
  at::assert_no_internal_overlap(min);
  at::assert_no_internal_overlap(max);
  const bool number = dim && self.dim() == 0;
  TORCH_CHECK(!number || !self.is_complex(), "aminmax not implemented for ", self.scalar_type());
  check_supported("aminmax", self.scalar_type(), !self.is_complex());
  if (number) {
    min.copy_(self);
    max.copy_(self);
    return;
  }
  const auto mask = dim ? mask_of(*dim, self) : all_dims();
  reduce::run(amin_op, self, mask, keepdim, min);
  reduce::run(amax_op, self, mask, keepdim, max);
}

// Behind max_all_stub and its like: upstream's functions check, we compute.

void max_all_kernel(at::Tensor& result, const at::Tensor& self) {
  find_extreme_of_all(amax_op, self, result);
}

void min_all_kernel(at::Tensor& result, const at::Tensor& self) {
  find_extreme_of_all(amin_op, self, result);
}

void norm_kernel(at::TensorIterator& iter, const c10::Scalar& order) {
  const double p = order.toDouble();
  if (iter.numel() == 0) {
    iter.tensor(0).fill_(p < 0 ? INFINITY : 0);
    return;
  }
  const Op& op = p == 0           ? norm_0_op
                 : p == 1         ? norm_1_op
                 : p == 2         ? norm_2_op
                 : p == INFINITY  ? norm_max_op
                 : p == -INFINITY ? norm_min_op
                                  : norm_p_op;
  reduce::run(op, iter, {p});
}

void powsum_kernel(at::TensorIterator& iter, const c10::Scalar& order) {
  reduce::run(powsum_op, iter, {order.toDouble()});
}

void xor_sum_kernel(at::TensorIterator& iter) {
  TORCH_CHECK_NOT_IMPLEMENTED(!c10::isComplexType(iter.dtype(1)),
                              "\"xor_sum\" not implemented for '", iter.dtype(1), "'");
  reduce::run(xor_bits_op, iter);
}

}  // namespace ocl::native
