// KernelFamily::get: from compile parameters to this thread's kernel.

#include "opencl/kernel_family.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "opencl/kernel.h"
#include "opencl/platform.h"
#include "opencl/program.h"

namespace ocl {
namespace {

static_assert(sizeof(Define) == 24 && std::is_trivially_copyable_v<Define>,
              "keys are compared as bytes: there must be no padding");

struct Key {
  uint32_t family;
  int device;
  std::span<const Define> defines;
};

uint64_t hash_of(const Key& key) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  uint64_t hash = ((uint64_t{key.family} << 16) ^ static_cast<uint64_t>(key.device) ^
                   (key.defines.size() << 56)) *
                  kOdd;
  for (const Define& define : key.defines) {
    const uint64_t value =
        reinterpret_cast<uintptr_t>(define.text) ^ static_cast<uint64_t>(define.number);
    hash = ((hash ^ (hash >> 29)) + value) * kOdd;
  }
  return hash ^ (hash >> 32);
}

/// Kernels that no thread holds: those of threads that have ended. Leaked, for threads that end
/// while the process exits.
class Pool {
 public:
  static Pool& instance() {
    static auto* pool = new Pool;
    return *pool;
  }

  std::unique_ptr<Kernel> take(Program* program, const char* name) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = idle_.find({program, name});
    if (it == idle_.end() || it->second.empty()) return nullptr;
    std::unique_ptr<Kernel> kernel = std::move(it->second.back());
    it->second.pop_back();
    return kernel;
  }

  void give_back(std::unique_ptr<Kernel> kernel) {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_[{&kernel->program(), kernel->name()}].push_back(std::move(kernel));
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<Program*, std::string>, std::vector<std::unique_ptr<Kernel>>> idle_;
};

/// The kernels of one thread: open addressing, linear probing, never deleted from.
class ThreadKernels {
 public:
  ~ThreadKernels() {
    // After a fork the pool's mutex may be held by a thread that is gone.
    if (process_was_forked()) {
      for (Slot& slot : slots_) slot.kernel.release();
      return;
    }
    for (Slot& slot : slots_) {
      if (slot.kernel != nullptr) Pool::instance().give_back(std::move(slot.kernel));
    }
  }

  Kernel* find(const Key& key, uint64_t hash) const {
    if (slots_.empty()) return nullptr;
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.kernel == nullptr) return nullptr;
      if (slot.hash == hash && slot.equals(key)) return slot.kernel.get();
    }
  }

  Kernel& insert(const Key& key, uint64_t hash, std::unique_ptr<Kernel> kernel) {
    if (used_ * 2 >= slots_.size()) grow();
    Slot slot;
    slot.hash = hash;
    slot.family = key.family;
    slot.device = key.device;
    slot.defines.assign(key.defines.begin(), key.defines.end());
    slot.kernel = std::move(kernel);
    Kernel& result = *slot.kernel;
    place(std::move(slot));
    ++used_;
    return result;
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t family = 0;
    int device = 0;
    std::vector<Define> defines;
    std::unique_ptr<Kernel> kernel;  // null: free

    bool equals(const Key& key) const {
      return family == key.family && device == key.device && defines.size() == key.defines.size() &&
             (defines.empty() || std::memcmp(defines.data(), key.defines.data(),
                                             defines.size() * sizeof(Define)) == 0);
    }
  };

  void place(Slot slot) {
    size_t at = slot.hash & mask_;
    while (slots_[at].kernel != nullptr) at = (at + 1) & mask_;
    slots_[at] = std::move(slot);
  }

  void grow() {
    std::vector<Slot> old(std::max<size_t>(64, slots_.size() * 2));
    old.swap(slots_);
    mask_ = slots_.size() - 1;
    for (Slot& slot : old) {
      if (slot.kernel != nullptr) place(std::move(slot));
    }
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t used_ = 0;
};

std::string options_of(std::span<const Define> defines, const KernelFamily& family) {
  std::string options;
  for (const Define& define : defines) {
    const std::string value =
        define.text == nullptr ? std::to_string(define.number) : std::string(define.text);
    for (const char c : value) {
      if (std::isspace(static_cast<unsigned char>(c)) || c == '"') {
        throw std::runtime_error(std::string(family.file()) + ": the compile parameter " +
                                 define.name + " has white space or quotes in its value \"" +
                                 value + "\"");
      }
    }
    options += (options.empty() ? "-D" : " -D") + std::string(define.name) + "=" + value;
  }
  return options;
}

/// The name of a kernel in profiles: its name and the words among its compile parameters, mostly
/// functors and dtypes, each once.
std::string label_of(std::span<const Define> defines, const KernelFamily& family) {
  std::vector<std::string_view> words;
  for (const Define& define : defines) {
    if (define.text == nullptr) continue;
    std::string_view word = define.text;
    if (word.starts_with("op_")) word.remove_prefix(3);
    if (std::ranges::find(words, word) == words.end()) words.push_back(word);
  }
  std::string label = family.name();
  for (size_t i = 0; i < words.size(); ++i) label.append(i == 0 ? "<" : ", ").append(words[i]);
  return words.empty() ? label : label + ">";
}

Kernel& make(const KernelFamily& family, Device& device, ThreadKernels& kernels, const Key& key,
             uint64_t hash) {
  Program& program = device.programs().request(family.file(), options_of(key.defines, family));
  std::unique_ptr<Kernel> kernel = Pool::instance().take(&program, family.name());
  if (kernel == nullptr) {
    kernel = std::make_unique<Kernel>(device, program, family.name(), family.file(),
                                      label_of(key.defines, family));
  }
  return kernels.insert(key, hash, std::move(kernel));
}

}  // namespace

KernelFamily::KernelFamily(const char* file, const char* name) : file_(file), name_(name) {
  static std::atomic<uint32_t> next{0};
  id_ = next.fetch_add(1);
}

Kernel& KernelFamily::get(Device& device, std::span<const Define> defines) const {
  static thread_local ThreadKernels kernels;
  const Key key{id_, device.index(), defines};
  const uint64_t hash = hash_of(key);
  if (Kernel* kernel = kernels.find(key, hash)) {
    if (__builtin_expect(!kernel->is_made(), 0)) kernel->program().begin();
    return *kernel;
  }
  return make(*this, device, kernels, key, hash);
}

}  // namespace ocl
