#include "engine/dispatch.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <mutex>
#include <set>
#include <utility>

#include "engine/quarantine.h"
#include "runtime/stream.h"

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
  bool on = false;
  std::vector<std::string> lines;
};

thread_local DispatchListener* listener = nullptr;

/// The blocks that are open on this thread, by their engines, and the lines that follow behind.
struct Blocks {
  std::vector<const Engine*> engines;
  std::vector<std::string> behind;
};

Blocks& blocks() {
  static thread_local Blocks blocks;
  return blocks;
}

/// Not destroyed: threads may still launch kernels at exit.
Record& record() {
  static auto* const record = new Record;
  return *record;
}

}  // namespace

std::atomic<bool> Engine::force_any_ = true;

DispatchListener::DispatchListener() {
  listener = this;
  ++dispatch_readers;
}

DispatchListener::~DispatchListener() {
  listener = nullptr;
  --dispatch_readers;
}

namespace {

void write(std::string line) {
  if (listener != nullptr) {
    listener->lines.push_back(std::move(line));
    return;
  }
  if (verbose(Verbose::dispatch)) trace(line);
  const std::lock_guard lock(record().mutex);
  if (record().on) record().lines.push_back(std::move(line));
}

}  // namespace

void trace_dispatch(const Engine& engine, std::string line) {
  constexpr size_t kIndent = 2;
  auto& [engines, behind] = blocks();
  if (engines.empty()) return write(std::move(line));
  if (std::ranges::find(engines, &engine) == engines.end())
    return behind.push_back(std::move(line));
  write(std::string(kIndent * (engines.size() - 1), ' ') + line);
}

void DispatchBlock::enter(const Engine& engine) { blocks().engines.push_back(&engine); }

void DispatchBlock::leave() {
  auto& [engines, behind] = blocks();
  engines.pop_back();
  if (!engines.empty()) return;
  for (std::string& line : std::exchange(behind, {})) write(std::move(line));
}

void record_dispatch(bool on) {
  const std::lock_guard lock(record().mutex);
  dispatch_readers += static_cast<int>(on) - static_cast<int>(std::exchange(record().on, on));
}

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
  const bool excludes = wanted != nullptr && *wanted == '-';
  const char* found = wanted == nullptr ? nullptr : find(excludes ? wanted + 1 : wanted);
  if (excludes) excluded_.store(found, std::memory_order_relaxed);
  const char* forced = excludes ? nullptr : found;
  const char* unread = kUnread;
  // Another thread may have read it meanwhile; one of them says what is wrong.
  if (!forced_.compare_exchange_strong(unread, forced)) return unread;
  if (found == nullptr && wanted != nullptr && *wanted != '\0') {
    std::string known;
    for (const char* implementation : implementations_) known += std::string(" ") + implementation;
    warn(variable + "=" + wanted + " names none of:" + known);
  }
  return forced;
}

bool Engine::force(std::string_view implementation) {
  const char* found = implementation.empty() ? nullptr : find(implementation);
  if (found == nullptr && !implementation.empty()) return false;
  forced();  // what the environment leaves out stays left out
  forced_.store(found, std::memory_order_release);
  return true;
}

const LeftOutName* Engine::left_out() const {
  const auto device = static_cast<size_t>(current_device());
  const LeftOutName* names = left_out_[device].load(std::memory_order_acquire);
  return __builtin_expect(names != &kUnsettled, 1) ? names : quarantine::settle(*this);
}

const char* Engine::reason_among(const LeftOutName* names, std::string_view implementation) {
  for (; names->name != nullptr; ++names) {
    if (implementation == names->name) return names->reason;
  }
  return nullptr;
}

void Engine::warn_of_left_out(const char* implementation) const {
  static std::mutex mutex;
  static auto* const told = new std::set<std::pair<const Engine*, std::string_view>>;
  const std::lock_guard lock(mutex);
  if (!told->insert({this, implementation}).second) return;
  const std::string kernel = std::string("the kernel ") + name_ + " " + implementation;
  const std::string reason = " runs because there is no other for the problem";
  if (const char* out = excluded(); out != nullptr && std::string_view(out) == implementation) {
    warn(kernel + reason + ", though " + variable_of(name_) + " leaves it out");
    return;
  }
  warn(kernel + " is known to fail on this device, and" + reason +
       ": its results may be wrong (python -m torch_ocl check tells more)");
}

std::vector<Engine*> Engine::all() {
  std::vector<Engine*> engines = entered();
  std::sort(engines.begin(), engines.end(), [](const Engine* a, const Engine* b) {
    return std::string_view(a->name()) < b->name();
  });
  return engines;
}

}  // namespace ocl
