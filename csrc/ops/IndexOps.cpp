// Reads through indices, and writes that replace what they meet.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorAdvancedIndexingUtils.h>
#include <ATen/ops/_index_put_impl_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "engine/index/index.h"
#include "ops/_index_put_impl.h"
#include "ops/along_dimension.h"
#include "ops/embedding.h"
#include "ops/index_select.h"

namespace ocl::native {

using index::Indexing;
using index::Reduction;

namespace {

const AssertSite embedding_site{"embedding"}, index_site{"index"}, take_site{"take"},
    index_select_site{"index_select"}, index_put_site{"index_put_"}, put_site{"put_"},
    index_copy_site{"index_copy_"}, index_fill_site{"index_fill_"};
// CPU torch raises no IndexError for this.
const AssertSite gather_site{"gather", Raises::runtime_error};

/// `any`: of the dimensions are indexed. None are where all indices are masks without dimensions,
/// which count as no tensor at all; x[mask] adds a dimension and does not come here.
void check_indexed(bool any, const char* op) {
  TORCH_CHECK(any, op, ": expected an index tensor of one dimension or more, or of integers");
}

/// Index tensors and the dimensions they stand for, no more than the kernels take: of more, the
/// last ones become one, of byte offsets.
struct Folded {
  Folded(std::vector<at::Tensor> given, c10::IntArrayRef sizes, c10::IntArrayRef strides,
         const AssertSite& site)
      : indices(std::move(given)), sizes(sizes), strides(strides) {
    if (indices.size() <= index::kMaxIndices) return;
    const size_t kept = index::kMaxIndices - 1;
    at::Tensor offsets;
    int64_t end = 1;
    for (size_t k = kept; k < indices.size(); ++k) {
      const at::Tensor moved = offset_of(indices[k], sizes[k], strides[k], site);
      offsets = offsets.defined() ? offsets.add(moved) : moved;
      end += (sizes[k] - 1) * strides[k];
    }
    for (at::Tensor& index : indices) index = index.to(at::kLong);
    indices.resize(kept);
    indices.push_back(offsets);
    this->sizes.resize(kept);
    this->sizes.push_back(end);
    this->strides.resize(kept);
    this->strides.push_back(1);
  }

  std::vector<at::Tensor> indices;
  c10::DimVector sizes, strides;

