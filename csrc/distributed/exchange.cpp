// all_to_all, whose ranks exchange pieces of any sizes: each rank knows its own only.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <numeric>

#include "distributed/rows.h"
#include "distributed/staged.h"

namespace ocl::distributed {
namespace {

using c10d::OpType;

/// Whether the sizes are a split of the first dimension; none: as many for each rank.
bool can_split(const at::Tensor& tensor, const std::vector<int64_t>& sizes, int ranks) {
  if (tensor.dim() == 0) return false;
  if (sizes.empty()) return tensor.size(0) % ranks == 0;
  return static_cast<int>(sizes.size()) == ranks &&
         std::ranges::all_of(sizes, [](int64_t size) { return size >= 0; }) &&
         std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == tensor.size(0);
}

Tensors parts_of(const at::Tensor& tensor, const std::vector<int64_t>& sizes, int ranks) {
  const std::vector<int64_t> equal(ranks, tensor.size(0) / ranks);
  return tensor.split_with_sizes(sizes.empty() ? equal : sizes);
}

/// Whether the inner backend would take lists, too: its CPU tensors have to have one size.
bool takes_lists(const Tensors& outputs, const Tensors& inputs, int ranks) {
  const auto count = static_cast<size_t>(ranks);
  if (outputs.size() != count || inputs.size() != count) return false;
  const auto alike = [&first = outputs[0]](const at::Tensor& tensor) {
    return tensor.is_privateuseone() || tensor.sizes() == first.sizes();
  };
  return std::ranges::all_of(outputs, alike) && std::ranges::all_of(inputs, alike);
}

}  // namespace

bool Staged::may_exchange_rows(const Tensors& outputs, const Tensors& inputs) const {
  if (outputs.empty() || outputs[0].is_complex()) return false;
  const auto alike = [&first = outputs[0]](const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided && tensor.device() == first.device() &&
           tensor.scalar_type() == first.scalar_type();
  };
  return std::ranges::all_of(outputs, alike) && std::ranges::all_of(inputs, alike);
}

WorkPtr Staged::exchange_rows(const Request& request, const Tensors& sent, const Tensors& received,
                              const c10d::AllToAllOptions& opts, const RowsCall& whole) {
  int64_t longest = 0;
  for (const Tensors* tensors : {&sent, &received}) {
    for (const at::Tensor& tensor : *tensors) longest = std::max(longest, tensor.numel());
  }
  const RowsRequest rows{.read = sent,
                         .written = received,
                         .length = longest,
                         .rows = size_,
                         .in_place = false,
                         .uneven = true,
                         .whole = whole};
  return run_cut(request, rows, [inner = inner(), opts](Tensors& written, Tensors& read) {
    at::Tensor output = joined(written), input = joined(read);
    std::vector<int64_t> output_sizes = sizes_of(written), input_sizes = sizes_of(read);
    return inner->alltoall_base(output, input, output_sizes, input_sizes, opts);
  });
}

WorkPtr Transport::alltoall_base(at::Tensor& output, at::Tensor& input,
                                 std::vector<int64_t>& output_sizes,
                                 std::vector<int64_t>& input_sizes,
                                 const c10d::AllToAllOptions& opts) {
  const at::NoGradGuard no_grad;
  const Request request{OpType::ALLTOALL_BASE, {input}, {output}, !opts.asyncOp};
  return run(request, [=, this](Staging& staging) {
    return [inner = inner(), out = staging.stage(output, Staging::kWritten),
            in = staging.stage(input, Staging::kRead), output_sizes, input_sizes, opts]() mutable {
      return inner->alltoall_base(out, in, output_sizes, input_sizes, opts);
    };
  });
}

WorkPtr Transport::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  const Request request{OpType::ALLTOALL, inputs, outputs, !opts.asyncOp};
  return run(request, [=, this](Staging& staging) {
    return [inner = inner(), outs = staging.stage(outputs, Staging::kWritten),
            ins = staging.stage(inputs, Staging::kRead),
            opts]() mutable { return inner->alltoall(outs, ins, opts); };
  });
}

