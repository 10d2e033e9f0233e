#include "runtime/stream.h"

#include <c10/util/Exception.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <optional>

#include "opencl/device_assert.h"
#include "opencl/error.h"
#include "opencl/platform.h"
#include "runtime/memory_pools.h"
#include "runtime/stream_table.h"

namespace ocl {
namespace {

// Stream ids of a device: 0 is the default stream, then the normal and the high priority pool.
constexpr c10::StreamId kPoolSize = 32;
constexpr c10::StreamId kStreams = 1 + 2 * kPoolSize;
// Then queues that others made.
constexpr c10::StreamId kMostStreams = kFirstPool;
constexpr c10::StreamId first_of_pool(int priority) { return priority < 0 ? 1 + kPoolSize : 1; }

// The queues of one device. They live until the process ends: a tensor freed by a static
// destructor may still want to record an event on one.
struct DeviceStreams {
  std::mutex mutex;  // creation only
  std::array<std::atomic<Queue*>, kMostStreams> queues{};
  std::atomic<c10::StreamId> end{kStreams};     // of the ids in use
  std::array<std::atomic<uint32_t>, 2> next{};  // round robin position per pool
  std::atomic<int> made{0};                     // queues, or about to be
};

DeviceStreams& streams_of(c10::DeviceIndex index) {
  static auto* table = new std::array<DeviceStreams, kMaxDevices>();
  return (*table)[index];
}

// Constant-initialised and trivially destructible, so that reading it is a plain load: no guard, no
// registration of a destructor. `queues` doubles as the cache of the current stream's queue.
struct ThreadState {
  c10::DeviceIndex device = 0;
  std::array<c10::StreamId, kMaxDevices> streams{};
  std::array<Queue*, kMaxDevices> queues{};
};
constinit thread_local ThreadState state;

// In a forked child the queues belong to driver threads that no longer exist. Dropping the cached
// ones sends the next op through device(), which raises; only the forking thread survives a fork.
const bool fork_handler_installed =
    pthread_atfork(nullptr, nullptr, [] { state.queues.fill(nullptr); }) == 0;

c10::DeviceIndex resolve(c10::DeviceIndex index) { return index < 0 ? state.device : index; }

/// Checks an index against the devices there are; the error is device()'s.
c10::DeviceIndex checked(c10::DeviceIndex index) {
  index = resolve(index);
  if (index >= kMaxDevices || process_was_forked()) device(index);
  return index;
}

c10::Stream make_stream(c10::DeviceIndex index, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDeviceType, index), id);
}

/// Called before a device gets a queue. Before the second, what defer_host_copy() has put off is
/// done; from then on it puts off nothing.
void prepare_queue(DeviceStreams& streams) {
  if (++streams.made != 2) return;
  for (const auto& queue : streams.queues) {
    if (Queue* other = queue.load(std::memory_order_acquire)) other->settle();
  }
}

Queue& queue_at(c10::DeviceIndex index, c10::StreamId id) {
  Device& owner = device(index);
  DeviceStreams& streams = streams_of(index);
  const c10::StreamId end = streams.end.load(std::memory_order_acquire);
  TORCH_CHECK(id >= 0 && id < end, "ocl:", static_cast<int>(index), " has no stream ", id,
              "; ids go from 0 to ", end - 1);
  std::atomic<Queue*>& slot = streams.queues[id];
  if (Queue* queue = slot.load(std::memory_order_acquire)) return *queue;
  std::lock_guard lock(streams.mutex);
  if (Queue* queue = slot.load(std::memory_order_relaxed)) return *queue;
  const bool high = id >= first_of_pool(-1);
  prepare_queue(streams);
  auto* queue = new Queue(owner, high ? -1 : 0, id);
  slot.store(queue, std::memory_order_release);
  return *queue;
}

template <class T>
T info_of(const Device& device, cl_command_queue queue, cl_command_queue_info question) {
  T value{};
  OCL_CALL(&device, clGetCommandQueueInfo, queue, question, sizeof value, &value, nullptr);
  return value;
}