 private:
  /// Looked up in a list, so that an index out of range is reported, and leads nowhere else.
  static at::Tensor offset_of(const at::Tensor& index, int64_t size, int64_t stride,
                              const AssertSite& site) {
    const auto options = index.options().dtype(at::kLong);
    const at::Tensor list = at::arange(size, options).mul_(stride);
    const at::Tensor offset = at::zeros(index.sizes(), options);
    const std::vector<int64_t> still(index.dim(), 0);
    auto iter = iterator(offset, {list.as_strided(index.sizes(), still), index});
    const int64_t step = list.itemsize();
    index::gather(iter, {size, step, /*wrap=*/true, site});
    return offset;
  }
};

/// An iterator's index tensors, which follow `first` other operands.
std::vector<at::Tensor> indices_of(const at::TensorIteratorBase& iter, int first) {
  std::vector<at::Tensor> indices;
  for (int k = first; k < iter.ntensors(); ++k) indices.push_back(iter.tensor(k));
  return indices;
}

/// The iterator over a result or what is written to, the other operand, the indices.
at::TensorIterator iterator_of(const at::Tensor& out, const at::Tensor& input,
                               const std::vector<at::Tensor>& indices) {
  std::vector<at::Tensor> inputs{input};
  inputs.insert(inputs.end(), indices.begin(), indices.end());
  return iterator(out, inputs);
}

}  // namespace

// ---- Reads ----

void gather(const at::Tensor& result, const at::Tensor& self_, int64_t dim,
            const at::Tensor& index_) {
  const at::Tensor self = at_least_1d(self_), index = at_least_1d(index_);
  const AlongDimension along(self, dim, gather_site);
  auto iter = iterator(at_least_1d(result), {stand_still(self, index.sizes(), dim), index});
  index::gather(iter, along.indexing);
}

void index(at::TensorIteratorBase& iter, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  check_indexed(!sizes.empty(), "index");
  if (sizes.size() > index::kMaxIndices) {
    const Folded folded(indices_of(iter, 2), sizes, strides, index_site);
    auto fewer = iterator_of(iter.tensor(0), iter.tensor(1), folded.indices);
    index::gather(fewer, {folded.sizes, folded.strides, /*wrap=*/true, index_site});
    return;
  }
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
  TORCH_CHECK(&site == &embedding_site || self.dim() == 1 || self.size(dim) > 0,
              "index_select(): self indexing axis dim should be positive");
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

// ---- Writes ----

/// As on the CPU.
bool sums_float8(c10::ScalarType dtype) { return dtype != c10::ScalarType::Float8_e8m0fnu; }

void index_put(at::TensorIterator& iter, c10::IntArrayRef sizes, c10::IntArrayRef strides,
               bool accumulate) {
  check_indexed(!sizes.empty(), "index_put_");
  if (sizes.size() > index::kMaxIndices) {
    const Folded folded(indices_of(iter, 2), sizes, strides, index_put_site);
    auto fewer = iterator_of(iter.tensor(0), iter.tensor(1), folded.indices);
    index_put(fewer, folded.sizes, folded.strides, accumulate);
    return;
  }
  Indexing indexing{sizes, strides, /*wrap=*/true, index_put_site};
  if (accumulate) {
    indexing.float8 = sums_float8(iter.dtype(0));
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

void check_number_of(const c10::List<std::optional<at::Tensor>>& indices, const at::Tensor& self) {
  TORCH_CHECK_INDEX(static_cast<int64_t>(indices.size()) <= self.dim(),
                    "too many indices for tensor of dimension ", self.dim(), " (got ",
                    indices.size(), ")");
}

// Upstream takes this way for all devices but the CPU to accumulate, and for deterministic results.
void index_put_in_order(at::Tensor& self, const c10::List<std::optional<at::Tensor>>& given,
                        const at::Tensor& value, bool accumulate, bool) {
  TORCH_CHECK(value.device() == self.device(), "expected device ", self.device(),
              " but got device ", value.device(), " for value tensor");
  check_number_of(given, self);
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
  check_indexed(first != indices.end(), "index_put_");
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
  std::vector<at::Tensor> aligned;
  for (int64_t k = 0; k < indexed; ++k) {
    aligned.push_back(indices[before + k].reshape(index_sizes));
  }
  const Folded folded(std::move(aligned), sizes, strides, index_put_site);
  auto iter = iterator_of(target.as_strided(out_sizes, out_strides), value, folded.indices);
  Indexing indexing{folded.sizes, folded.strides, /*wrap=*/true, index_put_site};
  indexing.float8 = sums_float8(self.scalar_type());
  index::reduce(iter, indexing, accumulate ? Reduction::add : Reduction::assign);
}

/// One value through one mask fills, as on the CPU, where that decides which dtypes are taken.
at::Tensor& _index_put_impl_(at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices,
                             const at::Tensor& values, bool accumulate, bool unsafe) {
  const bool masked = std::any_of(indices.begin(), indices.end(), [](const auto& element) {
    const std::optional<at::Tensor> index = element;
    return index && index->defined() &&
           (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
  });
  if (masked && values.numel() == 1 && !accumulate) {
    check_number_of(indices, self);
    // Upstream's function asks for a value on the CPU, whose number it would read.
    static const at::Tensor number = at::scalar_tensor(0, at::kCPU);
    const auto [fills, mask] = at::native::canDispatchToMaskedFill(self, indices, number);
    if (fills) return self.masked_fill_(mask, values.reshape({}));
  }
  return at::native::_index_put_impl_(self, indices, values, accumulate, unsafe);
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

}  // namespace ocl::native
