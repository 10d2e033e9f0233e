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

WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  return run_elementwise(
      OpType::BROADCAST, tensors, opts.rootRank == rank_, !opts.asyncOp,
      [inner = inner_.get(), opts](Tensors& hosts) { return inner->broadcast(hosts, opts); });
}

WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (tensors.size() == 1 && tensors[0].is_sparse() && tensors[0].is_privateuseone()) {
    return allreduce_sparse_tensor(tensors[0], opts);
  }
  return run_elementwise(
      OpType::ALLREDUCE, tensors, true, !opts.asyncOp,
      [inner = inner_.get(), opts](Tensors& hosts) { return inner->allreduce(hosts, opts); });
}

WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  return run_elementwise(
      OpType::REDUCE, tensors, true, !opts.asyncOp,
      [inner = inner_.get(), opts](Tensors& hosts) { return inner->reduce(hosts, opts); });
}

// Its elements and indices are put together on the host, as the inner backend does it.
WorkPtr Backend::allreduce_sparse_tensor(const at::Tensor& tensor,
                                         const c10d::AllreduceOptions& opts) {
  TORCH_CHECK(!pool_, "all_reduce: ", getBackendName(),
              " takes no sparse tensors of ocl; a group of gloo does");
  const at::NoGradGuard no_grad;
  Tensors hosts{tensor.to(at::kCPU)};
  Request request{OpType::_ALLREDUCE_SPARSE, {}, {tensor}, !opts.asyncOp};
  request.finish = [tensor, host = hosts[0]] {
    at::Tensor(tensor).copy_(host.to(tensor.device()));
  };
  return run(request, [=, this](Staging&) {
    return [inner = inner_.get(), hosts, opts]() mutable { return inner->allreduce(hosts, opts); };
  });
}

WorkPtr Backend::allreduce_coalesced(Tensors& tensors,
                                     const c10d::AllreduceCoalescedOptions& opts) {
  return run({OpType::ALLREDUCE_COALESCED, tensors, tensors, !opts.asyncOp},
             [=, this](Staging& staging) {
               return [inner = inner_.get(), hosts = staging.host(tensors, Staging::kBoth),
                       opts]() mutable { return inner->allreduce_coalesced(hosts, opts); };
             });
}

WorkPtr Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                           const c10d::AllgatherOptions& opts) {
  if (inputs.size() == 1 && outputs.size() == 1 && are_rows(outputs[0], inputs[0], size_)) {
    const RowsRequest rows{inputs, outputs[0], inputs[0].numel(), size_};
    if (may_be_cut(rows)) {
      return run_rows({OpType::ALLGATHER, inputs, outputs[0]}, rows,
                      gather_rows(inner_.get(), opts));
    }
  }
  if (inputs.size() == 1 && outputs.size() == 1 &&
      are_uneven(outputs[0], inputs[0], rank_, size_)) {
    // As NCCL has it; gloo's own takes rows of one size.
    const Tensors sent(size_, inputs[0]);
    c10d::AllToAllOptions options;
    options.timeout = opts.timeout;
    if (may_exchange_rows(outputs[0], sent)) {
      return exchange_rows({OpType::ALLGATHER, inputs, outputs[0]}, sent, outputs[0], options);
    }
  }
  return run({OpType::ALLGATHER, inputs, flat(outputs), !opts.asyncOp},
             [=, this](Staging& staging) {
               return [inner = inner_.get(), outs = staging.host(outputs, Staging::kWritten),
                       ins = staging.host(inputs, Staging::kRead),
                       opts]() mutable { return inner->allgather(outs, ins, opts); };
             });
}

WorkPtr Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                 const c10d::AllgatherOptions& opts) {
  const RowsRequest rows{{input}, {output}, input.numel(), size_};
  if (output.numel() == input.numel() * size_ && may_be_cut(rows)) {
    return run_rows({OpType::_ALLGATHER_BASE, {input}, {output}}, rows,
                    gather_rows(inner_.get(), opts));
  }
  return run({OpType::_ALLGATHER_BASE, {input}, {output}, !opts.asyncOp},
             [=, this](Staging& staging) {
               at::Tensor out = staging.host(output, Staging::kWritten);
               at::Tensor in = staging.host(input, Staging::kRead);
               // Gloo takes a row for each rank, of the input's shape.
               if (output.is_privateuseone()) out = out.view({-1}), in = in.view({-1});
               return [inner = inner_.get(), out, in, opts]() mutable {
                 return inner->_allgather_base(out, in, opts);
               };
             });
}

