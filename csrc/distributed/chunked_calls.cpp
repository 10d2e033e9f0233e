// Calls whose tensors are cut into chunks where the ranks have agreed on that: while one chunk is
// on the network others are copied. It also bounds the pinned memory.
//
// A call works on rows, one or one for each rank. A chunk is the same part of all of them, and a
// call of its own. Rows have one length, but for all_to_all, whose longest one decides.
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ScopeExit.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <deque>
#include <numeric>

#include "distributed/follow.h"
#include "distributed/rows.h"
#include "distributed/staged.h"
#include "opencl/ceil_div.h"
#include "runtime/stream.h"

namespace ocl::distributed {
namespace {

// Chunks that are copied out ahead of the one that is sent.
constexpr size_t kAhead = 2;

/// Narrows all rows to the same part, where they have it.
Tensors narrow(const Tensors& rows, int64_t begin, int64_t length) {
  Tensors parts;
  for (const at::Tensor& row : rows) {
    const int64_t from = std::min(begin, row.numel());
    parts.push_back(row.narrow(0, from, std::min(length, row.numel() - from)));
  }
  return parts;
}

int64_t bytes_of(const Tensors& parts) {
  int64_t bytes = 0;
  for (const at::Tensor& part : parts) bytes += static_cast<int64_t>(part.nbytes());
  return bytes;
}

/// The host's memory for parts of rows, which lie one after the other in it.
Tensors host_rows(const Tensors& parts, bool pinned) {
  if (parts.empty()) return {};
  const std::vector<int64_t> sizes = sizes_of(parts);
  return at::empty({std::accumulate(sizes.begin(), sizes.end(), int64_t{0})},
                   at::TensorOptions(parts[0].scalar_type()).device(at::kCPU).pinned_memory(pinned))
      .split_with_sizes(sizes);
}

at::Tensor in_a_row(const at::Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().contiguous().view({-1});
}

}  // namespace

struct Staged::ChunkedCall {
  /// Tensors of a call, and their elements as rows.
  struct Side {
    Tensors given;
    Tensors flat;  // of each: its own memory, that of a copy, or what is lent
    Tensors rows;

    /// To rows of that length; 0: each is one.
    void cut(int64_t length) {
      if (length == 0) rows = flat;
      for (const at::Tensor& tensor : flat) {
        if (length == 0) break;
        for (at::Tensor& row : tensor.view({-1, length}).unbind()) rows.push_back(std::move(row));
      }
    }
  };

  RowsCall call, whole;
  std::function<void()> finish;
  c10::intrusive_ptr<Work> work;
  std::function<void(std::exception_ptr)> failed;
  Side read, written;
  bool in_place = false;         // what is written is what was read
  bool copies = false;           // through pinned memory
  bool uneven = false;           // rows of any lengths, and parts that lie one after the other
  int64_t length = 0, most = 0;  // elements of a row, and of its part in a chunk
  std::shared_ptr<void> behind;  // until the last chunk has its memory
  std::optional<Streams> streams;
  std::atomic<int64_t> left{0};
  std::atomic<bool> broken{false};

  struct Part {
    int64_t begin;
    Tensors written, read;
    bool own_memory = false;  // not that of the rows
    PinnedBudget::SharePtr pinned = nullptr;
    EventPtr ready = nullptr;
  };

