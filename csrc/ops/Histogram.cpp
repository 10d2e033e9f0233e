// Behind the stubs of histogram and histogramdd, and histc; argument checks and edges are
// upstream's.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/histc_native.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "engine/binning/count.h"
#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "ops/histc.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

const KernelFamily bins_family{"binning/histogram.cl", "histogram_bins"};

/// How a point's bin is found; numbered as in kernels/binning/histogram.cl.
enum Select : int { kLinear, kNearby, kSearch };

void check_floating(at::ScalarType dtype) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isFloatingType(dtype), "\"histogram_ocl\" not implemented for '",
                              dtype, "'");
}

/// The number (row-major) of the bin that each row of points (M, N) falls into, or -1.
at::Tensor bins_of(const at::Tensor& points, at::TensorList edges, int64_t bin_count,
                   Select select) {
  const uint64_t n = points.size(0);
  const at::ScalarType dtype = bin_count <= INT32_MAX ? at::kInt : at::kLong;
  at::Tensor bins = at::empty({points.size(0)}, points.options().dtype(dtype));
  Queue& queue = current_queue(points.device().index());
  for (size_t d = 0; n > 0 && d < edges.size(); ++d) {
    const at::Tensor edge = edges[d].contiguous();
    TORCH_CHECK_NOT_IMPLEMENTED(edge.numel() < INT32_MAX, "ocl: a histogram with ", edge.numel(),
                                " edges");
    const at::Tensor column = points.select(1, static_cast<int64_t>(d));
    Kernel& kernel = bins_family.get(queue.device(), {{"IN", tag(points.scalar_type())},
                                                      {"BINS", tag(dtype)},
                                                      {"SELECT", static_cast<int>(select)},
                                                      {"FIRST", d == 0}});
    launch(kernel, queue, element_range(queue.device(), n), Pointer{column.const_data_ptr()},
           column.stride(0) * column.element_size(), Pointer{edge.const_data_ptr()},
           static_cast<int32_t>(edge.numel()), Pointer{bins.mutable_data_ptr()}, n);
  }
  return bins;
}

void histogram(const at::Tensor& self, const std::optional<at::Tensor>& weight, bool density,
               const at::Tensor& hist, at::TensorList edges, Select select) {
  check_floating(self.scalar_type());
  const int64_t dims = self.size(-1);
  const int64_t rows = dims == 0 ? 0 : self.numel() / dims;
  if (dims == 0) return;
  const at::Tensor bins = bins_of(self.reshape({rows, dims}), edges, hist.numel(), select);
  if (weight && weight->defined()) {
    // One more bin takes what falls outside.
    const at::Tensor sums = at::zeros({hist.numel() + 1}, hist.options());
    sums.index_add_(0, bins.masked_fill(bins.lt(0), hist.numel()), weight->reshape({rows}));
    hist.copy_(sums.narrow(0, 0, hist.numel()).view(hist.sizes()));
  } else {
    const at::Tensor counts = at::zeros({hist.numel()}, hist.options());
    binning::count(bins, counts);
    hist.copy_(counts.view(hist.sizes()));
  }
  if (!density) return;
  hist.div_(hist.sum());
  for (int64_t d = 0; d < dims; ++d) {
    std::vector<int64_t> shape(dims, 1);
    shape[d] = hist.size(d);
    const at::Tensor& edge = edges[d];
    hist.div_(edge.narrow(0, 1, shape[d]).sub(edge.narrow(0, 0, shape[d])).view(shape));
  }
}

}  // namespace

void histogramdd(const at::Tensor& self, const std::optional<at::Tensor>& weight, bool density,
                 at::Tensor& hist, const at::TensorList& edges) {
  histogram(self, weight, density, hist, edges, kSearch);
}

void histogramdd_linear(const at::Tensor& self, const std::optional<at::Tensor>& weight,
                        bool density, at::Tensor& hist, const at::TensorList& edges,
                        bool local_search) {
  histogram(self, weight, density, hist, edges, local_search ? kNearby : kLinear);
}

// Smallest and largest coordinate per dimension of self (M, N), brought to the host in one copy.
// Not of halves, as on the CPU: the distance of theirs may be none.
void histogram_outer_edges(const at::Tensor& self, const int64_t dims, std::vector<double>& left,
                           std::vector<double>& right) {
  const at::ScalarType dtype = self.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(dtype == at::kFloat || dtype == at::kDouble,
                              "\"histogramdd\" not implemented for '", dtype, "'");
  const at::Tensor extremes =
      at::stack({at::amin(self, {0}), at::amax(self, {0})}).to(at::kCPU).to(at::kDouble);
  const double* data = extremes.const_data_ptr<double>();
  std::copy(data, data + dims, left.begin());
  std::copy(data + dims, data + 2 * dims, right.begin());
}

// Counts of integers, as CUDA torch has them; CPU torch refuses. Their bins are those of the same
// numbers as doubles, or floats where there are none.
at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& min,
                 const at::Scalar& max) {
  if (!at::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
    return at::native::histogram_histc(self, bins, min, max);
  }
  const bool doubles = ocl::device(self.device().index()).properties().has_fp64;
  const at::Tensor numbers = self.to(doubles ? at::kDouble : at::kFloat);
  return at::native::histogram_histc(numbers, bins, min, max).to(self.scalar_type());
}

at::Tensor& histc_out(const at::Tensor& self, int64_t bins, const at::Scalar& min,
                      const at::Scalar& max, at::Tensor& result) {
  if (!at::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
    return at::native::histogram_histc_out(self, bins, min, max, result);
  }
  TORCH_CHECK(result.scalar_type() == self.scalar_type(),
              "torch.histogram: input tensor and hist tensor ",
              "should have the same dtype, but got input ", self.scalar_type(), " and hist ",
              result.scalar_type());
  const at::Tensor counts = histc(self, bins, min, max);
  at::native::resize_output(result, counts.sizes());
  return result.copy_(counts);
}

}  // namespace ocl::native
