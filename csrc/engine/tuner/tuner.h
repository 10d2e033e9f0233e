// Finds the fastest of several ways to compute the same, within a time budget.
//
// Results are kept by results.h; gemm/tuning.cpp shows how an engine uses both.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <unordered_map>

#include "opencl/queue.h"

namespace ocl::tuner {

/// Settings of torch.ocl.tunable; at first as the environment says.
struct Settings {
  bool enabled = false;       // what was found is used (TORCH_OCL_TUNABLE=1)
  bool tuning = true;         // and what was not is searched for (TORCH_OCL_TUNABLE_TUNING=0: not)
  int64_t duration_ms = 0;    // of one search, builds included (TORCH_OCL_TUNABLE_DURATION)
  int64_t iterations = 0;     // timings of one candidate, at most (TORCH_OCL_TUNABLE_ITERATIONS)
  std::string filename;       // of the results; empty: in the cache folder (.._FILENAME)
  bool insert_index = false;  // the device's index goes in front of the file name's extension
};

Settings settings();
/// Changes them under their lock, and makes what threads remember of results invalid.
void change(const std::function<void(Settings&)>& edit);
/// For results that came in otherwise.
void forget_choices();

namespace detail {
inline constexpr uint32_t kOff = 0, kUnread = 1;
extern std::atomic<uint32_t> current_epoch;
uint32_t read_epoch();
}  // namespace detail

/// 0 while tuning is off, which costs one load; else a number that changes whenever what a thread
/// remembers may be wrong.
inline uint32_t epoch() {
  const uint32_t epoch = detail::current_epoch.load(std::memory_order_relaxed);
  return __builtin_expect(epoch != detail::kUnread, 1) ? epoch : detail::read_epoch();
}

/// Another candidate must take less than this share of the default's time: less is noise.
inline constexpr double kClearlyFaster = 0.97;

/// Candidates that compute the same. Number 0 is the default, what would run without a tuner.
class Candidates {
 public:
  virtual ~Candidates() = default;
  /// Adds those of a further round, given the best so far, and returns how many there are now. As
  /// many as before: there are no more.
  virtual size_t more(size_t best) = 0;
  /// For traces.
  virtual std::string name(size_t index) const = 0;
  /// Enqueues one run whose result nobody else sees.
  virtual void run(size_t index) = 0;
  /// Runs it and says whether its result is the default's but for rounding. The first call is for
  /// number 0.
  virtual bool agrees(size_t index) = 0;
};

struct Found {
  size_t best = 0;
  double milliseconds = 0;  // of one run of it
};

/// The fastest candidate by wall time on a queue that was idle before: the least of several
/// timings, in turns with the other candidates', so that a busy moment harms none of them alone.
/// Those that don't agree, fail or don't build are discarded. The default stays unless another is
/// clearly faster. Past the time budget nothing is begun, but what is under way (a build, a run)
/// ends. Throws what the default's own run throws.
Found search(Queue& queue, Candidates& candidates, const Settings& limits);

/// A thread's memory of choices: no lock, no string. Keys are compared as bytes.
template <class Key, class Choice>
class TunedTable {
  static_assert(std::has_unique_object_representations_v<Key>);

 public:
  const Choice* find(const Key& key, uint32_t epoch) {
    if (epoch != epoch_) {
      choices_.clear();
      epoch_ = epoch;
    }
    const auto found = choices_.find(key);
    return found == choices_.end() ? nullptr : &found->second;
  }
  /// For the epoch of the last find().
  const Choice& insert(const Key& key, const Choice& choice) {
    return choices_.insert_or_assign(key, choice).first->second;
  }

 private:
  struct Hash {
    size_t operator()(const Key& key) const {
      static_assert(sizeof(Key) % 8 == 0);
      constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
      uint64_t words[sizeof(Key) / 8], hash = 0;
      std::memcpy(words, &key, sizeof key);
      for (const uint64_t word : words) hash = ((hash ^ (hash >> 29)) + word) * kOdd;
      return hash ^ (hash >> 32);
    }
  };
  struct Equal {
    bool operator()(const Key& a, const Key& b) const { return !std::memcmp(&a, &b, sizeof a); }
  };
  std::unordered_map<Key, Choice, Hash, Equal> choices_;
  uint32_t epoch_ = 0;
};

}  // namespace ocl::tuner
