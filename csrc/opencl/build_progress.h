// The note in a terminal that programs are being built.
#pragma once

#include "opencl/device.h"

namespace ocl {

/// While one of these lives, its thread builds a program, or waits for one. Once a process, where
/// somebody watches, it says what takes so long: when threads have done so for two seconds in all,
/// also in the midst of a build.
class Building {
 public:
  /// `kept`: whether the next run will find the programs on disk.
  Building(const Device& device, bool kept);
  ~Building();
  Building(const Building&) = delete;
  Building& operator=(const Building&) = delete;
};

}  // namespace ocl
