#include "runtime/memory_pools.h"

#include <c10/util/Exception.h>

#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/memory_history.h"

namespace ocl {
namespace {

// Numbers aren't given again: tensors may outlive their pool, and are freed into it.
struct Table {
  std::mutex mutex;
  uint64_t last = 0;
  std::map<std::pair<c10::MempoolId_t, c10::StreamId>, c10::StreamId> numbers;
  std::vector<PoolOrigin> origins;  // by number, from kFirstPool on
  std::map<c10::MempoolId_t, int> users;
  std::map<c10::MempoolId_t, PoolOptions> options;
  int routes = 0;  // of all threads
};
Table& table() {
  static auto* instance = new Table;
  return *instance;
}

struct Route {
  c10::DeviceIndex device;
  c10::MempoolId_t pool;
};
thread_local std::vector<Route> routes_of_thread;

}  // namespace

c10::MempoolId_t new_memory_pool() {
  const std::lock_guard lock(table().mutex);
  return {0, ++table().last};
}

c10::StreamId number_of_pool(c10::MempoolId_t pool, c10::StreamId stream) {
  Table& known = table();
  const std::lock_guard lock(known.mutex);
  const auto next = kFirstPool + static_cast<c10::StreamId>(known.origins.size());
  const auto [entry, is_new] = known.numbers.try_emplace({pool, stream}, next);
  if (is_new) known.origins.push_back({pool, stream});
  return entry->second;
}

PoolOrigin origin_of_pool(c10::StreamId number) {
  if (number < kFirstPool) return {{0, 0}, number};
  const std::lock_guard lock(table().mutex);
  return table().origins.at(static_cast<size_t>(number - kFirstPool));
}

void retain_pool(c10::MempoolId_t pool) {
  const std::lock_guard lock(table().mutex);
  ++table().users[pool];
}

int release_pool(c10::MempoolId_t pool) {
  Table& known = table();
  const std::lock_guard lock(known.mutex);
  const auto entry = known.users.find(pool);
  if (entry == known.users.end()) return 0;
  if (--entry->second > 0) return entry->second;
  known.users.erase(entry);
  known.options.erase(pool);
  return 0;
}

int pool_users(c10::MempoolId_t pool) {
  const std::lock_guard lock(table().mutex);
  const auto entry = table().users.find(pool);
  return entry == table().users.end() ? 0 : entry->second;
}

void set_pool_options(c10::MempoolId_t pool, PoolOptions options) {
  const std::lock_guard lock(table().mutex);
  table().options[pool] = options;
}

PoolOptions pool_options(c10::MempoolId_t pool) {
  const std::lock_guard lock(table().mutex);
  const auto entry = table().options.find(pool);
  return entry == table().options.end() ? PoolOptions{} : entry->second;
}

std::vector<c10::StreamId> helping_pools(c10::StreamId stream) {
  Table& known = table();
  const std::lock_guard lock(known.mutex);
  std::vector<c10::StreamId> numbers;
  for (const auto& [pool, options] : known.options) {
    if (!options.use_on_oom) continue;
    const auto entry = known.numbers.find({pool, stream});
    if (entry != known.numbers.end()) numbers.push_back(entry->second);
  }
  return numbers;
}

void begin_routing(c10::DeviceIndex device, c10::MempoolId_t pool) {
  routes_of_thread.push_back({device, pool});
  const std::lock_guard lock(table().mutex);
  if (table().routes++ == 0) set_memory_mode(kRoutedMemory, true);
}

void end_routing(c10::DeviceIndex device, c10::MempoolId_t pool) {
  for (auto route = routes_of_thread.rbegin(); route != routes_of_thread.rend(); ++route) {
    if (route->device != device || route->pool != pool) continue;
    routes_of_thread.erase(std::next(route).base());
    const std::lock_guard lock(table().mutex);
    if (--table().routes == 0) set_memory_mode(kRoutedMemory, false);
    return;
  }
  TORCH_CHECK(false, "this thread's allocations don't come from the pool (", pool.first, ", ",
              pool.second, ")");
}

c10::StreamId routed_pool(c10::DeviceIndex device, c10::StreamId stream) {
  for (auto route = routes_of_thread.rbegin(); route != routes_of_thread.rend(); ++route) {
    if (route->device == device) return number_of_pool(route->pool, stream);
  }
  return stream;
}

}  // namespace ocl
