#include "runtime/segment_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <memory>

#include "opencl/api.h"

namespace ocl {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;  // x86-64's, and aarch64's with pages of 4 KiB

/// Memory of the process with `bytes` that start at a huge page; gone with the object.
class Pages {
 public:
  explicit Pages(size_t bytes) : mapped_(bytes + kHugePage) {
    start_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start_ == MAP_FAILED) return;
    const auto first = reinterpret_cast<uintptr_t>(start_);
    begin_ = reinterpret_cast<void*>((first + kHugePage - 1) / kHugePage * kHugePage);
    // Advice: what the system does not take changes nothing. A forked child can't use the device:
    // without its copy, the parent's next writes need not copy pages either.
    madvise(begin_, bytes, MADV_HUGEPAGE);
    madvise(begin_, bytes, MADV_DONTFORK);
  }
  ~Pages() {
    if (begin_ != nullptr) munmap(start_, mapped_);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  /// Null if the system has no memory for it.
  void* begin() const { return begin_; }

  static void CL_CALLBACK destroy(cl_mem, void* pages) { delete static_cast<Pages*>(pages); }

 private:
  size_t mapped_;
  void *start_ = nullptr, *begin_ = nullptr;
};

}  // namespace

cl_mem create_segment_buffer(const Device& device, size_t bytes, cl_int& code) {
  if (device.properties().device_class != DeviceClass::cpu) {
    return api().clCreateBuffer(device.context(), CL_MEM_READ_WRITE, bytes, nullptr, &code);
  }
  auto pages = std::make_unique<Pages>(bytes);
  if (pages->begin() == nullptr) {
    code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return nullptr;
  }
  cl_mem mem = api().clCreateBuffer(device.context(), CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                    bytes, pages->begin(), &code);
  if (code != CL_SUCCESS) return nullptr;
  code = api().clSetMemObjectDestructorCallback(mem, &Pages::destroy, pages.get());
  if (code != CL_SUCCESS) {
    api().clReleaseMemObject(mem);
    return nullptr;
  }
  pages.release();  // the callback's
  return mem;
}

}  // namespace ocl
