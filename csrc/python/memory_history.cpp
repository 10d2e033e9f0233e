// Snapshots of the allocator in the format of torch.cuda.memory._snapshot(), recording for them,
// and pools of memory.
#include "runtime/memory_history.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "opencl/device.h"
#include "opencl/platform.h"
#include "python/bindings.h"
#include "runtime/allocator.h"
#include "runtime/memory_pools.h"

namespace py = pybind11;

namespace ocl::python {
namespace {

constexpr std::array<const char*, kMemoryActions> kActions{
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "snapshot",
    "oom"};

/// The Python form of contexts. Frames are looked up all at once, each of them once.
class Frames {
 public:
  /// target["frames"] is set by fill_in().
  void add(const py::dict& target, const MemoryContext& context) {
    auto* traceback = dynamic_cast<torch::CapturedTraceback*>(context.get());
    if (traceback == nullptr) {
      target["frames"] = none_;
      return;
    }
    const auto [entry, is_new] = numbers_.try_emplace(traceback, tracebacks_.size());
    if (is_new) tracebacks_.push_back(traceback);
    targets_.emplace_back(target, entry->second);
  }

  void fill_in() {
    torch::SymbolizedTracebacks symbols;
    {
      const py::gil_scoped_release others_go_on;
      symbols = torch::symbolize(tracebacks_);
    }
    std::vector<py::dict> frames(symbols.all_frames.size());
    for (size_t i = 0; i < frames.size(); ++i) {
      const auto& frame = symbols.all_frames[i];
      frames[i]["name"] = py::str(frame.funcname);
      frames[i]["filename"] = py::str(frame.filename);
      frames[i]["line"] = frame.lineno;
    }
    std::vector<py::list> lists;
    for (const auto& traceback : symbols.tracebacks) {
      py::list list;
      for (const uint64_t frame : traceback) list.append(frames[frame]);
      lists.push_back(std::move(list));
    }
    for (auto& [target, number] : targets_) target["frames"] = lists[number];
  }

