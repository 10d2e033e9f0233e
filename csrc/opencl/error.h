// Errors of OpenCL calls: one exception type that names the call, the error and the device, and one
// macro that checks a call.
#pragma once

#include <stdexcept>
#include <string>

#include "opencl/api.h"

namespace ocl {

class Device;

/// A failed OpenCL call. what() reads "clX failed: CL_Y (-n) on <device>" and the detail (a build
/// log, sizes) where there is one. PyTorch turns it into a Python RuntimeError.
class Error : public std::runtime_error {
 public:
  Error(const char* call, cl_int code, const Device* device, const std::string& detail = {});
  cl_int code() const { return code_; }
  const char* call() const { return call_; }
  /// True for the codes drivers return when memory is exhausted.
  bool out_of_memory() const;

 private:
  const char* call_;
  cl_int code_;
};

/// "CL_OUT_OF_RESOURCES" for -5, ...; "unknown OpenCL error" for a code outside the registry.
const char* error_name(cl_int code);

[[noreturn]] void throw_error(const char* call, cl_int code, const Device* device);

inline void check(cl_int code, const char* call, const Device* device) {
  if (__builtin_expect(code != CL_SUCCESS, 0)) throw_error(call, code, device);
}

/// OCL_CALL(device_ptr, clFinish, queue): calls through the table, throws Error on failure.
#define OCL_CALL(device, function, ...) \
  ::ocl::check(::ocl::api().function(__VA_ARGS__), #function, device)

}  // namespace ocl
