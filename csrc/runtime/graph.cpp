#include "runtime/graph.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "opencl/graph.h"
#include "runtime/memory_pools.h"
#include "runtime/stream.h"

#if __has_include(<ATen/core/GraphImplInterface.h>)  // torch 2.13
#include <ATen/core/GraphImplInterface.h>
#endif

namespace ocl {

struct StreamGraph::Impl {
  /// A pool while a graph has it. Its kernels use the memory, whether or not a tensor does.
  class HeldPool {
   public:
    explicit HeldPool(c10::MempoolId_t pool) : pool_(pool) { retain_pool(pool); }
    ~HeldPool() { release_pool(pool_); }
    HeldPool(const HeldPool&) = delete;
    HeldPool& operator=(const HeldPool&) = delete;
    c10::MempoolId_t id() const { return pool_; }

   private:
    c10::MempoolId_t pool_;
  };

  /// A generator that a graph draws from. Placeholders stand for its seed and for each offset.
  struct Source {
    at::Generator generator;
    size_t seed;
    uint64_t seed_placeholder;
    uint64_t increment = 0;  // of a replay
    struct Draw {
      size_t placeholder;
      uint64_t offset;  // from the generator's at the start of a replay
    };
    std::vector<Draw> draws;
  };

  c10::DeviceIndex device = -1;
  Queue* queue = nullptr;  // while it is captured
  std::unique_ptr<HeldPool> pool;
  std::unique_ptr<Graph> graph;
  std::string given_up;
  std::mutex mutex;  // of what follows
  std::vector<Source> sources;
  size_t placeholders = 0;

  void clear() {
    graph.reset();
    pool.reset();
    sources.clear();
    placeholders = 0;
    given_up.clear();
  }
  /// Ends the capture; false if another stream's work was not waited for.
  bool end() {
    std::lock_guard lock(captures_mutex);
    captures.erase(graph.get());
    queue = nullptr;
    return graph->end();
  }
  void give_up(const std::string& why) {
    given_up = why;
    Queue& first = *queue;
    graph->give_up([&] {
      {
        std::lock_guard lock(captures_mutex);
        captures.erase(graph.get());
        queue = nullptr;
      }
      graph->replay(first, advance());
    });
  }
  PhiloxState reserve(const at::Generator& generator, uint64_t increment);
  std::vector<uint64_t> advance();

