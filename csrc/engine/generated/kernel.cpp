// Generated kernels: their programs, a kernel for each thread, and what a launch passes.
#include "engine/generated/kernel.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "engine/generated/geometry.h"
#include "opencl/device_assert.h"
#include "opencl/platform.h"
#include "opencl/program.h"

namespace ocl::generated {
namespace {

/// The kernels of a thread, by Generated's ids.
class ThreadKernels {
 public:
  ~ThreadKernels() {
    gone = true;
    if (!process_was_forked()) return;
    for (std::unique_ptr<Kernel>& kernel : kernels_) kernel.release();
  }
  bool has(size_t id) const { return id < kernels_.size() && kernels_[id] != nullptr; }
  Kernel& get(size_t id, const Description& of) {
    if (has(id)) return *kernels_[id];
    if (id >= kernels_.size()) kernels_.resize(id + 16);
    Device& device = ocl::device(of.device);
    Program& program = device.programs().of_text(of.file, of.source, "");
    program.wait();
    kernels_[id] = std::make_unique<Kernel>(device, program, of.name, of.file, of.name);
    return *kernels_[id];
  }
  void forget(size_t id) {
    if (id < kernels_.size()) kernels_[id].reset();
  }

  // A kernel may be a static object's, which goes after those of its thread.
  static thread_local bool gone;

 private:
  std::vector<std::unique_ptr<Kernel>> kernels_;
};
thread_local bool ThreadKernels::gone = false;
thread_local ThreadKernels thread_kernels;

/// None is given again.
size_t next_id() {
  static std::atomic<size_t> next{0};
  return next++;
}

}  // namespace

Form form_of(const std::string& name) {
  static const std::map<std::string, Form> forms{
      {"item_lanes", Form::item_lanes},       {"item_rows", Form::item_rows},
      {"group_lanes", Form::group_lanes},     {"group_rows", Form::group_rows},
      {"group_columns", Form::group_columns}, {"group_tiles", Form::group_tiles}};
  const auto found = forms.find(name);
  if (found == forms.end()) throw std::invalid_argument("no form of generated kernels: " + name);
  return found->second;
}

uint64_t assert_site(const std::string& text, bool is_message) {
  if (is_message) return message_site(text);
  static std::mutex mutex;
  static auto* sites = new std::map<std::string, const AssertSite*>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [entry, is_new] = sites->try_emplace(text, nullptr);
  if (is_new) entry->second = new AssertSite(entry->first.c_str());  // names live for ever
  return entry->second->id();
}

Generated::Generated(Description description)
    : description_(std::move(description)), id_(next_id()) {}

Generated::~Generated() {
  if (!ThreadKernels::gone && !process_was_forked()) thread_kernels.forget(id_);
}

bool Generated::is_ready() const { return thread_kernels.has(id_); }

Kernel& Generated::kernel() const { return thread_kernels.get(id_, description_); }

void Call::refuse(const at::Tensor& tensor) const {
  throw std::runtime_error(of_.name + ": expected a tensor on ocl, got one on " +
                           tensor.device().str());
}

void Call::launch() {
  const Sizes sizes{value_of(of_.columns), value_of(of_.rows), value_of(of_.length)};
  if (sizes.columns <= 0 || sizes.rows <= 0) return;
  for (const uint64_t site : of_.sites) word(site);
  const Geometry geometry =
      geometry_of(of_, device_, {sizes.columns, sizes.rows, std::max<int64_t>(sizes.length, 1)});
  word(geometry.columns_each);
  word(geometry.rows_each);
  kernel_.set_bytes(index_++, words_.data(), count_ * 8);
  if (!of_.sites.empty()) kernel_.set_buffer(index_++, device_.asserts().mem());
  kernel_.enqueue(current_queue(static_cast<c10::DeviceIndex>(of_.device)), geometry.range);
}

}  // namespace ocl::generated
