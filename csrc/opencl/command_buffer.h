// Kernels that the driver keeps as one command (cl_khr_command_buffer), to be enqueued again and
// again at less cost than one by one.
#pragma once

#include <string>

#include "opencl/api.h"

namespace ocl {

class Device;
struct NDRange;

/// Whether replays on the device use them: where the driver has a version that is known, and they
/// are faster than launches. TORCH_OCL_COMMAND_BUFFERS=1 or 0 decides instead of the latter.
bool uses_command_buffers(const Device& device);

/// Kernels for one queue, with the arguments that they have when they are added. Executes in the
/// order in which they were added, as the in-order queue does. Keeps the queue's handle alive.
///
/// Calls throw Error, which names the driver's function. Not thread-safe.
class CommandBuffer {
 public:
  /// The device must use them: see uses_command_buffers().
  CommandBuffer(const Device& device, cl_command_queue queue);
  ~CommandBuffer();
  CommandBuffer(const CommandBuffer&) = delete;
  CommandBuffer& operator=(const CommandBuffer&) = delete;

  void add(cl_kernel kernel, const NDRange& range, const std::string& label);
  /// No kernel is added any more; from now on it can be enqueued.
  void finalize();
  /// Enqueues all kernels on queue(), also while an earlier execution is under way there.
  void enqueue();
  cl_command_queue queue() const { return queue_; }

 private:
  const Device& device_;
  const struct CommandBufferFunctions& functions_;
  cl_command_queue queue_;
  struct _cl_command_buffer_khr* handle_ = nullptr;
};

}  // namespace ocl
