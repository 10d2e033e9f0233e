#include "opencl/deferred.h"

#include <exception>
#include <stdexcept>
#include <utility>

#include "opencl/platform.h"
#include "opencl/program.h"
#include "opencl/queue.h"

namespace ocl {
namespace {

// A list that long is a step of a large network; a loop that never waits would make it grow.
constexpr size_t kMostCommands = 8192;

std::function<std::string()>& origin() {
  static auto* function = new std::function<std::string()>;
  return *function;
}

/// The list that the calling thread enqueues from: what it enqueues comes next.
thread_local const DeferredCommands* enqueuing = nullptr;

struct Enqueuing {
  explicit Enqueuing(const DeferredCommands* list) : before(std::exchange(enqueuing, list)) {}
  ~Enqueuing() { enqueuing = before; }
  const DeferredCommands* before;
};

bool needs_wait(const DeferredCommands::Command& command) {
  const auto* launch = std::get_if<DeferredKernel>(&command);
  return launch != nullptr && launch->program->ready() == nullptr;
}

}  // namespace

void DeferredCommands::set_origin(std::function<std::string()> function) {
  origin() = std::move(function);
}

bool DeferredCommands::enqueues() { return enqueuing != nullptr; }

bool DeferredCommands::add(Command command) {
  if (enqueuing == this) return false;
  // Before the lock is taken, since it may take Python's.
  if (needs_wait(command) && origin()) std::get<DeferredKernel>(command).origin = origin()();
  const std::lock_guard lock(mutex_);
  if (commands_.empty()) {
    if (!needs_wait(command)) return false;
    queue_.set_defers(true);
  }
  if (const auto* write = std::get_if<DeferredWrite>(&command)) held_ += write->bytes.size();
  commands_.push_back(std::move(command));
  if (commands_.size() < kMostCommands) {
    enqueue_ready();
    return true;
  }
  for (; !commands_.empty(); commands_.pop_front()) enqueue(commands_.front());
  queue_.set_defers(false);
  return true;
}

void DeferredCommands::advance() {
  if (enqueuing == this) return;
  const std::lock_guard lock(mutex_);
  if (!commands_.empty()) enqueue_ready();
}

void DeferredCommands::settle() {
  if (enqueuing == this || process_was_forked()) return;
  const std::lock_guard lock(mutex_);
  if (commands_.empty()) return;
  for (; !commands_.empty(); commands_.pop_front()) enqueue(commands_.front());
  queue_.set_defers(false);
}

void DeferredCommands::enqueue_ready() {
  for (; !commands_.empty() && !needs_wait(commands_.front()); commands_.pop_front()) {
    enqueue(commands_.front());
  }
  if (commands_.empty()) queue_.set_defers(false);
}

void DeferredCommands::enqueue(const Command& command) {
  const Enqueuing here(this);
  try {
    if (const auto* launch = std::get_if<DeferredKernel>(&command)) {
      enqueue_kernel_of(*launch);
    } else if (const auto* copy = std::get_if<DeferredCopy>(&command)) {
      queue_.copy(copy->to, copy->from, copy->bytes);
    } else if (const auto* fill = std::get_if<DeferredFill>(&command)) {
      queue_.fill(fill->to, fill->pattern.data(), fill->pattern.size(), fill->bytes);
    } else if (const auto* write = std::get_if<DeferredWrite>(&command)) {
      held_ -= write->bytes.size();
      queue_.write(write->to.mem, write->to.offset, write->bytes.data(), write->bytes.size(), true);
    }
  } catch (...) {
    queue_.fail(std::current_exception());
  }
}

void DeferredCommands::enqueue_kernel_of(const DeferredKernel& launch) {
  Device& device = queue_.device();
  cl_program program = nullptr;
  try {
    program = launch.program->wait();
  } catch (const Error& error) {
    if (launch.origin.empty()) throw;
    throw std::runtime_error(launch.origin + ": " + error.what());
  }
  cl_int code = CL_SUCCESS;
  cl_kernel kernel = api().clCreateKernel(program, launch.name.c_str(), &code);
  if (code != CL_SUCCESS) throw Error("clCreateKernel", code, &device, launch.name);
  struct Release {
    ~Release() { api().clReleaseKernel(kernel); }
    cl_kernel kernel;
  } const release{kernel};
  for (const KernelArgument& argument : launch.arguments) {
    OCL_CALL(&device, clSetKernelArg, kernel, argument.index, argument.size,
             argument.bytes.empty() ? nullptr : argument.bytes.data());
  }
  code = enqueue_kernel(queue_, kernel, launch.range, launch.label);
  if (code != CL_SUCCESS) {
    throw Error("clEnqueueNDRangeKernel", code, &device, launch.name + " of " + launch.file);
  }
  device.programs().store_after_first_launch(program, queue_);
}

}  // namespace ocl
