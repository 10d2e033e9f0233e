#include "harness.h"

#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <iterator>

namespace floor1 {

std::string work_folder;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Failure&) {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

void write_file(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Result child(const std::string& name, const std::string& environment) {
  const std::string self = fs::read_symlink("/proc/self/exe");
  const std::string command =
      "env " + environment + " timeout 120 " + self + " --child " + name + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, n);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), output};
}

std::vector<int> read_ints(Queue& queue, const void* address, size_t n) {
  std::vector<int> values(n);
  queue.read(values.data(), address, n * sizeof(int), true);
  return values;
}

}  // namespace floor1
