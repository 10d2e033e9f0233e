// Calls whose tensors are cut into chunks where the ranks have agreed on that: while one chunk is
// on the network others are copied. It also bounds the pinned memory.
//
// A call works on rows of equal length, one or one for each rank. A chunk is the same part of all
// of them, and a call of its own.
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

Tensors narrow(const Tensors& rows, int64_t begin, int64_t length) {
  Tensors parts;
  for (const at::Tensor& row : rows) parts.push_back(row.narrow(0, begin, length));
  return parts;
}

/// Pinned memory for the same part of all rows.
Tensors pinned_rows(const Tensors& parts) {
  if (parts.empty()) return {};
  const auto count = static_cast<int64_t>(parts.size());
  return at::empty({count, parts[0].numel()},
                   at::TensorOptions(parts[0].scalar_type()).device(at::kCPU).pinned_memory(true))
      .unbind();
}

at::Tensor in_a_row(const at::Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().contiguous().view({-1});
}

}  // namespace

struct Backend::ChunkedCall {
  /// Tensors of a call, and their elements as rows.
  struct Side {
    Tensors given;
    Tensors flat;  // of each: its own memory, that of a copy, or what is lent
    Tensors rows;

    void cut(int64_t length) {
      for (const at::Tensor& tensor : flat) {
        for (at::Tensor& row : tensor.view({-1, length}).unbind()) rows.push_back(std::move(row));
      }
    }
  };

  RowsCall call;
  std::function<void()> finish;
  c10::intrusive_ptr<Work> work;
  std::function<void(std::exception_ptr)> failed;
  Side read, written;
  bool in_place = false;         // what is written is what was read
  bool copies = false;           // through pinned memory
  int64_t length = 0, most = 0;  // elements of a row, and of its part in a chunk
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
  void arrive(const Tensors& hosts, int64_t begin) {
    const at::NoGradGuard no_grad;
    std::optional<c10::StreamGuard> on;
    if (streams) on.emplace(streams->in);
    if (copies) {
      for (const size_t i : c10::irange(hosts.size())) {
        copy_on(streams->in, written.rows[i].narrow(0, begin, hosts[i].numel()), hosts[i]);
      }
      slots.release();
    }
    if (left.fetch_sub(1) != 1) return;
    for (const size_t i : c10::irange(written.given.size())) {
      at::Tensor to = written.given[i];
      const at::Tensor& from = written.flat[i];
      if ((streams && !copies) || from.is_alias_of(to)) continue;
      if (streams) {
        copy_on(streams->in, to, from.view(to.sizes()));
      } else {
        to.copy_(from.view(to.sizes()));
      }
    }
    if (finish) finish();
    work->complete();
  }
};

bool Backend::may_be_cut(const RowsRequest& rows) const {
  const auto& [read, written, length, count, in_place] = rows;
  if (pool_ || length == 0 || (read.empty() && written.empty())) return false;
  const at::Tensor& first = read.empty() ? written[0] : read[0];
  const auto fits = [&first, size = length](const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided && tensor.scalar_type() == first.scalar_type() &&
           tensor.device() == first.device() && tensor.numel() % size == 0;
  };
  return std::ranges::all_of(read, fits) && std::ranges::all_of(written, fits) &&
         chunks_.may_apply(count * length * static_cast<int64_t>(first.element_size()));
}

WorkPtr Backend::run_elementwise(c10d::OpType type, Tensors& tensors, bool reads, bool synchronous,
                                 const TensorsCall& call) {
  if (tensors.size() == 1 && tensors[0].layout() == at::kStrided) {
    const RowsRequest one{reads ? tensors : Tensors(), tensors, tensors[0].numel(), 1, true};
    const auto of_row = [call](Tensors& written, Tensors&) { return call(written); };
    if (may_be_cut(one)) return run_rows({type, tensors, tensors}, one, of_row);
  }
  const auto use = reads ? Staging::kBoth : Staging::kWritten;
  return run({type, tensors, tensors, synchronous}, [&](Staging& staging) {
    return [call, hosts = staging.host(tensors, use)]() mutable { return call(hosts); };
  });
}

