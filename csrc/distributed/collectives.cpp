// The calls of a c10d backend: what each hands to the inner one.
#include <c10/util/irange.h>

#include <algorithm>

#include "distributed/backend.h"

namespace ocl::distributed {
namespace {

using c10d::OpType;

Tensors flat(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const Tensors& tensors : lists) all.insert(all.end(), tensors.begin(), tensors.end());
  return all;
}

/// Whether there is a tensor for each rank, of the shape of `one`.
bool are_rows(const Tensors& tensors, const at::Tensor& one, int ranks) {
  return static_cast<int>(tensors.size()) == ranks &&
         std::ranges::all_of(tensors, [&](const auto& row) { return row.sizes() == one.sizes(); });
}

/// Whether they are of different sizes, and that of this rank fits `one`.
bool are_uneven(const Tensors& tensors, const at::Tensor& one, int rank, int ranks) {
  return one.is_privateuseone() && static_cast<int>(tensors.size()) == ranks &&
         tensors[rank].sizes() == one.sizes() && !are_rows(tensors, one, ranks);
}

auto gather_rows(c10d::Backend* inner, const c10d::AllgatherOptions& opts) {
  return [inner, opts](Tensors& written, Tensors& read) {
    std::vector<Tensors> lists{written};
    return inner->allgather(lists, read, opts);
  };
}

}  // namespace

WorkPtr Backend::run_elementwise(OpType type, Tensors& tensors, bool reads, bool synchronous,
                                 const TensorsCall& call) {
  const Request request{type, tensors, tensors, synchronous};
  const auto use = reads ? Staging::kBoth : Staging::kWritten;
  const auto prepare = [=](Staging& staging) {
    return [call, staged = staging.stage(tensors, use)]() mutable { return call(staged); };
  };
  if (tensors.size() != 1 || tensors[0].layout() != at::kStrided) {
    return transport_->run(request, prepare);
  }
  const RowsRequest one{reads ? tensors : Tensors(), tensors, tensors[0].numel(), 1, true};
  const auto of_row = [call](Tensors& written, Tensors&) { return call(written); };
  return transport_->run_rows(request, one, of_row, prepare);
}

WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  return run_elementwise(
      OpType::BROADCAST, tensors, opts.rootRank == rank_, !opts.asyncOp,
      [inner = inner(), opts](Tensors& staged) { return inner->broadcast(staged, opts); });
}

WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (tensors.size() == 1 && tensors[0].is_sparse() && tensors[0].is_privateuseone()) {
    return transport_->allreduce_sparse(tensors[0], opts);
  }
  return run_elementwise(
      OpType::ALLREDUCE, tensors, true, !opts.asyncOp,
      [inner = inner(), opts](Tensors& staged) { return inner->allreduce(staged, opts); });
}

WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  return run_elementwise(
      OpType::REDUCE, tensors, true, !opts.asyncOp,
      [inner = inner(), opts](Tensors& staged) { return inner->reduce(staged, opts); });
}

WorkPtr Backend::allreduce_coalesced(Tensors& tensors,
                                     const c10d::AllreduceCoalescedOptions& opts) {
  return transport_->run(
      {OpType::ALLREDUCE_COALESCED, tensors, tensors, !opts.asyncOp}, [=, this](Staging& staging) {
        return [inner = inner(), staged = staging.stage(tensors, Staging::kBoth), opts]() mutable {
          return inner->allreduce_coalesced(staged, opts);
        };
      });
}

WorkPtr Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                           const c10d::AllgatherOptions& opts) {
  const Request request{OpType::ALLGATHER, inputs, flat(outputs), !opts.asyncOp};
  const auto prepare = [=, this](Staging& staging) {
    return [inner = inner(), outs = staging.stage(outputs, Staging::kWritten),
            ins = staging.stage(inputs, Staging::kRead),
            opts]() mutable { return inner->allgather(outs, ins, opts); };
  };
  if (inputs.size() == 1 && outputs.size() == 1) {
    if (are_rows(outputs[0], inputs[0], size_)) {
      const RowsRequest rows{inputs, outputs[0], inputs[0].numel(), size_};
      return transport_->run_rows(request, rows, gather_rows(inner(), opts), prepare);
    }
    if (are_uneven(outputs[0], inputs[0], rank_, size_)) {
      return transport_->allgather_uneven(request, opts, prepare);
    }
  }
  return transport_->run(request, prepare);
}

