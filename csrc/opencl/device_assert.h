// Checks that only the device can make (an index read from a tensor): the kernel records the first
// failure in a buffer, skips the access, and the host raises at the next synchronisation.
//
// Device side: kernels/include/assert.clh.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "opencl/device.h"
#include "opencl/queue.h"

namespace ocl {

/// The exception that the host raises for a failed check: CPU torch raises either for an index out
/// of range.
enum class Raises : uint8_t { index_error, runtime_error };

/// The place that a kernel's check belongs to. Objects are static; `op` is a literal
/// ("index_select"), and so are CPU torch's words, where it has some of its own for a wrong index
/// ("{}" stands for it), and for a negative one.
class AssertSite {
 public:
  explicit AssertSite(const char* op, Raises raises = Raises::index_error,
                      const char* words = nullptr, const char* of_negative = nullptr);
  uint32_t id() const { return id_; }

 private:
  uint32_t id_;
};

/// The id of a site that stands for a message of the user's (torch._assert_async) instead of an op
/// and an index. The same message gives the same id: they are kept for ever. Takes a lock.
/// Thread-safe.
uint32_t message_site(const std::string& message);

/// A failed check.
struct DeviceAssertion {
  bool is_message;  // `op` is all there is to say: a message, or what is wrong in CPU torch's words
  Raises raises;
  std::string op;
  int64_t index;  // the offending value
  int64_t size;   // it had to be in [-size, size) or [0, size)
};

/// The record of the kernels of one queue, so that who waits for it gets its failures and no
/// other's. Kernels take mem() of the device's buffer as `global int* asserts` and the site's id:
/// the launch puts the queue's own in its place (see Queue::asserts()).
class AssertBuffer {
 public:
  explicit AssertBuffer(Device& device);
  ~AssertBuffer();

  cl_mem mem() const { return mem_; }
  /// The first failure since the last call, cleared; reads through `queue`, and waits for it.
  std::optional<DeviceAssertion> take(Queue& queue);
  /// Makes this the record of `queue` if it is nobody's yet.
  bool claim(const Queue& queue);
  void release(const Queue& queue);

 private:
  Device& device_;
  cl_mem mem_ = nullptr;
  std::atomic<const Queue*> owner_{nullptr};
};

}  // namespace ocl
