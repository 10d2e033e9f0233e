// Floor 1's tests share these: assertions, files, child processes, device memory.
#pragma once

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "opencl/device.h"
#include "opencl/queue.h"

namespace floor1 {

namespace fs = std::filesystem;
using namespace ocl;

extern std::string work_folder;  // kernels and caches of this run

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

#define REQUIRE(condition)                                                                     \
  do {                                                                                         \
    if (!(condition))                                                                          \
      throw Failure(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " #condition); \
  } while (false)

bool contains(const std::string& text, const std::string& part);

#define REQUIRE_CONTAINS(text, part)                                                              \
  do {                                                                                            \
    const std::string text_ = (text);                                                             \
    if (!contains(text_, part))                                                                   \
      throw Failure(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": no \"" + (part) + \
                    "\" in \"" + text_ + "\"");                                                   \
  } while (false)

/// The message of what `action` throws; a failed REQUIRE in it is passed on.
std::string message_of(const std::function<void()>& action);

void write_file(const std::string& path, const std::string& text);
std::string read_file(const std::string& path);

struct Result {
  int code;
  std::string output;  // stdout and stderr
};
/// Runs this program as the named child (children.cpp) with extra environment, "A=1 B=2".
Result child(const std::string& name, const std::string& environment = {});

/// Device memory mapped in the address space, as an allocator's segment is.
class Memory {
 public:
  Memory(Device& device, size_t bytes) : device_(device) {
    cl_int code;
    mem_ = api().clCreateBuffer(device.context(), CL_MEM_READ_WRITE, bytes, nullptr, &code);
    check(code, "clCreateBuffer", &device);
    address_ = static_cast<char*>(device.addresses().map(mem_, bytes));
  }
  ~Memory() {
    device_.addresses().unmap(address_);
    api().clReleaseMemObject(mem_);
  }
  char* at(size_t offset = 0) const { return address_ + offset; }

 private:
  Device& device_;
  cl_mem mem_;
  char* address_;
};

std::vector<int> read_ints(Queue& queue, const void* address, size_t n);
/// The device's number as text, for environments and file names.
inline std::string index_text(const Device& device) { return std::to_string(device.index()); }

}  // namespace floor1
