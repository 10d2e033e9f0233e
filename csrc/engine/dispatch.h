// How an engine chooses among its kernels: an ordered list of implementations, of which the first
// that does not refuse runs. TORCH_OCL_VERBOSE=dispatch prints who refused, and why, and who ran;
// TORCH_OCL_<ENGINE>=name, or torch_ocl.testing.force(), puts one in front, and
// TORCH_OCL_<ENGINE>=-name leaves one out. One that is wrong on the device is left out, too
// (quarantine.h).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "opencl/log.h"
#include "runtime/stream_table.h"

namespace ocl {

/// An implementation that is left out on a device. Lists of them end with a null name; they and
/// their reasons stay for ever.
struct LeftOutName {
  const char* name;
  const char* reason;
};

/// An entry of an engine's list. Engines whose implementations need more derive from it.
template <class Plan>
struct Implementation {
  const char* name;
  /// Why it does not take the plan; null if it does. Called at every launch: it allocates nothing.
  const char* (*refuse)(const Plan& plan);
  void (*run)(Plan& plan);
};

/// The implementations of several lists, each perhaps more than once.
template <class Implementation, size_t... sizes>
constexpr auto joined(const Implementation* const (&... lists)[sizes]) {
  std::array<const Implementation*, (sizes + ...)> all{};
  auto at = all.begin();
  ((at = std::copy(std::begin(lists), std::end(lists), at)), ...);
  return all;
}

/// An engine as the user names it, and the implementation the user forces, if any. Has static
/// storage; a launch reads one atomic of it.
class Engine {
 public:
  /// `name` is in lower case. Each of `lists` is a range of pointers to implementations; the same
  /// name may stand in several.
  template <class... Lists>
  explicit Engine(const char* name, const Lists&... lists) : name_(name) {
    (add_names(lists), ...);
    for (auto& names : left_out_) names.store(&kUnsettled, std::memory_order_relaxed);
    enter();
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const char* name() const { return name_; }
  const std::vector<const char*>& implementations() const { return implementations_; }
  /// Null if nothing is forced. The environment is read at the first call.
  const char* forced() const {
    const char* forced = forced_.load(std::memory_order_acquire);
    return __builtin_expect(forced != kUnread, 1) ? forced : read_environment();
  }
  /// The one that the environment leaves out on all devices; null if it leaves out none.
  const char* excluded() const {
    forced();
    return excluded_.load(std::memory_order_relaxed);
  }
  /// An empty name forces nothing any more. False: there is no such implementation.
  bool force(std::string_view implementation);

  /// Whether any engine may be forced to take what is for other kinds of devices.
  static void force_any(bool any) { force_any_.store(any, std::memory_order_relaxed); }
  static bool may_force_any() { return force_any_.load(std::memory_order_relaxed); }

  /// The list of what is left out on the calling thread's device; null if nothing is. The device's
  /// first call reads the list from disk, and may try kernels.
  const LeftOutName* left_out() const;
  /// Why the implementation is left out there; null if it is not.
  const char* reason_to_leave_out(const char* implementation) const {
    const LeftOutName* names = left_out();
    return __builtin_expect(names == nullptr, 1) ? nullptr : reason_among(names, implementation);
  }
  void set_left_out(int device, const LeftOutName* names) const {
    left_out_[static_cast<size_t>(device)].store(names, std::memory_order_release);
  }
  /// Says once that the implementation runs though it is left out.
  void warn_of_left_out(const char* implementation) const;

  /// All engines, in the order of their names.
  static std::vector<Engine*> all();

 private:
  template <class List>
  void add_names(const List& list) {
    for (const auto* implementation : list) add_name(implementation->name);
  }
  void add_name(const char* implementation);
  /// Enters the engine in the list of all.
  void enter();
  const char* read_environment() const;
  const char* find(std::string_view implementation) const;
  static const char* reason_among(const LeftOutName* names, std::string_view implementation);

  static constexpr char kUnread[] = "?";
  static constexpr LeftOutName kUnsettled{nullptr, nullptr};
  static std::atomic<bool> force_any_;
  const char* name_;
  std::vector<const char*> implementations_;
  mutable std::atomic<const char*> forced_ = kUnread, excluded_ = nullptr;
  mutable std::array<std::atomic<const LeftOutName*>, kMaxDevices> left_out_;
};

/// How many read what follows beside stderr: those who record, and listeners.
inline std::atomic<int> dispatch_readers = 0;
inline bool dispatch_is_traced() {
  return verbose(Verbose::dispatch) || dispatch_readers.load(std::memory_order_relaxed) != 0;
}
/// Collects the calling thread's lines for as long as it lives, so that nobody else reads them.
class DispatchListener {
 public:
  DispatchListener();
  ~DispatchListener();
  DispatchListener(const DispatchListener&) = delete;
  DispatchListener& operator=(const DispatchListener&) = delete;
  std::vector<std::string> lines;
};
/// A line of the engine for those readers.
void trace_dispatch(const Engine& engine, std::string line);
/// Lives while an engine runs what it chose, where that may choose again. So the whole choice is
/// one block: lines of engines with a block are indented by how many of them there are around.
/// Lines of others, such as those of copies, follow behind it.
class DispatchBlock {
 public:
  explicit DispatchBlock(const Engine& engine) : open_(dispatch_is_traced()) {
    if (__builtin_expect(open_, 0)) enter(engine);
  }
  ~DispatchBlock() {
    if (__builtin_expect(open_, 0)) leave();
  }
  DispatchBlock(const DispatchBlock&) = delete;
  DispatchBlock& operator=(const DispatchBlock&) = delete;

