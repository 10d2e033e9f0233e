// Graphs as torch knows them: what a stream was given, with the memory and the random numbers that
// it takes, to be replayed.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <string>

#include "runtime/generator.h"

namespace ocl {

/// Whether what the calling thread enqueues on the current stream is captured. Does not initialise
/// OpenCL.
bool is_capturing();

/// One graph; its functions are those of torch.cuda.CUDAGraph.
class StreamGraph {
 public:
  StreamGraph();
  ~StreamGraph();
  StreamGraph(const StreamGraph&) = delete;
  StreamGraph& operator=(const StreamGraph&) = delete;

  /// Captures the current stream; {0, 0} is a pool of this graph's own. If it `may_give_up`, it
  /// does so where something can't be captured, instead of an exception.
  void capture_begin(c10::MempoolId_t pool = {0, 0}, bool may_give_up = false);
  /// Ends the capture where it is and enqueues it once, on the stream that was captured: from then
  /// on all is as if there had been no capture. There is nothing to replay.
  void give_up(const std::string& why);
  /// Why the capture was given up; empty if it wasn't.
  const std::string& given_up() const;
  /// Throws c10::Error, and leaves no graph, if random numbers were used in a way that a replay
  /// can't renew.
  void capture_end();
  /// Enqueues it on the current stream of the device that it was captured on.
  void replay();
  void reset();
  c10::MempoolId_t pool() const;
  std::string describe() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

/// Where the memory for a stream comes from while its work is captured: that of the graph, and
/// otherwise the stream's own.
c10::StreamId pool_of_capture(c10::DeviceIndex device, c10::StreamId stream);
/// The stand-in for a generator's state in a graph; none where the current stream isn't captured.
std::optional<PhiloxState> reserve_philox_for_graph(const at::Generator& generator,
                                                    c10::DeviceIndex device, uint64_t increment);

}  // namespace ocl
