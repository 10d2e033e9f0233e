// Implementations that fail on a device: left out in this process, and by a file of the cache
// folder from then on. The file holds for a device, its driver's version and this package's.
#pragma once

#include <string>
#include <vector>

#include "engine/dispatch.h"
#include "opencl/device.h"

namespace ocl::quarantine {

/// An implementation that is left out. No member has a comma or a line end in it, but for the
/// reason's commas.
struct LeftOut {
  std::string engine, implementation, reason;
};

/// The list of those left out on the device; the file is read at first.
std::vector<LeftOut> left_out(const Device& device);
/// Leaves these out in this process, and no others.
void set_left_out(const Device& device, const std::vector<LeftOut>& all);
/// Has other processes leave out what this one does. `tried` says who found it ("check"). Returns
/// why that failed; empty if it did not.
std::string keep(const Device& device, const std::string& tried);
/// Leaves nothing out any more, and removes the file. False: there was none.
bool forget(const Device& device);
/// The device's file. Empty where there is no cache folder.
std::string filename(const Device& device);

/// A trial of a device's kernels before its first use, on a thread of its own, which it marks by
/// Trying. False: now is not the time, so that it is called again.
using FirstTrial = bool (*)(Device& device);
/// Not called for drivers that were tested, nor where it ended before.
void set_first_trial(FirstTrial trial);

/// Marks a thread whose kernels are those of the trial: they don't wait for its end.
class Trying {
 public:
  Trying();
  ~Trying();
  Trying(const Trying&) = delete;
  Trying& operator=(const Trying&) = delete;
};

/// The part of Engine::left_out() that runs at the device's first call: reads the file, has kernels
/// tried.
const LeftOutName* settle(const Engine& engine);

}  // namespace ocl::quarantine