 private:
  py::list none_;
  std::unordered_map<torch::CapturedTraceback*, size_t> numbers_;
  std::vector<torch::CapturedTraceback*> tracebacks_;
  std::vector<std::pair<py::dict, size_t>> targets_;
};

const char* name_of(BlockInfo::State state) {
  switch (state) {
    case BlockInfo::State::allocated:
      return "active_allocated";
    case BlockInfo::State::awaiting_free:
      return "active_awaiting_free";
    case BlockInfo::State::inactive:
      break;
  }
  return "inactive";
}

int64_t stream_of(const PoolOrigin& origin) { return std::max<int64_t>(origin.stream, 0); }

py::dict segment_dict(int device, const SegmentInfo& segment, Frames& frames) {
  const PoolOrigin origin = origin_of_pool(segment.pool);
  py::dict out;
  out["device"] = device;
  out["address"] = segment.address;
  out["total_size"] = segment.size;
  out["allocated_size"] = segment.allocated;
  out["active_size"] = segment.active;
  out["stream"] = stream_of(origin);
  out["segment_type"] = segment.small ? "small" : "large";
  out["segment_pool_id"] = py::make_tuple(origin.pool.first, origin.pool.second);
  out["is_expandable"] = false;
  frames.add(out, segment.context);
  py::list blocks;
  size_t requested = 0;
  for (const BlockInfo& block : segment.blocks) {
    py::dict each;
    each["address"] = block.address;
    each["size"] = block.size;
    each["requested_size"] = block.requested;
    each["state"] = name_of(block.state);
    frames.add(each, block.context);
    blocks.append(each);
    requested += block.requested;
  }
  out["requested_size"] = requested;
  out["blocks"] = blocks;
  return out;
}

py::dict event_dict(const MemoryEvent& event, Frames& frames) {
  const PoolOrigin origin = origin_of_pool(event.pool);
  const bool failed = event.action == MemoryAction::out_of_memory;
  py::dict out;
  out["action"] = kActions[static_cast<size_t>(event.action)];
  out[failed ? "device_free" : "addr"] = event.address;
  out["size"] = event.size;
  out["stream"] = stream_of(origin);
  out["time_us"] = event.microseconds;
  out["compile_context"] = "";
  out["user_metadata"] = event.metadata;
  out["pool_id"] = py::make_tuple(origin.pool.first, origin.pool.second);
  frames.add(out, event.context);
  return out;
}

/// {"segments", "device_traces"} of all devices; traces are empty if they aren't asked for.
py::dict snapshot(bool with_traces) {
  std::vector<MemorySnapshot> snapshots;
  {
    const py::gil_scoped_release others_go_on;
    const int devices = is_initialized() ? device_count() : 0;
    for (int i = 0; i < devices; ++i) {
      snapshots.push_back(snapshot_memory(static_cast<c10::DeviceIndex>(i)));
    }
  }
  Frames frames;
  py::list segments, traces;
  for (size_t i = 0; i < snapshots.size(); ++i) {
    for (const SegmentInfo& segment : snapshots[i].segments) {
      segments.append(segment_dict(static_cast<int>(i), segment, frames));
    }
    py::list trace;
    if (with_traces) {
      for (const MemoryEvent& event : snapshots[i].events) trace.append(event_dict(event, frames));
    }
    traces.append(trace);
  }
  frames.fill_in();
  py::dict out;
  out["segments"] = segments;
  out["device_traces"] = traces;
  out["allocator_settings"] = py::dict();
  out["external_annotations"] = py::list();
  return out;
}

void record(bool enabled, int contexts, bool cpp_frames, size_t max_events, bool clear,
            const std::vector<std::string>& skipped) {
  MemoryRecording recording{
      enabled, static_cast<MemoryContexts>(contexts), cpp_frames, max_events, clear, 0};
  for (const std::string& name : skipped) {
    const auto* action = std::find(kActions.begin(), kActions.end(), name);
    if (action == kActions.end()) throw py::value_error("no action is called '" + name + "'");
    recording.skipped |= uint32_t{1} << (action - kActions.begin());
  }
  const py::gil_scoped_release others_go_on;
  record_memory_history(recording);
}

py::object traceback_of(uintptr_t address) {
  MemoryContext context;
  {
    const py::gil_scoped_release others_go_on;
    context = context_of_memory(reinterpret_cast<const void*>(address));
  }
  if (!context) return py::none();
  Frames frames;
  const py::dict holder;
  frames.add(holder, context);
  frames.fill_in();
  return holder["frames"];
}

/// It is called as long as the process lives. The error that the program gets is the allocator's.
void attach_observer(py::object function) {
  auto* kept = new py::object(std::move(function));
  attach_out_of_memory_observer([kept](int64_t device, size_t asked, size_t total, size_t free) {
    if (!Py_IsInitialized()) return;
    const py::gil_scoped_acquire gil;
    try {
      (*kept)(device, asked, total, free);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("an out of memory observer");
    }
  });
}

}  // namespace

void bind_memory_history(py::module_& module) {
  module.def("memory_snapshot", &snapshot, py::arg("with_traces"));
  module.def("record_memory_history", &record);
  module.def("allocation_traceback", &traceback_of);
  module.def("set_memory_metadata", &set_memory_metadata);
  module.def("memory_metadata", &memory_metadata);
  module.def("attach_out_of_memory_observer", &attach_observer);

  module.def("new_memory_pool", &new_memory_pool);
  module.def("retain_pool", &retain_pool);
  module.def("pool_users", &pool_users);
  module.def("set_pool_options", [](c10::MempoolId_t pool, bool use_on_oom, bool no_split) {
    set_pool_options(pool, {use_on_oom, no_split});
  });
  module.def(
      "release_pool",
      [](c10::MempoolId_t pool) {
        if (release_pool(pool) == 0 && is_initialized()) allocator()->emptyCache(pool);
      },
      release_gil());
  module.def("begin_routing", &begin_routing);
  module.def("end_routing", &end_routing);

  module.def("set_caching", [](bool on) { set_memory_mode(kUncachedMemory, !on); });
  module.def("caching", [] { return (memory_modes() & kUncachedMemory) == 0; });
  module.def(
      "allocate_memory",
      [](c10::DeviceIndex index, size_t size, c10::StreamId stream) {
        return reinterpret_cast<uintptr_t>(allocate_memory(index, size, stream));
      },
      release_gil());
  module.def(
      "release_memory", [](uintptr_t address) { release_memory(reinterpret_cast<void*>(address)); },
      release_gil());
}

}  // namespace ocl::python
