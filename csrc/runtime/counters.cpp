#include "runtime/counters.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <utility>

namespace ocl {
namespace {

// Off the warm path (each count goes with a host copy), so a lock and a map do.
class Counter {
 public:
  uint64_t add(std::string_view op) {
    std::lock_guard lock(mutex_);
    auto entry = counts_.find(op);
    if (entry == counts_.end()) entry = counts_.emplace(std::string(op), 0).first;
    return ++entry->second;
  }
  std::map<std::string, uint64_t> snapshot() {
    std::lock_guard lock(mutex_);
    return {counts_.begin(), counts_.end()};
  }
  void reset() {
    std::lock_guard lock(mutex_);
    counts_.clear();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, uint64_t, std::less<>> counts_;
};

// Leaked: ops may run while static objects are destroyed.
Counter& fallbacks() {
  static auto* counter = new Counter();
  return *counter;
}
Counter& host_staged() {
  static auto* counter = new Counter();
  return *counter;
}

std::atomic<const std::string*> announced{nullptr};  // leaked: a forked child may use it
std::atomic<bool> used{false}, ran_op{false};

/// Makes an empty file, whose name says what was done, where one is announced.
void mark(const char* work) noexcept {
  const std::string* prefix = announced.load();
  if (prefix == nullptr) return;
  // It is there if another process was first.
  const std::string file = *prefix + work;
  const int made = open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (made >= 0) close(made);
}

}  // namespace

uint64_t count_fallback(std::string_view op) { return fallbacks().add(op); }
uint64_t count_host_staged(std::string_view op) { return host_staged().add(op); }
std::map<std::string, uint64_t> fallback_counts() { return fallbacks().snapshot(); }
std::map<std::string, uint64_t> host_staged_counts() { return host_staged().snapshot(); }
void reset_fallback_counts() { fallbacks().reset(); }
void reset_host_staged_counts() { host_staged().reset(); }

void announce_use(std::string prefix) {
  announced.store(new std::string(std::move(prefix)));
  used.store(false);
}

void note_use() noexcept {
  if (!used.load(std::memory_order_relaxed) && !used.exchange(true)) mark(".ocl");
}
void note_op() noexcept {
  if (!ran_op.exchange(true)) mark(".cpu");
}

bool was_used() { return used.load(); }
bool op_ran() { return ran_op.load(); }

}  // namespace ocl
