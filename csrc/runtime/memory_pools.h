// Pools of memory apart from the streams' own: graphs', and those of torch.ocl.MemPool.
//
// DeviceCache knows a pool by a number. Numbers below kFirstPool are those of streams, whose memory
// is used in their order.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <vector>

namespace ocl {

inline constexpr c10::StreamId kFirstPool = 256;

/// The stream of pools that are used by work of several streams, one after the other.
inline constexpr c10::StreamId kAnyStream = -1;

/// A new pool's name.
c10::MempoolId_t new_memory_pool();
/// The number of a pool's memory for a stream; every call gives the same.
c10::StreamId number_of_pool(c10::MempoolId_t pool, c10::StreamId stream);

struct PoolOrigin {
  c10::MempoolId_t pool;  // {0, 0}: the stream's own memory
  c10::StreamId stream;
};
PoolOrigin origin_of_pool(c10::StreamId number);

/// Who uses a pool: while anybody does, memory that is cached for it stays its own.
void retain_pool(c10::MempoolId_t pool);
/// Returns how many still do.
int release_pool(c10::MempoolId_t pool);
int pool_users(c10::MempoolId_t pool);

struct PoolOptions {
  bool use_on_oom = false;  // other memory of the stream may come from it when there is none left
  bool no_split = false;    // every tensor has a segment of its own
};
void set_pool_options(c10::MempoolId_t pool, PoolOptions options);
PoolOptions pool_options(c10::MempoolId_t pool);
/// The numbers of the pools with use_on_oom whose memory is used on that stream.
std::vector<c10::StreamId> helping_pools(c10::StreamId stream);

/// The calling thread's allocations on a device come from a pool from now on, until as many calls
/// of end_routing; the last one counts. While any thread's do, kRoutedMemory is set.
void begin_routing(c10::DeviceIndex device, c10::MempoolId_t pool);
void end_routing(c10::DeviceIndex device, c10::MempoolId_t pool);
/// The number that the calling thread's allocations on a stream come from.
c10::StreamId routed_pool(c10::DeviceIndex device, c10::StreamId stream);

}  // namespace ocl
