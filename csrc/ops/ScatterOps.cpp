// Scatters and what combines slices through an index: several elements may meet in one place.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/ReductionType.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include "engine/dtype.h"
#include "engine/index/index.h"
#include "ops/DtypeChecks.h"
#include "ops/along_dimension.h"
#include "ops/index_add.h"
#include "ops/index_reduce.h"

namespace ocl::native {

using index::Reduction;

namespace {

// CPU torch raises no IndexError for most of these; for index_add it is one with vectors alone.
const AssertSite scatter_site{"scatter", Raises::runtime_error},
    scatter_with_reduce_site{"scatter(reduce=)", Raises::runtime_error},
    scatter_add_site{"scatter_add", Raises::runtime_error},
    scatter_reduce_site{"scatter_reduce", Raises::runtime_error},
    index_add_site{"index_add", Raises::runtime_error}, index_add_vector_site{"index_add"},
    index_reduce_site{"index_reduce"};

Reduction reduction_of(at::native::ReductionType type) {
  switch (type) {
    case at::native::ReductionType::PROD:
      return Reduction::mul;
    case at::native::ReductionType::MAX:
      return Reduction::amax;
    case at::native::ReductionType::MIN:
      return Reduction::amin;
    default:
      return Reduction::add;  // a mean is a sum that upstream divides
  }
}

void check_order(Reduction reduction, c10::ScalarType dtype) {
  const bool ordered = reduction == Reduction::amax || reduction == Reduction::amin;
  TORCH_CHECK_NOT_IMPLEMENTED(!ordered || !c10::isComplexType(dtype),
                              "\"scatter_reduce\" with amax or amin not implemented for '", dtype,
                              "', which has no order");
}

/// scatter's operands: self along dim by index, and src or nothing.
void scatter_along(const at::Tensor& self_, int64_t dim, const at::Tensor& index_,
                   const at::Tensor& src_, const AssertSite& site,
                   std::optional<Reduction> reduction) {
  if (reduction) {
    check_order(*reduction, self_.scalar_type());
    check_supported("scatter", self_.scalar_type(), !c10::isFloat8Type(self_.scalar_type()));
  }
  if (index_.numel() == 0) return;
  if ((reduction == Reduction::add || reduction == Reduction::mul) &&
      c10::isReducedFloatingType(self_.scalar_type())) {
    // As CPU torch does: many terms rounded one by one would lose what they add up to.
    const at::Tensor wide = self_.to(at::kFloat);
    scatter_along(wide, dim, index_, src_.to(at::kFloat), site, reduction);
    self_.copy_(wide);
    return;
  }
  const at::Tensor self = at_least_1d(self_), index = at_least_1d(index_), src = at_least_1d(src_);
  const AlongDimension along(self, dim, site);
  auto iter = iterator(stand_still(self, index.sizes(), dim),
                       {src.as_strided(index.sizes(), src.strides()), index});
  if (reduction) {
    index::reduce(iter, along.indexing, *reduction);
  } else {
    index::scatter(iter, along.indexing);
  }
}

}  // namespace

void scatter(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& src) {
  scatter_along(self, dim, index, src, scatter_site, std::nullopt);
}

void scatter_fill(const at::Tensor& self_, int64_t dim, const at::Tensor& index_,
                  const c10::Scalar& value) {
  if (index_.numel() == 0) return;
  const at::Tensor self = at_least_1d(self_), index = at_least_1d(index_);
  const AlongDimension along(self, dim, scatter_site);
  auto iter = iterator(stand_still(self, index.sizes(), dim), {index});
  index::fill(iter, along.indexing, value);
}

void scatter_add(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                 const at::Tensor& src) {
  scatter_along(self, dim, index, src, scatter_add_site, Reduction::add);
}

void scatter_reduce(const at::Tensor& self, const int64_t dim, const at::Tensor& index,
                    const at::Tensor& src, const at::native::ReductionType& reduce) {
  scatter_along(self, dim, index, src, scatter_with_reduce_site, reduction_of(reduce));
}

void scatter_reduce_two(const at::Tensor& self, const int64_t dim, const at::Tensor& index,
                        const at::Tensor& src, const at::native::ReductionType& reduce) {
  scatter_along(self, dim, index, src, scatter_reduce_site, reduction_of(reduce));
}

void scatter_scalar_reduce(const at::Tensor& self_, const int64_t dim, const at::Tensor& index_,
                           const c10::Scalar& value, const at::native::ReductionType& reduce) {
  if (index_.numel() == 0) return;
  const at::Tensor self = at_least_1d(self_), index = at_least_1d(index_);
  const AlongDimension along(self, dim, scatter_with_reduce_site);
  auto iter = iterator(stand_still(self, index.sizes(), dim), {index});
  index::reduce_fill(iter, along.indexing, reduction_of(reduce), value);
}

namespace {

/// out[.., index[i], ..] = reduction(itself, source[.., i, ..])
void reduce_along(const at::Tensor& out_, int64_t dim, const at::Tensor& index,
                  const at::Tensor& source_, const AssertSite& site, Reduction reduction) {
  const at::Tensor out = at_least_1d(out_), source = at_least_1d(source_);
  AlongDimension along(out, dim, site);
  along.indexing.float8 = reduction == Reduction::mul;
  auto iter = iterator(stand_still(out, source.sizes(), dim),
                       {source, move_along(index, source.sizes(), dim)});
  index::reduce(iter, along.indexing, reduction);
}

}  // namespace

void structured_index_add_out::impl(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                                    const at::Tensor& source, const at::Scalar& alpha,
                                    const at::Tensor& out) {
  if (!out.is_same(self)) out.copy_(self);
  if (index.numel() == 0 || source.numel() == 0) return;
  check_not_empty("index_add", at_least_1d(out), dim);
  // In the tensor's dtype: a float factor of integers is truncated first, as CPU torch does.
  const at::ScalarType dtype = self.scalar_type();
  if (c10::isIntegralType(dtype, true)) {
    (void)scalar_argument(dtype, alpha);  // raises what does not fit
  } else {
    check_scalar(dtype, alpha);
  }
  const at::Scalar factor = dtype == at::kBool                  ? at::Scalar(alpha.to<bool>())
                            : c10::isIntegralType(dtype, false) ? at::Scalar(alpha.to<int64_t>())
                                                                : alpha;
  const at::Tensor scaled = factor.equal(1) ? source : source.mul(factor);
  const AssertSite& site = out.dim() > 1 ? index_add_site : index_add_vector_site;
  if (dtype == at::kHalf || dtype == at::kBFloat16) {
    const at::Tensor wide = out.to(at::kFloat);  // as in scatter_along()
    reduce_along(wide, dim, index, scaled.to(at::kFloat), site, Reduction::add);
    out.copy_(wide);
    return;
  }
  reduce_along(out, dim, index, scaled, site, Reduction::add);
}

void structured_index_reduce_out::impl(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                                       const at::Tensor& source, c10::string_view reduce,
                                       bool include_self, const at::Tensor& out) {
  TORCH_WARN_ONCE("index_reduce() is in beta and the API may change at any time.");
  const bool mean = reduce == "mean";
  // CPU torch reduces slices, but neither numbers nor a forgotten start, of these dtypes.
  const bool sliced = self.dim() > 1 && include_self;
  // Nor is a dtype looked at before there is a slice.
  if (sliced && index.numel() > 0) check_not_empty("index_reduce", out, dim);
  check_supported("index_reduce", self.scalar_type(),
                  sliced && index.numel() == 0            ? true
                  : self.scalar_type() == at::kBool       ? sliced && !mean
                  : self.is_complex()                     ? sliced && (mean || reduce == "prod")
                  : c10::isFloat8Type(self.scalar_type()) ? sliced && reduce == "prod"
                                                          : true);
  if (!out.is_same(self)) out.copy_(self);
  if (index.numel() == 0 || source.numel() == 0) return;
  check_not_empty("index_reduce", at_least_1d(out), dim);
  const Reduction reduction = reduce == "prod"   ? Reduction::mul
                              : reduce == "amax" ? Reduction::amax
                              : reduce == "amin" ? Reduction::amin
                                                 : Reduction::add;
  if (!include_self) {
    // The places that are written forget what they hold.
    const at::Tensor start = mean ? at::zeros_like(source)
                             : reduction == Reduction::mul
                                 ? at::ones_like(source)
                                 : source;  // met twice, it stays the same
    reduce_along(out, dim, index, start, index_reduce_site, Reduction::assign);
  }
  reduce_along(out, dim, index, source, index_reduce_site, reduction);
  if (!mean) return;
  at::Tensor counts = include_self ? at::ones_like(out) : at::zeros_like(out);
  reduce_along(counts, dim, index, at::ones_like(source), index_reduce_site, Reduction::add);
  counts.masked_fill_(counts.eq(0), 1);
  if (out.is_floating_point() || out.is_complex()) {
    out.div_(counts);
  } else {
    out.div_(counts, "floor");
  }
}

}  // namespace ocl::native