/// The first word of what an address points to; none where it can't be read. The kernel reads it,
/// since it says so where the process would crash.
std::optional<uintptr_t> first_word(const void* address) {
  int ends[2];
  if (pipe(ends) != 0) return std::nullopt;
  uintptr_t word = 0;
  const bool readable = write(ends[1], address, sizeof word) == sizeof word &&
                        read(ends[0], &word, sizeof word) == sizeof word;
  close(ends[0]);
  close(ends[1]);
  return readable ? std::optional(word) : std::nullopt;
}

/// Raises for a number that is no queue. Drivers read what they are given, whatever it is. Their
/// objects begin with the address of a table, the same one for all of a kind.
void check_is_queue(c10::DeviceIndex index, cl_command_queue queue) {
  TORCH_CHECK_VALUE(queue != nullptr, "a null pointer is no command queue");
  const auto found = first_word(queue);
  TORCH_CHECK_VALUE(found && found == first_word(queue_at(index, 0).handle()), "the number ",
                    reinterpret_cast<uintptr_t>(queue),
                    " is no command queue of ocl:", static_cast<int>(index),
                    "'s driver: it has to be a cl_command_queue");
}

template <class Visit>
void for_each_queue(c10::DeviceIndex index, Visit visit) {
  DeviceStreams& streams = streams_of(index);
  const c10::StreamId end = streams.end.load(std::memory_order_acquire);
  for (c10::StreamId id = 0; id < end; ++id) {
    if (Queue* queue = streams.queues[id].load(std::memory_order_acquire)) visit(*queue);
  }
}

std::atomic<int> debug_mode{0};
thread_local uint64_t waits = 0;

/// After a wait that an op or the program made.
void tell_of_wait() {
  ++waits;
  const int mode = debug_mode.load(std::memory_order_relaxed);
  if (C10_LIKELY(mode == 0)) return;
  TORCH_CHECK(mode != 2, "called a synchronizing OpenCL operation");
  TORCH_WARN("called a synchronizing OpenCL operation");
}

}  // namespace

c10::DeviceIndex current_device() noexcept { return state.device; }

void set_device(c10::DeviceIndex index) {
  if (index < 0 || index == state.device) return;  // c10: a negative index means "leave it"
  device(index);
  state.device = index;
}

c10::DeviceIndex exchange_device(c10::DeviceIndex index) {
  const c10::DeviceIndex previous = state.device;
  if (index >= 0 && index != previous) set_device(index);
  return previous;
}

void set_device_unchecked(c10::DeviceIndex index) noexcept {
  if (index >= 0 && index < kMaxDevices) state.device = index;
}

c10::Stream default_stream(c10::DeviceIndex index) { return make_stream(checked(index), 0); }

c10::Stream stream_from_pool(c10::DeviceIndex index, int priority) {
  index = resolve(index);
  device(index);
  auto& next = streams_of(index).next[priority < 0];
  const c10::StreamId slot = next.fetch_add(1, std::memory_order_relaxed) % kPoolSize;
  return make_stream(index, first_of_pool(priority) + slot);
}

