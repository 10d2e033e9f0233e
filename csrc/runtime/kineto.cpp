// torch.profiler with ProfilerActivity.PrivateUse1: what the device executed, as activities of
// kineto's, each linked to the op that launched it.
#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)  // torch 2.13

#define FMT_HEADER_ONLY
#define USE_KINETO
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "opencl/device.h"
#include "opencl/platform.h"
#include "opencl/profile.h"

namespace ocl {
namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;
using libkineto::ITraceActivity;
using profile::Command;
using profile::Kind;

struct Names {
  ActivityType type;
  const char* device;   // of what ran there; kernels have names of their own
  const char* runtime;  // of the call
};

Names names_of(Kind kind) {
  switch (kind) {
    case Kind::kernel:
      return {ActivityType::CONCURRENT_KERNEL, "", "clEnqueueNDRangeKernel"};
    case Kind::host_to_device:
      return {ActivityType::GPU_MEMCPY, "Memcpy HtoD", "clEnqueueWriteBuffer"};
    case Kind::device_to_host:
      return {ActivityType::GPU_MEMCPY, "Memcpy DtoH", "clEnqueueReadBuffer"};
    case Kind::device_to_device:
      return {ActivityType::GPU_MEMCPY, "Memcpy DtoD", "clEnqueueCopyBuffer"};
    case Kind::fill:
      break;
  }
  return {ActivityType::GPU_MEMSET, "Memset", "clEnqueueFillBuffer"};
}

/// The ids of what a thread is in, innermost last. Those of an earlier session are none of this
/// one's: what was entered before it started is left without having been entered.
class Stack {
 public:
  void push(uint64_t id, uint64_t session) {
    if (session != session_) ids_.clear();
    session_ = session;
    ids_.push_back(id);
  }
  void pop() {
    if (!ids_.empty()) ids_.pop_back();
  }
  uint64_t top() const { return ids_.empty() ? 0 : ids_.back(); }

