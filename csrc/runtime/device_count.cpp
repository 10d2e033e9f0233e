#include "runtime/device_count.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "opencl/device.h"
#include "opencl/device_types.h"
#include "opencl/platform.h"

namespace ocl {
namespace {

std::vector<std::string>& command() {
  static auto* instance = new std::vector<std::string>;  // asked until the very end of a process
  return *instance;
}

std::string read_all(int descriptor) {
  std::string output;
  char buffer[4096];
  for (;;) {
    const ssize_t size = read(descriptor, buffer, sizeof buffer);
    if (size > 0) output.append(buffer, static_cast<size_t>(size));
    if (size == 0 || (size < 0 && errno != EINTR)) return output;
  }
}

/// The output of a program; empty if it can't be run. Its warnings come again with the first use.
std::string output_of(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  int ends[2];
  if (words.empty() || pipe2(ends, O_CLOEXEC) != 0) return {};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed =
      posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text = failed ? std::string() : read_all(ends[0]);
  close(ends[0]);
  // The program's status says no more, and may be gone where the signal of its end is ignored.
  while (!failed && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return text;
}

struct Answer {
  int count;
  std::vector<std::string> types;
};

std::optional<Answer> ask() {
  constexpr std::string_view kBefore = "\ndevices: ";
  const std::string text = output_of(command());
  const size_t found = text.rfind(kBefore);
  if (found == std::string::npos) return std::nullopt;
  std::istringstream line(text.substr(found + kBefore.size()));
  Answer answer{};
  line >> answer.count;
  for (std::string type; std::ssize(answer.types) < answer.count && line >> type;) {
    answer.types.push_back(type);
  }
  return answer;
}

/// The program's answer. It is asked once.
const std::optional<Answer>& answer_from_elsewhere() {
  static const std::optional<Answer> answer = ask();
  return answer;
}

}  // namespace

void configure_device_count(std::vector<std::string> words) { command() = std::move(words); }

int count_devices() noexcept {
  if (is_initialized() || process_was_forked()) return device_count();
  try {
    if (const auto& answer = answer_from_elsewhere()) return answer->count;
  } catch (...) {  // out of host memory
  }
  return device_count();
}

std::vector<std::string> types_of_devices() {
  if (!is_initialized() && !process_was_forked()) {
    if (const auto& answer = answer_from_elsewhere()) return answer->types;
  }
  return device_types();
}

namespace {
std::atomic<bool> known_to_autograd{false};
}  // namespace

bool autograd_knows() noexcept { return known_to_autograd.load(std::memory_order_relaxed); }
void tell_autograd() noexcept { known_to_autograd.store(true); }

}  // namespace ocl
