// searchsorted and bucketize.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/BucketizationUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "ops/bucketize.h"
#include "ops/searchsorted.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

const KernelFamily search_family{"binning/search.cl", "searchsorted"};

/// All contiguous; values and sequences of one dtype.
void search(const at::Tensor& values, const at::Tensor& sequences, const at::Tensor& sorter,
            bool right, const at::Tensor& out) {
  const at::ScalarType dtype = values.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(dtype != at::kBool && !c10::isComplexType(dtype),
                              "\"searchsorted_out_ocl\" not implemented for '", dtype, "'");
  const uint64_t n = values.numel();
  // A sequence without elements has no address, and none of it is read.
  const void* somewhere = values.const_data_ptr();
  const void* from = sequences.numel() > 0 ? sequences.const_data_ptr() : somewhere;
  const void* order = sorter.defined() && sorter.numel() > 0 ? sorter.const_data_ptr() : somewhere;
  const uint64_t per_row = sequences.dim() == 1 ? n : values.size(-1);
  Queue& queue = current_queue(values.device().index());
  Kernel& kernel = search_family.get(queue.device(), {{"IN", tag(dtype)},
                                                      {"OUT", tag(out.scalar_type())},
                                                      {"RIGHT", right},
                                                      {"SORTER", sorter.defined()}});
  launch(kernel, queue, element_range(queue.device(), n), Pointer{somewhere}, Pointer{from},
         Pointer{order}, Pointer{out.mutable_data_ptr()}, n, per_row,
         static_cast<uint64_t>(sequences.size(-1)));
}

at::Tensor empty_positions(const at::Tensor& like, bool out_int32) {
  return at::empty(
      {0}, at::TensorOptions().device(like.device()).dtype(out_int32 ? at::kInt : at::kLong));
}

}  // namespace

at::Tensor& searchsorted_tensor_out(const at::Tensor& sorted_sequence, const at::Tensor& self,
                                    bool out_int32, bool right,
                                    std::optional<std::string_view> side,
                                    const std::optional<at::Tensor>& sorter, at::Tensor& out) {
  const at::Tensor order = sorter.value_or(at::Tensor());
  at::native::searchsorted_pre_check(sorted_sequence, self, out, out_int32, right, side, order);
  at::native::resize_output(out, self.sizes());
  if (self.numel() == 0) return out;
  at::Tensor values, sequences, dense_order;
  at::native::searchsorted_maybe_trim_input_tensors(values, sequences, dense_order, self,
                                                    sorted_sequence, order);
  const at::Tensor result =
      out.is_contiguous() ? at::Tensor(out) : at::empty(out.sizes(), out.options());
  search(values.defined() ? values : self, sequences.defined() ? sequences : sorted_sequence,
         dense_order.defined() ? dense_order : order, side ? *side == "right" : right, result);
  if (!result.is_same(out)) out.copy_(result);
  return out;
}

at::Tensor searchsorted_tensor(const at::Tensor& sorted_sequence, const at::Tensor& self,
                               bool out_int32, bool right, std::optional<std::string_view> side,
                               const std::optional<at::Tensor>& sorter) {
  at::Tensor out = empty_positions(self, out_int32);
  return searchsorted_tensor_out(sorted_sequence, self, out_int32, right, side, sorter, out);
}

at::Tensor& searchsorted_scalar_out(const at::Tensor& sorted_sequence, const at::Scalar& self,
                                    bool out_int32, bool right,
                                    std::optional<std::string_view> side,
                                    const std::optional<at::Tensor>& sorter, at::Tensor& out) {
  const at::Tensor value = at::native::searchsorted_scalar_tensor(self, sorted_sequence.device());
  return searchsorted_tensor_out(sorted_sequence, value, out_int32, right, side, sorter, out);
}

at::Tensor searchsorted_scalar(const at::Tensor& sorted_sequence, const at::Scalar& self,
                               bool out_int32, bool right, std::optional<std::string_view> side,
                               const std::optional<at::Tensor>& sorter) {
  at::Tensor out = empty_positions(sorted_sequence, out_int32);
  return searchsorted_scalar_out(sorted_sequence, self, out_int32, right, side, sorter, out);
}

at::Tensor& bucketize_tensor_out(const at::Tensor& self, const at::Tensor& boundaries,
                                 bool out_int32, bool right, at::Tensor& out) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(",
              boundaries.dim(), ")");
  return searchsorted_tensor_out(boundaries, self, out_int32, right, std::nullopt, std::nullopt,
                                 out);
}

at::Tensor bucketize_tensor(const at::Tensor& self, const at::Tensor& boundaries, bool out_int32,
                            bool right) {
  at::Tensor out = empty_positions(self, out_int32);
  return bucketize_tensor_out(self, boundaries, out_int32, right, out);
}

at::Tensor bucketize_scalar(const at::Scalar& self, const at::Tensor& boundaries, bool out_int32,
                            bool right) {
  return bucketize_tensor(at::native::searchsorted_scalar_tensor(self, boundaries.device()),
                          boundaries, out_int32, right);
}

}  // namespace ocl::native
