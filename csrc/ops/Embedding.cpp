#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/index/index.h"
#include "engine/kernel_types.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "ops/EmbeddingRows.h"
#include "ops/embedding_dense_backward.h"
#include "ops/embedding_renorm.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

const AssertSite backward_site{"embedding_dense_backward"}, renorm_site{"embedding_renorm_"};

const KernelFamily claim_family{"index/renorm.cl", "renorm_claim"};
const KernelFamily scale_family{"index/renorm.cl", "renorm_scale"};

using namespace kernel_types;
#include "index/renorm_arguments.clh"

void check_indices(const char* op, const at::Tensor& indices) {
  TORCH_CHECK(
      indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt,
      "Expected tensor for argument #2 'indices' to have one of the following scalar types: "
      "Long, Int; but got ",
      indices.toString(), " instead (while checking arguments for ", op, ")");
}

/// sums[indices[i]] += rows[i] for all i but those whose index is `skipped`. rows: null for ones.
void add_rows(const at::Tensor& sums, const at::Tensor& indices, const at::Tensor* rows,
              int64_t skipped, const AssertSite& site) {
  const int64_t n = indices.numel(), columns = sums.size(1);
  const int64_t size = sums.size(0), stride = sums.stride(0) * sums.itemsize();
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).resize_outputs(false);
  config.add_owned_output(sums.as_strided({n, columns}, {0, sums.stride(1)}));
  if (rows) config.add_owned_const_input(*rows);
  config.add_owned_const_input(indices.as_strided({n, columns}, {1, 0}));
  auto iter = config.build();
  const index::Indexing indexing{size, stride, /*wrap=*/false, site};
  if (rows) {
    index::reduce(iter, indexing, index::Reduction::add, skipped);
  } else {
    index::reduce_fill(iter, indexing, index::Reduction::add, 1);
  }
}

}  // namespace

void add_embedding_rows(const at::Tensor& sums, const at::Tensor& indices, const at::Tensor& rows,
                        int64_t padding_idx, const AssertSite& site) {
  add_rows(sums, indices, &rows, padding_idx < 0 ? index::kSkipNothing : padding_idx, site);
}

void divide_by_frequency(at::Tensor& sums, const at::Tensor& indices, const AssertSite& site) {
  at::Tensor counts = at::zeros({sums.size(0), 1}, sums.options().dtype(at::kFloat));
  add_rows(counts, indices, nullptr, index::kSkipNothing, site);
  sums.div_(counts.clamp_min_(1));
}

at::Tensor embedding_dense_backward(const at::Tensor& grad_output, const at::Tensor& indices,
                                    int64_t num_weights, int64_t padding_idx,
                                    bool scale_grad_by_freq) {
  check_indices("embedding_dense_backward", indices);
  const at::Tensor flat = indices.contiguous().view(-1);
  const int64_t columns = grad_output.size(-1);
  at::Tensor sums = at::zeros({num_weights, columns}, grad_output.options());
  if (flat.numel() == 0 || columns == 0) return sums;
  const at::Tensor rows = grad_output.reshape({flat.numel(), columns});
  add_embedding_rows(sums, flat, rows, padding_idx, backward_site);
  if (scale_grad_by_freq) divide_by_frequency(sums, flat, backward_site);
  return sums;
}

at::Tensor& embedding_renorm_(at::Tensor& self, const at::Tensor& indices, double max_norm,
                              double norm_type) {
  TORCH_CHECK(self.dim() == 2, "Expected 2-dimensional tensor, but got ", self.dim(),
              "-dimensional tensor for argument #1 'self' (while checking arguments for "
              "embedding_renorm_)");
  check_indices("embedding_renorm_", indices);
  const at::Tensor flat = indices.contiguous();
  if (flat.numel() == 0 || self.numel() == 0) return self;
  const at::Tensor owner = at::empty({self.size(0)}, self.options().dtype(at::kInt));
  Queue& queue = current_queue(self.device().index());
  const Pointer weight{self.data_ptr()}, index{flat.data_ptr()}, claim{owner.data_ptr()};
  const RenormArguments layout{static_cast<uint64_t>(self.stride(0) * self.itemsize()),
                               static_cast<uint64_t>(self.stride(1) * self.itemsize()),
                               self.size(0), static_cast<uint32_t>(self.size(1)),
                               static_cast<uint32_t>(flat.numel())};
  const at::ScalarType compute = compute_dtype(self.scalar_type());
  const int norm = norm_type == 2 ? 2 : norm_type == 1 ? 1 : std::isinf(norm_type) ? 0 : -1;
  const Define defines[] = {{"E", tag(self.scalar_type())},
                            {"C", tag(compute)},
                            {"INDEX", tag(flat.scalar_type())},
                            {"NORM", norm}};
  const NDRange range = NDRange::linear(layout.n, group_of_lanes(queue.device()));
  launch(claim_family.get(queue.device(), defines), queue, range, index, claim, layout,
         queue.device().asserts().mem(), renorm_site.id());
  launch(scale_family.get(queue.device(), defines), queue, range, weight, index, claim, layout,
         scalar_argument(compute, max_norm), scalar_argument(compute, norm_type));
  return self;
}

}  // namespace ocl::native
