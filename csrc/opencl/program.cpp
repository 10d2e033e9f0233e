#include "opencl/program.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <unordered_map>
#include <vector>

#include "opencl/disk_cache.h"
#include "opencl/log.h"
#include "opencl/platform.h"
#include "opencl/queue.h"
#include "opencl/quirks.h"
#include "opencl/retarget.h"
#include "opencl/sources.h"

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
  // kernels/include/indexing.clh says why.
  const bool intel = p.platform.find("Intel") != std::string::npos;
  define(intel && p.tuning_class == DeviceClass::gpu, "OCL_UNROLL_DIMENSIONS");
  define(device.quirks().slow_vload_half, "OCL_SLOW_VLOAD_HALF");
  define(device.quirks().builtin_prefetch, "OCL_BUILTIN_PREFETCH");
  define(device.quirks().wrong_vector_pow, "OCL_WRONG_VECTOR_POW");
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
  return log;
}

std::string binary_of(cl_program program, const Device& device) {
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

void trace_build(const std::string& name, const std::string& options, const char* how, uint64_t ns,
                 const std::string& log) {
  if (!verbose(Verbose::build)) return;
  char head[64];
  std::snprintf(head, sizeof head, "build: %s in %.1f ms: ", how, static_cast<double>(ns) * 1e-6);
  trace(head + name + " " + options + (log.empty() ? "" : "\n" + log));
}

/// Says once a process what takes so long, where somebody watches: when threads have built for two
/// seconds in all, also in the midst of a build. While one of these lives, its thread builds.
class Building {
 public:
  Building(const Device& device, bool kept) {
    const std::lock_guard lock(state().mutex);
    if (state().threads++ == 0) state().since = std::chrono::steady_clock::now();
    if (state().said || state().watched || isatty(STDERR_FILENO) == 0) return;
    state().watched = true;
    std::thread(watch, device.properties().name, kept).detach();
  }
  ~Building() {
    const std::lock_guard lock(state().mutex);
    if (--state().threads > 0) return;
    state().before += std::chrono::steady_clock::now() - state().since;
    state().idle.notify_all();
  }
  Building(const Building&) = delete;
  Building& operator=(const Building&) = delete;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable idle;
    int threads = 0;
    std::chrono::steady_clock::time_point since;   // the first of them began
    std::chrono::steady_clock::duration before{};  // with at least one thread, until then
    bool said = false, watched = false;
  };
  // Leaked: a thread may wait for it at exit.
  static State& state() {
    static auto* one = new State();
    return *one;
  }
  static void watch(const std::string& name, bool kept) {
    constexpr std::chrono::seconds kPatience{2};
    State& state = Building::state();
    std::unique_lock lock(state.mutex);
    const auto due = state.since + (kPatience - state.before);
    state.said = !state.idle.wait_until(lock, due, [&] { return state.threads == 0; });
    state.watched = false;
    if (!state.said) return;
    trace("building kernels for " + name + ", " + std::to_string(program_stats().built.load()) +
          " so far" + (kept ? "; the next run will find them in " + cache_folder().path() : ""));
  }
};

struct Source {
  std::string text;
  Digest hash;
};

}  // namespace

ProgramStats& program_stats() {
  static ProgramStats stats;
  return stats;
}

namespace {

/// Files of a folder may be edited while the process runs.
bool sources_may_change() { return std::getenv("TORCH_OCL_KERNEL_DIR") != nullptr; }

}  // namespace

struct ProgramCache::Impl {
  // Its mutex is held while the program is built: others wait for this program only.
  struct Entry {
    std::mutex mutex;
    std::atomic<cl_program> program{nullptr};
    std::unique_ptr<Error> failure;  // of the last build; guarded by the mutex
  };

  explicit Impl(Device& device) : device(device), options(common_options(device)) {
    const DeviceProperties& p = device.properties();
    key_head = "torch_ocl program 1\ndevice: " + p.name + "\nvendor: " + p.vendor +
               "\nplatform: " + p.platform + "\nversion: " + p.version +
               "\ndriver: " + p.driver_version + "\n" + compiler_settings();
  }

  Entry& entry(const std::string& key) {
    std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<Entry>& place = entries[key];
    if (!place) place = std::make_unique<Entry>();
    return *place;
  }

