#include "opencl/compiler.h"

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string_view>

#include "opencl/build_log.h"
#include "opencl/driver_text.h"
#include "opencl/log.h"
#include "opencl/quirks.h"
#include "opencl/retarget.h"

namespace ocl {
namespace {

uint64_t elapsed_ns(std::chrono::steady_clock::time_point since) {
  return static_cast<uint64_t>((std::chrono::steady_clock::now() - since) /
                               std::chrono::nanoseconds(1));
}

// OpenCL C 1.2 is what every driver compiles best; a later language only where it brings something.
std::string standard_option(const Device& device) {
  const DeviceProperties& p = device.properties();
  if (!device.quirks().build_option_std) return {};
  if (!p.has_subgroups && !p.has_work_group_reduce) return "-cl-std=CL1.2";
  return p.opencl_c_major >= 3 ? "-cl-std=CL3.0" : "-cl-std=CL2.0";
}

// Never -cl-fast-relaxed-math, -cl-finite-math-only or -cl-mad-enable: results must be those of CPU
// torch, with its NaNs, infinities and roundings.
std::string common_options(const Device& device) {
  const DeviceProperties& p = device.properties();
  std::string options = standard_option(device);
  const auto define = [&](bool condition, const char* name) {
    if (condition) options += std::string(" -D") + name + "=1";
  };
  if (p.correctly_rounded_divide_sqrt) options += " -cl-fp32-correctly-rounded-divide-sqrt";
  define(!p.correctly_rounded_divide_sqrt, "OCL_ROUGH_DIVISION");
  // A constant without a suffix is of double, which compilers read as float there, with a warning.
  if (!p.has_fp64) options += " -cl-single-precision-constant";
  if (p.chooses_large_registers) options += " -cl-intel-enable-auto-large-GRF-mode";
  define(p.tuning_class == DeviceClass::cpu, "OCL_DEVICE_CPU");
  define(p.tuning_class == DeviceClass::gpu, "OCL_DEVICE_GPU");
  define(p.has_fp64, "OCL_HAS_FP64");
  define(p.has_fp16, "OCL_HAS_FP16");
  define(p.has_int64_atomics, "OCL_HAS_INT64_ATOMICS");
  define(p.has_subgroups, "OCL_HAS_SUBGROUPS");
  define(p.has_tensor_cores, "OCL_HAS_PTX_80");
  define(p.has_work_group_reduce, "OCL_HAS_WORK_GROUP_REDUCE");
  define(p.has_system_svm, "OCL_HAS_SYSTEM_SVM");
  define(device.quirks().copies_indexed_arguments, "OCL_UNROLL_DIMENSIONS");
  define(device.quirks().slow_vload_half, "OCL_SLOW_VLOAD_HALF");
  define(device.quirks().builtin_prefetch, "OCL_BUILTIN_PREFETCH");
  define(device.quirks().wrong_vector_pow, "OCL_WRONG_VECTOR_POW");
  define(device.quirks().wrong_known_rounding, "OCL_WRONG_KNOWN_ROUNDING");
  define(device.quirks().slow_int64_to_real, "OCL_SLOW_INT64_TO_REAL");
  return options;
}

/// The text of an error for a program that does not build.
std::string report(const std::string& name, const std::string& log, const std::string& options) {
  return name + "\n" + log + (log.ends_with('\n') ? "" : "\n") + "Options: " + options;
}

std::string build_log(cl_program program, const Device& device) {
  size_t size = 0;
  if (api().clGetProgramBuildInfo(program, device.id(), CL_PROGRAM_BUILD_LOG, 0, nullptr, &size) !=
      CL_SUCCESS) {
    return {};
  }
  std::string log(size, '\0');
  api().clGetProgramBuildInfo(program, device.id(), CL_PROGRAM_BUILD_LOG, size, log.data(),
                              nullptr);
  log.resize(log.find_last_not_of(std::string_view("\0 \n", 3)) + 1);
  return driver_text(log);
}

std::string binary_from(cl_program program, const Device& device) {
  size_t size = 0;
  OCL_CALL(&device, clGetProgramInfo, program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size,
           nullptr);
  std::string binary(size, '\0');
  unsigned char* pointers[] = {reinterpret_cast<unsigned char*>(binary.data())};
  OCL_CALL(&device, clGetProgramInfo, program, CL_PROGRAM_BINARIES, sizeof pointers, pointers,
           nullptr);
  return binary;
}

/// A program made from a binary and built. Null if the driver won't have it: `code` says why, and
/// `log`, if given, gets what the compiler says.
cl_program from_binary(const Device& device, const std::string& binary, const std::string& options,
                       cl_int& code, std::string* log = nullptr) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(binary.data());
  const size_t size = binary.size();
  const cl_device_id id = device.id();
  cl_int status = CL_SUCCESS;
  cl_program program =
      api().clCreateProgramWithBinary(device.context(), 1, &id, &size, &bytes, &status, &code);
  if (code == CL_SUCCESS) code = status;
  if (program == nullptr) return nullptr;
  if (code == CL_SUCCESS) {
    code = api().clBuildProgram(program, 1, &id, options.c_str(), nullptr, nullptr);
    if (code == CL_SUCCESS) return program;
    if (log != nullptr) *log = build_log(program, device);
  }
  api().clReleaseProgram(program);
  return nullptr;
}

/// A program of the driver's own binary of that one. Null where it hands out none, or won't have
/// it.
cl_program lean_copy(cl_program program, const Device& device, const std::string& options) {
  try {
    cl_int code = CL_SUCCESS;
    return from_binary(device, binary_from(program, device), options, code);
  } catch (const std::exception&) {
    return nullptr;
  }
}

void trace_build(const std::string& name, const std::string& options, const char* how, uint64_t ns,
                 const std::string& log) {
  if (!verbose(Verbose::build)) return;
  char head[64];
  std::snprintf(head, sizeof head, "build: %s in %.1f ms: ", how, static_cast<double>(ns) * 1e-6);
  trace(head + name + " " + options + (log.empty() ? "" : "\n" + log));
}

std::string head_of(const Device& device) {
  const DeviceProperties& p = device.properties();
  return "torch_ocl program 1\ndevice: " + p.name + "\nvendor: " + p.vendor +
         "\nplatform: " + p.platform + "\nversion: " + p.version + "\ndriver: " + p.driver_version +
         "\n" + compiler_settings();
}

}  // namespace

