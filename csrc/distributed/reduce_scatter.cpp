// reduce_scatter: the ranks exchange pieces, and each device adds up its own, in the order of the
// ranks. Gloo's own sends every rank all sums, and has no future to follow.
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <numeric>

#include "distributed/staged.h"

namespace ocl::distributed {
namespace {

using c10d::OpType;
using c10d::ReduceOp;

template <class Combine>
at::Tensor fold(const at::Tensor& rows, Combine combine) {
  at::Tensor result = rows[0];
  for (const int64_t row : c10::irange(1, rows.size(0))) result = combine(result, rows[row]);
  return result;
}

/// Reduces rows, one of each rank; null for what gloo doesn't reduce by.
at::Tensor reduce_rows(const at::Tensor& rows, ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM:
      return rows.sum(0, /*keepdim=*/false, rows.scalar_type());
    case ReduceOp::AVG:
      return rows.mean(0);
    case ReduceOp::PRODUCT:
      return rows.prod(0, /*keepdim=*/false, rows.scalar_type());
    case ReduceOp::MIN:
      return rows.amin(0);
    case ReduceOp::MAX:
      return rows.amax(0);
    case ReduceOp::BAND:
      return fold(rows, [](const auto& a, const auto& b) { return at::bitwise_and(a, b); });
    case ReduceOp::BOR:
      return fold(rows, [](const auto& a, const auto& b) { return at::bitwise_or(a, b); });
    case ReduceOp::BXOR:
      return fold(rows, [](const auto& a, const auto& b) { return at::bitwise_xor(a, b); });
    default:
      return {};
  }
}

void check(const at::Tensor& output, ReduceOp::RedOpType op) {
  TORCH_CHECK(op <= ReduceOp::BXOR, "reduce_scatter on ocl: unsupported reduction");
  TORCH_CHECK(op != ReduceOp::AVG || output.is_floating_point() || output.is_complex(),
              "reduce_scatter: ReduceOp.AVG takes floating point and complex tensors");
  TORCH_CHECK(op < ReduceOp::BAND || c10::isIntegralType(output.scalar_type(), true),
              "Cannot use ReduceOp.BAND, ReduceOp.BOR or ReduceOp.BXOR with non-integral dtype");
}

}  // namespace

WorkPtr Staged::reduce_scatter_pieces(const at::Tensor& output, const at::Tensor& flat,
                                      std::vector<int64_t> sizes,
                                      const c10d::ReduceScatterOptions& opts) {
  const ReduceOp::RedOpType op = opts.reduceOp;
  check(output, op);
  const at::NoGradGuard no_grad;
  const c10::DeviceGuard guard(output.device());
  const at::Tensor pieces = at::empty({size_, output.numel()}, output.options());
  // Gloo has no complex numbers: pairs of reals travel.
  const int64_t parts = output.is_complex() ? 2 : 1;
  const auto as_reals = [](const at::Tensor& tensor) {
    return tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor;
  };
  const at::Tensor sent = as_reals(flat).reshape({-1}), received_rows = as_reals(pieces);
  for (int64_t& size : sizes) size *= parts;
  // Written and read on a stream that is not this one's.
  pieces.record_stream(streams(output.device()).in);
  Request request{OpType::_REDUCE_SCATTER_BASE, {sent}, {output}, !opts.asyncOp};
  request.finish = [pieces, output, op, in = streams(output.device()).in] {
    copy_on(in, output, reduce_rows(pieces, op).view(output.sizes()));
  };
  request.pieces = {received_rows};
  output.record_stream(streams(output.device()).in);
  const bool equal = std::ranges::all_of(sizes, [&](int64_t s) { return s == sizes[0]; });
  const RowsRequest rows{{sent}, {received_rows}, output.numel() * parts, size_};
  const Prepare prepare = [=, this](Staging& staging) {
    std::vector<int64_t> received(sizes.empty() ? 0 : size_, output.numel() * parts);
    c10d::AllToAllOptions options;
    options.timeout = opts.timeout;
    return [inner = inner(), out = staging.stage(received_rows.view({-1}), Staging::kWritten),
            in = staging.stage(sent, Staging::kRead), received, sizes,
            options]() mutable { return inner->alltoall_base(out, in, received, sizes, options); };
  };
  if (!equal) return run(request, prepare);
  const auto call = [inner = inner(), timeout = opts.timeout](Tensors& written, Tensors& read) {
    c10d::AllToAllOptions options;
    options.timeout = timeout;
    return inner->alltoall(written, read, options);
  };
  return run_rows(request, rows, call, prepare);
}