  /// The device's options and those of one program, whose own -cl-std takes the other's place:
  /// drivers differ in which of two they take.
  std::string with_options(const std::string& extra) const {
    if (extra.empty()) return options;
    std::string all = options + " " + extra;
    if (extra.find("-cl-std=") != std::string::npos && all.starts_with("-cl-std=")) {
      all.erase(0, all.find(' ') + 1);
    }
    if (device.properties().limits_registers) {
      const std::string registers = value_of_define(extra, "OCL_MAX_REGISTERS");
      if (!registers.empty() && registers != "0") all += " -cl-nv-maxrregcount=" + registers;
    }
    if (value_of_define(extra, "OCL_LARGE_REGISTERS") == "1") {
      all += " -cl-intel-256-GRF-per-thread";
    }
    return all;
  }

  template <class MakeSource>
  cl_program get(const std::string& key, const std::string& name, const std::string& extra,
                 MakeSource&& make_source) {
    check_not_forked();
    Entry& place = entry(key);
    if (cl_program program = place.program.load(std::memory_order_acquire)) return program;
    std::lock_guard<std::mutex> lock(place.mutex);
    if (cl_program program = place.program.load(std::memory_order_relaxed)) return program;
    // A program that did not build won't the next time either, unless its file can be edited.
    if (place.failure && !sources_may_change()) throw Error(*place.failure);
    try {
      cl_program program = make(name, *make_source(), with_options(extra));
      place.program.store(program, std::memory_order_release);
      return program;
    } catch (const Error& error) {
      if (error.code() == CL_BUILD_PROGRAM_FAILURE) place.failure = std::make_unique<Error>(error);
      throw;
    }
  }

  std::shared_ptr<const Source> file_source(const std::string& path);
  cl_program make(const std::string& name, const Source& source, const std::string& all_options);
  cl_program load(const std::string& key, const std::string& name, const std::string& all_options);
  cl_program build(const std::string& name, const Source& source, const std::string& all_options);
  cl_program assemble(const std::string& name, cl_program compiled, const std::string& all_options);

  Device& device;
  const std::string options;
  std::string key_head;  // what a binary depends on besides source and options
  DiskCache disk;
  std::mutex mutex;  // guards what follows
  std::unordered_map<std::string, std::unique_ptr<Entry>> entries;
  std::unordered_map<std::string, std::shared_ptr<const Source>> sources;
  std::unordered_map<cl_program, std::string> unstored;  // program -> key on disk
  std::atomic<size_t> unstored_count{0};
};

std::shared_ptr<const Source> ProgramCache::Impl::file_source(const std::string& path) {
  const bool may_change = sources_may_change();
  if (!may_change) {
    std::lock_guard<std::mutex> lock(mutex);
    if (const auto it = sources.find(path); it != sources.end()) return it->second;
  }
  auto source = std::make_shared<Source>();
  // OpenCL C lets a compiler contract a * b + c by default; CPU torch rounds twice.
  source->text = "#pragma OPENCL FP_CONTRACT OFF\n";
  // __attribute__(()) says nothing. Launches give the work-group's size anyway.
  if (device.quirks().fixed_groups_lack_local_arguments) {
    source->text += "#define reqd_work_group_size(...)\n";
  }
  source->text += kernel_source(path);
  source->hash = digest(source->text);
  if (!may_change) {
    std::lock_guard<std::mutex> lock(mutex);
    sources[path] = source;
  }
  return source;
}

cl_program ProgramCache::Impl::make(const std::string& name, const Source& source,
                                    const std::string& all_options) {
  std::string key;
  if (disk.enabled()) {
    key = key_head + "file: " + name + "\noptions: " + all_options +
          "\nsource: " + source.hash.hex() + "\n";
    if (cl_program program = load(key, name, all_options)) return program;
  }
  cl_program program = build(name, source, all_options);
  if (disk.enabled()) {
    std::lock_guard<std::mutex> lock(mutex);
    unstored[program] = std::move(key);
    unstored_count.store(unstored.size());
  }
  return program;
}