 private:
  static void enter(const Engine& engine);
  static void leave();
  bool open_;
};
/// Records the lines of all threads from now on, or no more.
void record_dispatch(bool on);
/// The lines recorded since the last call.
std::vector<std::string> take_recorded_dispatch();

/// Whether the implementation takes the plan, with a line of trace. `describe(plan)` says what it
/// is, as in "gemm 1x64x64x64 f32"; it is called for the trace alone.
template <class Chosen, class Plan, class Describe>
bool accepts(const Engine& engine, const Chosen& implementation, const Plan& plan,
             const Describe& describe) {
  const char* reason = implementation.refuse(plan);
  if (reason == nullptr) reason = engine.reason_to_leave_out(implementation.name);
  if (__builtin_expect(dispatch_is_traced(), 0)) {
    trace_dispatch(engine, std::string(describe(plan)) + ": " + implementation.name +
                               (reason ? " refuses: " : " runs") + (reason ? reason : ""));
  }
  return reason == nullptr;
}

/// A line for a name that is forced and that the list hasn't.
template <class Plan, class Describe>
void trace_other_list(const Engine& engine, const Plan& plan, const Describe& describe) {
  if (engine.forced() == nullptr || !dispatch_is_traced()) return;
  trace_dispatch(engine, std::string(describe(plan)) + ": " + engine.forced() +
                             " refuses: it is for other problems of " + engine.name());
}

/// The implementation among `list` that the user forces; null if none or another list's.
template <class List>
auto forced_among(const Engine& engine, const List& list) -> decltype(&**std::begin(list)) {
  const char* forced = engine.forced();
  if (__builtin_expect(forced == nullptr, 1)) return nullptr;
  for (const auto* implementation : list) {
    if (std::string_view(implementation->name) == forced) return implementation;
  }
  return nullptr;
}

/// Runs the last implementation of `list` that only its being left out keeps from the plan: one
/// that is named in a warning serves better than none. False if there is none.
template <class List, class Plan, class Describe>
bool run_left_out(const Engine& engine, const List& list, Plan& plan, const Describe& describe) {
  for (auto it = std::end(list); it != std::begin(list);) {
    const auto& implementation = **--it;
    if (implementation.refuse(plan) != nullptr) continue;
    engine.warn_of_left_out(implementation.name);
    if (dispatch_is_traced()) {
      trace_dispatch(engine, std::string(describe(plan)) + ": " + implementation.name + " runs");
    }
    implementation.run(plan);
    return true;
  }
  return false;
}

/// Runs the first implementation of `list` that takes the plan, but for `asked`, which refuses it.
/// False if all refuse.
template <class List, class Plan, class Describe>
bool run_in_order(const Engine& engine, const List& list, Plan& plan, const Describe& describe,
                  decltype(&**std::begin(list)) asked = nullptr) {
  for (const auto* implementation : list) {
    if (implementation != asked && accepts(engine, *implementation, plan, describe)) {
      implementation->run(plan);
      return true;
    }
  }
  return engine.left_out() != nullptr && run_left_out(engine, list, plan, describe);
}

/// Runs `asked` if it is not null and takes the plan, or else the first implementation of `list`
/// that does. Each is asked once. False if all refuse.
template <class List, class Plan, class Describe>
bool run_asked(const Engine& engine, decltype(&**std::begin(std::declval<const List&>())) asked,
               const List& list, Plan& plan, const Describe& describe) {
  if (__builtin_expect(asked != nullptr, 0) && accepts(engine, *asked, plan, describe)) {
    asked->run(plan);
    return true;
  }
  if (__builtin_expect(asked == nullptr, 1)) trace_other_list(engine, plan, describe);
  return run_in_order(engine, list, plan, describe, asked);
}

/// Runs the first implementation of `list` that takes the plan; before them the one of `all` that
/// is forced, if it takes the plan (`all` has those of other kinds of devices, too). Each is asked
/// once. The last of the list should take everything; false if all refuse.
template <class All, class List, class Plan, class Describe>
bool run_first(const Engine& engine, const All& all, const List& list, Plan& plan,
               const Describe& describe) {
  const auto* forced =
      Engine::may_force_any() ? forced_among(engine, all) : forced_among(engine, list);
  return run_asked(engine, forced, list, plan, describe);
}

/// run_first() for an engine whose devices all have one list.
template <class List, class Plan, class Describe>
bool run_first(const Engine& engine, const List& list, Plan& plan, const Describe& describe) {
  return run_first(engine, list, list, plan, describe);
}

}  // namespace ocl
