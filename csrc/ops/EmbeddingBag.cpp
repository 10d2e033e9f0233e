// embedding_bag, forward and backward.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/EmbeddingBag.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>

#include "engine/device_table.h"
#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/ceil_div.h"
#include "opencl/device_assert.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "ops/EmbeddingRows.h"
#include "ops/_embedding_bag.h"
#include "ops/_embedding_bag_dense_backward.h"
#include "ops/_embedding_bag_forward_only.h"
#include "ops/_embedding_bag_per_sample_weights_backward.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

using at::native::EmbeddingBagMode;

const KernelFamily forward_family{"index/embedding_bag.cl", "bag_forward"};
const KernelFamily map_family{"index/embedding_bag.cl", "bag_map"};
const KernelFamily rows_family{"index/embedding_bag.cl", "bag_rows"};
const KernelFamily sums_family{"index/embedding_bag.cl", "bag_sums"};
const KernelFamily factors_family{"index/embedding_bag.cl", "bag_factors"};
const AssertSite bag_site{"embedding_bag", Raises::runtime_error};

constexpr size_t kMostChunks = 16;

using namespace kernel_types;
#include "index/embedding_bag_arguments.clh"

/// The operand's address; null if it is undefined or has no elements: then it is not read.
Pointer pointer(const at::Tensor& operand) {
  return {operand.defined() ? operand.const_data_ptr() : nullptr};
}

/// Operands that the launches share.
struct Bags {
  Bags(const at::Tensor& values, const at::Tensor& indices, int64_t mode_)
      : queue(current_queue(values.device().index())),
        device(queue.device()),
        dtype(values.scalar_type()),
        index_dtype(indices.scalar_type()),
        mode(mode_) {
    static const uint32_t offset_site = message_site(
        "embedding_bag: offsets must start from 0, not decrease and not be greater than the number "
        "of indices");
    const at::ScalarType compute = compute_dtype(dtype);
    width = vector_lanes(device, c10::elementSize(compute));
    arguments.columns = static_cast<uint32_t>(values.size(1));
    arguments.chunks = ceil_div(arguments.columns, width);
    arguments.indices = indices.numel();
    arguments.site = bag_site.id();
    arguments.offset_site = offset_site;
  }

  Kernel& kernel(const KernelFamily& family, bool weighted) const {
    const bool wide = dtype == at::kDouble;
    return family.get(device, {{"E", tag(dtype)},
                               {"C", tag(compute_dtype(dtype))},
                               {"POSITION", tag(wide ? at::kLong : at::kInt)},
                               {"INDEX", tag(index_dtype)},
                               {"MODE", mode},
                               {"WEIGHTED", weighted},
                               {"WIDTH", width},
                               {"VECTORS", vectors()}});
  }
  /// That a work-item of the forward pass takes: on a CPU those for which a look-up pays.
  size_t vectors() const { return device.is_cpu() && mode != EmbeddingBagMode::MAX ? 8 : 1; }
  cl_mem asserts() const { return device.asserts().mem(); }

  Queue& queue;
  Device& device;
  const at::ScalarType dtype, index_dtype;
  const int64_t mode;
  size_t width;
  BagArguments arguments{};
};

void check_index_dtype(const char* name, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt,
              "Expected tensor for argument '", name,
              "' to have one of the following scalar types: Long, Int; but got ", tensor.toString(),
              " instead (while checking arguments for embedding_bag)");
}

/// The tensor with rows whose columns are adjacent.
at::Tensor with_dense_columns(const at::Tensor& tensor) {
  return tensor.size(1) <= 1 || tensor.stride(1) == 1 ? tensor : tensor.contiguous();
}

void check_factors(const at::Tensor& weight, const at::Tensor& indices, int64_t mode,
                   const std::optional<at::Tensor>& factors) {
  if (!factors || !factors->defined()) return;
  TORCH_CHECK(mode == EmbeddingBagMode::SUM,
              "embedding_bag: per_sample_weights was not None. per_sample_weights is only "
              "supported for mode='sum' (got mode='",
              mode == EmbeddingBagMode::MEAN ? "mean" : "max",
              "'). Please open a feature request on GitHub.");
  TORCH_CHECK(factors->scalar_type() == weight.scalar_type(),
              "Expected tensor for argument 'per_sample_weights' to have the same type as tensor "
              "for argument 'weight' (while checking arguments for embedding_bag)");
  TORCH_CHECK(factors->dim() == 1 && factors->numel() == indices.numel(),
              "embedding_bag: per_sample_weights must be of one dimension and as many as indices");
}