// Gloo's lists have to be of equal sizes. Those of a device travel as one tensor, of any sizes.
WorkPtr Staged::alltoall_joined(Tensors& outputs, Tensors& inputs,
                                const c10d::AllToAllOptions& opts) {
  const Request request{OpType::ALLTOALL, inputs, outputs, !opts.asyncOp};
  TORCH_CHECK(static_cast<int>(inputs.size()) == size_ && static_cast<int>(outputs.size()) == size_,
              "alltoall: expected ", size_, " inputs and outputs, one for each rank, got ",
              inputs.size(), " and ", outputs.size());
  const at::NoGradGuard no_grad;
  const c10::DeviceGuard guard(outputs[0].device());
  const auto sizes_of = [&](const Tensors& tensors) {
    std::vector<int64_t> sizes;
    for (const at::Tensor& tensor : tensors) {
      TORCH_CHECK(tensor.scalar_type() == outputs[0].scalar_type(),
                  "alltoall: inputs and outputs must have the same dtype");
      TORCH_CHECK(tensor.device() == outputs[0].device(),
                  "alltoall: expected all tensors to be on the same device");
      sizes.push_back(tensor.numel());
    }
    return sizes;
  };
  std::vector<int64_t> sent = sizes_of(inputs), received = sizes_of(outputs);
  const c10::Stream in = streams(outputs[0].device()).in;
  Tensors parts;
  for (const at::Tensor& input : inputs) parts.push_back(input.reshape({-1}));
  const at::Tensor pieces = at::empty(
      {std::accumulate(received.begin(), received.end(), int64_t{0})}, outputs[0].options());
  pieces.record_stream(in);
  for (const at::Tensor& output : outputs) output.record_stream(in);
  Request with_copies = request;
  with_copies.inputs = {at::cat(parts)};
  with_copies.finish = [pieces, outputs, received, in] {
    const Tensors found = pieces.split_with_sizes(received);
    for (const size_t i : c10::irange(outputs.size())) {
      copy_on(in, outputs[i], found[i].view(outputs[i].sizes()));
    }
  };
  return run(with_copies, [=, this](Staging& staging) {
    return [inner = inner(), out = staging.stage(pieces, Staging::kWritten),
            flat = staging.stage(with_copies.inputs[0], Staging::kRead), received, sent,
            opts]() mutable { return inner->alltoall_base(out, flat, received, sent, opts); };
  });
}

WorkPtr Staged::allgather_uneven(const Request& request, const c10d::AllgatherOptions& opts,
                                 const Prepare& prepare) {
  const Tensors sent(size_, request.inputs[0]);
  if (!may_exchange_rows(request.outputs, sent)) return run(request, prepare);
  c10d::AllToAllOptions options;
  options.timeout = opts.timeout;
  return exchange_rows(request, sent, request.outputs, options);
}

WorkPtr Staged::alltoall_base(at::Tensor& output, at::Tensor& input,
                              std::vector<int64_t>& output_sizes, std::vector<int64_t>& input_sizes,
                              const c10d::AllToAllOptions& opts) {
  if (output.is_privateuseone() && output.is_complex() && input.is_complex()) {
    // Gloo has no complex numbers: pairs of reals travel. Splits are along the first dimension.
    at::Tensor to = at::view_as_real(output);
    at::Tensor from = at::view_as_real(input.resolve_conj());
    return alltoall_base(to, from, output_sizes, input_sizes, opts);
  }
  if (!chunks_.possible() || !may_exchange_rows({output}, {input}) ||
      !can_split(output, output_sizes, size_) || !can_split(input, input_sizes, size_)) {
    return Transport::alltoall_base(output, input, output_sizes, input_sizes, opts);
  }
  const at::NoGradGuard no_grad;
  const auto whole = [inner = inner(), output_sizes, input_sizes, opts, to = output.sizes().vec(),
                      from = input.sizes().vec()](Tensors& written, Tensors& read) mutable {
    at::Tensor out = joined(written).view(to), in = joined(read).view(from);
    return inner->alltoall_base(out, in, output_sizes, input_sizes, opts);
  };
  return exchange_rows({OpType::ALLTOALL_BASE, {input}, {output}, !opts.asyncOp},
                       parts_of(input, input_sizes, size_), parts_of(output, output_sizes, size_),
                       opts, whole);
}

WorkPtr Staged::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  if (!chunks_.possible() || !takes_lists(outputs, inputs, size_) ||
      !may_exchange_rows(outputs, inputs)) {
    const bool ours = !outputs.empty() && outputs[0].is_privateuseone();
    return ours ? alltoall_joined(outputs, inputs, opts)
                : Transport::alltoall(outputs, inputs, opts);
  }
  RowsCall whole;
  if (!outputs[0].is_privateuseone()) {
    whole = [inner = inner(), opts](Tensors& written, Tensors& read) {
      return inner->alltoall(written, read, opts);
    };
  }
  return exchange_rows({OpType::ALLTOALL, inputs, outputs, !opts.asyncOp}, inputs, outputs, opts,
                       whole);
}

}  // namespace ocl::distributed