c10::Stream stream_from_external(c10::DeviceIndex index, cl_command_queue queue) {
  index = resolve(index);
  Device& owner = device(index);
  check_is_queue(index, queue);
  TORCH_CHECK_VALUE(
      info_of<cl_context>(owner, queue, CL_QUEUE_CONTEXT) == owner.context() &&
          info_of<cl_device_id>(owner, queue, CL_QUEUE_DEVICE) == owner.id(),
      "the queue belongs to another OpenCL context or device than the tensors of ocl:",
      static_cast<int>(index), ": make it in the context of torch.ocl.pyopencl_queue()");
  const auto properties = info_of<cl_command_queue_properties>(owner, queue, CL_QUEUE_PROPERTIES);
  TORCH_CHECK_VALUE((properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0,
                    "a stream is a queue in order, this one executes out of order");
  DeviceStreams& streams = streams_of(index);
  std::lock_guard lock(streams.mutex);
  const c10::StreamId end = streams.end.load();
  for (c10::StreamId id = 0; id < end; ++id) {
    Queue* known = streams.queues[id].load();
    if (known != nullptr && known->handle() == queue) return make_stream(index, id);
  }
  TORCH_CHECK(end < kMostStreams, "ocl:", static_cast<int>(index), " has streams of ",
              kMostStreams - kStreams, " external queues already, which is as many as it can have");
  prepare_queue(streams);
  streams.queues[end].store(new Queue(owner, queue, end));
  streams.end.store(end + 1, std::memory_order_release);
  return make_stream(index, end);
}

bool defer_host_copy(Queue& queue, void* address, const void* source, size_t bytes) {
  const std::atomic<int>& made = streams_of(queue.device().index()).made;
  if (made != 1 || !queue.defer_write(address, source, bytes)) return false;
  if (made != 1) queue.settle();
  return true;
}

int priority_of(c10::Stream stream) {
  const bool high = stream.id() >= first_of_pool(-1) && stream.id() < kStreams;
  return high ? -1 : 0;
}

c10::Stream current_stream(c10::DeviceIndex index) {
  index = checked(index);
  return make_stream(index, state.streams[index]);
}

c10::Stream exchange_stream(c10::Stream stream) {
  TORCH_CHECK(stream.device_type() == kDeviceType, "expected a stream of an ocl device, got ",
              stream);
  const c10::DeviceIndex index = checked(stream.device_index());
  const c10::Stream previous = make_stream(index, state.streams[index]);
  if (stream.id() != previous.id()) {
    // The default stream is current before OpenCL is initialised; going back to it must not
    // initialise either, so its queue is looked up at the next launch.
    state.queues[index] = stream.id() == 0 ? nullptr : &queue_at(index, stream.id());
    state.streams[index] = stream.id();
  }
  return previous;
}

Queue& queue_of(c10::Stream stream) {
  TORCH_CHECK(stream.device_type() == kDeviceType, "expected a stream of an ocl device, got ",
              stream);
  return queue_at(stream.device_index(), stream.id());
}

Queue& current_queue(c10::DeviceIndex index) {
  index = resolve(index);
  if (C10_LIKELY(index < kMaxDevices)) {
    if (Queue* queue = state.queues[index]; C10_LIKELY(queue != nullptr)) return *queue;
    device(index);  // raises for an index past the last device
    return *(state.queues[index] = &queue_at(index, state.streams[index]));
  }
  device(index);
  C10_THROW_ERROR(Error, "unreachable: no such device");
}

namespace {

void raise(const std::optional<DeviceAssertion>& failure) {
  if (!failure) return;
  const std::string text =
      failure->is_message ? failure->op
                          : c10::str(failure->op, "(): index ", failure->index,
                                     " is out of range for a dimension of size ", failure->size);
  TORCH_CHECK_INDEX(failure->raises != Raises::index_error, text);
  TORCH_CHECK(false, text);
}

}  // namespace

void raise_device_assertions(Queue& queue) { raise(queue.take_assertion()); }

void raise_after_read(Queue& queue) {
  raise(queue.take_assertion());
  tell_of_wait();
}

void set_sync_debug_mode(int mode) { debug_mode = mode; }
int sync_debug_mode() { return debug_mode; }
uint64_t waits_of_thread() noexcept { return waits; }

void synchronize(c10::Stream stream) {
  raise(queue_of(stream).take_assertion(false));
  tell_of_wait();
}

void finish_device(c10::DeviceIndex index) {
  index = checked(index);
  for_each_queue(index, [](Queue& queue) { queue.finish(); });
}

void synchronize_device(c10::DeviceIndex index) {
  index = resolve(index);
  device(index);
  // All queues finish, whatever one of them has to report; what others have waits for the next
  // call.
  std::optional<DeviceAssertion> failure;
  for_each_queue(index, [&failure](Queue& queue) {
    if (failure) {
      queue.finish();
    } else {
      failure = queue.take_assertion(false);
    }
  });
  raise(failure);
}

bool stream_is_idle(c10::Stream stream) {
  const c10::DeviceIndex index = checked(stream.device_index());
  if (stream.id() < 0 || stream.id() >= kMostStreams) return queue_of(stream).idle();
  Queue* queue = streams_of(index).queues[stream.id()].load(std::memory_order_acquire);
  return queue == nullptr || queue->idle();  // no queue yet: nothing was ever enqueued
}

}  // namespace ocl
