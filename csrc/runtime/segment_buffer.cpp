#include "runtime/segment_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "opencl/api.h"
#include "opencl/ceil_div.h"

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
    begin_ = reinterpret_cast<void*>(round_up(first, kHugePage));
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

 private:
  size_t mapped_;
  void *start_ = nullptr, *begin_ = nullptr;
};

/// The pages of all buffers, by a number of their own. A driver may register a callback and report
/// an error all the same: whoever comes first gives the pages back, and who comes next finds none.
class LentPages {
 public:
  uintptr_t lend(std::unique_ptr<Pages> pages) {
    std::lock_guard lock(mutex_);
    pages_.emplace(++last_, std::move(pages));
    return last_;
  }
  void give_back(uintptr_t number) {
    std::unique_ptr<Pages> pages;  // unmapped without the lock
    std::lock_guard lock(mutex_);
    if (auto node = pages_.extract(number)) pages = std::move(node.mapped());
  }
  static LentPages& of_all_devices() {
    static auto* instance = new LentPages;  // callbacks may come while the process ends
    return *instance;
  }
  static void CL_CALLBACK destroyed(cl_mem, void* number) {
    of_all_devices().give_back(reinterpret_cast<uintptr_t>(number));
  }

 private:
  std::mutex mutex_;
  std::unordered_map<uintptr_t, std::unique_ptr<Pages>> pages_;
  uintptr_t last_ = 0;
};

}  // namespace

SegmentBuffer create_segment_buffer(const Device& device, size_t bytes) {
  const bool lends = device.properties().device_class == DeviceClass::cpu;
  const auto flags = CL_MEM_READ_WRITE | (lends ? CL_MEM_USE_HOST_PTR : cl_mem_flags{0});
  std::unique_ptr<Pages> pages;
  if (lends) {
    pages = std::make_unique<Pages>(bytes);
    if (pages->begin() == nullptr) throw Error("mmap", CL_MEM_OBJECT_ALLOCATION_FAILURE, &device);
  }
  void* const host = pages ? pages->begin() : nullptr;
  cl_int code = CL_SUCCESS;
  cl_mem mem = api().clCreateBuffer(device.context(), flags, bytes, host, &code);
  check(code, "clCreateBuffer", &device);
  if (!pages) return {mem, nullptr};
  LentPages& lent = LentPages::of_all_devices();
  const uintptr_t number = lent.lend(std::move(pages));
  code = api().clSetMemObjectDestructorCallback(mem, &LentPages::destroyed,
                                                reinterpret_cast<void*>(number));
  if (code == CL_SUCCESS) return {mem, host};
  api().clReleaseMemObject(mem);
  lent.give_back(number);
  throw_error("clSetMemObjectDestructorCallback", code, &device);
}

}  // namespace ocl
