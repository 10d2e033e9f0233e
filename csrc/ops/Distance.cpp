// Distances between rows: cdist, pdist and their gradients. Upstream's functions refuse any device
// but their own.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_euclidean_dist.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/accumulate.h>

#include <cmath>

#include "engine/device_table.h"
#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "ops/DtypeChecks.h"
#include "ops/_cdist_backward.h"
#include "ops/_cdist_forward.h"
#include "ops/_pdist_backward.h"
#include "ops/_pdist_forward.h"
#include "runtime/stream.h"

namespace ocl::native {

using at::Tensor;

namespace {

const KernelFamily forward_family{"distance/distance.cl", "distance_forward"};
const KernelFamily tiles_family{"distance/distance_tiles.cl", "distance_tiles"};
const KernelFamily backward_family{"distance/distance.cl", "distance_backward"};

/// NORM of kernels/distance/distance.cl.
int norm_of(double p) {
  if (p == 0 || p == 1 || p == 2) return static_cast<int>(p);
  return std::isinf(p) ? 3 : 4;
}

/// float or double.
void check_real(const char* name, const Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  check_supported(name, dtype, dtype == at::kFloat || dtype == at::kDouble);
}

struct DistanceKernel {
  DistanceKernel(const KernelFamily& family, const Tensor& result, double p, bool pairs)
      : queue(current_queue(result.device().index())),
        local(group_of_lanes(queue.device())),
        kernel(
            family.get(queue.device(),
                       {{"C", tag(result.scalar_type())}, {"NORM", norm_of(p)}, {"PDIST", pairs}})),
        norm(scalar_argument(result.scalar_type(), p)) {}

  /// Launches on n adjacent elements, rows and batches; pointers, then sizes, then the norm.
  void run(int64_t n, int64_t rows, int64_t batch, std::initializer_list<const Tensor> tensors,
           std::initializer_list<int64_t> sizes) {
    cl_uint index = 0;
    for (const Tensor& tensor : tensors) {
      detail::set_argument(kernel, index, Pointer{tensor.const_data_ptr()});
    }
    for (const int64_t size : sizes) kernel.set_value(index++, static_cast<uint32_t>(size));
    kernel.set_bytes(index, norm.bytes, norm.size);
    kernel.enqueue(queue, NDRange::volume({static_cast<size_t>(n), static_cast<size_t>(rows),
                                           static_cast<size_t>(batch)},
                                          {local, 1, 1}));
  }

  Queue& queue;
  size_t local;
  Kernel& kernel;
  ScalarArgument norm;
};

#include "distance/arguments.clh"

/// The distances between the rows of a and b, [batch, rows, length], contiguous.
struct DistancePlan {
  const Tensor &result, &a, &b;
  int64_t batch;
  double p;
  bool pairs;  // of the rows of a, each once

  int64_t lanes() const { return result.scalar_type() == at::kFloat ? 16 : 8; }
};

constexpr Implementation<DistancePlan> kTiles{
    "tiles",
    [](const DistancePlan& plan) -> const char* {
      if (!device(plan.result.device().index()).is_cpu()) return "a kernel for CPUs";
      if (norm_of(plan.p) == 4) return "any power";
      return plan.b.size(-2) < plan.lanes() ? "few rows, which leave lanes idle" : nullptr;
    },
    [](DistancePlan& plan) {
      const int64_t rows_a = plan.a.size(-2), rows_b = plan.b.size(-2), lanes = plan.lanes();
      Queue& queue = current_queue(plan.result.device().index());
      Kernel& kernel = tiles_family.get(queue.device(), {{"C", tag(plan.result.scalar_type())},
                                                         {"NORM", norm_of(plan.p)},
                                                         {"PDIST", plan.pairs},
                                                         {"LANES", lanes}});
      const auto tiles = static_cast<size_t>(ceil_div(rows_b, lanes));
      const auto runs = static_cast<size_t>(ceil_div(rows_a, kRun));
      launch(kernel, queue,
             NDRange::volume({tiles, runs, static_cast<size_t>(plan.batch)}, {1, 1, 1}),
             Pointer{plan.result.mutable_data_ptr()}, Pointer{plan.a.const_data_ptr()},
             Pointer{plan.b.const_data_ptr()}, static_cast<uint32_t>(rows_a),
             static_cast<uint32_t>(rows_b), static_cast<uint32_t>(plan.a.size(-1)));
    }};
constexpr Implementation<DistancePlan> kElements{
    "elements", [](const DistancePlan&) -> const char* { return nullptr; },
    [](DistancePlan& plan) {
      const int64_t rows_a = plan.a.size(-2), rows_b = plan.b.size(-2);
      DistanceKernel(forward_family, plan.result, plan.p, plan.pairs)
          .run(rows_b, rows_a, plan.batch, {plan.result, plan.a, plan.b},
               {rows_a, rows_b, plan.a.size(-1)});
    }};
constexpr const Implementation<DistancePlan>* kDistances[] = {&kTiles, &kElements};
const Engine distance_engine{"distance", kDistances};

void distances(DistancePlan plan) {
  run_first(distance_engine, kDistances, plan, [](const DistancePlan& p) {
    return "distance " + std::to_string(p.batch) + "x" + std::to_string(p.a.size(-2)) + "x" +
           std::to_string(p.b.size(-2)) + "x" + std::to_string(p.a.size(-1)) + " " +
           tag(p.result.scalar_type());
  });
}

void check_rows(const Tensor& x1, const Tensor& x2) {
  TORCH_CHECK(x1.dim() >= 2, "cdist only supports at least 2D tensors, X1 got: ", x1.dim(), "D");
  TORCH_CHECK(x2.dim() >= 2, "cdist only supports at least 2D tensors, X2 got: ", x2.dim(), "D");
  TORCH_CHECK(x1.size(-1) == x2.size(-1),
              "X1 and X2 must have the same number of columns. X1: ", x1.size(-1),
              " X2: ", x2.size(-1));
  TORCH_CHECK(at::isFloatingType(x1.scalar_type()),
              "cdist only supports floating-point dtypes, X1 got: ", x1.scalar_type());
  TORCH_CHECK(at::isFloatingType(x2.scalar_type()),
              "cdist only supports floating-point dtypes, X2 got: ", x2.scalar_type());
  TORCH_CHECK(x1.device() == x2.device(), "X1 and X2 must have the same device. X1: ", x1.device(),
              " X2: ", x2.device());
}

/// Two tensors of rows, expanded to common batch dimensions and merged to [batch, rows, length].
struct Rows {
  Rows(const Tensor& x1, const Tensor& x2)
      : batch_sizes(at::infer_size({x1.sizes().data(), static_cast<size_t>(x1.dim() - 2)},
                                   {x2.sizes().data(), static_cast<size_t>(x2.dim() - 2)})),
        batch(c10::multiply_integers(batch_sizes)),
        a(merged(x1)),
        b(merged(x2)) {}