ProgramStats& program_stats() {
  static ProgramStats stats;
  return stats;
}

Compiler::Compiler(const Device& device)
    : device_(device), options_(common_options(device)), head_(head_of(device)) {}

std::string Compiler::with_options(const std::string& extra) const {
  if (extra.empty()) return options_;
  std::string all = options_ + " " + extra;
  if (extra.find("-cl-std=") != std::string::npos && all.starts_with("-cl-std=")) {
    all.erase(0, all.find(' ') + 1);
  }
  if (device_.properties().limits_registers) {
    const std::string registers = value_of_define(extra, "OCL_MAX_REGISTERS");
    if (!registers.empty() && registers != "0") all += " -cl-nv-maxrregcount=" + registers;
  }
  if (value_of_define(extra, "OCL_LARGE_REGISTERS") == "1") {
    all += " -cl-intel-256-GRF-per-thread";
  }
  return all;
}

std::string Compiler::key(const std::string& name, const std::string& all_options,
                          const Digest& source) const {
  return head_ + "file: " + name + "\noptions: " + all_options + "\nsource: " + source.hex() + "\n";
}

std::string Compiler::binary_of(cl_program program) const { return binary_from(program, device_); }

cl_program Compiler::load(const std::string& name, const std::string& binary,
                          const std::string& all_options) const {
  const auto start = std::chrono::steady_clock::now();
  cl_int code = CL_SUCCESS;
  cl_program program = from_binary(device_, binary, all_options, code);
  if (program != nullptr) {
    trace_build(name, all_options, "loaded from disk", elapsed_ns(start), {});
  }
  return program;
}

cl_program Compiler::build(const std::string& name, const Source& source,
                           const std::string& all_options) const {
  const auto start = std::chrono::steady_clock::now();
  const char* text = source.text.data();
  const size_t size = source.text.size();
  cl_int code = CL_SUCCESS;
  cl_program program = api().clCreateProgramWithSource(device_.context(), 1, &text, &size, &code);
  check(code, "clCreateProgramWithSource", &device_);
  const cl_device_id id = device_.id();
  const auto attempt = [&] {
    return api().clBuildProgram(program, 1, &id, all_options.c_str(), nullptr, nullptr);
  };
  code = attempt();
  if (code == CL_BUILD_PROGRAM_FAILURE && device_.quirks().fails_beside_others) code = attempt();
  std::string log = build_log(program, device_);
  if (device_.quirks().ignores_line_directives) log = with_named_lines(log, source.text);
  if (code != CL_SUCCESS) {
    api().clReleaseProgram(program);
    throw Error("clBuildProgram", code, &device_, report(name, log, all_options));
  }
  if (!value_of_define(all_options, "OCL_PTX_TARGET").empty()) {
    program = assemble(name, program, all_options);
  } else if (device_.quirks().keeps_compiler) {
    // Without one, the program serves as it is.
    if (cl_program lean = lean_copy(program, device_, all_options)) {
      api().clReleaseProgram(program);
      program = lean;
    }
  }
  const uint64_t ns = elapsed_ns(start);
  program_stats().built.fetch_add(1);
  program_stats().build_ns.fetch_add(ns);
  trace_build(name, all_options, "built", ns, log);
  return program;
}

/// The program in the place of `compiled`: its PTX, changed as retarget.h says, assembled anew.
cl_program Compiler::assemble(const std::string& name, cl_program compiled,
                              const std::string& all_options) const {
  struct Release {
    ~Release() { api().clReleaseProgram(program); }
    cl_program program;
  } release{compiled};
  cl_int code = CL_BUILD_PROGRAM_FAILURE;
  std::string log, ptx = binary_of(compiled);
  try {
    ptx = retarget_ptx(std::move(ptx), value_of_define(all_options, "OCL_PTX_TARGET"));
    const std::string local = value_of_define(all_options, "OCL_PTX_LOCAL");
    if (!local.empty()) ptx = resize_local_array(std::move(ptx), local);
    if (cl_program program = from_binary(device_, ptx, all_options, code, &log)) return program;
  } catch (const std::runtime_error& error) {
    log = error.what();
  }
  throw Error("clBuildProgram", code, &device_, report(name + " retargeted", log, all_options));
}

}  // namespace ocl
