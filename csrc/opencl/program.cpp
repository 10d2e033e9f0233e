#include "opencl/program.h"

#include <chrono>
#include <cstdlib>
#include <optional>
#include <unordered_map>
#include <vector>

#include "opencl/build_progress.h"
#include "opencl/build_workers.h"
#include "opencl/disk_cache.h"
#include "opencl/log.h"
#include "opencl/platform.h"
#include "opencl/queue.h"
#include "opencl/quirks.h"
#include "opencl/sources.h"

namespace ocl {
namespace {

constexpr std::chrono::milliseconds kLook{200};

/// Files of a folder may be edited while the process runs.
bool sources_may_change() { return std::getenv("TORCH_OCL_KERNEL_DIR") != nullptr; }

}  // namespace

struct ProgramCache::Impl {
  using MakeSource = std::function<std::shared_ptr<const Source>()>;

  Impl(ProgramCache& cache, Device& device) : cache(cache), device(device), compiler(device) {}

  Program& entry(const std::string& key, const std::string& name, const std::string& options,
                 MakeSource make_source);
  std::shared_ptr<const Source> file_source(const std::string& path);
  void begin(Program& program);
  cl_program wait(Program& program, bool takes_back = true);
  void build_for_others(Program& program);
  cl_program make_once(Program& program);
  cl_program make(const Program& program, const Source& source, const std::string& options);
  std::string key_of(const Program& program, const Source& source, const std::string& options);
  cl_program load(const std::string& key, const std::string& name, const std::string& options);
  bool builds_elsewhere() const;
  std::shared_ptr<BuildJob> send(Program& program, const Source& source, const std::string& options,
                                 const std::string& key);
  void receive(Program& program, const std::string& options, const std::string& key, bool built,
               uint64_t ns);

  ProgramCache& cache;
  Device& device;
  const Compiler compiler;
  DiskCache disk;
  std::mutex mutex;  // guards what follows
  std::unordered_map<std::string, std::unique_ptr<Program>> entries;
  std::unordered_map<std::string, std::shared_ptr<const Source>> sources;
  std::unordered_map<cl_program, std::string> unstored;  // program -> key on disk
  std::atomic<size_t> unstored_count{0};
};

Program& ProgramCache::Impl::entry(const std::string& key, const std::string& name,
                                   const std::string& options, MakeSource make_source) {
  check_not_forked();
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Program>& place = entries[key];
  if (!place) {
    place = std::make_unique<Program>();
    place->cache_ = &cache;
    place->name_ = name;
    place->options_ = options;
    place->source_ = std::move(make_source);
  }
  return *place;
}

std::shared_ptr<const Source> ProgramCache::Impl::file_source(const std::string& path) {
  const bool may_change = sources_may_change();
  if (!may_change) {
    std::lock_guard<std::mutex> lock(mutex);
    if (const auto it = sources.find(path); it != sources.end()) return it->second;
  }
  // OpenCL C lets a compiler contract a * b + c by default; CPU torch rounds twice.
  std::string text = "#pragma OPENCL FP_CONTRACT OFF\n";
  // __attribute__(()) says nothing. Launches give the work-group's size anyway.
  if (device.quirks().fixed_groups_lack_local_arguments) {
    text += "#define reqd_work_group_size(...)\n";
  }
  auto source = std::make_shared<Source>(text + kernel_source(path));
  if (!may_change) {
    std::lock_guard<std::mutex> lock(mutex);
    sources[path] = source;
  }
  return source;
}

/// Whether build workers may serve: they leave binaries on disk, which must be whole before the
/// first launch.
bool ProgramCache::Impl::builds_elsewhere() const {
  const Quirks& quirks = device.quirks();
  return disk.enabled() && !quirks.compiles_at_launch &&
         !quirks.fixed_groups_lack_local_arguments && !sources_may_change() &&
         BuildWorkers::instance().usable(device);
}

/// Loads a program, or has a worker build it, or builds it where that can't be.
void ProgramCache::Impl::begin(Program& program) {
  check_not_forked();
  if (program.ready() != nullptr) return;
  if (!builds_elsewhere()) {
    wait(program);
    return;
  }
  const std::lock_guard<std::mutex> lock(program.mutex_);
  if (program.ready() != nullptr || program.job_ != nullptr) return;
  if (program.failure_) throw Error(*program.failure_);
  if (program.was_sent_) return;  // no worker could build it: that is for who waits
  const std::shared_ptr<const Source> source = program.source_();
  const std::string options = compiler.with_options(program.options_);
  const std::string key = compiler.key(program.name_, options, source->hash);
  if (cl_program loaded = load(key, program.name_, options)) {
    program.set(loaded);
  } else {
    program.job_ = send(program, *source, options, key);
    program.was_sent_ = true;
  }
}

std::shared_ptr<BuildJob> ProgramCache::Impl::send(Program& program, const Source& source,
                                                   const std::string& options,
                                                   const std::string& key) {
  const BuildRequest request{static_cast<uint32_t>(device.index()), key, program.name_, options,
                             source.text};
  auto job = std::make_shared<BuildJob>(
      request,
      [=, this, &program](bool built, uint64_t ns) { receive(program, options, key, built, ns); },
      [this, &program] { build_for_others(program); });
  BuildWorkers::instance().add(job, device);
  return job;
}

/// Called by the workers' thread. A program that a worker could not build is built by who waits.
void ProgramCache::Impl::receive(Program& program, const std::string& options,
                                 const std::string& key, bool built, uint64_t ns) {
  const std::lock_guard<std::mutex> lock(program.mutex_);
  if (built) {
    program_stats().built.fetch_add(1);
    program_stats().built_by_workers.fetch_add(1);
    program_stats().build_ns.fetch_add(ns);
    if (const std::optional<std::string> binary = disk.load(key)) {
      program.set(compiler.load(program.name_, *binary, options));
    }
  }
  program.job_ = nullptr;
  program.job_over_.notify_all();
}

cl_program ProgramCache::Impl::wait(Program& program, bool takes_back) {
  check_not_forked();
  BuildWorkers& workers = BuildWorkers::instance();
  std::unique_lock<std::mutex> lock(program.mutex_);
  while (program.job_ != nullptr) {
    takes_back = takes_back || !workers.any();
    if (takes_back && workers.take_back(program.job_.get())) {
      program.job_ = nullptr;
      break;
    }
    const Building building(device, true);
    lock.unlock();
    const bool helped = takes_back && workers.help();
    lock.lock();
    // Workers may be gone by then, before one of them began with it.
    if (!helped) {
      program.job_over_.wait_for(lock, kLook, [&] { return program.job_ == nullptr; });
    }
  }
  return make_once(program);
}

/// A thread that waits for another program builds this one. Who waits for it gets its error.
void ProgramCache::Impl::build_for_others(Program& program) {
  const std::lock_guard<std::mutex> lock(program.mutex_);
  program.job_ = nullptr;
  program.job_over_.notify_all();
  try {
    make_once(program);
  } catch (const std::exception&) {
  }
}

/// The program, which this thread makes unless somebody has. Its mutex is held.
cl_program ProgramCache::Impl::make_once(Program& program) {
  if (cl_program made = program.ready()) return made;
  // A program that did not build won't the next time either, unless its file can be edited.
  if (program.failure_ && !sources_may_change()) throw Error(*program.failure_);
  try {
    program.set(make(program, *program.source_(), compiler.with_options(program.options_)));
    return program.ready();
  } catch (const Error& error) {
    if (error.code() == CL_BUILD_PROGRAM_FAILURE) program.failure_ = std::make_unique<Error>(error);
    throw;
  }
}

cl_program ProgramCache::Impl::make(const Program& program, const Source& source,
                                    const std::string& options) {
  std::string key;
  if (disk.enabled()) {
    key = compiler.key(program.name_, options, source.hash);
    if (cl_program made = load(key, program.name_, options)) return made;
  }
  const Building building(device, disk.enabled());
  cl_program made = compiler.build(program.name_, source, options);
  if (disk.enabled()) {
    std::lock_guard<std::mutex> lock(mutex);
    unstored[made] = std::move(key);
    unstored_count.store(unstored.size());
  }
  return made;
}

/// Null if the disk has no binary that the driver takes.
cl_program ProgramCache::Impl::load(const std::string& key, const std::string& name,
                                    const std::string& options) {
  const auto start = std::chrono::steady_clock::now();
  const std::optional<std::string> binary = disk.load(key);
  if (!binary) return nullptr;
  cl_program program = compiler.load(name, *binary, options);
  if (program == nullptr) return nullptr;
  program_stats().loaded.fetch_add(1);
  program_stats().load_ns.fetch_add(static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count()));
  return program;
}

