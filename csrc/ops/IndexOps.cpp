// Gathers and scatters along a dimension, and advanced indexing.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/native/ReductionType.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <vector>

#include "engine/dtype.h"
#include "engine/index.h"
#include "ops/DtypeChecks.h"
#include "ops/embedding.h"
#include "ops/index_add.h"
#include "ops/index_reduce.h"
#include "ops/index_select.h"

namespace ocl::native {

using index::Indexing;
using index::Reduction;

namespace {

const AssertSite embedding_site{"embedding"}, index_site{"index"}, take_site{"take"},
    index_select_site{"index_select"}, index_put_site{"index_put_"}, put_site{"put_"},
    index_copy_site{"index_copy_"}, index_fill_site{"index_fill_"},
    index_reduce_site{"index_reduce"};
// What CPU torch raises for these is no IndexError; for index_add it is one with vectors alone.
const AssertSite gather_site{"gather", Raises::runtime_error},
    scatter_site{"scatter", Raises::runtime_error},
    scatter_with_reduce_site{"scatter(reduce=)", Raises::runtime_error},
    scatter_add_site{"scatter_add", Raises::runtime_error},
    scatter_reduce_site{"scatter_reduce", Raises::runtime_error},
    index_add_site{"index_add", Raises::runtime_error}, index_add_vector_site{"index_add"};

at::Tensor at_least_1d(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor;
}

/// `tensor` seen with shape `sizes`, standing still along `dim`.
at::Tensor stand_still(const at::Tensor& tensor, c10::IntArrayRef sizes, int64_t dim) {
  c10::DimVector strides(tensor.strides().begin(), tensor.strides().end());
  strides[dim] = 0;
  return tensor.as_strided(sizes, strides);
}

/// A vector seen with shape `sizes`, moving along `dim` alone.
at::Tensor move_along(const at::Tensor& vector, c10::IntArrayRef sizes, int64_t dim) {
  std::vector<int64_t> strides(sizes.size(), 0);
  strides[dim] = vector.dim() == 0 ? 0 : vector.stride(0);
  return vector.as_strided(sizes, strides);
}

/// Operands of any dtype, not resized; which overlap is allowed has been checked before.
at::TensorIterator iterator(const at::Tensor& out, std::initializer_list<at::Tensor> inputs) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).resize_outputs(false);
  config.add_owned_output(out);
  for (const at::Tensor& input : inputs) config.add_owned_const_input(input);
  return config.build();
}

/// Nothing of `tensor` can be meant by an index along a dimension without elements.
void check_not_empty(const char* name, const at::Tensor& tensor, int64_t dim) {
  TORCH_CHECK_INDEX(tensor.size(dim) > 0, name, "(): index out of range for a dimension of size 0");
}

/// One index tensor that stands for dimension `dim` of `tensor`.
struct AlongDimension {
  AlongDimension(const at::Tensor& tensor, int64_t dim, const AssertSite& site, bool wrap = false)
      : size(tensor.size(dim)),
        stride(tensor.stride(dim) * tensor.itemsize()),
        indexing{size, stride, wrap, site} {}
  AlongDimension(const AlongDimension&) = delete;
  int64_t size, stride;
  Indexing indexing;  // refers to size and stride
};

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
  if (reduction) check_order(*reduction, self_.scalar_type());
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

// ---- Reads
// ------------------------------------------------------------------------------------------

void gather(const at::Tensor& result, const at::Tensor& self_, int64_t dim,
            const at::Tensor& index_) {
  const at::Tensor self = at_least_1d(self_), index = at_least_1d(index_);
  const AlongDimension along(self, dim, gather_site);
  auto iter = iterator(at_least_1d(result), {stand_still(self, index.sizes(), dim), index});
  index::gather(iter, along.indexing);
}

void index(at::TensorIteratorBase& iter, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  index::gather(iter, {sizes, strides, /*wrap=*/true, index_site});
}

void take(at::TensorIterator& iter, const at::TensorBase& input) {
  const at::Tensor dense = at::Tensor(input).contiguous();
  const int64_t size = dense.numel(), stride = dense.itemsize();
  index::gather(iter, {size, stride, /*wrap=*/true, take_site, dense.data_ptr()});
}

