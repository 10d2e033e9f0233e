// A point that a queue's later work doesn't pass until somebody lets it: a user event.
#pragma once

#include <atomic>

#include "opencl/api.h"

namespace ocl {

class Queue;

/// Closed until open(), and no longer than it lives. It is never opened as a failure: what stood at
/// a gate for ever could not raise anything. The constructor throws Error if the driver refuses.
class Gate {
 public:
  explicit Gate(Queue& queue);
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open() noexcept;

 private:
  cl_event event_ = nullptr;
  std::atomic<bool> opened_{false};
};

}  // namespace ocl
