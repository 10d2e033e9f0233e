// The tuner's results by device: in memory, and in a text file.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "opencl/device.h"

namespace ocl::tuner {

/// No member has a comma or a line end in it.
struct Result {
  std::string operation;  // what is computed, on which types: "gemm_f32_f32_f32"
  std::string problem;    // the class of shapes
  std::string choice;     // "Default", or what the engine calls the candidate
  double milliseconds = 0;
};

/// The choice for that operation and problem, if one is known. The device's file is read at first.
std::optional<std::string> find(const Device& device, const std::string& operation,
                                const std::string& problem);
/// Keeps a result and writes the device's file.
void store(const Device& device, const Result& result);

/// All results of the device, in the order of the file.
std::vector<Result> results(const Device& device);
/// A file is used if it was written for the same of these: name and value.
std::vector<std::pair<std::string, std::string>> validators(const Device& device);

/// Where the device's results are kept: as Settings say, else a file of the cache folder named
/// after its validators. Empty where there is no cache folder.
std::string filename(const Device& device);

/// Adds the results of a CSV file ("Validator,<name>,<value>" and then
/// "<operation>,<problem>,<choice>,<milliseconds>" per line). False if there is no such file, or,
/// with a warning, if it can't be read, is damaged, or was written for something else: then nothing
/// is added.
bool read_file(const Device& device, const std::string& path);
/// Writes all results by atomic rename, with those that other processes have put there meanwhile.
/// False, with a warning, if that fails.
bool write_file(const Device& device, const std::string& path);

}  // namespace ocl::tuner
