// How an engine chooses among its kernels: an ordered list of implementations, of which the first
// that does not refuse runs. TORCH_OCL_VERBOSE=dispatch prints who refused, and why, and who ran;
// TORCH_OCL_<ENGINE>=name, or torch_ocl.testing.force(), puts one in front.
#pragma once

#include <atomic>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "opencl/log.h"

namespace ocl {

/// One way to do what a plan asks for. Engines whose implementations need more derive from it.
template <class Plan>
struct Implementation {
  const char* name;
  /// Why it does not take the plan; null if it does. Called at every launch: it allocates nothing.
  const char* (*refuse)(const Plan& plan);
  void (*run)(Plan& plan);
};

/// An engine as the user names it, and the implementation the user forces, if any. Has static
/// storage; a launch reads one atomic of it.
class Engine {
 public:
  /// `name` is in lower case. Each of `lists` is a range of pointers to implementations; the same
  /// name may stand in several.
  template <class... Lists>
  explicit Engine(const char* name, const Lists&... lists) : name_(name) {
    (add_names(lists), ...);
    enter();
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const char* name() const { return name_; }
  const std::vector<const char*>& implementations() const { return implementations_; }
  /// Null if nothing is forced. The environment is read at the first call.
  const char* forced() const {
    const char* forced = forced_.load(std::memory_order_relaxed);
    return __builtin_expect(forced != kUnread, 1) ? forced : read_environment();
  }
  /// An empty name forces nothing any more. False: there is no such implementation.
  bool force(std::string_view implementation);

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

  static constexpr char kUnread[] = "?";
  const char* name_;
  std::vector<const char*> implementations_;
  mutable std::atomic<const char*> forced_ = kUnread;
};

/// Whether anybody reads what follows: dispatch is traced to stderr, or recorded.
inline std::atomic<bool> dispatch_is_recorded = false;
inline bool dispatch_is_traced() {
  return verbose(Verbose::dispatch) || dispatch_is_recorded.load(std::memory_order_relaxed);
}
/// A line for those readers.
void trace_dispatch(std::string line);
/// Records the lines of all threads from now on, or no more.
void record_dispatch(bool on);
/// The lines recorded since the last call.
std::vector<std::string> take_recorded_dispatch();

/// Whether the implementation takes the plan, with a line of trace. `describe(plan)` says what it
/// is, as in "gemm 1x64x64x64 f32"; it is called for the trace alone.
template <class Chosen, class Plan, class Describe>
bool accepts(const Chosen& implementation, const Plan& plan, const Describe& describe) {
  const char* reason = implementation.refuse(plan);
  if (__builtin_expect(dispatch_is_traced(), 0)) {
    trace_dispatch(std::string(describe(plan)) + ": " + implementation.name +
                   (reason ? " refuses: " : " runs") + (reason ? reason : ""));
  }
  return reason == nullptr;
}

/// A line for a name that is forced and that the list hasn't.
template <class Plan, class Describe>
void trace_other_list(const Engine& engine, const Plan& plan, const Describe& describe) {
  if (engine.forced() == nullptr || !dispatch_is_traced()) return;
  trace_dispatch(std::string(describe(plan)) + ": " + engine.forced() +
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

/// Runs the first implementation of `list` that takes the plan; before them the one of `all` that
/// is forced, if it takes the plan (`all` has those of other kinds of devices, too). Each is asked
/// once. The last of the list should take everything; false if all refuse.
template <class All, class List, class Plan, class Describe>
bool run_first(const Engine& engine, const All& all, const List& list, Plan& plan,
               const Describe& describe) {
  const auto* forced = forced_among(engine, all);
  if (__builtin_expect(forced != nullptr, 0) && accepts(*forced, plan, describe)) {
    forced->run(plan);
    return true;
  }
  if (__builtin_expect(forced == nullptr, 1)) trace_other_list(engine, plan, describe);
  for (const auto* implementation : list) {
    if (implementation != forced && accepts(*implementation, plan, describe)) {
      implementation->run(plan);
      return true;
    }
  }
  return false;
}

/// run_first() for an engine whose devices all have one list.
template <class List, class Plan, class Describe>
bool run_first(const Engine& engine, const List& list, Plan& plan, const Describe& describe) {
  return run_first(engine, list, list, plan, describe);
}

}  // namespace ocl
