// A point that a queue's later work doesn't pass until somebody lets it: a user event.
#pragma once

#include "opencl/api.h"

namespace ocl {

class Queue;

/// Closed as long as it lives. The end of one is never a failure: what stood at a gate for ever
/// could not raise anything. Throws Error if the driver refuses.
class Gate {
 public:
  explicit Gate(Queue& queue);
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

 private:
  cl_event event_ = nullptr;
};

}  // namespace ocl
