// Kernels that torch.compile generates (torch_ocl/inductor): what a call of one is.
//
// A call takes tensors, then numbers, and works out the launch's sizes from the numbers. Python's
// wrapper calls them (python/generated_kernel.cpp), and so does the C++ one (aoti/kernels.cpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "opencl/kernel.h"
#include "runtime/stream.h"

namespace ocl::generated {

/// How a kernel's iterations are shared out (torch_ocl/inductor/forms has the loops).
enum class Form : uint8_t {
  item_lanes,     // CPUs: a work-item walks a run of columns in a run of rows
  item_rows,      // CPUs: a work-item walks a run of rows, each reduced
  group_lanes,    // GPUs: a work-item has one vector of columns
  group_rows,     // GPUs: a work-group reduces one row
  group_columns,  // GPUs: a work-group has columns, and its lines of work-items share their rows
  group_tiles,    // GPUs: a work-group has a tile of columns and rows in local memory
};

/// By its name above. Throws std::invalid_argument for another one.
Form form_of(const std::string& name);

/// A size: a constant, or one of the numbers of the call.
struct Size {
  int64_t value = 1;
  bool is_number = false;
};

/// The facts of its calls that a kernel is made for.
struct Description {
  int device = 0;
  std::string source, name, file;
  size_t tensors = 0;
  std::string kinds;  // of the numbers: 'l' long, 'd' double, 'f' float
  std::vector<uint64_t> sites;
  Form form = Form::item_lanes;
  size_t width = 1;  // lanes
  size_t group = 1;  // work-items of a work-group, or of one of its lines
  size_t lines = 1;  // of a work-group
  Size columns, rows, length;
  int64_t work = 1;  // elementary operations for an element
};

/// The id of a device-side check's failure: an index out of range in `text`, or a message.
uint64_t assert_site(const std::string& text, bool is_message);

/// A kernel, for all threads.
class Generated {
 public:
  explicit Generated(Description description);
  ~Generated();
  Generated(const Generated&) = delete;
  Generated& operator=(const Generated&) = delete;

  const Description& description() const { return description_; }
  /// Whether the calling thread has launched it, so that a call needs no time to build it.
  bool is_ready() const;
  /// The calling thread's. Throws std::runtime_error with the driver's log if it does not build.
  Kernel& kernel() const;

 private:
  Description description_;
  size_t id_;
};

/// A call's arguments, in the order of the kernel's parameters.
class Call {
 public:
  explicit Call(const Generated& generated)
      : of_(generated.description()), kernel_(generated.kernel()), device_(kernel_.device()) {}

  void add(const at::Tensor& tensor) {
    const void* address = tensor.const_data_ptr();
    if (__builtin_expect(tensor.device().type() != kDeviceType, 0)) refuse(tensor);
    if (device_.properties().has_system_svm) {
      word(device_.addresses().find_host(address));
    } else {
      const Location location = device_.addresses().find(address);
      kernel_.set_buffer(index_++, location.mem);
      kernel_.set_value(index_++, location.offset);
    }
  }
  /// The next number, whose kind is 'l'.
  void add_integer(int64_t value) {
    if (numbers_ >= integers_.size()) {
      throw std::runtime_error("a generated kernel has too many numbers");
    }
    integers_[numbers_++] = value;
    word(value);
  }
  /// The next number, whose kind is 'd' or 'f'.
  void add_real(double value) {
    if (of_.kinds[numbers_++] == 'd') {
      word(value);
    } else {
      word(std::array<float, 2>{static_cast<float>(value), 0.0f});
    }
  }
  /// After all of them. Does nothing where there are no elements.
  void launch();

 private:
  template <class T>
  void word(T value) {
    static_assert(sizeof(T) == 8);
    if (count_ == words_.size())
      throw std::runtime_error("a generated kernel has too many operands");
    std::memcpy(&words_[count_++], &value, 8);
  }
  [[noreturn]] void refuse(const at::Tensor& tensor) const;
  int64_t value_of(const Size& size) const {
    return size.is_number ? integers_[static_cast<size_t>(size.value)] : size.value;
  }

  const Description& of_;
  Kernel& kernel_;
  Device& device_;
  cl_uint index_ = 0;
  size_t numbers_ = 0, count_ = 0;
  std::array<int64_t, 64> integers_;
  std::array<uint64_t, 480> words_;  // the struct that the kernel takes by value
};

}  // namespace ocl::generated