namespace {

at::Tensor& select_slices(const at::Tensor& self_, int64_t dim, const at::Tensor& index,
                          at::Tensor& out, const AssertSite& site) {
  dim = at::maybe_wrap_dim(dim, self_.dim());
  TORCH_CHECK_INDEX(index.dim() <= 1, "Index is supposed to be a vector");
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
              "index_select(): Expected dtype int32 or int64 for index");
  TORCH_CHECK(self_.scalar_type() == out.scalar_type(),
              "index_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self_);
  at::assert_no_overlap(out, index);
  const at::Tensor self = at_least_1d(self_);
  c10::DimVector sizes(self.sizes().begin(), self.sizes().end());
  sizes[dim] = index.numel();
  TORCH_CHECK(self_.dim() > 0 || index.numel() == 1,
              "index_select(): Index to scalar can have only 1 value, got ", index.numel(),
              " value(s)");
  at::native::resize_output(out, self_.dim() == 0 ? self_.sizes() : c10::IntArrayRef(sizes));
  if (out.numel() == 0) return out;
  check_not_empty(&site == &embedding_site ? "embedding" : "index_select", self, dim);
  const AlongDimension along(self, dim, site);
  auto iter =
      iterator(at_least_1d(out), {stand_still(self, sizes, dim), move_along(index, sizes, dim)});
  index::gather(iter, along.indexing);
  return out;
}

}  // namespace

at::Tensor& index_select_out(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                             at::Tensor& out) {
  return select_slices(self, dim, index, out, index_select_site);
}

/// Upstream's composite would report a bad index as index_select's.
at::Tensor embedding(const at::Tensor& weight, const at::Tensor& indices, int64_t, bool, bool) {
  TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
  at::checkScalarTypes("embedding", {indices, "indices", 1}, {at::kLong, at::kInt});
  at::Tensor out = at::empty({0}, weight.options());
  select_slices(weight, 0, indices.reshape(-1), out, embedding_site);
  c10::DimVector sizes(indices.sizes().begin(), indices.sizes().end());
  sizes.push_back(weight.size(1));
  return out.view(sizes);
}

at::Tensor index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  at::Tensor out = at::empty({0}, self.options());
  index_select_out(self, dim, index, out);
  return out;
}

// ---- Writes
// -----------------------------------------------------------------------------------------

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

void index_put(at::TensorIterator& iter, c10::IntArrayRef sizes, c10::IntArrayRef strides,
               bool accumulate) {
  const Indexing indexing{sizes, strides, /*wrap=*/true, index_put_site};
  if (accumulate) {
    index::reduce(iter, indexing, Reduction::add);
  } else {
    index::scatter(iter, indexing);
  }
}

/// IndexError, as CPU torch raises, where that can't be.
std::vector<at::Tensor> broadcast(const std::vector<at::Tensor>& indices) {
  try {
    return at::expand_outplace(indices);
  } catch (const c10::Error&) {
    std::vector<c10::IntArrayRef> shapes;
    for (const at::Tensor& index : indices) {
      if (index.defined()) shapes.push_back(index.sizes());
    }
    TORCH_CHECK_INDEX(
        false, "shape mismatch: indexing tensors could not be broadcast together with shapes ",
        c10::Join(", ", shapes));
  }
}

