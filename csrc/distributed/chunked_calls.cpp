// Calls that treat every element alike, cut into chunks where the ranks have agreed on that: while
// one chunk is on the network others are copied. It also bounds the pinned memory.
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <deque>
#include <semaphore>

#include "distributed/backend.h"
#include "distributed/follow.h"
#include "opencl/ceil_div.h"
#include "runtime/stream.h"

namespace ocl::distributed {
namespace {

// Chunks with pinned memory of a call at a time, and those of them that are copied out ahead.
constexpr int kInFlight = 6;
constexpr size_t kAhead = 2;

}  // namespace

struct Backend::ChunkedCall {
  TensorsCall call;
  c10::intrusive_ptr<Work> work;
  std::function<void(std::exception_ptr)> failed;
  at::Tensor tensor;   // what the program gave
  at::Tensor flat;     // its elements in a row: itself, a copy, or lent memory
  bool copies, reads;  // whether pinned memory is needed, and whether its first content is
  std::optional<Streams> streams;
  std::atomic<int64_t> left{0};
  std::atomic<bool> broken{false};
  std::counting_semaphore<> slots{kInFlight};

  void fail(std::exception_ptr error) {
    broken = true;
    failed(error);
    slots.release();
  }
  /// The last chunk completes the work.
  void arrive(const at::Tensor& host, int64_t begin) {
    const at::NoGradGuard no_grad;
    std::optional<c10::StreamGuard> on;
    if (streams) on.emplace(streams->in);
    if (copies) {
      copy_on(streams->in, flat.narrow(0, begin, host.numel()), host);
      slots.release();
    }
    if (left.fetch_sub(1) != 1) return;
    const bool back = (copies || !streams) && !flat.is_alias_of(tensor);
    if (back && streams) copy_on(streams->in, tensor, flat.view(tensor.sizes()));
    if (back && !streams) tensor.copy_(flat.view(tensor.sizes()));
    work->complete();
  }
};

WorkPtr Backend::run_elementwise(c10d::OpType type, Tensors& tensors, bool reads, bool synchronous,
                                 const TensorsCall& call) {
  if (!chunks_.may_apply(tensors)) {
    const auto use = reads ? Staging::kBoth : Staging::kWritten;
    return run({type, tensors, tensors, synchronous}, [&](Staging& staging) {
      return [call, hosts = staging.host(tensors, use)]() mutable { return call(hosts); };
    });
  }
  const at::NoGradGuard no_grad;
  const c10::InferenceMode off(false);
  const at::Tensor& tensor = tensors[0];
  auto chunked = std::make_shared<ChunkedCall>();
  EventPtr ready;
  std::optional<c10::Device> device;
  chunked->call = call;
  chunked->tensor = tensor;
  chunked->reads = reads;
  if (!tensor.is_privateuseone()) {
    chunked->copies = false;
    chunked->flat = tensor.detach();  // in a row once it is known to be cut
  } else {
    device = tensor.device();
    const c10::DeviceGuard guard(*device);
    chunked->streams = streams(*device);
    chunked->copies = !is_lendable(tensor);
    ready = record(current_stream(device->index()));
    if (chunked->copies) {
      const auto& [out, in] = *chunked->streams;
      ready->block(out);
      ready->block(in);
      const c10::StreamGuard on(out);
      chunked->flat = tensor.contiguous().resolve_conj().resolve_neg().view({-1});
      const c10::impl::VirtualGuardImpl impl(kDeviceType);
      for (const at::Tensor& used : {tensor, chunked->flat}) {
        for (const c10::Stream stream : {out, in}) {
          impl.recordDataPtrOnStream(used.storage().data_ptr(), stream);
        }
      }
      ready = record(out);
      ready->block(in);
    } else {
      chunked->flat = lend(tensor).view({-1});
    }
  }
  chunked->work = make_work({type, tensors, tensors}, device);
  chunked->failed = failing(chunked->work);
  queue_->push({ready, [this, chunked] { run_in_chunks(chunked); },
                [chunked](std::exception_ptr error) { chunked->fail(error); }},
               CallQueue::By::thread);
  return keep(chunked->work);
}

void Backend::run_in_chunks(const std::shared_ptr<ChunkedCall>& chunked) {
  struct Part {
    int64_t begin;
    at::Tensor host;
    EventPtr ready;
  };
  const at::NoGradGuard no_grad;
  std::optional<c10::DeviceGuard> guard;
  if (chunked->streams) guard.emplace(chunked->streams->out.device());
  const int64_t numel = chunked->flat.numel();
  const int64_t in_a_chunk = std::max<int64_t>(1, chunks_.bytes() / chunked->flat.element_size());
  const bool cut = chunks_.apply(chunked->copies);
  const int64_t step = cut ? in_a_chunk : numel;
  if (cut && !chunked->streams) chunked->flat = chunked->flat.contiguous().view({-1});
  chunked->left = ceil_div(numel, step);

  const auto start = [&](int64_t begin) -> Part {
    const at::Tensor& flat = chunked->flat;
    const at::Tensor source = cut ? flat.narrow(0, begin, std::min(step, numel - begin)) : flat;
    if (!chunked->copies) return {begin, source, nullptr};
    chunked->slots.acquire();
    TORCH_CHECK(!chunked->broken, "an earlier part of this call has failed");
    Part part{begin, pinned_like(source), nullptr};
    if (chunked->reads) {
      copy_on(chunked->streams->out, part.host, source);
      part.ready = record(chunked->streams->out);
    }
    return part;
  };
  std::deque<Part> ahead;
  for (int64_t next = 0; next < numel || !ahead.empty();) {
    for (; next < numel && ahead.size() < kAhead; next += step) ahead.push_back(start(next));
    const Part part = std::move(ahead.front());
    ahead.pop_front();
    if (part.ready) part.ready->synchronize();
    Tensors hosts{part.host};
    const WorkPtr inner = chunked->call(hosts);
    chunked->work->posted(inner);
    follow(
        *inner, [chunked, part] { chunked->arrive(part.host, part.begin); },
        [chunked](std::exception_ptr error) { chunked->fail(error); });
  }
}

}  // namespace ocl::distributed