  std::vector<int64_t> sizes(int64_t rows, int64_t columns) const {
    std::vector<int64_t> all = batch_sizes;
    all.insert(all.end(), {rows, columns});
    return all;
  }
  Tensor merged(const Tensor& x) const {
    return x.expand(sizes(x.size(-2), x.size(-1)))
        .contiguous()
        .view({batch, x.size(-2), x.size(-1)});
  }

  std::vector<int64_t> batch_sizes;
  int64_t batch;
  Tensor a, b;
};

}  // namespace

Tensor _cdist_forward(const Tensor& x1, const Tensor& x2, double p,
                      std::optional<int64_t> compute_mode) {
  check_rows(x1, x2);
  TORCH_CHECK(p >= 0, "cdist only supports non-negative p values");
  const int64_t mode = compute_mode.value_or(0);
  TORCH_CHECK(mode >= 0 && mode <= 2, "possible modes: 0, 1, 2, but was: ", mode);
  const Rows rows(x1, x2);
  const int64_t r1 = x1.size(-2), r2 = x2.size(-2), length = x1.size(-1);
  const std::vector<int64_t> sizes = rows.sizes(r1, r2);
  if (length == 0) return at::zeros(sizes, x1.options());
  // The modes: 1 by a matrix product, 2 not, 0 where that is worth it (upstream's rule, and its
  // rounding).
  if (p == 2 && (mode == 1 || (mode == 0 && (r1 > 25 || r2 > 25)))) {
    return at::_euclidean_dist(rows.a, rows.b).view(sizes);
  }
  Tensor result = at::empty(sizes, x1.options());
  if (result.numel() == 0) return result;
  check_real("cdist", x1);
  check_same_dtype(x2, x1.scalar_type());
  distances({result, rows.a, rows.b, rows.batch, p, /*pairs=*/false});
  return result;
}

Tensor _cdist_backward(const Tensor& grad, const Tensor& x1, const Tensor& x2, double p,
                       const Tensor& cdist) {
  const Rows rows(x1, x2);
  const int64_t r1 = x1.size(-2), r2 = x2.size(-2), length = x1.size(-1);
  if (rows.a.numel() == 0 || r2 == 0) return at::zeros_like(x1);
  check_real("cdist_backward", x1);
  // Broadcast batches are summed by autograd.
  Tensor result = at::empty(rows.sizes(r1, length), x1.options());
  DistanceKernel(backward_family, result, p, /*pairs=*/false)
      .run(length, r1, rows.batch, {result, grad.contiguous(), rows.a, rows.b, cdist.contiguous()},
           {r1, r2, length});
  return result;
}

Tensor _pdist_forward(const Tensor& self, double p) {
  TORCH_CHECK(self.is_contiguous(), "_pdist_forward requires contiguous input");
  const int64_t rows = self.size(0), length = self.size(1);
  const int64_t pairs = rows <= 1 ? 0 : rows * (rows - 1) / 2;
  if (length == 0) return at::zeros({pairs}, self.options());
  Tensor result = at::empty({pairs}, self.options());
  if (pairs == 0) return result;
  check_real("pdist", self);
  distances({result, self, self, 1, p, /*pairs=*/true});
  return result;
}

Tensor _pdist_backward(const Tensor& grad, const Tensor& self, double p, const Tensor& pdist) {
  TORCH_CHECK(self.is_contiguous(), "_pdist_backward requires self to be contiguous");
  TORCH_CHECK(pdist.is_contiguous(), "_pdist_backward requires pdist to be contiguous");
  const int64_t rows = self.size(0), length = self.size(1);
  if (grad.numel() == 0 || self.numel() == 0) return at::zeros_like(self);
  check_real("pdist_backward", self);
  Tensor result = at::empty(self.sizes(), self.options());
  DistanceKernel(backward_family, result, p, /*pairs=*/true)
      .run(length, rows, 1, {result, grad.contiguous(), self, self, pdist}, {rows, rows, length});
  return result;
}

}  // namespace ocl::native