WorkPtr Staged::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                               const c10d::ReduceScatterOptions& opts) {
  if (outputs.empty() || !outputs[0].is_privateuseone()) {
    return run({OpType::REDUCE_SCATTER, inputs.empty() ? Tensors() : inputs[0], outputs},
               [=, this](Staging&) {
                 return [inner = inner(), outputs, inputs, opts]() mutable {
                   return inner->reduce_scatter(outputs, inputs, opts);
                 };
               });
  }
  TORCH_CHECK(outputs.size() == 1 && inputs.size() == 1,
              "reduce_scatter: requires a single-element output list and one list of inputs");
  TORCH_CHECK(static_cast<int64_t>(inputs[0].size()) == size_, "reduce_scatter: expected ", size_,
              " input tensors, one for each rank, got ", inputs[0].size());
  std::vector<int64_t> sizes;
  Tensors parts;
  for (const at::Tensor& input : inputs[0]) {
    TORCH_CHECK(input.scalar_type() == outputs[0].scalar_type(),
                "reduce_scatter: inputs and output must have the same dtype");
    TORCH_CHECK(input.device() == outputs[0].device(),
                "reduce_scatter: expected all tensors to be on the same device");
    sizes.push_back(input.numel());
    parts.push_back(input.reshape({-1}));
  }
  TORCH_CHECK(sizes[rank_] == outputs[0].numel(), "reduce_scatter: the output has ",
              outputs[0].numel(), " elements, this rank's input ", sizes[rank_]);
  const at::NoGradGuard no_grad;
  return reduce_scatter_pieces(outputs[0], at::cat(parts), std::move(sizes), opts);
}

WorkPtr Staged::reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                    const c10d::ReduceScatterOptions& opts) {
  if (!output.is_privateuseone()) {
    return run({OpType::_REDUCE_SCATTER_BASE, {input}, {output}}, [=, this](Staging&) {
      return [inner = inner(), output, input, opts]() mutable {
        return inner->_reduce_scatter_base(output, input, opts);
      };
    });
  }
  TORCH_CHECK(input.numel() == output.numel() * size_,
              "_reduce_scatter_base: input tensor must be the same size as output size times world "
              "size, got ",
              input.numel(), " and ", output.numel(), " elements");
  TORCH_CHECK(input.scalar_type() == output.scalar_type(),
              "_reduce_scatter_base: input and output must have the same dtype");
  const at::NoGradGuard no_grad;
  return reduce_scatter_pieces(output, input.reshape({-1}), {}, opts);
}

WorkPtr Staged::reduce_scatter_coalesced(Tensors& outputs, Tensors& inputs,
                                         const c10d::ReduceScatterOptions& opts) {
  if (outputs.empty() || !outputs[0].is_privateuseone()) {
    // Its own type is not in torch 2.11.
    return run({OpType::_REDUCE_SCATTER_BASE, inputs, outputs}, [=, this](Staging&) {
      return [inner = inner(), outputs, inputs, opts]() mutable {
        return inner->reduce_scatter_tensor_coalesced(outputs, inputs, opts);
      };
    });
  }
  TORCH_CHECK(outputs.size() == inputs.size(),
              "reduce_scatter_tensor_coalesced: requires as many outputs as inputs");
  std::vector<WorkPtr> works;
  for (const size_t i : c10::irange(outputs.size())) {
    works.push_back(reduce_scatter_base(outputs[i], inputs[i], opts));
  }
  return c10::make_intrusive<AllOf>(rank_, std::move(works));
}

}  // namespace ocl::distributed
