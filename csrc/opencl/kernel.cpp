#include "opencl/kernel.h"

#include "opencl/deferred.h"
#include "opencl/device_assert.h"
#include "opencl/graph.h"
#include "opencl/log.h"
#include "opencl/platform.h"
#include "opencl/program.h"

namespace ocl {
namespace {

std::string sizes(const std::array<size_t, 3>& values, cl_uint dims) {
  std::string text;
  for (cl_uint i = 0; i < dims; ++i) text += (i == 0 ? "" : "x") + std::to_string(values[i]);
  return text;
}

using LocalSizes = std::map<cl_uint, size_t>;

/// Bytes that local arguments of these sizes get where all launches of a kernel must have the same
/// amount of local memory (quirks.h): together all that the device has, the last one what is left.
LocalSizes filled_up(LocalSizes sizes, const Device& device, size_t own) {
  constexpr size_t kAlignment = 128;  // the most that a type asks for
  const auto rounded = [](size_t size) {
    return (size + kAlignment - 1) / kAlignment * kAlignment;
  };
  size_t taken = rounded(own);
  for (auto& [index, size] : sizes) taken += size = rounded(size);
  const size_t all = device.properties().local_memory / kAlignment * kAlignment;
  if (!sizes.empty() && taken < all) sizes.rbegin()->second += all - taken;
  return sizes;
}

}  // namespace

Kernel::Kernel(Device& device, Program& program, std::string name, std::string file,
               std::string label)
    : device_(device),
      program_(program),
      name_(std::move(name)),
      file_(std::move(file)),
      label_(label.empty() ? name_ : std::move(label)) {
  check_not_forked();
  if (program.ready() != nullptr) make(/*arguments_are_set=*/false);
}

/// The driver's kernel. Where its arguments are set, it gets them: they are a launch's. Otherwise
/// those of earlier launches are forgotten, whose buffers may be gone.
void Kernel::make(bool arguments_are_set) {
  cl_int code = CL_SUCCESS;
  cl_kernel made = api().clCreateKernel(program_.wait(), name_.c_str(), &code);
  if (code != CL_SUCCESS) throw Error("clCreateKernel", code, &device_, name_ + " of " + file_);
  if (api().clGetKernelWorkGroupInfo(made, device_.id(), CL_KERNEL_WORK_GROUP_SIZE,
                                     sizeof max_work_group_size_, &max_work_group_size_,
                                     nullptr) != CL_SUCCESS) {
    max_work_group_size_ = device_.properties().max_work_group_size;
  }
  cl_ulong local = 0;
  if (api().clGetKernelWorkGroupInfo(made, device_.id(), CL_KERNEL_LOCAL_MEM_SIZE, sizeof local,
                                     &local, nullptr) == CL_SUCCESS) {
    local_memory_ = static_cast<size_t>(local);
  }
  handle_ = made;
  if (!arguments_are_set) {
    memos_ = {};
    large_.clear();
  }
  for (const KernelArgument& argument : arguments()) {
    const void* value = argument.bytes.empty() ? nullptr : argument.bytes.data();
    const cl_int failed = api().clSetKernelArg(made, argument.index, argument.size, value);
    if (failed == CL_SUCCESS) continue;
    // Nobody knows now what the driver has.
    memos_ = {};
    large_.clear();
    check(failed, "clSetKernelArg", &device_);
  }
}

Kernel::~Kernel() {
  if (handle_ != nullptr && !process_was_forked()) api().clReleaseKernel(handle_);
}

std::string Kernel::describe(const NDRange& range) const {
  return name_ + (file_.empty() ? "" : " of " + file_) + ", global size " +
         sizes(range.global, range.dims) + ", local size " + sizes(range.local, range.dims);
}

void Kernel::set_uncached(cl_uint index, size_t size, const void* value) {
  const cl_int code =
      handle_ == nullptr ? CL_SUCCESS : api().clSetKernelArg(handle_, index, size, value);
  if (__builtin_expect(code != CL_SUCCESS, 0)) {
    throw Error("clSetKernelArg", code, &device_,
                "argument " + std::to_string(index) + " (" + std::to_string(size) + " bytes) of " +
                    name_ + (file_.empty() ? "" : " of " + file_));
  }
  if (size == sizeof(cl_mem) && !checks_) {
    // A kernel that was given the assert buffer once keeps checking with it.
    const cl_mem asserts = device_.asserts().mem();
    checks_ = std::memcmp(value, &asserts, sizeof asserts) == 0;
    asserts_index_ = index;
  }
}

void Kernel::set_local(cl_uint index, size_t bytes) {
  const bool remembered = index < kMemoArguments && bytes < kBuffer;
  const uint32_t size = kLocal | static_cast<uint32_t>(bytes);
  if (remembered && memos_[index].size == size) return;
  if (remembered) memos_[index].size = kUnknown;  // see set()
  set_uncached_local(index, bytes);
  if (remembered) memos_[index].size = size;
  // Its size is remembered, under a number that is marked.
  if (!remembered && (Queue::records() || handle_ == nullptr)) {
    remember_large(kLocal | index, sizeof bytes, &bytes);
  }
}

void Kernel::set_uncached_local(cl_uint index, size_t bytes) {
  const bool shared_out = device_.quirks().fixed_groups_lack_local_arguments;
  if (shared_out) local_sizes_[index] = bytes;
  if (handle_ == nullptr) return;
  const auto set_one = [this](cl_uint at, size_t size) {
    const cl_int code = api().clSetKernelArg(handle_, at, size, nullptr);
    if (__builtin_expect(code == CL_SUCCESS, 1)) return;
    throw Error("clSetKernelArg", code, &device_,
                "argument " + std::to_string(at) + " (" + std::to_string(size) +
                    " bytes of local memory) of " + name_ + (file_.empty() ? "" : " of " + file_));
  };
  if (!shared_out) return set_one(index, bytes);
  for (const auto& [at, size] : filled_up(local_sizes_, device_, local_memory_)) set_one(at, size);
}

void Kernel::set_sub_buffer(Queue& queue, cl_uint index, cl_mem mem) {
  queue.settle();
  handle();
  large_forgotten_ |= uint64_t{1} << (index & 63);
  set_uncached(index, sizeof mem, &mem);
  if (Graph* graph = queue.capture()) {
    if (mem != nullptr) graph->keep(mem);
    remember_large(index, sizeof mem, &mem);
  }
}

void Kernel::forget_buffers() {
  if (handle_ == nullptr) return;  // no driver has them
  for (Memo& memo : memos_) {
    if ((memo.size & kBuffer) != 0 && (memo.size & kLocal) == 0) memo.size = kUnknown;
  }
}

void Kernel::remember_large(cl_uint index, size_t size, const void* value) {
  const auto* begin = static_cast<const char*>(value);
  large_[index].assign(begin, begin + size);
  large_forgotten_ &= ~(uint64_t{1} << (index & 63));
}

/// Those that are remembered, which are all while launches are recorded.
std::vector<KernelArgument> Kernel::arguments() const {
  std::vector<KernelArgument> arguments;
  for (cl_uint index = 0; index < kMemoArguments; ++index) {
    const Memo& memo = memos_[index];
    const size_t size = memo.size & ~(kLocal | kBuffer);
    if (memo.size == kUnknown || large_.contains(index)) continue;
    if ((memo.size & kLocal) != 0) {
      arguments.push_back({index, memo.size & ~kLocal, {}});
    } else {
      const auto* begin = reinterpret_cast<const char*>(memo.bytes.data());
      arguments.push_back({index, size, {begin, begin + size}});
    }
  }
  for (const auto& [index, bytes] : large_) {
    if ((index & kLocal) == 0) {
      arguments.push_back({index, bytes.size(), bytes});
    } else {
      size_t size = 0;
      std::memcpy(&size, bytes.data(), sizeof size);
      arguments.push_back({index & ~kLocal, size, {}});
    }
  }
  if (device_.quirks().fixed_groups_lack_local_arguments) {
    LocalSizes sizes;
    for (const auto& argument : arguments) {
      if (argument.bytes.empty()) sizes.emplace(argument.index, argument.size);
    }
    sizes = filled_up(std::move(sizes), device_, local_memory_);
    for (auto& argument : arguments) {
      if (argument.bytes.empty()) argument.size = sizes[argument.index];
    }
  }
  return arguments;
}

void Kernel::record(Graph& graph, const NDRange& range) {
  graph.add_kernel(device_, program_.wait(), name_, label_, range, arguments(),
                   checks_ ? static_cast<int>(asserts_index_) : -1);
}

cl_int enqueue_kernel(Queue& queue, cl_kernel kernel, const NDRange& range,
                      const std::string& label) {
  const size_t* local = range.local[0] == 0 ? nullptr : range.local.data();
  const bool brief = range.work <= NDRange::kFewOperations && queue.has_immediate();
  cl_command_queue immediate = brief ? queue.immediate() : nullptr;
  profile::Recording recording;
  const auto enqueue = [&](cl_command_queue handle, cl_event* done) {
    const cl_int code =
        api().clEnqueueNDRangeKernel(handle, kernel, range.dims, nullptr, range.global.data(),
                                     local, 0, nullptr, recording.event(done));
    if (__builtin_expect(code == CL_SUCCESS, 1)) recording.enqueued(queue, label, range, done);
    return code;
  };
  cl_int code = CL_SUCCESS;
  if (immediate != nullptr) {
    code = enqueue(immediate, nullptr);
  } else {
    cl_event event = nullptr;
    const Queue::Submission submission(queue);
    const uint64_t before = queue.enqueued();
    code = enqueue(submission.handle(), brief ? &event : nullptr);
    if (__builtin_expect(code != CL_SUCCESS, 0)) {
      queue.count();  // it may be under way all the same
      return code;
    }
    if (event != nullptr) {
      queue.count(event, before);
    } else {
      queue.count();
    }
  }
  // A launch that waited was counted then.
  if (code == CL_SUCCESS && !DeferredCommands::enqueues()) queue.device().count_launches();
  return code;
}

void Kernel::enqueue(Queue& queue, const NDRange& range) {
  if (range.global[0] == 0 || range.global[1] == 0 || range.global[2] == 0) return;
  check_not_forked();
  if (checks_) {
    set_buffer(asserts_index_, queue.asserts().mem());
    queue.mark_checks();
  }
  if (Graph* graph = queue.capture(); __builtin_expect(graph != nullptr, 0)) {
    record(*graph, range);
    return graph->added_by(queue);
  }
  if (__builtin_expect(handle_ == nullptr || queue.defers(), 0) && defer(queue, range)) return;
  const bool traced = verbose(Verbose::launch);
  const uint64_t before = __builtin_expect(traced, 0) ? queue.enqueued() : 0;
  const cl_int code = enqueue_kernel(queue, handle_, range, label_);
  if (__builtin_expect(code != CL_SUCCESS, 0)) {
    throw Error("clEnqueueNDRangeKernel", code, &device_, describe(range));
  }
  if (__builtin_expect(!launched_, 0)) after_first_launch(queue);
  if (__builtin_expect(traced, 0)) {
    // Only what goes to the driver's threads counts as enqueued.
    const char* where = queue.enqueued() == before ? ", on the calling thread" : "";
    trace("launch: " + describe(range) + where);
  }
}

/// True if the launch waits in the queue, for its program or for what waits there. False where it
/// can be enqueued now, or where somebody wants to see it enqueued.
bool Kernel::defer(Queue& queue, const NDRange& range) {
  const bool seen = profile::on() || verbose(Verbose::launch) || Undeferred::any();
  if (seen || !queue.may_defer() || !knows_all_arguments()) {
    queue.settle();
  } else if (queue.defer({&program_, name_, file_, label_, range, arguments(), {}})) {
    device_.count_launches();
    return true;
  }
  if (handle_ == nullptr) make(/*arguments_are_set=*/true);
  return false;
}

/// Whether arguments() has all: another thread may have begun the queue's list, or released memory,
/// after some were set.
bool Kernel::knows_all_arguments() const {
  if (handle_ == nullptr) return true;
  if (large_forgotten_ != 0) return false;
  cl_uint count = 0;
  OCL_CALL(&device_, clGetKernelInfo, handle_, CL_KERNEL_NUM_ARGS, sizeof count, &count, nullptr);
  return arguments().size() == count;
}

void Kernel::after_first_launch(Queue& queue) {
  launched_ = true;
  device_.programs().store_after_first_launch(program_.ready(), queue);
}

}  // namespace ocl
