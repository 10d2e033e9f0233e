// Checks that only the device can make (an index read from a tensor): the kernel records the first
// failure in a buffer, skips the access, and the host raises at the next synchronisation.
//
// Offers: AssertBuffer, AssertSite, message_site(), DeviceAssertion. Device side:
// kernels/include/assert.clh.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "opencl/device.h"
#include "opencl/queue.h"

namespace ocl {

/// What a kernel's check belongs to. Objects are static; `op` is a literal ("index_select").
class AssertSite {
 public:
  explicit AssertSite(const char* op);
  uint32_t id() const { return id_; }

 private:
  uint32_t id_;
};

/// The id of a site that stands for a message of the user's (torch._assert_async) instead of an op
/// and an index. The same message gives the same id: they are kept for ever. Takes a lock.
/// Thread-safe.
uint32_t message_site(const std::string& message);

/// The first failed check since the last take().
struct DeviceAssertion {
  bool is_message;  // `op` is all there is to say
  std::string op;
  int64_t index;  // the offending value
  int64_t size;   // it had to be in [-size, size) or [0, size)
};

/// One per device. Kernels take mem() as `global int* asserts` and the site's id.
class AssertBuffer {
 public:
  explicit AssertBuffer(Device& device);
  ~AssertBuffer();

  /// The buffer to pass to a kernel that checks. A launch with it as argument marks the queue.
  cl_mem mem() const { return mem_; }
  /// Called after a synchronisation of `queue`: the first failure on the device, cleared. Costs one
  /// atomic load when no kernel with checks was launched on `queue` since the last call.
  std::optional<DeviceAssertion> take(Queue& queue);

 private:
  Device& device_;
  cl_mem mem_ = nullptr;
};

}  // namespace ocl