  static std::mutex captures_mutex;
  static std::map<const Graph*, Impl*> captures;
  /// The capture that the calling thread's stream is part of; null where there is none.
  static Impl* of(c10::DeviceIndex device) {
    const Graph* graph = current_queue(device).capture();
    if (graph == nullptr) return nullptr;
    std::lock_guard lock(captures_mutex);
    const auto entry = captures.find(graph);
    return entry == captures.end() ? nullptr : entry->second;
  }
};

std::mutex StreamGraph::Impl::captures_mutex;
std::map<const Graph*, StreamGraph::Impl*> StreamGraph::Impl::captures;

PhiloxState StreamGraph::Impl::reserve(const at::Generator& generator, uint64_t increment) {
  std::lock_guard lock(mutex);
  auto source = std::ranges::find_if(
      sources, [&](const Source& known) { return known.generator == generator; });
  if (source == sources.end()) {
    sources.push_back({generator, placeholders, 0, 0, {}});
    source = sources.end() - 1;
    source->seed_placeholder = graph->add_placeholder();
    ++placeholders;
  }
  source->draws.push_back({placeholders++, source->increment});
  source->increment += (increment + 3) / 4 * 4;
  return {source->seed_placeholder, graph->add_placeholder()};
}

/// The placeholders' values of a replay; generators go on as if its ops had run.
std::vector<uint64_t> StreamGraph::Impl::advance() {
  std::lock_guard lock(mutex);
  std::vector<uint64_t> values(placeholders);
  for (Source& source : sources) {
    std::unique_lock generator_lock(source.generator.mutex(), std::defer_lock);
    if (!is_asked(source.generator)) generator_lock.lock();
    const uint64_t offset = source.generator.get_offset();
    values[source.seed] = source.generator.current_seed();
    for (const Source::Draw& draw : source.draws) values[draw.placeholder] = offset + draw.offset;
    source.generator.set_offset(offset + source.increment);
  }
  return values;
}

StreamGraph::StreamGraph() : impl_(std::make_unique<Impl>()) {}

StreamGraph::~StreamGraph() { reset(); }

void StreamGraph::capture_begin(c10::MempoolId_t pool, bool may_give_up) {
  TORCH_CHECK(impl_->graph == nullptr,
              "This graph holds a capture already: reset() it before another one");
  impl_->device = current_device();
  Queue& queue = current_queue(impl_->device);
  check_not_captured(queue, "another capture");
  if (pool == c10::MempoolId_t{0, 0}) pool = new_memory_pool();
  impl_->pool = std::make_unique<Impl::HeldPool>(pool);
  impl_->graph = std::make_unique<Graph>();
  std::lock_guard lock(Impl::captures_mutex);
  impl_->graph->begin(queue);
  if (may_give_up) {
    impl_->graph->refused = [this](const char* what) {
      impl_->give_up(std::string(what) + " can't be captured");
    };
  }
  impl_->queue = &queue;
  Impl::captures[impl_->graph.get()] = impl_.get();
}

void StreamGraph::give_up(const std::string& why) {
  TORCH_CHECK(impl_->queue != nullptr, "give_up() without capture_begin()");
  impl_->give_up(why);
}

const std::string& StreamGraph::given_up() const { return impl_->given_up; }

void StreamGraph::capture_end() {
  TORCH_CHECK(impl_->queue != nullptr, "capture_end() without capture_begin()");
  if (impl_->graph->refused && !impl_->graph->joined()) {
    return impl_->give_up("another stream's last work was not waited for");
  }
  if (!impl_->end()) {
    impl_->clear();
    TORCH_CHECK(false,
                "Another stream was captured, too, and the capturing stream did not wait for its "
                "last work: call wait_stream() or wait_event() before the capture ends");
  }
  if (!impl_->graph->placeholders_used()) {
    impl_->clear();
    TORCH_CHECK(false,
                "An op computed with the generator's state on the host, as torch.randperm does. "
                "That can't be captured: a replay would repeat the same random numbers");
  }
}

void StreamGraph::replay() {
  TORCH_CHECK(impl_->graph != nullptr && impl_->queue == nullptr && impl_->given_up.empty(),
              "replay() of a graph without a finished capture");
  Queue& queue = current_queue(impl_->device);
  check_not_captured(queue, "the replay of another graph");
  impl_->graph->replay(queue, impl_->advance());
}

void StreamGraph::reset() {
  if (impl_->queue != nullptr) impl_->end();
  impl_->clear();
}

c10::MempoolId_t StreamGraph::pool() const {
  TORCH_CHECK(impl_->pool != nullptr, "pool() of a graph without a capture");
  return impl_->pool->id();
}

std::string StreamGraph::describe() const {
  TORCH_CHECK(impl_->graph != nullptr, "this graph holds no capture");
  return impl_->graph->describe();
}

bool is_capturing() {
  return Queue::captures() && current_queue(current_device()).capture() != nullptr;
}

c10::StreamId pool_of_capture(c10::DeviceIndex device, c10::StreamId stream) {
  const StreamGraph::Impl* capture = StreamGraph::Impl::of(device);
  return capture == nullptr ? stream : number_of_pool(capture->pool->id(), kAnyStream);
}

std::optional<PhiloxState> reserve_philox_for_graph(const at::Generator& generator,
                                                    c10::DeviceIndex device, uint64_t increment) {
  StreamGraph::Impl* capture = StreamGraph::Impl::of(device);
  if (capture == nullptr) return std::nullopt;
  return capture->reserve(generator, increment);
}

#if __has_include(<ATen/core/GraphImplInterface.h>)

/// torch.accelerator.Graph's.
class AcceleratorGraph final : public at::GraphImplInterface {
 public:
  explicit AcceleratorGraph(const at::GraphImplArgs&) {}
  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode) override {
    graph_.capture_begin(pool);
  }
  void capture_end() override { graph_.capture_end(); }
  void instantiate() override {}
  void replay() override { graph_.replay(); }
  void reset() override { graph_.reset(); }
  c10::MempoolId_t pool() const override { return graph_.pool(); }
  void enable_debug_mode() override {}
  void debug_dump(const std::string& path) override { std::ofstream(path) << graph_.describe(); }

 private:
  StreamGraph graph_;
};

#endif

}  // namespace ocl

#if __has_include(<ATen/core/GraphImplInterface.h>)
namespace at {
REGISTER_GRAPH_IMPL(OCL, ::ocl::AcceleratorGraph)
}  // namespace at
#endif
