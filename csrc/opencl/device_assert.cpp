#include "opencl/device_assert.h"

#include <array>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "opencl/platform.h"

namespace ocl {
namespace {

// A record that kernels/include/assert.clh writes; the layout is shared with it.
struct Record {
  int32_t site = 0;  // 0: no failure
  int32_t none = 0;  // what the kernel compares the site with
  int64_t index = 0;
  int64_t size = 0;
};
static_assert(sizeof(Record) == 24);

struct Site {
  std::string text;
  bool is_message;
  Raises raises = Raises::index_error;
  const char *words = nullptr, *of_negative = nullptr;
};

/// The text of a failed check.
std::string describe(const Site& site, int64_t index) {
  if (site.words == nullptr) return site.text;
  std::string words = index < 0 && site.of_negative != nullptr ? site.of_negative : site.words;
  if (const size_t place = words.find("{}"); place != std::string::npos) {
    words.replace(place, 2, std::to_string(index));
  }
  return site.text + "(): " + words;
}

struct Sites {
  std::mutex mutex;
  std::vector<Site> by_id{{"unknown op", false}};  // 0 means "no failure" on the device
  std::unordered_map<std::string, uint32_t> messages;

  uint32_t add(Site site) {
    by_id.push_back(std::move(site));
    return static_cast<uint32_t>(by_id.size() - 1);
  }
};

// Sites are static objects of other files, hence made before main and never destroyed.
Sites& sites() {
  static auto* instance = new Sites;
  return *instance;
}

}  // namespace

AssertSite::AssertSite(const char* op, Raises raises, const char* words, const char* of_negative) {
  std::lock_guard<std::mutex> lock(sites().mutex);
  id_ = sites().add({op, words != nullptr, raises, words, of_negative});
}

uint32_t message_site(const std::string& message) {
  std::lock_guard<std::mutex> lock(sites().mutex);
  const auto [entry, is_new] = sites().messages.try_emplace(message, 0);
  if (is_new) entry->second = sites().add({message, true, Raises::runtime_error});
  return entry->second;
}

AssertBuffer::AssertBuffer(Device& device) : device_(device) {
  Record empty;
  cl_int code = CL_SUCCESS;
  mem_ = api().clCreateBuffer(device.context(), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                              sizeof empty, &empty, &code);
  check(code, "clCreateBuffer", &device);
}

AssertBuffer::~AssertBuffer() {
  if (!process_was_forked()) api().clReleaseMemObject(mem_);
}

bool AssertBuffer::claim(const Queue& queue) {
  const Queue* nobody = nullptr;
  return owner_.compare_exchange_strong(nobody, &queue) || nobody == &queue;
}

void AssertBuffer::release(const Queue& queue) {
  const Queue* owner = &queue;
  owner_.compare_exchange_strong(owner, nullptr);
}

std::optional<DeviceAssertion> AssertBuffer::take(Queue& queue) {
  check_not_forked();
  Record record;
  queue.read(&record, mem_, 0, sizeof record, true);
  if (record.site == 0) return std::nullopt;
  const Record empty;
  // Complete before the record's own queue goes on: a late one would wipe out its next failure.
  queue.write(mem_, 0, &empty, sizeof empty, true);
  std::lock_guard<std::mutex> lock(sites().mutex);
  const auto id = static_cast<size_t>(record.site);
  const Site& site = sites().by_id[id < sites().by_id.size() ? id : 0];
  return DeviceAssertion{site.is_message, site.raises, describe(site, record.index), record.index,
                         record.size};
}

}  // namespace ocl