/// Fills map (the bag of each index) and, if defined, sizes.
void launch_map(Bags& bags, const at::Tensor& indices, const at::Tensor& offsets,
                const at::Tensor& map, const at::Tensor& sizes) {
  BagArguments& arguments = bags.arguments;
  launch(bags.kernel(map_family, false), bags.queue,
         element_range(bags.queue.device(), arguments.bags), pointer(indices), pointer(offsets),
         pointer(map), pointer(sizes), arguments, bags.asserts());
}

/// The gradient of the weight, added to `sums`, which are zeros.
struct WeightGradient {
  Bags& bags;
  const at::Tensor &grad, &indices, &map, &sizes, &factors, &sums;
  const int64_t skipped;
};

/// A work-item goes through all indices for some vectors of columns and some of the rows.
constexpr Implementation<WeightGradient> by_stretches{
    "stretches",
    [](const WeightGradient& plan) -> const char* {
      return plan.bags.device.is_cpu() ? nullptr : "a kernel for CPUs";
    },
    [](WeightGradient& plan) {
      Bags& bags = plan.bags;
      BagArguments& arguments = bags.arguments;
      // Vectors of columns for which a look-up pays, and work-items enough.
      const size_t units = bags.device.properties().compute_units;
      const size_t chunks =
          std::clamp<size_t>(arguments.chunks / items_of_cores(bags.device), 1, kMostChunks);
      const size_t stretches = ceil_div(arguments.chunks, chunks);
      arguments.chunks = static_cast<uint32_t>(chunks);
      arguments.parts = static_cast<uint32_t>(ceil_div(units, stretches));
      arguments.rows = plan.sums.size(0);
      arguments.skipped = plan.skipped;
      launch(bags.kernel(sums_family, plan.factors.defined()), bags.queue,
             NDRange::grid(stretches, arguments.parts, 1, 1), pointer(plan.grad),
             pointer(plan.indices), pointer(plan.map), pointer(plan.sizes), pointer(plan.factors),
             pointer(plan.sums), arguments, bags.asserts());
    }};
/// A row for each index, which the index engine adds up.
constexpr Implementation<WeightGradient> by_rows{
    "rows", [](const WeightGradient&) -> const char* { return nullptr; },
    [](WeightGradient& plan) {
      Bags& bags = plan.bags;
      const at::Tensor rows =
          at::empty({plan.indices.numel(), plan.sums.size(1)}, plan.sums.options());
      launch(bags.kernel(rows_family, plan.factors.defined()), bags.queue,
             element_range(bags.device, bags.arguments.indices * bags.arguments.chunks),
             pointer(plan.grad), pointer(plan.map), pointer(plan.sizes), pointer(plan.factors),
             pointer(rows), bags.arguments);
      add_embedding_rows(plan.sums, plan.indices, rows, plan.skipped, bag_site);
    }};
constexpr const Implementation<WeightGradient>* kWeightGradients[] = {&by_stretches, &by_rows};
const Engine engine{"backward_embedding_bag", kWeightGradients};

