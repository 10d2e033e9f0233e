#include "opencl/build_progress.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "opencl/build_workers.h"
#include "opencl/compiler.h"
#include "opencl/disk_cache.h"
#include "opencl/log.h"

namespace ocl {
namespace {

struct State {
  std::mutex mutex;
  std::condition_variable idle;
  int threads = 0;
  std::chrono::steady_clock::time_point since;   // the first of them began
  std::chrono::steady_clock::duration before{};  // with at least one thread, until then
  bool said = false, watched = false;
};

// Leaked: a thread may wait for it at exit.
State& state() {
  static auto* one = new State();
  return *one;
}

void watch(const std::string& name, bool kept) {
  constexpr std::chrono::seconds kPatience{2};
  State& state = ocl::state();
  std::unique_lock lock(state.mutex);
  const auto due = state.since + (kPatience - state.before);
  state.said = !state.idle.wait_until(lock, due, [&] { return state.threads == 0; });
  state.watched = false;
  if (!state.said) return;
  const uint64_t built = program_stats().built.load();
  const uint64_t known =
      built + BuildWorkers::instance().outstanding() + static_cast<uint64_t>(state.threads);
  trace(
      "building kernels for " + name + ", " + std::to_string(built) + " of " +
      std::to_string(known) + " so far" +
      (kept ? ". This happens once: the next run will find them in " + cache_folder().path() : ""));
}

}  // namespace

Building::Building(const Device& device, bool kept) {
  const std::lock_guard lock(state().mutex);
  if (state().threads++ == 0) state().since = std::chrono::steady_clock::now();
  if (state().said || state().watched || isatty(STDERR_FILENO) == 0) return;
  state().watched = true;
  std::thread(watch, device.properties().name, kept).detach();
}

Building::~Building() {
  const std::lock_guard lock(state().mutex);
  if (--state().threads > 0) return;
  state().before += std::chrono::steady_clock::now() - state().since;
  state().idle.notify_all();
}

}  // namespace ocl
