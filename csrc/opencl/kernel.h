// A kernel with its arguments, and an enqueued launch of it; cheap when warm.
//
//   launch(kernel, queue, NDRange::linear(n, 128), Pointer{out}, Pointer{in}, uint32_t(n));
//
// clSetKernelArg is not thread-safe per cl_kernel, hence one Kernel per thread.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "opencl/ceil_div.h"
#include "opencl/device.h"
#include "opencl/queue.h"

namespace ocl {

class Program;

/// A kernel of this thread, with a memo of its arguments: setting the same value again is free.
/// Its program may still be on its way: then a launch waits in the queue (opencl/deferred.h).
class Kernel {
 public:
  /// `file` is for messages, and `label` what profiles call it: its name where that is empty.
  Kernel(Device& device, Program& program, std::string name, std::string file = {},
         std::string label = {});
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  /// Waits for the program. Throws Error if it does not build.
  cl_kernel handle() {
    if (__builtin_expect(handle_ == nullptr, 0)) make(/*arguments_are_set=*/false);
    return handle_;
  }
  /// Whether the driver has it: it was launched, or asked for something.
  bool is_made() const { return handle_ != nullptr; }
  Program& program() { return program_; }
  Device& device() const { return device_; }
  /// CL_KERNEL_WORK_GROUP_SIZE, and CL_KERNEL_LOCAL_MEM_SIZE; asked once, after a wait for the
  /// program.
  size_t max_work_group_size() { return handle(), max_work_group_size_; }
  size_t local_memory() { return handle(), local_memory_; }

  void set_buffer(cl_uint index, cl_mem mem) {
    // A released cl_mem's handle may name another buffer now, so remembered handles are dropped.
    const uint32_t epoch = device_.addresses().epoch();
    if (__builtin_expect(epoch != epoch_, 0)) {
      forget_buffers();
      epoch_ = epoch;
    }
    set(index, sizeof mem, &mem, kBuffer);
  }
  /// A buffer that lives for one launch: the next one may have the same handle. Graphs keep it.
  void set_sub_buffer(Queue& queue, cl_uint index, cl_mem mem);
  template <class T>
  void set_value(cl_uint index, const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
    set(index, sizeof value, &value);
  }
  /// `size` bytes whose layout is the kernel's argument type (a struct filled at run time).
  void set_bytes(cl_uint index, const void* value, size_t size) { set(index, size, value); }
  void set_local(cl_uint index, size_t bytes);
  /// Enqueues with the arguments set so far; nothing if a global size is 0. Throws Error.
  void enqueue(Queue& queue, const struct NDRange& range);
  const std::string& name() const { return name_; }

 private:
  static constexpr cl_uint kMemoArguments = 16;
  static constexpr size_t kMemoBytes = 48;
  static constexpr uint32_t kUnknown = 0;  // no argument has that size
  // Added to a size, so that what is one of them is never mistaken for another argument.
  static constexpr uint32_t kLocal = uint32_t{1} << 31, kBuffer = uint32_t{1} << 30;
  struct Memo {
    uint32_t size = kUnknown;
    std::array<unsigned char, kMemoBytes> bytes;
  };

  void set(cl_uint index, size_t size, const void* value, uint32_t kind = 0) {
    if (index < kMemoArguments && size <= kMemoBytes) {
      Memo& memo = memos_[index];
      const uint32_t tagged = kind | static_cast<uint32_t>(size);
      if (memo.size == tagged && same(memo.bytes.data(), value, size)) return;
      // A call that fails may have taken effect all the same: then nothing is known.
      memo.size = kUnknown;
      set_uncached(index, size, value);
      memo.size = tagged;
      std::memcpy(memo.bytes.data(), value, size);
      return;
    }
    set_uncached(index, size, value);
    if (__builtin_expect(Queue::records() || handle_ == nullptr, 0)) {
      remember_large(index, size, value);
    } else {
      large_forgotten_ |= uint64_t{1} << (index & 63);
    }
  }
  /// A few words: a call of memcmp would take longer than the comparison.
  static bool same(const unsigned char* a, const void* b, size_t size) {
    const auto* other = static_cast<const unsigned char*>(b);
    uint64_t difference = 0;
    for (; size >= 8; size -= 8, a += 8, other += 8) {
      uint64_t x, y;
      std::memcpy(&x, a, 8);
      std::memcpy(&y, other, 8);
      difference |= x ^ y;
    }
    for (; size > 0; --size) difference |= *a++ ^ *other++;
    return difference == 0;
  }
  void set_uncached(cl_uint index, size_t size, const void* value);
  void set_uncached_local(cl_uint index, size_t bytes);
  void forget_buffers();
  void remember_large(cl_uint index, size_t size, const void* value);
  void make(bool arguments_are_set);
  std::vector<struct KernelArgument> arguments() const;
  bool knows_all_arguments() const;
  void record(class Graph& graph, const struct NDRange& range);
  bool defer(Queue& queue, const struct NDRange& range);
  void after_first_launch(Queue& queue);
  std::string describe(const struct NDRange& range) const;