cl_program Program::wait() {
  if (cl_program made = ready()) return made;
  return cache_->impl_->wait(*this);
}

cl_program Program::wait_beside_others() {
  static std::atomic<int> builders{0};
  struct Count {
    ~Count() { builders.fetch_sub(1); }
    bool is_first = builders.fetch_add(1) == 0;
  } const count;
  begin();
  return cache_->impl_->wait(*this, count.is_first || !BuildWorkers::instance().any());
}

void Program::begin() { cache_->impl_->begin(*this); }

void Program::set(cl_program program) {
  if (program == nullptr) return;
  source_ = nullptr;  // a generated text would stay in memory
  program_.store(program, std::memory_order_release);
}

ProgramCache::ProgramCache(Device& device) : impl_(std::make_unique<Impl>(*this, device)) {}

void ProgramCache::prepare() {
  const bool waits_long = impl_->device.properties().device_class != DeviceClass::cpu;
  if (waits_long && impl_->builds_elsewhere() && impl_->disk.empty()) {
    BuildWorkers::instance().start_ahead(impl_->device);
  }
}

ProgramCache::~ProgramCache() {
  if (process_was_forked()) return;
  for (const auto& [key, entry] : impl_->entries) {
    if (cl_program program = entry->ready()) api().clReleaseProgram(program);
  }
}

Program& ProgramCache::request(const std::string& path, const std::string& options) {
  Program& program = impl_->entry(path + "\n" + options, path, options,
                                  [impl = impl_.get(), path] { return impl->file_source(path); });
  // The package's own files build, or else the driver is broken. Others' errors are raised at once.
  if (embedded_kernel(path).empty()) program.wait();
  program.begin();
  return program;
}

namespace {

/// The first line is numbered 1 in build logs, under the caller's name.
std::shared_ptr<const Source> numbered(const std::string& name, const std::string& source) {
  return std::make_shared<Source>("#line 1 \"" + name + "\"\n" + source);
}

/// Two line ends: no key of a file has an empty path's remainder in front of them.
std::string key_of_text(const std::string& name, const Source& source, const std::string& options) {
  return name + "\n\n" + source.hash.hex() + "\n" + options;
}

}  // namespace

Program& ProgramCache::of_text(const std::string& name, const std::string& source,
                               const std::string& options) {
  const auto text = numbered(name, source);
  return impl_->entry(key_of_text(name, *text, options), name, options, [text] { return text; });
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
    impl_->disk.store(key, impl_->compiler.binary_of(program));
  } catch (const std::exception& error) {
    // The program itself is fine: a driver that won't hand out binaries costs time, not results.
    warn(std::string("a program can't be stored: ") + error.what());
  }
}

}  // namespace ocl