std::string describe(const WeightGradient& plan) {
  return "backward_embedding_bag " + std::to_string(plan.indices.numel()) + " of " +
         std::to_string(plan.sums.size(0)) + "x" + std::to_string(plan.sums.size(1)) + " " +
         tag(plan.grad.scalar_type());
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> _embedding_bag(
    const at::Tensor& weight, const at::Tensor& indices_, const at::Tensor& offsets_,
    bool scale_grad_by_freq, int64_t mode, bool sparse,
    const std::optional<at::Tensor>& per_sample_weights, bool include_last_offset,
    int64_t padding_idx) {
  (void)scale_grad_by_freq, (void)sparse;  // of the gradient
  TORCH_CHECK(weight.dim() == 2, "embedding_bag: expected a matrix of weights, got ",
              weight.sizes());
  TORCH_CHECK(indices_.dim() == 1, "input has to be a 1D Tensor, but got Tensor of dimension ",
              indices_.dim());
  TORCH_CHECK(offsets_.dim() == 1, "offsets has to be a 1D Tensor, but got Tensor of dimension ",
              offsets_.dim());
  TORCH_CHECK(mode >= 0 && mode <= 2, "embedding_bag: mode has to be 0, 1 or 2, got ", mode);
  check_index_dtype("indices", indices_);
  check_index_dtype("offsets", offsets_);
  TORCH_CHECK(at::isFloatingType(weight.scalar_type()),
              "Expected tensor for argument 'weight' to have one of the following scalar types: "
              "Half, BFloat16, Float, Double; but got ",
              weight.toString(), " instead (while checking arguments for embedding_bag)");
  check_factors(weight, indices_, mode, per_sample_weights);
  TORCH_CHECK(!include_last_offset || offsets_.size(0) >= 1,
              "include_last_offset: number of offset should be at least 1");
  const int64_t rows = weight.size(0);
  TORCH_CHECK(padding_idx >= -rows && padding_idx < std::max<int64_t>(rows, 1),
              "embedding_bag: padding_idx must be within the number of embeddings");

  const at::ScalarType index_dtype =
      indices_.scalar_type() == offsets_.scalar_type() ? indices_.scalar_type() : at::kLong;
  const at::Tensor indices = indices_.to(index_dtype).contiguous();
  const at::Tensor offsets = offsets_.to(index_dtype).contiguous();
  const at::Tensor dense = with_dense_columns(weight);
  const bool weighted = per_sample_weights && per_sample_weights->defined();
  const int64_t count = offsets.numel() - include_last_offset;
  const at::Tensor output = at::empty({count, weight.size(1)}, weight.options());
  const at::Tensor map = at::empty(indices.sizes(), offsets.options());
  const at::Tensor sizes = at::empty({count}, offsets.options());
  const bool maximum = mode == EmbeddingBagMode::MAX;
  const at::Tensor positions =
      maximum ? at::empty({count, weight.size(1)}, offsets.options()) : sizes;
  if (count == 0) return {output, map.zero_(), sizes, positions};

  Bags bags(dense, indices, mode);
  BagArguments& arguments = bags.arguments;
  arguments.bags = count;
  arguments.last_given = include_last_offset;
  arguments.rows = rows;
  arguments.skipped = padding_idx;
  arguments.weight_step = dense.stride(0);
  launch_map(bags, indices, offsets, map, sizes);
  if (output.numel() == 0) return {output, map, sizes, positions};
  const at::Tensor factors = weighted ? *per_sample_weights : at::Tensor();
  if (weighted) arguments.factor_step = factors.stride(0);
  arguments.chunks = static_cast<uint32_t>(ceil_div(arguments.chunks, bags.vectors()));
  launch(bags.kernel(forward_family, weighted), bags.queue,
         NDRange::linear(arguments.bags * arguments.chunks,
                         bags.vectors() > 1 ? 4 : group_of_elements(bags.queue.device())),
         pointer(dense), pointer(indices), pointer(offsets), pointer(factors), pointer(output),
         pointer(maximum ? positions : at::Tensor()), arguments, bags.asserts());
  return {output, map, sizes, positions};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> _embedding_bag_forward_only(
    const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets,
    bool scale_grad_by_freq, int64_t mode, bool sparse,
    const std::optional<at::Tensor>& per_sample_weights, bool include_last_offset,
    int64_t padding_idx) {
  return _embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse,
                        per_sample_weights, include_last_offset, padding_idx);
}

at::Tensor _embedding_bag_dense_backward(const at::Tensor& grad_, const at::Tensor& indices_,
                                         const at::Tensor& offset2bag, const at::Tensor& bag_size,
                                         const at::Tensor& maximum_indices, int64_t num_weights,
                                         bool scale_grad_by_freq, int64_t mode,
                                         const std::optional<at::Tensor>& per_sample_weights,
                                         int64_t padding_idx) {
  check_factors(grad_, indices_, mode, per_sample_weights);
  const at::Tensor grad = with_dense_columns(grad_), indices = indices_.contiguous();
  const int64_t columns = grad.size(1);
  at::Tensor sums = at::zeros({num_weights, columns}, grad.options());
  if (sums.numel() == 0 || indices.numel() == 0 || grad.numel() == 0) return sums;
  if (mode == EmbeddingBagMode::MAX) {
    // An empty bag took no row.
    const at::Tensor given = grad.masked_fill(bag_size.eq(0).unsqueeze(1), 0);
    return sums.scatter_add_(0, maximum_indices.to(at::kLong), given);
  }
  const at::Tensor map = offset2bag.contiguous(), sizes = bag_size.contiguous();
  TORCH_CHECK(
      map.scalar_type() == indices.scalar_type() &&
          (mode != EmbeddingBagMode::MEAN || sizes.scalar_type() == map.scalar_type()),
      "_embedding_bag_dense_backward: indices, offset2bag and bag_size must be of one dtype");
  Bags bags(grad, indices, mode);
  BagArguments& arguments = bags.arguments;
  arguments.bags = grad.size(0);
  arguments.weight_step = grad.stride(0);
  const bool weighted = per_sample_weights && per_sample_weights->defined();
  const at::Tensor factors = weighted ? *per_sample_weights : at::Tensor();
  if (weighted) arguments.factor_step = factors.stride(0);
  // Each addition to a half type would be rounded.
  sums = sums.to(compute_dtype(bags.dtype));
  WeightGradient plan{bags, grad, indices, map, sizes, factors, sums, padding_idx};
  run_first(engine, kWeightGradients, plan, describe);
  if (scale_grad_by_freq) divide_by_frequency(sums, indices, bag_site);
  return sums.to(bags.dtype);
}

at::Tensor _embedding_bag_per_sample_weights_backward(
    const at::Tensor& grad_, const at::Tensor& weight_, const at::Tensor& indices_,
    const at::Tensor& offsets_, const at::Tensor& offset2bag, int64_t mode, int64_t padding_idx) {
  TORCH_CHECK(mode == EmbeddingBagMode::SUM,
              "embedding_bag_backward: per_sample_weights only supported for mode='sum'");
  TORCH_CHECK(grad_.dim() == 2 && weight_.dim() == 2 && weight_.size(1) == grad_.size(1),
              "embedding_bag_backward: grad of sizes ", grad_.sizes(), " for weights of sizes ",
              weight_.sizes());
  TORCH_CHECK(grad_.scalar_type() == weight_.scalar_type(), "expected scalar type ",
              weight_.scalar_type(), " but found ", grad_.scalar_type());
  const at::Tensor indices = indices_.contiguous();
  const at::Tensor output = at::empty({indices.numel()}, grad_.options());
  if (indices.numel() == 0) return output;
  const at::Tensor grad = with_dense_columns(grad_), weight = with_dense_columns(weight_);
  Bags bags(weight, indices, mode);
  BagArguments& arguments = bags.arguments;
  arguments.bags = grad.size(0);
  arguments.rows = weight.size(0);
  arguments.skipped = padding_idx;
  arguments.weight_step = weight.stride(0);
  arguments.factor_step = grad.stride(0);
  at::Tensor map = offset2bag.to(indices.scalar_type()).contiguous();
  if (map.numel() == 0) {  // a forward pass elsewhere may have left it out
    const at::Tensor offsets = offsets_.to(indices.scalar_type()).contiguous();
    map = at::empty(indices.sizes(), indices.options());
    const at::Tensor sizes = at::empty({grad.size(0)}, indices.options());
    arguments.last_given = offsets.numel() > grad.size(0);
    if (arguments.bags > 0) launch_map(bags, indices, offsets, map, sizes);
  }
  launch(bags.kernel(factors_family, false), bags.queue,
         element_range(bags.queue.device(), arguments.indices), pointer(weight), pointer(indices),
         pointer(map), pointer(grad), pointer(output), arguments, bags.asserts());
  return output;
}

}  // namespace ocl::native
