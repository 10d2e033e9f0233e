#include "opencl/device_assert.h"

#include <array>
#include <cstring>
#include <mutex>
#include <vector>

namespace ocl {
namespace {

// What kernels/include/assert.clh writes; the layout is shared with it.
struct Record {
  int32_t site = 0;  // 0: no failure
  int32_t unused = 0;
  int64_t index = 0;
  int64_t size = 0;
};
static_assert(sizeof(Record) == 24);

struct Sites {
  std::mutex mutex;
  std::vector<const char*> ops{"unknown op"};  // by id; 0 means "no failure" on the device
};

// Sites are static objects of other files, hence made before main and never destroyed.
Sites& sites() {
  static auto* instance = new Sites;
  return *instance;
}

}  // namespace

AssertSite::AssertSite(const char* op) {
  std::lock_guard<std::mutex> lock(sites().mutex);
  id_ = static_cast<uint32_t>(sites().ops.size());
  sites().ops.push_back(op);
}

AssertBuffer::AssertBuffer(Device& device) : device_(device) {
  Record empty;
  cl_int code = CL_SUCCESS;
  mem_ = api().clCreateBuffer(device.context(), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                              sizeof empty, &empty, &code);
  check(code, "clCreateBuffer", &device);
}

AssertBuffer::~AssertBuffer() {
  if (!process_was_forked()) api().clReleaseMemObject(mem_);
}

std::optional<DeviceAssertion> AssertBuffer::take(Queue& queue) {
  if (!queue.take_checks()) return std::nullopt;
  check_not_forked();
  Record record;
  OCL_CALL(&device_, clEnqueueReadBuffer, queue.handle(), mem_, CL_TRUE, 0, sizeof record, &record,
           0, nullptr, nullptr);
  if (record.site == 0) return std::nullopt;
  const Record empty;
  OCL_CALL(&device_, clEnqueueWriteBuffer, queue.handle(), mem_, CL_TRUE, 0, sizeof empty, &empty,
           0, nullptr, nullptr);
  std::lock_guard<std::mutex> lock(sites().mutex);
  const auto site = static_cast<size_t>(record.site);
  return DeviceAssertion{sites().ops[site < sites().ops.size() ? site : 0], record.index,
                         record.size};
}

}  // namespace ocl
