// Processes that build programs beside this one: drivers build one program at a time in a process,
// whatever the number of threads.
//
// A worker (csrc/build_worker) has a context of its own, compiles source text that it is sent, and
// writes the binary to the disk cache, from where this process loads it. Workers are started while
// more programs are missing than they would take time to start, and end when nothing came for a
// while.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ocl {

class Device;

/// A program to build: what a worker is sent.
struct BuildRequest {
  uint32_t device = 0;  // its index
  std::string key;      // of the disk cache
  std::string name, options, text;
};

/// A request on its way.
class BuildJob {
 public:
  using Done = std::function<void(bool built, uint64_t ns)>;
  /// One of the two is called once, unless the job is taken back. `done` by a thread of the
  /// workers' own: with whether the binary is on disk, and how long the build took. `here` by a
  /// thread that has time to build it in this process.
  BuildJob(const BuildRequest& request, Done done, std::function<void()> here);

 private:
  friend class BuildWorkers;
  std::string message_;
  Done done_;
  std::function<void()> here_;
  int device_;
  bool taken_ = false;  // by a worker
};

/// The process's workers. Thread-safe.
class BuildWorkers {
 public:
  /// The program to run, with its arguments. Without it there are no workers.
  static void configure(std::vector<std::string> command);
  static BuildWorkers& instance();

  /// Whether they may be of use on a device: TORCH_OCL_BUILD_WORKERS and the cores allow some, and
  /// none has failed to start.
  bool usable(const Device& device) const;
  void add(std::shared_ptr<BuildJob> job, const Device& device);
  /// Starts those that a cold start gains by: a worker's context takes longer than a program.
  void start_ahead(const Device& device);
  /// False if a worker has begun with it. Otherwise it is the caller's to build.
  bool take_back(const BuildJob* job);
  /// The calling thread builds the job that workers would begin with last; false if all are begun.
  bool help();
  /// Whether some are ready, or were started a moment ago.
  bool any() const;
  /// How many jobs have been added and are neither done nor taken back.
  uint64_t outstanding() const;

 private:
  BuildWorkers();
  struct Impl;
  Impl* impl_;  // leaked, as its thread is
};

/// A worker does this: it serves requests that arrive at a socket until it is closed or nothing
/// came for a while.
void serve_build_requests(int socket, int device);

}  // namespace ocl