  void fail(std::exception_ptr error) {
    broken = true;
    failed(error);
  }
  /// The last chunk completes the work.
  void arrive(const Part& part) {
    const at::NoGradGuard no_grad;
    std::optional<c10::StreamGuard> on;
    if (streams) on.emplace(streams->in);
    for (const size_t i : c10::irange(part.own_memory ? part.written.size() : 0)) {
      const at::Tensor& host = part.written[i];
      if (host.numel() == 0) continue;
      const at::Tensor to = written.rows[i].narrow(0, part.begin, host.numel());
      if (copies) {
        copy_on(streams->in, to, host);
      } else {
        to.copy_(host);
      }
    }
    if (part.pinned) {
      for (const Tensors* hosts : {&part.written, &part.read}) {
        if (!hosts->empty()) release(hosts->front());
      }
      part.pinned->give_back({record(streams->in), record(streams->out)});
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

bool Staged::may_be_cut(const RowsRequest& rows) const {
  if (rows.length == 0 || (rows.read.empty() && rows.written.empty())) return false;
  const at::Tensor& first = rows.read.empty() ? rows.written[0] : rows.read[0];
  const auto fits = [&first, size = rows.length](const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided && tensor.scalar_type() == first.scalar_type() &&
           tensor.device() == first.device() && tensor.numel() % size == 0;
  };
  return std::ranges::all_of(rows.read, fits) && std::ranges::all_of(rows.written, fits) &&
         chunks_.may_apply(rows.rows * rows.length * static_cast<int64_t>(first.element_size()));
}

WorkPtr Staged::run_rows(const Request& request, const RowsRequest& rows, const RowsCall& call,
                         const Prepare& prepare) {
  return may_be_cut(rows) ? run_cut(request, rows, call) : run(request, prepare);
}

WorkPtr Staged::run_cut(const Request& request, const RowsRequest& rows, const RowsCall& call) {
  const at::NoGradGuard no_grad;
  const c10::InferenceMode off(false);
  auto chunked = std::make_shared<ChunkedCall>();
  chunked->call = call;
  chunked->whole = rows.whole ? rows.whole : call;
  chunked->finish = request.finish;
  chunked->in_place = rows.in_place;
  chunked->uneven = rows.uneven;
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
    side->cut(rows.uneven ? 0 : rows.length);
  }
  if (chunked->copies) {
    on.reset();
    ready = record(chunked->streams->out);
    ready->block(chunked->streams->in);
  }
  chunked->work = make_work(request, device);
  chunked->failed = failing(chunked->work);
  PinnedBudget::Turn turn;
  if (chunked->copies) turn = pinned_->enter_in_pieces();
  chunked->behind = std::move(turn.behind);
  queue_->push({ready, [this, chunked] { run_in_chunks(chunked); },
                [chunked](std::exception_ptr error) { chunked->fail(error); }},
               CallQueue::By::thread, std::move(turn.order));
  return keep(chunked->work);
}

void Staged::run_in_chunks(const std::shared_ptr<ChunkedCall>& chunked) {
  using Part = ChunkedCall::Part;
  // Later calls may have what is free once this one is done or has failed.
  const auto line = c10::make_scope_exit([&] { chunked->behind.reset(); });
  const at::NoGradGuard no_grad;
  std::optional<c10::DeviceGuard> guard;
  if (chunked->streams) guard.emplace(chunked->streams->out.device());
  const bool cut = chunks_.apply(chunked->copies);
  int64_t length = chunked->length;
  if (cut && chunked->uneven) length = chunks_.largest(length);
  length = std::max<int64_t>(length, 1);
  const int64_t step = cut ? chunked->most : length;
  chunked->left = ceil_div(length, step);
  const bool in_place = chunked->in_place;

  // None: there is no memory, and the first chunk waits for some.
  const auto start = [&](int64_t begin, bool first) -> std::optional<Part> {
    const int64_t size = std::min(step, length - begin);
    const Tensors written = narrow(chunked->written.rows, begin, size);
    const Tensors read = in_place ? Tensors() : narrow(chunked->read.rows, begin, size);
    const bool copies = chunked->copies;
    if (!copies && (!chunked->uneven || (joined(written).defined() && joined(read).defined()))) {
      return Part{begin, written, read};
    }
    Part part{begin, {}, {}, true};
    if (copies) {
      const int64_t bytes = bytes_of(written) + bytes_of(read);
      part.pinned = first ? pinned_->take(bytes) : pinned_->try_take(bytes);
      if (!part.pinned) return std::nullopt;
      TORCH_CHECK(!chunked->broken, "an earlier part of this call has failed");
    }
    part.written = host_rows(written, copies);
    part.read = host_rows(read, copies);
    if (chunked->read.given.empty()) return part;
    const Tensors& from = in_place ? written : read;
    const Tensors& to = in_place ? part.written : part.read;
    for (const size_t i : c10::irange(from.size())) {
      if (copies) {
        copy_on(chunked->streams->out, to[i], from[i]);
      } else {
        at::Tensor(to[i]).copy_(from[i]);
      }
    }
    if (copies) part.ready = record(chunked->streams->out);
    return part;
  };
  std::deque<Part> ahead;
  for (int64_t next = 0; next < length || !ahead.empty();) {
    for (; next < length && ahead.size() < kAhead; next += step) {
      auto part = start(next, ahead.empty());
      if (!part) break;
      ahead.push_back(std::move(*part));
    }
    if (next >= length) chunked->behind.reset();
    Part part = std::move(ahead.front());
    ahead.pop_front();
    if (part.ready) part.ready->synchronize();
    const WorkPtr inner = (cut ? chunked->call : chunked->whole)(part.written, part.read);
    chunked->work->posted(inner);
    // The memory that was read lives as long as the inner call.
    follow(
        inner, [chunked, part] { chunked->arrive(part); },
        [chunked](std::exception_ptr error) { chunked->fail(error); });
  }
}

}  // namespace ocl::distributed