WorkPtr Backend::run_rows(const Request& request, const RowsRequest& rows, const RowsCall& call) {
  const at::NoGradGuard no_grad;
  const c10::InferenceMode off(false);
  auto chunked = std::make_shared<ChunkedCall>();
  chunked->call = call;
  chunked->finish = request.finish;
  chunked->in_place = rows.in_place;
  chunked->length = rows.length;
  chunked->read.given = rows.read;
  chunked->written.given = rows.written;
  const at::Tensor& first = rows.read.empty() ? rows.written[0] : rows.read[0];
  const auto bytes_of_element = static_cast<int64_t>(first.element_size());
  chunked->most = std::max<int64_t>(1, chunks_.bytes() / bytes_of_element / rows.rows);
  std::optional<c10::Device> device;
  std::optional<c10::DeviceGuard> guard;
  EventPtr ready;
  if (first.is_privateuseone()) {
    device = first.device();
    guard.emplace(*device);
    chunked->streams = streams(*device);
    const auto lendable = [](const at::Tensor& tensor) { return is_lendable(tensor); };
    chunked->copies =
        !std::ranges::all_of(rows.read, lendable) || !std::ranges::all_of(rows.written, lendable);
    ready = record(current_stream(device->index()));
  }
  std::optional<c10::StreamGuard> on;
  if (chunked->copies) {
    const auto& [out, in] = *chunked->streams;
    ready->block(out);
    ready->block(in);
    on.emplace(out);
  }
  for (ChunkedCall::Side* side : {&chunked->read, &chunked->written}) {
    if (rows.in_place && side == &chunked->read) continue;
    for (const at::Tensor& tensor : side->given) {
      const bool lent = chunked->streams && !chunked->copies;
      side->flat.push_back(lent ? lend(tensor).view({-1}) : in_a_row(tensor));
      if (!chunked->copies) continue;
      const c10::impl::VirtualGuardImpl impl(kDeviceType);
      for (const at::Tensor& used : {tensor, side->flat.back()}) {
        for (const c10::Stream stream : {chunked->streams->out, chunked->streams->in}) {
          impl.recordDataPtrOnStream(used.storage().data_ptr(), stream);
        }
      }
    }
    side->cut(rows.length);
  }
  if (chunked->copies) {
    on.reset();
    ready = record(chunked->streams->out);
    ready->block(chunked->streams->in);
  }
  chunked->work = make_work(request, device);
  chunked->failed = failing(chunked->work);
  queue_->push({ready, [this, chunked] { run_in_chunks(chunked); },
                [chunked](std::exception_ptr error) { chunked->fail(error); }},
               CallQueue::By::thread);
  return keep(chunked->work);
}

void Backend::run_in_chunks(const std::shared_ptr<ChunkedCall>& chunked) {
  struct Part {
    int64_t begin;
    Tensors written, read;
    EventPtr ready;
  };
  const at::NoGradGuard no_grad;
  std::optional<c10::DeviceGuard> guard;
  if (chunked->streams) guard.emplace(chunked->streams->out.device());
  const int64_t length = chunked->length;
  const int64_t step = chunks_.apply(chunked->copies) ? chunked->most : length;
  chunked->left = ceil_div(length, step);
  const bool in_place = chunked->in_place;

  const auto start = [&](int64_t begin) -> Part {
    const int64_t size = std::min(step, length - begin);
    const Tensors written = narrow(chunked->written.rows, begin, size);
    const Tensors read = in_place ? Tensors() : narrow(chunked->read.rows, begin, size);
    if (!chunked->copies) return {begin, written, read, nullptr};
    chunked->slots.acquire();
    TORCH_CHECK(!chunked->broken, "an earlier part of this call has failed");
    Part part{begin, pinned_rows(written), pinned_rows(read), nullptr};
    const Tensors& from = in_place ? written : read;
    const Tensors& to = in_place ? part.written : part.read;
    if (chunked->read.given.empty()) return part;
    for (const size_t i : c10::irange(from.size())) copy_on(chunked->streams->out, to[i], from[i]);
    part.ready = record(chunked->streams->out);
    return part;
  };
  std::deque<Part> ahead;
  for (int64_t next = 0; next < length || !ahead.empty();) {
    for (; next < length && ahead.size() < kAhead; next += step) ahead.push_back(start(next));
    Part part = std::move(ahead.front());
    ahead.pop_front();
    if (part.ready) part.ready->synchronize();
    const WorkPtr inner = chunked->call(part.written, part.read);
    chunked->work->posted(inner);
    // What was read lives as long as the inner call.
    follow(
        *inner, [chunked, part] { chunked->arrive(part.written, part.begin); },
        [chunked](std::exception_ptr error) { chunked->fail(error); });
  }
}

}  // namespace ocl::distributed
