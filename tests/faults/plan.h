// The knowledge of the loader of proxy.cpp: the plan, the calls that were counted, and the objects
// that the program holds.
//
// A plan is a line "call:which:how:number" for each fault.
//   which   the n-th call since the plan was made, from 1 on, or n+ for all from there on; for
//           questions also "what=0x1004", each time that is asked
//   how     before  the call isn't made and returns that error
//           after   the call is made and returns that error all the same
//           delay   the call takes so many milliseconds more before and after it is made
//           lost    from there on the device is gone: all calls return that error
//           event   the command of the event that the call gives out fails with that status
//           late    for so many milliseconds that event says that its command waits
//           zeros, ones, empty   the answer has no bit, every bit or nothing
//           number, text         the answer is that
// FAULTS_PLAN makes one as the process starts, FAULTS_IN names the program that it is for.
#pragma once

#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "opencl/api.h"

struct _cl_command_buffer_khr;

namespace faults {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using CommandBuffer = _cl_command_buffer_khr*;

enum class How { none, before, after, delay, lost, event, late, zeros, ones, empty, number, text };
constexpr const char* kWords[] = {"none", "before", "after", "delay", "lost",   "event",
                                  "late", "zeros",  "ones",  "empty", "number", "text"};

struct Fault {
  std::string call;
  How how = How::none;
  uint64_t from = 0, to = 0;  // calls; 0 where `what` is asked
  cl_uint what = 0;
  int number = 0;
  std::string text;

  bool strikes(std::string_view name, uint64_t count, cl_uint question) const {
    if (call != name) return false;
    return from == 0 ? question == what : count >= from && count <= to;
  }
};

/// An object that was given out, and by which call.
struct Object {
  const char* kind;
  std::string by;
  int references = 1;
  cl_int status = CL_COMPLETE;  // of an event's command, if it is to have failed
  Clock::time_point late{};     // until then an event's command waits
};

// Never destroyed: the package's threads may make calls while the process exits.
struct State {
  std::mutex mutex;
  std::vector<Fault> faults;
  std::map<std::string_view, uint64_t> counts;
  std::map<std::string_view, std::set<cl_uint>> questions;
  std::map<void*, Object> objects;
  std::vector<std::string> wrong;  // uses that no program may make
  uint64_t struck = 0;
  int lost = CL_SUCCESS;
  std::string text;  // of the last answer
};

inline State& state() {
  static auto* instance = new State;
  return *instance;
}

template <class T>
constexpr const char* kind_of() {
  if constexpr (std::is_same_v<T, cl_context>) return "cl_context";
  if constexpr (std::is_same_v<T, cl_command_queue>) return "cl_command_queue";
  if constexpr (std::is_same_v<T, cl_mem>) return "cl_mem";
  if constexpr (std::is_same_v<T, cl_program>) return "cl_program";
  if constexpr (std::is_same_v<T, cl_kernel>) return "cl_kernel";
  if constexpr (std::is_same_v<T, cl_event>) return "cl_event";
  if constexpr (std::is_same_v<T, CommandBuffer>) return "cl_command_buffer_khr";
  return nullptr;
}

constexpr bool asks(std::string_view name) {
  return name.starts_with("clGet") && name.ends_with("Info");
}

/// Tells a call its fate: the fault that strikes it, or that the device is lost.
inline Fault begin(const char* name, cl_uint question) {
  const std::string_view call = name;
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const uint64_t count = ++all.counts[call];
  if (asks(call)) all.questions[call].insert(question);
  for (const Fault& fault : all.faults) {
    if (!fault.strikes(call, count, question)) continue;
    if (fault.how == How::event || fault.how == How::late) return fault;  // if it gives one out
    ++all.struck;
    if (fault.how != How::lost) return fault;
    all.lost = fault.number;
  }
  // A lost device's driver still answers what it knows by itself, and lets go.
  const bool own = asks(call) || call.starts_with("clRelease") || call.starts_with("clRetain") ||
                   call == "clSetUserEventStatus";
  if (all.lost != CL_SUCCESS && !own) return {name, How::before, 0, 0, 0, all.lost, {}};
  return {};
}

inline void give_out(const char* kind, void* handle, const char* by) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const auto [entry, is_new] =
      all.objects.try_emplace(handle, Object{kind, by + (" " + std::to_string(all.counts[by]))});
  if (!is_new) ++entry->second.references;
}

inline void take_back(const char* kind, void* handle, const char* by) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const auto entry = all.objects.find(handle);
  if (entry == all.objects.end()) {
    all.wrong.push_back(std::string(by) + " of a " + kind + " that is not the program's");
  } else if (--entry->second.references == 0) {
    all.objects.erase(entry);
  }
}

/// Changes what is known of an event that was just given out.
inline void lie(cl_event event, const Fault& fault) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  ++all.struck;
  Object& object = all.objects[event];
  if (fault.how == How::event) object.status = fault.number;
  if (fault.how == How::late) object.late = Clock::now() + Milliseconds(fault.number);
}

/// The status of an event where that isn't the driver's.
inline cl_int status_of(cl_event event, cl_int real) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const auto entry = all.objects.find(event);
  if (entry != all.objects.end()) {
    if (Clock::now() < entry->second.late) return CL_SUBMITTED;
    if (real == CL_COMPLETE && entry->second.status != CL_COMPLETE) return entry->second.status;
  }
  return all.lost != CL_SUCCESS ? all.lost : real;
}

inline Fault fault_of(const std::string& line) {
  std::istringstream words(line);
  std::string which, how, number;
  Fault fault;
  std::getline(words, fault.call, ':');
  std::getline(words, which, ':');
  std::getline(words, how, ':');
  std::getline(words, number);
  for (size_t i = 0; i < std::size(kWords); ++i) {
    if (how == kWords[i]) fault.how = static_cast<How>(i);
  }
  fault.number = std::atoi(number.c_str());
  fault.text = number;
  if (which.starts_with("what=")) {
    fault.what = static_cast<cl_uint>(std::strtoul(which.c_str() + 5, nullptr, 0));
  } else {
    fault.from = std::strtoull(which.c_str(), nullptr, 10);
    fault.to = which.ends_with('+') ? ~uint64_t{0} : fault.from;
  }
  return fault;
}

}  // namespace faults