WorkPtr Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& opts) {
  const Request request{OpType::ALLGATHER_COALESCED, inputs, flat(outputs), !opts.asyncOp};
  return run(request, [=, this](Staging& staging) {
    return [inner = inner_.get(), outs = staging.host(outputs, Staging::kWritten),
            ins = staging.host(inputs, Staging::kRead),
            opts]() mutable { return inner->allgather_coalesced(outs, ins, opts); };
  });
}

WorkPtr Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& opts) {
  return run({OpType::COALESCED, inputs, outputs, !opts.asyncOp}, [=, this](Staging& staging) {
    return [inner = inner_.get(), outs = staging.host(outputs, Staging::kWritten),
            ins = staging.host(inputs, Staging::kRead),
            opts]() mutable { return inner->allgather_into_tensor_coalesced(outs, ins, opts); };
  });
}

WorkPtr Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                        const c10d::GatherOptions& opts) {
  const bool root = opts.rootRank == rank_;
  const Tensors received = flat(outputs);
  if (inputs.size() == 1 && (root ? are_rows(received, inputs[0], size_) : received.empty())) {
    const RowsRequest rows{inputs, received, inputs[0].numel(), size_};
    const auto call = [inner = inner_.get(), opts, root](Tensors& written, Tensors& read) {
      std::vector<Tensors> lists;
      if (root) lists.push_back(written);
      return inner->gather(lists, read, opts);
    };
    if (may_be_cut(rows)) return run_rows({OpType::GATHER, inputs, received}, rows, call);
  }
  return run({OpType::GATHER, inputs, flat(outputs), !opts.asyncOp}, [=, this](Staging& staging) {
    return [inner = inner_.get(), outs = staging.host(outputs, Staging::kWritten),
            ins = staging.host(inputs, Staging::kRead),
            opts]() mutable { return inner->gather(outs, ins, opts); };
  });
}

WorkPtr Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ScatterOptions& opts) {
  const bool root = opts.rootRank == rank_;
  const Tensors sent = flat(inputs);
  if (outputs.size() == 1 && (root ? are_rows(sent, outputs[0], size_) : sent.empty())) {
    const RowsRequest rows{sent, outputs, outputs[0].numel(), size_};
    const auto call = [inner = inner_.get(), opts, root](Tensors& written, Tensors& read) {
      std::vector<Tensors> lists;
      if (root) lists.push_back(read);
      return inner->scatter(written, lists, opts);
    };
    if (may_be_cut(rows)) return run_rows({OpType::SCATTER, sent, outputs}, rows, call);
  }
  return run({OpType::SCATTER, flat(inputs), outputs, !opts.asyncOp}, [=, this](Staging& staging) {
    return [inner = inner_.get(), outs = staging.host(outputs, Staging::kWritten),
            ins = staging.host(inputs, Staging::kRead),
            opts]() mutable { return inner->scatter(outs, ins, opts); };
  });
}

WorkPtr Backend::send(Tensors& tensors, int to, int tag) {
  return run_point_to_point({OpType::SEND, tensors, {}}, [=, this](Staging& staging) {
    return [inner = inner_.get(), hosts = staging.host(tensors, Staging::kRead), to,
            tag]() mutable { return inner->send(hosts, to, tag); };
  });
}

WorkPtr Backend::recv(Tensors& tensors, int from, int tag) {
  return run_point_to_point({OpType::RECV, {}, tensors}, [=, this](Staging& staging) {
    return [inner = inner_.get(), hosts = staging.host(tensors, Staging::kWritten), from,
            tag]() mutable { return inner->recv(hosts, from, tag); };
  });
}

WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  return run_point_to_point({OpType::RECVANYSOURCE, {}, tensors}, [=, this](Staging& staging) {
    return [inner = inner_.get(), hosts = staging.host(tensors, Staging::kWritten), tag]() mutable {
      return inner->recvAnysource(hosts, tag);
    };
  });
}

WorkPtr Backend::barrier(const c10d::BarrierOptions& opts) {
  if (pool_) return barrier_on_device(opts);
  return run({OpType::BARRIER, {}, {}, !opts.asyncOp}, [=, this](Staging&) {
    return [inner = inner_.get(), opts] { return inner->barrier(opts); };
  });
}

void Backend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  queue_->drain();
  inner_->monitoredBarrier(opts, wait_all_ranks);
}

}  // namespace ocl::distributed
