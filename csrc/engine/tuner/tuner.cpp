#include "engine/tuner/tuner.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <vector>

#include "engine/device_table.h"
#include "opencl/deferred.h"
#include "opencl/disk_cache.h"
#include "opencl/environment.h"
#include "opencl/log.h"

namespace ocl::tuner {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kDuration = 5000, kIterations = 20;
// Candidates this much slower than the best are not timed again.
constexpr double kHopeless = 1.5;
// The share of the time budget for builds and comparisons; the rest is left for timing.
constexpr double kPreparing = 0.7;
// A timing covers about so many milliseconds of runs, as many as fit.
constexpr double kTiming = 1;
constexpr int kMostRuns = 32;

/// Whether `python -m torch_ocl tune` has left its mark: what it found is used, and nothing else is
/// searched for.
bool tuned() {
  const int folder = cache_folder().path().empty() ? -1 : cache_folder().open();
  return folder >= 0 && faccessat(folder, "use_tuned", F_OK, 0) == 0;
}

Settings settings_from_environment() {
  Settings settings;
  const bool known_only = std::getenv("TORCH_OCL_TUNABLE") == nullptr && tuned();
  settings.enabled = switched_on("TORCH_OCL_TUNABLE", known_only);
  settings.tuning = switched_on("TORCH_OCL_TUNABLE_TUNING", !known_only);
  settings.duration_ms = positive_number("TORCH_OCL_TUNABLE_DURATION", kDuration);
  settings.iterations = positive_number("TORCH_OCL_TUNABLE_ITERATIONS", kIterations);
  if (const char* name = std::getenv("TORCH_OCL_TUNABLE_FILENAME")) settings.filename = name;
  return settings;
}

std::mutex& mutex() {
  static std::mutex mutex;
  return mutex;
}

/// Guarded by mutex().
Settings& shared_settings() {
  static Settings settings = settings_from_environment();
  return settings;
}

void next_epoch() {
  static uint32_t last = detail::kUnread;
  // 0 and 1 have a meaning of their own.
  last = std::max(last + 1, detail::kUnread + 1);
  detail::current_epoch.store(shared_settings().enabled ? last : detail::kOff);
}

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// One run of search().
class Search {
 public:
  Search(Queue& queue, Candidates& candidates, const Settings& limits)
      : queue_(queue), candidates_(candidates), limits_(limits) {}

  Found run() {
    queue_.finish();
    candidates_.agrees(0);
    least_.push_back(kUnknown);
    size_t best = 0;
    for (size_t known = 1, total; (total = candidates_.more(best)) > known; known = total) {
      least_.resize(total, kUnknown);
      std::vector<size_t> field{0};
      if (best != 0) field.push_back(best);
      for (size_t i = known; i < total && spent() < kPreparing; ++i) {
        if (usable(i)) field.push_back(i);
      }
      // Nothing new: there is no time for more, or none of the round serves.
      if (field.back() < known) {
        if (spent() >= kPreparing) break;
        continue;
      }
      time(field);
      for (const size_t i : field) {
        if (least_[i] < least_[best]) best = i;
      }
      trace_round(field, best);
      if (spent() >= kPreparing) break;
    }
    if (least_[0] == kUnknown) time({0});
    if (least_[best] > least_[0] * kClearlyFaster) best = 0;
    return {best, least_[best]};
  }

 private:
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();

  /// The part of the time budget that is gone.
  double spent() const {
    return milliseconds_since(start_) / static_cast<double>(limits_.duration_ms);
  }

  bool usable(size_t index) {
    std::string reason = "its result differs from the default's";
    try {
      const Undeferred here;
      if (candidates_.agrees(index)) return true;
    } catch (const std::exception& error) {
      reason = error.what();
    }
    if (verbose(Verbose::tune)) {
      trace("tune: " + candidates_.name(index) + " is discarded: " + reason);
    }
    return false;
  }

  /// Milliseconds of a run, `runs` of which follow each other.
  double time_runs(size_t index, int runs) {
    const auto start = Clock::now();
    for (int i = 0; i < runs; ++i) candidates_.run(index);
    queue_.finish();
    return milliseconds_since(start) / runs;
  }

  /// Updates the least times of the field's candidates.
  void time(const std::vector<size_t>& field) {
    queue_.finish();
    double best = kUnknown;
    // Twice: one disturbed run must not end a candidate.
    for (int pass = 0; pass < 2; ++pass) {
      for (const size_t i : field) {
        least_[i] = std::min(least_[i], time_runs(i, 1));
        best = std::min(best, least_[i]);
      }
      if (spent() >= 1) break;
    }
    for (int64_t pass = 0; pass < limits_.iterations && spent() < 1; ++pass) {
      for (const size_t i : field) {
        if (i != 0 && least_[i] > kHopeless * best) continue;
        const int runs = static_cast<int>(std::clamp(kTiming / least_[i], 1.0, double{kMostRuns}));
        least_[i] = std::min(least_[i], time_runs(i, runs));
        best = std::min(best, least_[i]);
      }
    }
  }

  void trace_round(const std::vector<size_t>& field, size_t best) const {
    if (!verbose(Verbose::tune)) return;
    for (const size_t i : field) {
      char text[32];
      std::snprintf(text, sizeof text, " %.4f ms", least_[i]);
      trace("tune: " + candidates_.name(i) + text + (i == best ? ", the best so far" : ""));
    }
  }

  Queue& queue_;
  Candidates& candidates_;
  const Settings& limits_;
  const Clock::time_point start_ = Clock::now();
  std::vector<double> least_;  // milliseconds of a run, by candidate
};

}  // namespace

namespace detail {

std::atomic<uint32_t> current_epoch{kUnread};

uint32_t read_epoch() {
  std::lock_guard<std::mutex> lock(mutex());
  if (current_epoch.load() == kUnread) next_epoch();
  return current_epoch.load();
}

}  // namespace detail

Settings settings() {
  std::lock_guard<std::mutex> lock(mutex());
  return shared_settings();
}

void change(const std::function<void(Settings&)>& edit) {
  {
    std::lock_guard<std::mutex> lock(mutex());
    edit(shared_settings());
    next_epoch();
  }
  renew_device_rows();
}

void forget_choices() {
  change([](Settings&) {});
}

Found search(Queue& queue, Candidates& candidates, const Settings& limits) {
  return Search(queue, candidates, limits).run();
}

}  // namespace ocl::tuner
