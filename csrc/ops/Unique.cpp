// Duplicates: unique in its forms, and membership in a set.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorMeta.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/sub.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "engine/dispatch.h"
#include "engine/sort/runs.h"
#include "ops/DtypeChecks.h"
#include "ops/_unique.h"
#include "ops/_unique2.h"
#include "ops/isin.h"
#include "ops/unique_consecutive.h"
#include "ops/unique_dim.h"
#include "ops/unique_dim_consecutive.h"

namespace ocl::native {

namespace {

struct Wanted {
  bool inverse, counts;
};

/// The parts of unique()'s result for `n` items along a dimension: where to find the first of each
/// run, and what was asked for besides.
struct Duplicates {
  at::Tensor firsts, inverse, counts;
};

/// The lengths of `total` runs.
at::Tensor lengths_of(const at::Tensor& starts, int64_t total) {
  return at::sub(starts.narrow(0, 1, total), starts.narrow(0, 0, total));
}

Duplicates read_runs(const sort::Runs& runs, int64_t n, Wanted wanted,
                     const at::TensorOptions& options) {
  const int64_t total = runs.total();
  const at::TensorOptions longs = options.dtype(at::kLong);
  Duplicates result{at::empty({total}, longs), {}, {}};
  at::Tensor starts;
  if (wanted.inverse) result.inverse = at::empty({n}, longs);
  if (wanted.counts) starts = at::empty({total + 1}, longs);
  runs.write(result.firsts, starts, result.inverse);
  if (wanted.counts) {
    result.counts = total == 0 ? at::empty({0}, longs) : lengths_of(starts, total);
  }
  if (!wanted.inverse) result.inverse = at::empty({0}, longs);
  if (!wanted.counts) result.counts = at::empty({0}, longs);
  return result;
}

/// Finds them among the elements of a vector; equal ones count as duplicates anywhere (`sorted`),
/// or as neighbours.
Duplicates duplicates(const char* name, const at::Tensor& flat, bool sorted, Wanted wanted) {
  sort::Rows rows(name, flat, 0);
  if (sorted) rows.sort();
  const sort::Runs runs(rows.key(), rows.keys(), rows.index(), rows.n(), 1, flat.options());
  return read_runs(runs, flat.numel(), wanted, flat.options());
}

using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// The duplicates of a vector, of the shape `sizes` before.
struct Plan {
  const char* name;
  at::IntArrayRef sizes;
  at::Tensor flat;
  bool sorted;
  Wanted wanted;
  Results results;
};

const Implementation<Plan> by_neighbours{
    "neighbours",
    [](const Plan& plan) {
      return plan.sorted ? "duplicates anywhere" : sort::refuse_consecutive(plan.flat);
    },
    [](Plan& plan) {
      const auto [name, sizes, flat, sorted, wanted, results] = plan;
      (void)sort::key_type(name, flat.scalar_type());  // raises what there are no keys of
      const sort::Consecutive runs = sort::consecutive(flat, wanted.inverse, wanted.counts);
      const at::Tensor none = at::empty({0}, flat.options().dtype(at::kLong));
      plan.results = {runs.firsts, wanted.inverse ? runs.inverse.view(sizes) : none,
                      wanted.counts ? lengths_of(runs.starts, runs.firsts.numel()) : none};
    }};

const Implementation<Plan> by_keys{
    "keys", [](const Plan&) -> const char* { return nullptr; },
    [](Plan& plan) {
      const Duplicates found = duplicates(plan.name, plan.flat, plan.sorted, plan.wanted);
      plan.results = {plan.flat.index_select(0, found.firsts),
                      plan.wanted.inverse ? found.inverse.view(plan.sizes) : found.inverse,
                      found.counts};
    }};

constexpr const Implementation<Plan>* kImplementations[] = {&by_neighbours, &by_keys};
Engine engine{"unique", kImplementations};

Results unique_flat(const char* name, const at::Tensor& self, bool sorted, Wanted wanted) {
  Plan plan{name, self.sizes(), self.reshape(-1), sorted, wanted, {}};
  run_first(engine, kImplementations, plan,
            [](const Plan& p) { return "unique " + std::to_string(p.flat.numel()); });
  return plan.results;
}

Results unique_along(const char* name, const at::Tensor& self, int64_t dim_, bool sorted,
                     Wanted wanted) {
  // Also of a number and of nothing, and before the dimension is looked at, as on the CPU.
  const at::ScalarType dtype = self.scalar_type();
  check_supported(name, dtype, !self.is_complex() && !c10::isFloat8Type(dtype));
  const int64_t dim = at::maybe_wrap_dim(dim_, self.dim(), /*wrap_scalar=*/false);
  const auto empty_dims = std::count(self.sizes().begin(), self.sizes().end(), 0);
  if (self.size(dim) == 0) {
    TORCH_CHECK(empty_dims == 1,
                "Number of zero sized dimensions is more than one, so unique cannot be applied ");
    const at::TensorOptions longs = self.options().dtype(at::kLong);
    return {at::empty(self.sizes(), self.options()), at::empty({0}, longs), at::empty({0}, longs)};
  }
  TORCH_CHECK(empty_dims == 0,
              "There are 0 sized dimensions, and they aren't selected, so unique cannot be "
              "applied");
  const at::Tensor moved = self.movedim(dim, 0);
  const at::Tensor items = moved.reshape({self.size(dim), -1});
  Duplicates result;
  if (items.size(1) == 1) {
    result = duplicates(name, items.view(-1), sorted, wanted);
  } else {
    const sort::Rows rows(name, items, 1);
    const c10::DataPtr order = sorted ? sort::sort_lexicographic(rows) : c10::DataPtr();
    const sort::Runs runs(rows.key(), rows.keys(), order.get(), rows.rows(), rows.n(),
                          self.options());
    result = read_runs(runs, items.size(0), wanted, self.options());
  }
  // One after the other in memory, as on the CPU.
  c10::DimVector shape(moved.sizes().begin(), moved.sizes().end());
  shape[0] = result.firsts.numel();
  const at::Tensor unique = items.index_select(0, result.firsts).view(shape).movedim(0, dim);
  return {unique, result.inverse, result.counts};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> _unique(const at::Tensor& self, bool, bool return_inverse) {
  auto [values, inverse, counts] = unique_flat("unique", self, true, {return_inverse, false});
  return {values, inverse};
}

Results _unique2(const at::Tensor& self, bool, bool return_inverse, bool return_counts) {
  return unique_flat("unique", self, true, {return_inverse, return_counts});
}

Results unique_dim(const at::Tensor& self, int64_t dim, bool, bool, bool) {
  // CPU torch returns both whether asked for or not.
  return unique_along("unique_dim", self, dim, true, {true, true});
}

Results unique_consecutive(const at::Tensor& self, bool return_inverse, bool return_counts,
                           std::optional<int64_t> dim) {
  const Wanted wanted{return_inverse, return_counts};
  return dim ? unique_along("unique_consecutive", self, *dim, false, {true, true})
             : unique_flat("unique_consecutive", self, false, wanted);
}

Results unique_dim_consecutive(const at::Tensor& self, int64_t dim, bool, bool) {
  return unique_along("unique_consecutive", self, dim, false, {true, true});
}

TORCH_IMPL_FUNC(isin_tensor_tensor_out)(const at::Tensor& elements, const at::Tensor& test_elements,
                                        bool, bool invert, const at::Tensor& out) {
  if (elements.numel() == 0) return;
  if (test_elements.numel() == 0) {
    out.fill_(invert);
    return;
  }
  const at::ScalarType dtype = at::result_type(elements, test_elements);
  const at::Tensor source = elements.to(dtype).contiguous();
  sort::Rows rows("isin", test_elements.to(dtype).reshape(-1), 0);
  rows.sort();
  if (out.is_contiguous() && !out.is_alias_of(elements) && !out.is_alias_of(test_elements)) {
    sort::is_in(rows, source, invert, out);
  } else {
    const at::Tensor dense = at::empty(out.sizes(), out.options());
    sort::is_in(rows, source, invert, dense);
    out.copy_(dense);
  }
}

}  // namespace ocl::native
