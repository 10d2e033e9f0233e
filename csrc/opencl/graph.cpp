#include "opencl/graph.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <utility>

#include "opencl/command_buffer.h"
#include "opencl/device_assert.h"
#include "opencl/event.h"
#include "opencl/platform.h"

namespace ocl {
namespace {

// A choice, not a measurement: a command buffer's own cost is to be shared by some kernels.
constexpr size_t kLeastRun = 8;

}  // namespace

struct Graph::Node {
  enum Kind : uint8_t { kernel, copy, fill } kind;
  Device* device;
  std::string label;
  // A kernel:
  cl_kernel handle = nullptr;
  NDRange range;
  int asserts = -1;
  // A copy or a fill:
  Location to, from;
  std::vector<char> pattern;
  size_t bytes = 0;

  ~Node() {
    if (handle != nullptr && !process_was_forked()) api().clReleaseKernel(handle);
  }
};

/// Where in a kernel's argument a placeholder stands.
struct Graph::Patch {
  Node* node;
  KernelArgument argument;
  std::vector<std::pair<size_t, size_t>> places;  // byte and placeholder
};

/// Successive kernels that replays enqueue as one command.
struct Graph::Run {
  size_t begin, end;  // of nodes_
  std::unique_ptr<CommandBuffer> buffer;
};

Graph::Graph() = default;

Graph::~Graph() {
  if (recorded_ != nullptr) end();
  runs_.clear();
  nodes_.clear();
  if (process_was_forked()) return;
  for (cl_mem mem : kept_) api().clReleaseMemObject(mem);
}

void Graph::begin(Queue& queue) {
  check_not_captured(queue, "another capture");
  recorded_ = &queue;
  capture_ = std::make_shared<Capture>();
  queue.set_capture(this);
}

bool Graph::joined() {
  return std::ranges::all_of(
      forked_, [&](Queue* queue) { return seen_[queue][queue] <= seen_[recorded_][queue]; });
}

bool Graph::end() {
  const bool all = joined();
  for (Queue* queue : forked_) queue->set_capture(nullptr);
  recorded_->set_capture(nullptr);
  recorded_ = nullptr;
  capture_.reset();
  forked_.clear();
  seen_.clear();
  return all;
}

void Graph::give_up(const std::function<void()>& enqueue) {
  Queue& queue = *recorded_;
  const std::vector<Queue*> others = forked_;
  const std::shared_ptr<Capture> capture = capture_;
  refused = nullptr;
  end();
  enqueue();
  auto ran = std::make_shared<Event>();
  ran->record(queue);
  for (Queue* other : others) ran->block(*other);
  capture->ran = std::move(ran);
  capture_ = capture;
}

std::shared_ptr<const Graph::Point> Graph::point(const Queue& queue) {
  return std::make_shared<const Point>(Point{this, capture_, seen_[&queue]});
}

void Graph::follow(Queue& queue, const Point& point) {
  if (queue.capture() != this) {
    check_not_captured(queue, "a wait for an event of another capture");
    if (&queue.device() != &recorded_->device()) {
      throw std::runtime_error(
          "ocl: a wait of another device is not possible while a graph is captured");
    }
    queue.set_capture(this);
    forked_.push_back(&queue);
  }
  for (const auto& [other, count] : point.before) {
    size_t& known = seen_[&queue][other];
    known = std::max(known, count);
  }
}

uint64_t Graph::add_placeholder() {
  // No number that a kernel would get by chance: not small, no address, no two floats of use.
  const uint64_t value = 0xd1b54a32d192ed00 + 4 * placeholders_.size();
  placeholders_.push_back(value);
  used_.push_back(false);
  return value;
}

bool Graph::placeholders_used() const { return std::ranges::find(used_, false) == used_.end(); }

void Graph::add_kernel(Device& device, cl_program program, const std::string& name,
                       const std::string& label, const NDRange& range,
                       const std::vector<KernelArgument>& arguments, int asserts) {
  auto node = std::make_unique<Node>();
  node->kind = Node::kernel;
  node->device = &device;
  node->label = label;
  node->range = range;
  node->asserts = asserts;
  cl_int code = CL_SUCCESS;
  node->handle = api().clCreateKernel(program, name.c_str(), &code);
  if (code != CL_SUCCESS) throw Error("clCreateKernel", code, &device, name);
  cl_uint count = 0;
  OCL_CALL(&device, clGetKernelInfo, node->handle, CL_KERNEL_NUM_ARGS, sizeof count, &count,
           nullptr);
  if (count != arguments.size()) {
    throw std::runtime_error("ocl: the arguments of " + name +
                             " changed while it was captured: capture again");
  }
  for (const KernelArgument& argument : arguments) {
    OCL_CALL(&device, clSetKernelArg, node->handle, argument.index, argument.size,
             argument.bytes.empty() ? nullptr : argument.bytes.data());
    Patch patch{node.get(), argument, {}};
    for (size_t at = 0; at + 8 <= argument.bytes.size(); at += 4) {
      uint64_t word = 0;
      std::memcpy(&word, argument.bytes.data() + at, sizeof word);
      const auto found = std::ranges::find(placeholders_, word);
      if (found == placeholders_.end()) continue;
      const auto which = static_cast<size_t>(found - placeholders_.begin());
      used_[which] = true;
      patch.places.emplace_back(at, which);
    }
    if (!patch.places.empty()) patches_.push_back(std::move(patch));
  }
  nodes_.push_back(std::move(node));
}

void Graph::add_copy(Device& device, const Location& to, const Location& from, size_t bytes) {
  auto node = std::make_unique<Node>();
  node->kind = Node::copy;
  node->device = &device;
  node->label = "copy";
  node->to = to;
  node->from = from;
  node->bytes = bytes;
  nodes_.push_back(std::move(node));
}

void Graph::add_fill(Device& device, const Location& to, const void* pattern, size_t pattern_bytes,
                     size_t bytes) {
  auto node = std::make_unique<Node>();
  node->kind = Node::fill;
  node->device = &device;
  node->label = "fill";
  node->to = to;
  const auto* begin = static_cast<const char*>(pattern);
  node->pattern.assign(begin, begin + pattern_bytes);
  node->bytes = bytes;
  nodes_.push_back(std::move(node));
}

void Graph::keep(cl_mem mem) {
  if (api().clRetainMemObject(mem) == CL_SUCCESS) kept_.push_back(mem);
}

/// Puts the placeholders' values into the arguments that have one.
void Graph::set_values(std::span<const uint64_t> values) {
  if (std::ranges::equal(values, values_)) return;
  values_.clear();  // a call that fails may have taken effect all the same
  for (Patch& patch : patches_) {
    for (const auto& [at, which] : patch.places) {
      std::memcpy(patch.argument.bytes.data() + at, &values[which], sizeof(uint64_t));
    }
    OCL_CALL(patch.node->device, clSetKernelArg, patch.node->handle, patch.argument.index,
             patch.argument.size, patch.argument.bytes.data());
  }
  values_.assign(values.begin(), values.end());
}

/// Failed checks belong to the queue that the kernels run on.
void Graph::set_asserts(Queue& queue) {
  const auto checks = [](const auto& node) { return node->asserts >= 0; };
  if (std::ranges::none_of(nodes_, checks)) return;
  queue.mark_checks();
  cl_mem mem = queue.asserts().mem();
  if (mem == asserts_) return;
  asserts_ = nullptr;
  runs_.clear();  // they have the other
  runs_queue_ = nullptr;
  for (const auto& node : nodes_) {
    if (!checks(node)) continue;
    OCL_CALL(node->device, clSetKernelArg, node->handle, static_cast<cl_uint>(node->asserts),
             sizeof mem, &mem);
  }
  asserts_ = mem;
}

/// Makes command buffers at the second replay in a row on a queue: a graph that is replayed once,
/// or on several queues by turns, wouldn't gain what they cost. Placeholders' kernels are left out,
/// since a command buffer's arguments stay as they are.
void Graph::make_runs(Queue& queue) {
  cl_command_queue handle = queue.handle();
  if (handle == runs_queue_ || !queue.is_plain()) return;
  if (std::exchange(last_queue_, handle) != handle) return;
  runs_.clear();
  runs_queue_ = nullptr;
  if (uses_command_buffers(queue.device())) {
    std::set<const Node*> changing;
    for (const Patch& patch : patches_) changing.insert(patch.node);
    const auto fits = [&](const auto& node) {
      return node->kind == Node::kernel && !changing.contains(node.get());
    };
    std::vector<Run> runs;
    for (auto begin = nodes_.begin(); begin != nodes_.end();) {
      const auto end = std::find_if_not(begin, nodes_.end(), fits);
      if (static_cast<size_t>(end - begin) >= kLeastRun) {
        auto buffer = std::make_unique<CommandBuffer>(queue.device(), handle);
        for (const auto& node : std::span(begin, end)) {
          buffer->add(node->handle, node->range, node->label);
        }
        buffer->finalize();
        runs.push_back({static_cast<size_t>(begin - nodes_.begin()),
                        static_cast<size_t>(end - nodes_.begin()), std::move(buffer)});
      }
      begin = std::find_if(end, nodes_.end(), fits);
    }
    runs_ = std::move(runs);
  }
  runs_queue_ = handle;
}

/// False, and nothing is enqueued, where its kernels have to go one by one: a profile wants the
/// time of each, or the queue has another handle now.
bool Graph::enqueue_run(Queue& queue, Run& run) {
  if (profile::on()) return false;
  const Queue::Submission submission(queue);
  if (submission.handle() != run.buffer->queue()) return false;
  try {
    run.buffer->enqueue();
  } catch (...) {
    queue.count();  // it may be under way all the same
    throw;
  }
  queue.count();
  queue.device().count_launches(run.end - run.begin);
  return true;
}

void Graph::enqueue(Queue& queue, Node& node) {
  switch (node.kind) {
    case Node::kernel: {
      const cl_int code = enqueue_kernel(queue, node.handle, node.range, node.label);
      if (code != CL_SUCCESS) {
        throw Error("clEnqueueNDRangeKernel", code, node.device, node.label + " of a graph");
      }
      break;
    }
    case Node::copy:
      queue.copy(node.to, node.from, node.bytes);
      break;
    case Node::fill:
      queue.fill(node.to, node.pattern.data(), node.pattern.size(), node.bytes);
      break;
  }
}

void Graph::replay(Queue& queue, std::span<const uint64_t> values) {
  check_not_forked();
  check_not_captured(queue, "the replay of another graph");
  const std::lock_guard<std::mutex> lock(mutex_);
  set_values(values);
  set_asserts(queue);
  make_runs(queue);
  auto run = runs_.begin();
  for (size_t i = 0; i < nodes_.size();) {
    if (run != runs_.end() && run->begin == i) {
      Run& next = *run++;
      if (enqueue_run(queue, next)) {
        i = next.end;
        continue;
      }
    }
    enqueue(queue, *nodes_[i++]);
  }
}

std::string Graph::describe() const {
  std::string text;
  for (const auto& node : nodes_) {
    text += node->label;
    if (node->kind == Node::kernel) {
      for (cl_uint i = 0; i < node->range.dims; ++i) {
        text += (i == 0 ? " " : "x") + std::to_string(node->range.global[i]);
      }
    } else {
      text += " of " + std::to_string(node->bytes) + " bytes";
    }
    text += "\n";
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  size_t kernels = 0;
  for (const Run& run : runs_) kernels += run.end - run.begin;
  if (kernels > 0) text += std::to_string(kernels) + " kernels by command buffers\n";
  return text;
}

bool stays_captured(const Queue& queue, const char* what) {
  Graph* graph = queue.capture();
  if (graph == nullptr) return false;
  // A copy: giving up clears it.
  if (const auto refused = graph->refused) refused(what);
  return queue.capture() != nullptr;
}

void check_not_captured(const Queue& queue, const char* what) {
  if (__builtin_expect(queue.capture() == nullptr, 1)) return;
  if (!stays_captured(queue, what)) return;
  throw std::runtime_error(std::string("ocl: ") + what +
                           " is not possible while a graph is captured on this stream");
}

}  // namespace ocl
