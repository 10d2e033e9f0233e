// torch.sparse.softmax and log_softmax with their gradients. What isn't an entry counts as minus
// infinity: each pool of entries, which differ along the dimension alone, has a softmax of its own.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "ops/sparse/Sparse.h"

namespace ocl::native {

using at::Tensor;

namespace {

/// The number of each entry's pool, and how many there are.
struct Pools {
  Pools(const Tensor& sparse, int64_t dim, at::IntArrayRef value_sizes) : sizes(value_sizes) {
    const auto found = at::_unique2(short_places(sparse, dim), true, true);
    number = std::get<1>(found);
    sizes[0] = std::get<0>(found).size(0);
  }

  Tensor sums(const Tensor& values) const {
    return at::zeros(sizes, values.options()).index_add_(0, number, values);
  }
  Tensor maxima(const Tensor& values) const {
    c10::DimVector shape(values.dim(), 1);
    shape[0] = values.size(0);
    return at::full(sizes, -std::numeric_limits<double>::infinity(), values.options())
        .scatter_reduce_(0, number.view(shape).expand_as(values), values, "amax");
  }
  Tensor spread(const Tensor& of_pools) const { return of_pools.index_select(0, number); }

  Tensor number;
  c10::DimVector sizes;  // of a value for each pool
};

Tensor coalesced_input(const char* name, const Tensor& input, int64_t& dim, bool half_to_float) {
  TORCH_INTERNAL_ASSERT(input.is_sparse());
  TORCH_CHECK(!half_to_float, name, ": with half to float conversion is not supported on OCL");
  dim = c10::maybe_wrap_dim(dim, input.dim());
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(input.scalar_type()), "\"softmax\" not ",
                              "implemented for '", input.scalar_type(), "'");
  return input.coalesce();
}

Tensor softmax_of(const char* name, const Tensor& input_, int64_t dim, bool half_to_float,
                  bool logarithm) {
  const Tensor input = coalesced_input(name, input_, dim, half_to_float);
  const Tensor values = input._values();
  if (values.numel() == 0) return with_entries(input, input._indices(), values, true);
  const int64_t dense = dim - input.sparse_dim() + 1;
  Tensor out;
  if (dense > 0) {
    out = logarithm ? at::_log_softmax(values, dense, false) : at::_softmax(values, dense, false);
  } else {
    const Pools pools(input, dim, values.sizes());
    const Tensor shifted = values.sub(pools.spread(pools.maxima(values)));
    const Tensor exponentials = shifted.exp();
    const Tensor sums = pools.spread(pools.sums(exponentials));
    out = logarithm ? shifted.sub_(sums.log()) : exponentials.div(sums);
  }
  return with_entries(input, input._indices().clone(), out, true);
}

Tensor gradient_of(const Tensor& grad_, const Tensor& output, int64_t dim, const Tensor& input,
                   bool logarithm) {
  dim = c10::maybe_wrap_dim(dim, input.dim());
  TORCH_CHECK(grad_.sizes() == output.sizes() && grad_.sparse_dim() == output.sparse_dim(),
              "_sparse_softmax_backward: expected a gradient like the output");
  const Tensor result = output.coalesce(), grad = grad_.coalesce();
  const Tensor values = result._values();
  if (values.numel() == 0) return with_entries(result, result._indices(), values, true);
  const bool same_entries = grad._indices().is_same(result._indices());
  const Tensor given =
      same_entries ? grad._values() : values_at(places(grad), grad._values(), places(result));
  const int64_t dense = dim - result.sparse_dim() + 1;
  Tensor out;
  if (dense > 0) {
    out = logarithm ? at::_log_softmax_backward_data(given, values, dense, values.scalar_type())
                    : at::_softmax_backward_data(given, values, dense, values.scalar_type());
  } else {
    const Pools pools(result, dim, values.sizes());
    if (logarithm) {
      out = given.sub(values.exp().mul_(pools.spread(pools.sums(given))));
    } else {
      out = given.sub(pools.spread(pools.sums(given.mul(values)))).mul_(values);
    }
  }
  return with_entries(result, result._indices().clone(), out, true);
}

Tensor softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  return softmax_of("softmax", self, dim, half_to_float, false);
}

Tensor log_softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  return softmax_of("log_softmax", self, dim, half_to_float, true);
}

Tensor softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim, const Tensor& self) {
  return gradient_of(grad, output, dim, self, false);
}

Tensor log_softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim,
                            const Tensor& self) {
  return gradient_of(grad, output, dim, self, true);
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_log_softmax", TORCH_FN(log_softmax));
  m.impl("_sparse_log_softmax_backward_data", TORCH_FN(log_softmax_backward));
  m.impl("_sparse_softmax", TORCH_FN(softmax));
  m.impl("_sparse_softmax_backward_data", TORCH_FN(softmax_backward));
}

}  // namespace

}  // namespace ocl::native