// Upstream takes this way for all devices but the CPU to accumulate, and for deterministic results.
void index_put_in_order(at::Tensor& self, const c10::List<std::optional<at::Tensor>>& given,
                        const at::Tensor& value, bool accumulate, bool) {
  TORCH_CHECK(value.device() == self.device(), "expected device ", self.device(),
              " but got device ", value.device(), " for value tensor");
  TORCH_CHECK_INDEX(static_cast<int64_t>(given.size()) <= self.dim(),
                    "too many indices for tensor of dimension ", self.dim(), " (got ", given.size(),
                    ")");
  at::native::checkIndexTensorTypes(given, /*allow_int=*/true);
  std::vector<at::Tensor> indices =
      broadcast(at::native::expandTensors(self, given, /*ensure_same_device=*/true));
  for (at::Tensor& index : indices) {
    if (index.defined() && index.scalar_type() == at::kInt) index = index.to(at::kLong);
  }
  indices.resize(self.dim());
  at::Tensor target = self;
  if (!at::native::hasContiguousSubspace(indices)) {
    std::tie(target, indices) = at::native::transposeToFront(self, indices);
  }
  const auto first = std::find_if(indices.begin(), indices.end(),
                                  [](const at::Tensor& index) { return index.defined(); });
  const int64_t before = first - indices.begin();
  int64_t indexed = 0;
  c10::DimVector sizes, strides;  // of the indexed dimensions
  for (int64_t d = before; d < target.dim() && indices[d].defined(); ++d, ++indexed) {
    sizes.push_back(target.size(d));
    strides.push_back(target.stride(d) * target.itemsize());
    TORCH_CHECK_INDEX(target.size(d) != 0 || indices[d].numel() == 0,
                      "index is out of bounds for dimension with size 0");
  }
  // The indexed dimensions give way to those of the (broadcast) index tensors.
  const c10::IntArrayRef shape = first->sizes();
  c10::DimVector out_sizes(target.sizes().begin(), target.sizes().begin() + before);
  c10::DimVector out_strides(target.strides().begin(), target.strides().begin() + before);
  out_sizes.append(shape.begin(), shape.end());
  out_strides.append(shape.size(), 0);
  out_sizes.append(target.sizes().begin() + before + indexed, target.sizes().end());
  out_strides.append(target.strides().begin() + before + indexed, target.strides().end());
  c10::DimVector index_sizes(before, 1);
  index_sizes.append(shape.begin(), shape.end());
  index_sizes.append(target.dim() - before - indexed, 1);
  TORCH_CHECK(at::is_expandable_to(value.sizes(), out_sizes),
              "shape mismatch: value tensor of shape ", value.sizes(),
              " cannot be broadcast to indexing result of shape ", c10::IntArrayRef(out_sizes));
  TORCH_CHECK(value.scalar_type() == self.scalar_type(),
              "Index put requires the source and destination dtypes match, got ",
              self.scalar_type(), " for the destination and ", value.scalar_type(),
              " for the source.");
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).resize_outputs(false);
  config.add_owned_output(target.as_strided(out_sizes, out_strides));
  config.add_const_input(value);
  for (int64_t k = 0; k < indexed; ++k) {
    config.add_owned_const_input(indices[before + k].reshape(index_sizes));
  }
  auto iter = config.build();
  const Indexing indexing{sizes, strides, /*wrap=*/true, index_put_site};
  index::reduce(iter, indexing, accumulate ? Reduction::add : Reduction::assign);
}

void index_fill(at::TensorIterator& iter, int64_t, int64_t self_dim_size, int64_t self_dim_stride,
                const c10::Scalar& source) {
  const int64_t stride = self_dim_stride * iter.element_size(0);
  index::fill(iter, {self_dim_size, stride, /*wrap=*/true, index_fill_site}, source);
}

// Upstream's iterator holds self, index, source.
void index_copy(at::TensorIterator& iter, int64_t, int64_t self_dim_size, int64_t self_dim_stride) {
  const int64_t stride = self_dim_stride * iter.element_size(0);
  auto reordered = iterator(iter.tensor(0), {iter.tensor(2), iter.tensor(1)});
  index::scatter(reordered, {self_dim_size, stride, /*wrap=*/false, index_copy_site});
}

// Upstream's iterator holds source and index.
void put(at::TensorIterator& iter, const at::TensorBase& self, const bool accumulate) {
  const at::Tensor target(self);
  const at::Tensor dense = target.contiguous();
  const int64_t size = dense.numel(), stride = dense.itemsize();
  const Indexing indexing{size, stride, /*wrap=*/true, put_site, dense.data_ptr()};
  if (accumulate) {
    index::reduce(iter, indexing, Reduction::add);
  } else {
    index::scatter(iter, indexing);
  }
  if (!dense.is_same(target)) target.copy_(dense);
}

namespace {

/// out[.., index[i], ..] = reduction(itself, source[.., i, ..])
void reduce_along(const at::Tensor& out_, int64_t dim, const at::Tensor& index,
                  const at::Tensor& source_, const AssertSite& site, Reduction reduction) {
  const at::Tensor out = at_least_1d(out_), source = at_least_1d(source_);
  const AlongDimension along(out, dim, site);
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
  reduce_along(out, dim, index, scaled, out.dim() > 1 ? index_add_site : index_add_vector_site,
               Reduction::add);
}

void structured_index_reduce_out::impl(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                                       const at::Tensor& source, c10::string_view reduce,
                                       bool include_self, const at::Tensor& out) {
  const bool mean = reduce == "mean";
  // CPU torch reduces slices, but neither numbers nor a forgotten start, of these dtypes.
  const bool sliced = self.dim() > 1 && include_self;
  check_supported("index_reduce", self.scalar_type(),
                  self.scalar_type() == at::kBool ? sliced && !mean
                  : self.is_complex()             ? sliced && (mean || reduce == "prod")
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