  Device& device_;
  Program& program_;
  cl_kernel handle_ = nullptr;  // null until the program is there and somebody asks
  std::string name_, file_, label_;
  size_t max_work_group_size_ = 1;
  size_t local_memory_ = 0;
  uint32_t epoch_ = 0;
  bool launched_ = false;
  bool checks_ = false;  // takes an AssertBuffer
  cl_uint asserts_index_ = 0;
  std::array<Memo, kMemoArguments> memos_;
  // While launches are recorded, the arguments that have no memo; and by index those of them that
  // were set since while nothing was recorded.
  std::map<cl_uint, std::vector<char>> large_;
  uint64_t large_forgotten_ = 0;
  // The sizes of local arguments are kept where they share out the device's memory (quirks.h).
  std::map<cl_uint, size_t> local_sizes_;
};

/// An argument as clSetKernelArg takes it.
struct KernelArgument {
  cl_uint index;
  size_t size;              // of a local argument, too
  std::vector<char> bytes;  // empty for those
};

/// A launch geometry. The global size must be a multiple of the local size; kernels check bounds. A
/// local[0] of 0 leaves the work-group size to the driver.
struct NDRange {
  cl_uint dims = 1;
  std::array<size_t, 3> global{1, 1, 1};
  std::array<size_t, 3> local{1, 1, 1};
  /// Elementary operations of the whole launch (elements, or a few multiplications), where the
  /// engine knows them: a launch of few is executed by the calling thread (Queue::immediate).
  int64_t work = kManyOperations;

  static constexpr int64_t kManyOperations = INT64_MAX;
  /// About eight microseconds of one core. A larger limit gains nothing, and at 32768 elements CPU
  /// torch shares an op among threads.
  static constexpr int64_t kFewOperations = 16384;

  NDRange of_work(int64_t operations) const {
    NDRange range = *this;
    range.work = operations;
    return range;
  }

  /// At least n work-items in work-groups of `local`.
  static NDRange linear(size_t n, size_t local) {
    return {1, {round_up(n, local), 1, 1}, {local, 1, 1}};
  }
  static NDRange grid(size_t nx, size_t ny, size_t local_x, size_t local_y) {
    return {2, {round_up(nx, local_x), round_up(ny, local_y), 1}, {local_x, local_y, 1}};
  }
  static NDRange volume(std::array<size_t, 3> n, std::array<size_t, 3> local) {
    return {
        3, {round_up(n[0], local[0]), round_up(n[1], local[1]), round_up(n[2], local[2])}, local};
  }
};

/// Enqueues a kernel whose arguments are set; what the driver says.
cl_int enqueue_kernel(Queue& queue, cl_kernel kernel, const NDRange& range,
                      const std::string& label);

/// A device address as kernel argument: takes two arguments, `global T* base, ulong byte_offset`.
/// Null gives a null buffer and 0.
struct Pointer {
  const void* address;
};
/// Several of them, one pair after the other.
struct Pointers {
  std::span<char* const> addresses;
};
/// An operand of kernels that take the one argument `ulong address` instead where the device has
/// system SVM (OCL_HAS_SYSTEM_SVM): a driver looks after every buffer at every launch.
struct SvmPointer {
  const void* address;
};
/// A `local` argument of that many bytes.
struct LocalMemory {
  size_t bytes;
};
/// An argument whose size is known at run time, such as the used part of a struct. Whatever else
/// has `bytes` and `size` counts as one, too.
struct Bytes {
  const void* bytes;
  size_t size;
};

namespace detail {
inline void set_argument(Kernel& kernel, cl_uint& index, Pointer pointer) {
  const Location location = kernel.device().addresses().find(pointer.address);
  kernel.set_buffer(index++, location.mem);
  kernel.set_value(index++, location.offset);
}
inline void set_argument(Kernel& kernel, cl_uint& index, Pointers pointers) {
  for (const void* address : pointers.addresses) set_argument(kernel, index, Pointer{address});
}
inline void set_argument(Kernel& kernel, cl_uint& index, SvmPointer pointer) {
  if (kernel.device().properties().has_system_svm) {
    kernel.set_value(index++, kernel.device().addresses().find_host(pointer.address));
  } else {
    set_argument(kernel, index, Pointer{pointer.address});
  }
}
inline void set_argument(Kernel& kernel, cl_uint& index, LocalMemory memory) {
  kernel.set_local(index++, memory.bytes);
}
inline void set_argument(Kernel& kernel, cl_uint& index, cl_mem mem) {
  kernel.set_buffer(index++, mem);
}
template <class T>
void set_argument(Kernel& kernel, cl_uint& index, const T& value) {
  if constexpr (requires { value.bytes, value.size; }) {
    kernel.set_bytes(index++, value.bytes, value.size);
  } else {
    kernel.set_value(index++, value);
  }
}
}  // namespace detail

/// Sets the arguments in order and enqueues. Throws Error.
template <class... Arguments>
void launch(Kernel& kernel, Queue& queue, const NDRange& range, const Arguments&... arguments) {
  cl_uint index = 0;
  (detail::set_argument(kernel, index, arguments), ...);
  kernel.enqueue(queue, range);
}

}  // namespace ocl