/// Null if the disk has no binary that the driver takes.
cl_program ProgramCache::Impl::load(const std::string& key, const std::string& name,
                                    const std::string& all_options) {
  const auto start = std::chrono::steady_clock::now();
  const std::optional<std::string> binary = disk.load(key);
  if (!binary) return nullptr;
  cl_int code = CL_SUCCESS;
  cl_program program = from_binary(device, *binary, all_options, code);
  if (program == nullptr) return nullptr;
  const uint64_t ns = elapsed_ns(start);
  program_stats().loaded.fetch_add(1);
  program_stats().load_ns.fetch_add(ns);
  trace_build(name, all_options, "loaded from disk", ns, {});
  return program;
}

cl_program ProgramCache::Impl::build(const std::string& name, const Source& source,
                                     const std::string& all_options) {
  const Building building(device, disk.enabled());
  const auto start = std::chrono::steady_clock::now();
  const char* text = source.text.data();
  const size_t size = source.text.size();
  cl_int code = CL_SUCCESS;
  cl_program program = api().clCreateProgramWithSource(device.context(), 1, &text, &size, &code);
  check(code, "clCreateProgramWithSource", &device);
  const cl_device_id id = device.id();
  code = api().clBuildProgram(program, 1, &id, all_options.c_str(), nullptr, nullptr);
  const std::string log = build_log(program, device);
  if (code != CL_SUCCESS) {
    api().clReleaseProgram(program);
    throw Error("clBuildProgram", code, &device, report(name, log, all_options));
  }
  if (!value_of_define(all_options, "OCL_PTX_TARGET").empty()) {
    program = assemble(name, program, all_options);
  } else if (device.quirks().keeps_compiler) {
    // Where the driver does not take its own binary, the program serves as it is.
    if (cl_program lean = from_binary(device, binary_of(program, device), all_options, code)) {
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
cl_program ProgramCache::Impl::assemble(const std::string& name, cl_program compiled,
                                        const std::string& all_options) {
  struct Release {
    ~Release() { api().clReleaseProgram(program); }
    cl_program program;
  } release{compiled};
  cl_int code = CL_BUILD_PROGRAM_FAILURE;
  std::string log, ptx = binary_of(compiled, device);
  try {
    ptx = retarget_ptx(std::move(ptx), value_of_define(all_options, "OCL_PTX_TARGET"));
    const std::string local = value_of_define(all_options, "OCL_PTX_LOCAL");
    if (!local.empty()) ptx = resize_local_array(std::move(ptx), local);
    if (cl_program program = from_binary(device, ptx, all_options, code, &log)) return program;
  } catch (const std::runtime_error& error) {
    log = error.what();
  }
  throw Error("clBuildProgram", code, &device, report(name + " retargeted", log, all_options));
}

ProgramCache::ProgramCache(Device& device) : impl_(std::make_unique<Impl>(device)) {}

ProgramCache::~ProgramCache() {
  if (process_was_forked()) return;
  for (const auto& [key, entry] : impl_->entries) {
    if (cl_program program = entry->program.load()) api().clReleaseProgram(program);
  }
}

cl_program ProgramCache::get(const std::string& path, const std::string& options) {
  return impl_->get(path + "\n" + options, path, options, [&] { return impl_->file_source(path); });
}

cl_program ProgramCache::get_from_source(const std::string& name, const std::string& source,
                                         const std::string& options) {
  auto shared = std::make_shared<Source>();
  // The first line is numbered 1 in build logs, under the caller's name.
  shared->text = "#line 1 \"" + name + "\"\n" + source;
  shared->hash = digest(shared->text);
  // Two line ends: no key of get() has an empty path's remainder in front of them.
  return impl_->get(name + "\n\n" + shared->hash.hex() + "\n" + options, name, options,
                    [&] { return shared; });
}

void ProgramCache::store_after_first_launch(cl_program program, Queue& queue) {
  if (impl_->unstored_count.load(std::memory_order_relaxed) == 0) return;
  std::string key;
  {
    std::lock_guard<std::mutex> lock(impl_->mutex);
    const auto it = impl_->unstored.find(program);
    if (it == impl_->unstored.end()) return;
    key = std::move(it->second);
    impl_->unstored.erase(it);
    impl_->unstored_count.store(impl_->unstored.size());
  }
  if (impl_->device.quirks().compiles_at_launch) queue.finish();
  try {
    impl_->disk.store(key, binary_of(program, impl_->device));
  } catch (const std::exception& error) {
    // The program itself is fine: a driver that won't hand out binaries costs time, not results.
    warn(std::string("a program can't be stored: ") + error.what());
  }
}

}  // namespace ocl