 private:
  std::vector<uint64_t> ids_;
  uint64_t session_ = 0;
};
thread_local Stack ops, ranges;

std::string sizes_of(const std::array<size_t, 3>& sizes, cl_uint dims) {
  std::string text = "[";
  for (cl_uint i = 0; i < dims; ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text + "]";
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  Session() {
    static std::atomic<uint64_t> count{0};
    number_ = ++count;
  }

  void start() override {
    status_ = libkineto::TraceStatus::RECORDING;
    profile_.start();
  }
  void stop() override {
    commands_ = profile_.stop();
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return {}; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, 0);
  }

  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked,
                    int64_t begin, int64_t end) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(begin, end, "ocl");
    for (const Command& command : commands_) add(command, linked);
    for (const auto& [key, span] : spans_) add_range(key, span, linked);
    buffer_->gpuOpCount = static_cast<int>(commands_.size());
    for (const auto& activity : buffer_->activities) activity->log(logger);
    std::set<int> devices;
    for (const Row& row : rows_) devices.insert(row.first);
    for (const int index : devices) {
      if (index != *devices.begin()) logger.handleDeviceInfo(info_of(index), begin);
    }
    commands_.clear();
  }

  /// The first device's; processTrace() tells of the others. Without any, kineto adds its own rows.
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    if (rows_.empty()) return nullptr;
    return std::make_unique<libkineto::DeviceInfo>(info_of(rows_.begin()->first));
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> infos;
    for (const auto& [index, stream] : rows_) {
      infos.push_back({stream, stream, index,
                       stream == 0 ? "default stream" : "stream " + std::to_string(stream)});
    }
    return infos;
  }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

  void pushCorrelationId(uint64_t id) override {
    ops.push(id, number_);
    profile::tags.correlation = ops.top();
  }
  void popCorrelationId() override {
    ops.pop();
    profile::tags.correlation = ops.top();
  }
  void pushUserCorrelationId(uint64_t id) override {
    {
      std::lock_guard lock(outer_mutex_);
      outer_[id] = ranges.top();
    }
    ranges.push(id, number_);
    profile::tags.range = ranges.top();
  }
  void popUserCorrelationId() override {
    ranges.pop();
    profile::tags.range = ranges.top();
  }

 private:
  using Row = std::pair<int, int64_t>;                    // device and stream
  using RangeOnRow = std::tuple<uint64_t, int, int64_t>;  // and the range
  using Span = std::pair<int64_t, int64_t>;

  static const ITraceActivity* find(const libkineto::getLinkedActivityCallback& linked,
                                    uint64_t id) {
    return id == 0 ? nullptr : linked(static_cast<int32_t>(id));
  }

  GenericTraceActivity& add_activity(ActivityType type, const std::string& name, int64_t start,
                                     int64_t end, const ITraceActivity* linked) {
    buffer_->emplace_activity(buffer_->span, type, name);
    GenericTraceActivity& activity = *buffer_->activities.back();
    activity.startTime = start;
    activity.endTime = end;
    activity.linked = linked;
    return activity;
  }

  /// The call on its thread's row, what it started on its stream's, and the arrow between them.
  void add(const Command& command, const libkineto::getLinkedActivityCallback& linked) {
    // Far from the numbers that torch gives to ops.
    const auto id = static_cast<int32_t>((command.number & 0x3fffffff) | 0x40000000);
    const auto link = [&](GenericTraceActivity& activity, bool start) {
      activity.id = id;
      activity.threadId = command.thread;
      activity.flow.id = static_cast<uint32_t>(id);
      activity.flow.type = libkineto::kLinkAsyncCpuGpu;
      activity.flow.start = start;
      activity.addMetadata("correlation", id);
    };
    const Names names = names_of(command.kind);
    const ITraceActivity* op = find(linked, command.tags.correlation);
    auto& call = add_activity(ActivityType::PRIVATEUSE1_RUNTIME, names.runtime,
                              command.submit_begin, command.submit_end, op);
    call.device = getpid();
    call.resource = command.thread;
    link(call, true);

    const bool is_kernel = command.kind == Kind::kernel;
    auto& run = add_activity(names.type, is_kernel ? command.name : names.device, command.start,
                             command.end, op);
    run.device = command.device;
    run.resource = static_cast<int32_t>(command.stream);
    link(run, false);
    run.addMetadata("device", command.device);
    run.addMetadata("stream", command.stream);
    if (is_kernel) {
      run.addMetadata("global size", sizes_of(command.global, command.dims));
      if (command.local[0] != 0) {
        run.addMetadata("local size", sizes_of(command.local, command.dims));
      }
    } else {
      run.addMetadata("bytes", command.bytes);
      const auto ns = static_cast<double>(std::max<int64_t>(1, command.end - command.start));
      run.addMetadata("memory bandwidth (GB/s)", static_cast<double>(command.bytes) / ns);
    }
    rows_.insert({command.device, command.stream});
    for (uint64_t range = command.tags.range; range != 0; range = outer_of(range)) {
      const auto [entry, is_new] = spans_.try_emplace(
          RangeOnRow{range, command.device, command.stream}, command.start, command.end);
      Span& span = entry->second;
      span = {std::min(span.first, command.start), std::max(span.second, command.end)};
    }
  }

  uint64_t outer_of(uint64_t range) const {
    const auto entry = outer_.find(range);
    return entry == outer_.end() ? 0 : entry->second;
  }

  /// A range of the user's, from the first command in it to the end of the last.
  void add_range(const RangeOnRow& key, const Span& span,
                 const libkineto::getLinkedActivityCallback& linked) {
    const auto [range, device, stream] = key;
    const ITraceActivity* annotation = find(linked, range);
    if (annotation == nullptr) return;
    auto& activity = add_activity(ActivityType::GPU_USER_ANNOTATION, annotation->name(), span.first,
                                  span.second, annotation);
    activity.id = static_cast<int32_t>(range);
    activity.device = device;
    activity.resource = static_cast<int32_t>(stream);
  }

  static libkineto::DeviceInfo info_of(int index) {
    return {index, index + libkineto::kExceedMaxPid, "ocl:" + std::to_string(index),
            ocl::device(index).description()};
  }

  profile::Session profile_;
  uint64_t number_ = 0;
  std::vector<Command> commands_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
  std::set<Row> rows_;
  std::map<RangeOnRow, Span> spans_;
  std::mutex outer_mutex_;
  std::unordered_map<uint64_t, uint64_t> outer_;  // of a range, the one around it
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    static const std::string name = "ocl";
    return name;
  }
  const std::set<ActivityType>& availableActivities() const override {
    static const std::set<ActivityType> activities{
        ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY, ActivityType::GPU_MEMSET,
        ActivityType::GPU_USER_ANNOTATION, ActivityType::PRIVATEUSE1_RUNTIME};
    return activities;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& activities, const libkineto::Config&) override {
    // A profile of the CPU alone, or in a process that can't use the device.
    if (!activities.contains(ActivityType::CONCURRENT_KERNEL) || process_was_forked()) {
      return nullptr;
    }
    return std::make_unique<Session>();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t, int64_t, const std::set<ActivityType>& activities,
      const libkineto::Config& config) override {
    return configure(activities, config);
  }
};

REGISTER_PRIVATEUSE1_PROFILER(Profiler);

}  // namespace
}  // namespace ocl

#endif
