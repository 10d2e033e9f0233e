#include "opencl/partition.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "opencl/log.h"

namespace ocl {
namespace {

constexpr long kMostParts = 64;

/// Used once in a process at most, so it is in no table; null where the loader lacks it.
decltype(&clCreateSubDevices) create_sub_devices() {
  void* loader = dlopen(api().loader_path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (loader == nullptr) return nullptr;
  auto* function = dlsym(loader, "clCreateSubDevices");
  dlclose(loader);  // it stays open: api() holds it
  return reinterpret_cast<decltype(&clCreateSubDevices)>(function);
}

cl_uint number(cl_device_id id, cl_device_info question) {
  cl_uint value = 0;
  const cl_int code = api().clGetDeviceInfo(id, question, sizeof value, &value, nullptr);
  return code == CL_SUCCESS ? value : 0;
}

}  // namespace

int wanted_parts() {
  const char* text = std::getenv("TORCH_OCL_PARTITION");
  if (text == nullptr || *text == '\0') return 1;
  char* end = nullptr;
  const long parts = std::strtol(text, &end, 10);
  if (*end == '\0' && parts >= 1 && parts <= kMostParts) return static_cast<int>(parts);
  warn("TORCH_OCL_PARTITION is \"" + std::string(text) + "\": it is a number from 1 to " +
       std::to_string(kMostParts) + ", ignored");
  return 1;
}

std::vector<cl_device_id> parts_of(cl_device_id id, int parts) {
  const cl_uint units = number(id, CL_DEVICE_MAX_COMPUTE_UNITS) / static_cast<cl_uint>(parts);
  const bool divides =
      units > 0 && number(id, CL_DEVICE_PARTITION_MAX_SUB_DEVICES) >= static_cast<cl_uint>(parts);
  auto* const create = divides ? create_sub_devices() : nullptr;
  if (create != nullptr) {
    const cl_device_partition_property equally[] = {
        CL_DEVICE_PARTITION_EQUALLY, static_cast<cl_device_partition_property>(units), 0};
    cl_uint count = 0;
    if (create(id, equally, 0, nullptr, &count) == CL_SUCCESS &&
        count >= static_cast<cl_uint>(parts)) {
      std::vector<cl_device_id> found(count);
      if (create(id, equally, count, found.data(), nullptr) == CL_SUCCESS) {
        found.resize(parts);  // units may be left over
        return found;
      }
    }
  }
  return std::vector<cl_device_id>(parts, id);
}

}  // namespace ocl
