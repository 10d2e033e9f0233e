#include "engine/dispatch.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace ocl {

namespace {

/// Engines enter themselves before main(), in any order.
std::vector<Engine*>& entered() {
  static std::vector<Engine*> engines;
  return engines;
}

std::string variable_of(std::string name) {
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return "TORCH_OCL_" + name;
}

struct Record {
  std::mutex mutex;
  std::vector<std::string> lines;
};

/// Not destroyed: threads may still launch kernels at exit.
Record& record() {
  static auto* const record = new Record;
  return *record;
}

}  // namespace

void trace_dispatch(std::string line) {
  if (verbose(Verbose::dispatch)) trace(line);
  if (!dispatch_is_recorded) return;
  const std::lock_guard lock(record().mutex);
  record().lines.push_back(std::move(line));
}

void record_dispatch(bool on) { dispatch_is_recorded = on; }

std::vector<std::string> take_recorded_dispatch() {
  const std::lock_guard lock(record().mutex);
  return std::exchange(record().lines, {});
}

void Engine::add_name(const char* implementation) {
  if (find(implementation) == nullptr) implementations_.push_back(implementation);
}

void Engine::enter() { entered().push_back(this); }

const char* Engine::find(std::string_view implementation) const {
  for (const char* name : implementations_) {
    if (name == implementation) return name;
  }
  return nullptr;
}

const char* Engine::read_environment() const {
  const std::string variable = variable_of(name_);
  const char* wanted = std::getenv(variable.c_str());
  const char* found = wanted == nullptr ? nullptr : find(wanted);
  const char* unread = kUnread;
  // Another thread may have read it meanwhile; one of them says what is wrong.
  if (!forced_.compare_exchange_strong(unread, found)) return unread;
  if (found == nullptr && wanted != nullptr && *wanted != '\0') {
    std::string known;
    for (const char* implementation : implementations_) known += std::string(" ") + implementation;
    warn(variable + "=" + wanted + " names none of:" + known);
  }
  return found;
}

bool Engine::force(std::string_view implementation) {
  const char* found = implementation.empty() ? nullptr : find(implementation);
  if (found == nullptr && !implementation.empty()) return false;
  forced_.store(found, std::memory_order_relaxed);
  return true;
}

std::vector<Engine*> Engine::all() {
  std::vector<Engine*> engines = entered();
  std::sort(engines.begin(), engines.end(), [](const Engine* a, const Engine* b) {
    return std::string_view(a->name()) < b->name();
  });
  return engines;
}

}  // namespace ocl