WorkPtr Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                 const c10d::AllgatherOptions& opts) {
  const Request request{OpType::_ALLGATHER_BASE, {input}, {output}, !opts.asyncOp};
  const auto prepare = [=, this](Staging& staging) {
    at::Tensor out = staging.stage(output, Staging::kWritten);
    at::Tensor in = staging.stage(input, Staging::kRead);
    // Gloo takes a row for each rank, of the input's shape.
    if (output.is_privateuseone()) out = out.view({-1}), in = in.view({-1});
    return [inner = inner(), out, in, opts]() mutable {
      return inner->_allgather_base(out, in, opts);
    };
  };
  if (output.numel() != input.numel() * size_) return transport_->run(request, prepare);
  const RowsRequest rows{{input}, {output}, input.numel(), size_};
  return transport_->run_rows(request, rows, gather_rows(inner(), opts), prepare);
}

WorkPtr Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& opts) {
  const Request request{OpType::ALLGATHER_COALESCED, inputs, flat(outputs), !opts.asyncOp};
  return transport_->run(request, [=, this](Staging& staging) {
    return [inner = inner(), outs = staging.stage(outputs, Staging::kWritten),
            ins = staging.stage(inputs, Staging::kRead),
            opts]() mutable { return inner->allgather_coalesced(outs, ins, opts); };
  });
}

WorkPtr Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& opts) {
  return transport_->run(
      {OpType::COALESCED, inputs, outputs, !opts.asyncOp}, [=, this](Staging& staging) {
        return [inner = inner(), outs = staging.stage(outputs, Staging::kWritten),
                ins = staging.stage(inputs, Staging::kRead),
                opts]() mutable { return inner->allgather_into_tensor_coalesced(outs, ins, opts); };
      });
}

WorkPtr Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                        const c10d::GatherOptions& opts) {
  const bool root = opts.rootRank == rank_;
  const Request request{OpType::GATHER, inputs, flat(outputs), !opts.asyncOp};
  const Tensors& received = request.outputs;
  const auto prepare = [=, this](Staging& staging) {
    return [inner = inner(), outs = staging.stage(outputs, Staging::kWritten),
            ins = staging.stage(inputs, Staging::kRead),
            opts]() mutable { return inner->gather(outs, ins, opts); };
  };
  if (inputs.size() != 1 || !(root ? are_rows(received, inputs[0], size_) : received.empty())) {
    return transport_->run(request, prepare);
  }
  const RowsRequest rows{inputs, received, inputs[0].numel(), size_};
  const auto call = [inner = inner(), opts, root](Tensors& written, Tensors& read) {
    std::vector<Tensors> lists;
    if (root) lists.push_back(written);
    return inner->gather(lists, read, opts);
  };
  return transport_->run_rows(request, rows, call, prepare);
}

WorkPtr Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ScatterOptions& opts) {
  const bool root = opts.rootRank == rank_;
  const Request request{OpType::SCATTER, flat(inputs), outputs, !opts.asyncOp};
  const Tensors& sent = request.inputs;
  const auto prepare = [=, this](Staging& staging) {
    return [inner = inner(), outs = staging.stage(outputs, Staging::kWritten),
            ins = staging.stage(inputs, Staging::kRead),
            opts]() mutable { return inner->scatter(outs, ins, opts); };
  };
  if (outputs.size() != 1 || !(root ? are_rows(sent, outputs[0], size_) : sent.empty())) {
    return transport_->run(request, prepare);
  }
  const RowsRequest rows{sent, outputs, outputs[0].numel(), size_};
  const auto call = [inner = inner(), opts, root](Tensors& written, Tensors& read) {
    std::vector<Tensors> lists;
    if (root) lists.push_back(read);
    return inner->scatter(written, lists, opts);
  };
  return transport_->run_rows(request, rows, call, prepare);
}

WorkPtr Backend::send(Tensors& tensors, int to, int tag) {
  return transport_->run_point_to_point({OpType::SEND, tensors, {}}, [=, this](Staging& staging) {
    return [inner = inner(), staged = staging.stage(tensors, Staging::kRead), to, tag]() mutable {
      return inner->send(staged, to, tag);
    };
  });
}

WorkPtr Backend::recv(Tensors& tensors, int from, int tag) {
  return transport_->run_point_to_point({OpType::RECV, {}, tensors}, [=, this](Staging& staging) {
    return [inner = inner(), staged = staging.stage(tensors, Staging::kWritten), from,
            tag]() mutable { return inner->recv(staged, from, tag); };
  });
}

WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  return transport_->run_point_to_point(
      {OpType::RECVANYSOURCE, {}, tensors}, [=, this](Staging& staging) {
        return [inner = inner(), staged = staging.stage(tensors, Staging::kWritten),
                tag]() mutable { return inner->recvAnysource(staged, tag); };
      });
}

}  // namespace ocl::distributed
