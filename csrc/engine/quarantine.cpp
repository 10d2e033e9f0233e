#include "engine/quarantine.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "engine/tuner/results.h"
#include "opencl/disk_cache.h"
#include "opencl/environment.h"
#include "opencl/log.h"
#include "opencl/platform.h"
#include "opencl/private_folder.h"
#include "opencl/quirks.h"
#include "runtime/stream.h"

namespace ocl::quarantine {

namespace {

constexpr std::string_view kTitle =
    "# Kernels that fail on this device. python -m torch_ocl check --forget removes the file.\n";
constexpr std::string_view kTried = "tried=";

struct State {
  bool read = false, settled = false;
  std::string tried;  // who tried the kernels: a name, or "<process> <what it tries>" until the end
  std::vector<LeftOut> left_out;
};

/// Not destroyed: threads may still launch kernels at exit.
struct States {
  std::mutex mutex;     // of all that follows
  std::mutex settling;  // one thread tries kernels, and others wait for it; taken before `mutex`
  std::array<State, kMaxDevices> by_device;
};

States& states() {
  static auto* const all = new States;
  return *all;
}

std::atomic<FirstTrial> first_trial = nullptr;
thread_local bool trying = false;

bool is_on() {
  static const bool on = switched_on("TORCH_OCL_QUARANTINE", true);
  return on;
}

/// "NAME=value" lines of what the file holds for.
std::string conditions(const Device& device) {
  std::string text;
  for (const auto& [name, value] : tuner::validators(device)) text += name + "=" + value + "\n";
  return text;
}

void parse(std::string_view text, State& state) {
  for (const std::string_view line : split_list(text, '\n')) {
    if (line.starts_with(kTried)) state.tried = line.substr(kTried.size());
    const size_t first = line.find(',');
    const size_t second = line.find(',', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    state.left_out.push_back({std::string(line.substr(0, first)),
                              std::string(line.substr(first + 1, second - first - 1)),
                              std::string(line.substr(second + 1))});
  }
}

/// The device's state, once its file was read. The caller holds States::mutex.
State& state_of(const Device& device) {
  State& state = states().by_device[static_cast<size_t>(device.index())];
  if (std::exchange(state.read, true) || !is_on()) return state;
  const std::string path = filename(device);
  const int folder = path.empty() ? -1 : cache_folder().open();
  if (folder == -1) return state;
  const FileContent content = read_private_file(folder, path.substr(path.rfind('/') + 1));
  if (!content.reason.empty()) {
    warn("the list of failing kernels in " + path + " is ignored: " + content.reason);
  }
  if (!content.text) return state;
  std::string_view text = *content.text;
  const std::string head = std::string(kTitle) + conditions(device);
  if (text.starts_with(head)) parse(text.substr(head.size()), state);
  return state;
}

/// Texts that stay.
const char* kept(const std::string& text) {
  static auto* const texts = new std::set<std::string>;
  return texts->insert(text).first->c_str();
}

/// The engine's part of a list, and what the environment leaves out. The caller holds
/// States::mutex.
const LeftOutName* names_of(const Engine& engine, const std::vector<LeftOut>& all) {
  std::vector<LeftOutName> own;
  for (const LeftOut& one : all) {
    if (one.engine == engine.name()) own.push_back({kept(one.implementation), kept(one.reason)});
  }
  if (const char* name = engine.excluded()) own.push_back({name, "the environment leaves it out"});
  if (own.empty()) return nullptr;
  auto* const list = new LeftOutName[own.size() + 1]{};  // a launch may read it at any time
  std::copy(own.begin(), own.end(), list);
  return list;
}

void publish(int device, State& state) {
  state.settled = true;
  for (Engine* engine : Engine::all())
    engine->set_left_out(device, names_of(*engine, state.left_out));
}

bool is_alive(const std::string& process) {
  const int id = std::atoi(process.c_str());
  return id > 0 && (kill(id, 0) == 0 || errno == EPERM);
}

/// Whether the device's kernels are to be tried now. The caller holds States::mutex.
bool wants_trial(const Device& device, const State& state) {
  const char* const asked = std::getenv("TORCH_OCL_FIRST_USE_CHECK");
  if (asked != nullptr && *asked != '\0') return switched_on("TORCH_OCL_FIRST_USE_CHECK", false);
  // Without a place for the outcome, every process would try.
  if (!is_on() || is_tested_driver(device.properties()) || filename(device).empty()) return false;
  if (state.tried.empty()) return true;
  const size_t space = state.tried.find(' ');
  if (space == std::string::npos || is_alive(state.tried)) return false;
  warn("a trial of " + state.tried.substr(space + 1) + " on " + device.description() +
       " did not end in an earlier process: python -m torch_ocl check finds the kernels that fail");
  return false;
}

}  // namespace

std::string filename(const Device& device) {
  if (cache_folder().path().empty()) return {};
  return cache_folder().path() + "/quarantine_" + digest(conditions(device)).hex() + ".txt";
}

std::vector<LeftOut> left_out(const Device& device) {
  const std::lock_guard lock(states().mutex);
  return state_of(device).left_out;
}

void set_left_out(const Device& device, const std::vector<LeftOut>& all) {
  const std::lock_guard lock(states().mutex);
  State& state = state_of(device);
  state.left_out = all;
  if (!trying) publish(device.index(), state);
}

std::string keep(const Device& device, const std::string& tried) {
  const std::lock_guard lock(states().mutex);
  State& state = state_of(device);
  state.tried = tried;
  const std::string path = filename(device);
  if (path.empty()) return "there is no cache folder";
  std::string text = std::string(kTitle) + conditions(device) + std::string(kTried) + tried + "\n";
  for (const LeftOut& one : state.left_out) {
    text += one.engine + "," + one.implementation + "," + one.reason + "\n";
  }
  const int folder = cache_folder().make();
  if (folder == -1) return cache_folder().reason();
  return replace_private_file(folder, path.substr(path.rfind('/') + 1), {text});
}

bool forget(const Device& device) {
  const std::lock_guard lock(states().mutex);
  State& state = state_of(device);
  state.left_out.clear();
  state.tried.clear();
  publish(device.index(), state);
  const std::string path = filename(device);
  const int folder = path.empty() ? -1 : cache_folder().open();
  return folder != -1 && unlinkat(folder, path.substr(path.rfind('/') + 1).c_str(), 0) == 0;
}

void set_first_trial(FirstTrial trial) { first_trial = trial; }

Trying::Trying() { trying = true; }
Trying::~Trying() { trying = false; }

const LeftOutName* settle(const Engine& engine) {
  Device& device = ocl::device(current_device());
  States& all = states();
  if (!trying) {
    const std::lock_guard settling(all.settling);
    bool wanted = false;
    {
      const std::lock_guard lock(all.mutex);
      State& state = state_of(device);
      wanted = !state.settled && first_trial != nullptr && wants_trial(device, state);
    }
    const bool later = wanted && !first_trial.load()(device);
    const std::lock_guard lock(all.mutex);
    State& state = state_of(device);
    if (!later && !state.settled) publish(device.index(), state);
  }
  const std::lock_guard lock(all.mutex);
  return names_of(engine, state_of(device).left_out);
}

}  // namespace ocl::quarantine
