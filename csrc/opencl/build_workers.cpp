#include "opencl/build_workers.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "opencl/compiler.h"
#include "opencl/device.h"
#include "opencl/environment.h"
#include "opencl/log.h"
#include "opencl/platform.h"

namespace ocl {
namespace {

using Clock = std::chrono::steady_clock;

/// A worker says that it can build, or how a build went.
struct Answer {
  enum Kind : uint64_t { ready = 1, built, failed } kind;
  uint64_t ns;
};

// A context takes some 300 MiB of a GPU's memory: workers get a tenth of it at most, or so. A
// compiler takes up to 1 GiB of the host's.
constexpr uint64_t kMemoryOfWorker = uint64_t{3} << 30, kHostMemoryOfWorker = uint64_t{1} << 30;
constexpr int kMostWorkers = 32;
// Until the first build and the first start have been timed. Drivers take 0.1 to 3 s for a program,
// and 0.3 to 1 s for a context.
constexpr double kBuildSeconds = 0.2, kStartSeconds = 0.5;
// A process that has found none of its programs on disk will miss so many: a small network's. It is
// for GPUs alone: their contexts take long, and a CPU's cores have the kernels to run.
constexpr int kProgramsOfAColdStart = 24;
// A build that takes longer, and twenty times the mean, hangs.
constexpr double kLongestSeconds = 120;
constexpr int kLookMilliseconds = 500;
constexpr std::chrono::seconds kPatienceWithStart{5};

std::vector<std::string>& command() {
  static auto* words = new std::vector<std::string>;
  return *words;
}

/// The cores that this process may use, by its affinity and its control group's quota.
int cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  int count = CPU_COUNT(&set);
  long quota = 0, period = 0;
  if (FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "re"); file != nullptr) {
    if (std::fscanf(file, "%ld %ld", &quota, &period) == 2 && quota > 0 && period > 0) {
      count = std::min(count, static_cast<int>((quota + period - 1) / period));
    }
    std::fclose(file);
  }
  return count;
}

/// Processes of a launcher share cores and devices.
int64_t processes() { return positive_number("LOCAL_WORLD_SIZE", 1); }

/// This process builds, too, so one core is its own.
int allowed_workers() {
  const char* chosen = std::getenv("TORCH_OCL_BUILD_WORKERS");
  if (chosen != nullptr && *chosen != '\0') {
    char* end = nullptr;
    const long number = std::strtol(chosen, &end, 10);
    if (*end == '\0' && number >= 0) return static_cast<int>(std::min(number, long{kMostWorkers}));
    warn(std::string("TORCH_OCL_BUILD_WORKERS=") + chosen + ": a number of processes is expected");
  }
  const auto pages = static_cast<uint64_t>(std::max(0L, sysconf(_SC_AVPHYS_PAGES)));
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto memory = static_cast<int64_t>(pages * page / kHostMemoryOfWorker);
  const int64_t free = std::min<int64_t>(cores() / processes() - 1, memory / processes());
  return static_cast<int>(std::clamp<int64_t>(free, 0, kMostWorkers));
}

int allowed_on(const Device& device) {
  static const int allowed = allowed_workers();
  if (device.properties().device_class == DeviceClass::cpu) return allowed;
  const uint64_t contexts =
      device.properties().global_memory / kMemoryOfWorker / static_cast<uint64_t>(processes());
  return static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(allowed), contexts));
}

void append(std::string& message, const std::string& part) {
  const uint64_t size = part.size();
  message.append(reinterpret_cast<const char*>(&size), sizeof size);
  message.append(part);
}

/// The next part of a message, which is taken off it. Empty where there is none.
std::string take(std::string_view& message) {
  uint64_t size = 0;
  if (message.size() < sizeof size) return {};
  std::memcpy(&size, message.data(), sizeof size);
  message.remove_prefix(sizeof size);
  const std::string part(message.substr(0, size));
  message.remove_prefix(part.size());
  return part;
}

struct Worker {
  pid_t process = 0;
  int socket = -1;
  int device = 0;
  Clock::time_point started;  // the process, and then its job
  bool is_ready = false;
  std::shared_ptr<BuildJob> job;
  size_t sent = 0;  // bytes of the job's message
};

/// A process with one end of a socket as its descriptor 3; false if it can't be started.
bool start(Worker& worker, int device) {
  std::vector<std::string> words = command();
  words.push_back(std::to_string(device));
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  // Not the standard ones, which may be closed, and not the one that the worker finds it at.
  for (int& end : ends) {
    const int other = fcntl(end, F_DUPFD_CLOEXEC, 4);
    close(end);
    end = other;
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 3);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  // This process has said what a worker would warn of.
  if (!verbose(Verbose::build)) {
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  const int failed =
      posix_spawn(&worker.process, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failed != 0 || ends[0] < 0) {
    if (ends[0] >= 0) close(ends[0]);
    return false;
  }
  worker.socket = ends[0];
  worker.device = device;
  worker.started = Clock::now();
  return true;
}

}  // namespace

BuildJob::BuildJob(const BuildRequest& request, Done done, std::function<void()> here)
    : done_(std::move(done)), here_(std::move(here)), device_(static_cast<int>(request.device)) {
  std::string body;
  append(body, std::to_string(request.device));
  for (const auto* part : {&request.key, &request.name, &request.options, &request.text}) {
    append(body, *part);
  }
  append(message_, body);
}

struct BuildWorkers::Impl {
  mutable std::mutex mutex;  // of what follows
  std::deque<std::shared_ptr<BuildJob>> queue;
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<pid_t> leaving;   // processes whose sockets are closed
  int allowed = 0, device = 0;  // of the job that was added last
  uint64_t outstanding = 0;
  double start_seconds = kStartSeconds;
  bool has_thread = false, expects_more = false;
  std::atomic<bool> failed{false};
  int wake = -1;
  std::mutex of_callbacks;  // held while the thread calls back, and from exit() on

  bool gains_by_another() const;
  void wake_thread(const Device& of);
  void start_some();
  void hand_out();
  void send(Worker& worker);
  using Answers = std::vector<std::pair<std::shared_ptr<BuildJob>, Answer>>;
  bool receive(Worker& worker, Answers& over);
  void lose(Worker& worker, Answers& over);
  double mean_seconds() const;
  double programs_to_come() const;
  bool is_gone(const Worker& worker) const;
  [[noreturn]] void serve();
};

double BuildWorkers::Impl::mean_seconds() const {
  const ProgramStats& stats = program_stats();
  const auto built = static_cast<double>(stats.built.load());
  return built < 1 ? kBuildSeconds : static_cast<double>(stats.build_ns.load()) * 1e-9 / built;
}

/// Those that wait and have no worker yet, and those that a cold start will ask for.
double BuildWorkers::Impl::programs_to_come() const {
  const ProgramStats& stats = program_stats();
  const auto starting = std::ranges::count_if(workers, [](const auto& w) { return !w->is_ready; });
  const auto waiting = static_cast<double>(std::ssize(queue) - starting);
  if (!expects_more || stats.loaded.load() > 0) return waiting;
  const auto built = static_cast<double>(stats.built.load());
  return std::max(waiting, kProgramsOfAColdStart - built);
}

/// Whether programs to come take the processes that build longer than a further one takes to start.
bool BuildWorkers::Impl::gains_by_another() const {
  const auto builders = static_cast<double>(workers.size() + 1);
  return !failed && std::ssize(workers) < allowed &&
         programs_to_come() * mean_seconds() > start_seconds * builders;
}

void BuildWorkers::Impl::start_some() {
  while (gains_by_another()) {
    auto worker = std::make_unique<Worker>();
    if (!start(*worker, device)) {
      failed = true;
      return;
    }
    workers.push_back(std::move(worker));
  }
}

void BuildWorkers::Impl::hand_out() {
  for (const auto& worker : workers) {
    if (!worker->is_ready || worker->job != nullptr) continue;
    const auto next = std::ranges::find_if(
        queue, [&](const auto& job) { return job->device_ == worker->device; });
    if (next == queue.end()) continue;
    worker->job = std::move(*next);
    queue.erase(next);
    worker->job->taken_ = true;
    worker->started = Clock::now();
    worker->sent = 0;
    send(*worker);
  }
}

void BuildWorkers::Impl::send(Worker& worker) {
  const std::string& message = worker.job->message_;
  while (worker.sent < message.size()) {
    const ssize_t size = ::send(worker.socket, message.data() + worker.sent,
                                message.size() - worker.sent, MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return;  // later, or the worker is gone, which receive() finds
    worker.sent += static_cast<size_t>(size);
  }
}

/// False if the worker is gone.
bool BuildWorkers::Impl::receive(Worker& worker, Answers& over) {
  Answer answer{};
  ssize_t size = 0;
  do {
    size = recv(worker.socket, &answer, sizeof answer, 0);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
  if (size != sizeof answer) return false;  // answers are so short that they come whole
  if (answer.kind == Answer::ready) {
    worker.is_ready = true;
    start_seconds = std::chrono::duration<double>(Clock::now() - worker.started).count();
  } else if (worker.job != nullptr) {
    over.emplace_back(std::move(worker.job), answer);
  }
  return true;
}

/// Whether the process has ended, though somebody else may hold its end of the socket, as a process
/// that was forked meanwhile does; or hangs, and is ended.
bool BuildWorkers::Impl::is_gone(const Worker& worker) const {
  if (waitpid(worker.process, nullptr, WNOHANG) != 0) return true;
  const double longest = std::max(kLongestSeconds, 20 * mean_seconds());
  const bool works = worker.job != nullptr || !worker.is_ready;
  if (!works || Clock::now() - worker.started < std::chrono::duration<double>(longest))
    return false;
  kill(worker.process, SIGKILL);
  return true;
}

/// Gives its job back, which this process then builds.
void BuildWorkers::Impl::lose(Worker& worker, Answers& over) {
  if (!worker.is_ready) failed = true;  // a driver that refuses a second process
  if (worker.job != nullptr) over.emplace_back(std::move(worker.job), Answer{Answer::failed, 0});
  close(worker.socket);
  leaving.push_back(worker.process);
}

void BuildWorkers::Impl::serve() {
  for (;;) {
    std::vector<pollfd> watched{{wake, POLLIN, 0}};
    {
      const std::lock_guard lock(mutex);
      start_some();
      hand_out();
      for (const auto& worker : workers) {
        const bool sends = worker->job != nullptr && worker->sent < worker->job->message_.size();
        const auto events = static_cast<int16_t>(sends ? POLLIN | POLLOUT : POLLIN);
        watched.push_back({worker->socket, events, 0});
      }
    }
    const bool looks = watched.size() > 1 || !leaving.empty();
    if (poll(watched.data(), watched.size(), looks ? kLookMilliseconds : -1) < 0) {
      for (pollfd& one : watched) one.revents = 0;
    }
    if ((watched[0].revents & POLLIN) != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t size = read(wake, &count, sizeof count);
    }
    Answers over;
    {
      const std::lock_guard lock(mutex);
      for (size_t i = 1; i < watched.size(); ++i) {
        std::unique_ptr<Worker>& worker = workers[i - 1];
        if ((watched[i].revents & POLLOUT) != 0) send(*worker);
        const bool speaks = (watched[i].revents & ~POLLOUT) != 0;
        if ((speaks && !receive(*worker, over)) || is_gone(*worker)) {
          lose(*worker, over);
          worker.reset();
        }
      }
      std::erase(workers, nullptr);
      std::erase_if(leaving, [](pid_t one) { return waitpid(one, nullptr, WNOHANG) != 0; });
      outstanding -= over.size();
      hand_out();
    }
    const std::lock_guard lock(of_callbacks);
    for (const auto& [job, answer] : over) job->done_(answer.kind == Answer::built, answer.ns);
  }
}

BuildWorkers::BuildWorkers() : impl_(new Impl) {
  impl_->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  // A driver may not be called any more while its library is torn down, which comes after this.
  std::atexit([] {
    if (!process_was_forked()) instance().impl_->of_callbacks.lock();
  });
}

void BuildWorkers::configure(std::vector<std::string> words) { command() = std::move(words); }

BuildWorkers& BuildWorkers::instance() {
  static BuildWorkers workers;
  return workers;
}

bool BuildWorkers::usable(const Device& device) const {
  return !command().empty() && !impl_->failed && impl_->wake >= 0 && allowed_on(device) > 0;
}

/// Has the thread look at what there is to do. The caller holds `mutex`.
void BuildWorkers::Impl::wake_thread(const Device& of) {
  allowed = allowed_on(of);
  device = of.index();
  expects_more = of.properties().device_class != DeviceClass::cpu;
  if (!has_thread && !failed) {
    try {
      std::thread([this] { serve(); }).detach();
      has_thread = true;
    } catch (const std::exception&) {  // no more threads: who waits takes the job back
      failed = true;
    }
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = write(wake, &one, sizeof one);
}

void BuildWorkers::add(std::shared_ptr<BuildJob> job, const Device& device) {
  const std::lock_guard lock(impl_->mutex);
  impl_->queue.push_back(std::move(job));
  ++impl_->outstanding;
  impl_->wake_thread(device);
}

void BuildWorkers::start_ahead(const Device& device) {
  const std::lock_guard lock(impl_->mutex);
  impl_->wake_thread(device);
}

bool BuildWorkers::take_back(const BuildJob* job) {
  const std::lock_guard lock(impl_->mutex);
  if (job->taken_) return false;
  std::erase_if(impl_->queue, [&](const auto& other) { return other.get() == job; });
  --impl_->outstanding;
  return true;
}

bool BuildWorkers::help() {
  std::shared_ptr<BuildJob> job;
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->queue.empty()) return false;
    job = std::move(impl_->queue.back());
    impl_->queue.pop_back();
    job->taken_ = true;
    --impl_->outstanding;
  }
  job->here_();
  return true;
}

bool BuildWorkers::any() const {
  const std::lock_guard lock(impl_->mutex);
  const auto serves = [](const auto& worker) {
    return worker->is_ready || Clock::now() - worker->started < kPatienceWithStart;
  };
  return std::ranges::any_of(impl_->workers, serves);
}

uint64_t BuildWorkers::outstanding() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->outstanding;
}

namespace {

bool read_all(int socket, char* to, size_t size) {
  while (size > 0) {
    const ssize_t got = recv(socket, to, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

Answer answer_to(std::string_view message) {
  const auto start = Clock::now();
  try {
    const int index = std::atoi(take(message).c_str());
    const std::string key = take(message), name = take(message), options = take(message);
    const Device& device = ocl::device(index);
    const Compiler compiler(device);
    if (!compiler.owns(key)) return {Answer::failed, 0};
    cl_program program = compiler.build(name, Source(take(message)), options);
    static const DiskCache disk;
    const bool stored = disk.store(key, compiler.binary_of(program));
    api().clReleaseProgram(program);
    if (!stored) return {Answer::failed, 0};
  } catch (const std::exception&) {
    return {Answer::failed, 0};  // who asked for it builds again, and reports what is wrong
  }
  const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
  return {Answer::built, static_cast<uint64_t>(took.count())};
}

}  // namespace

void serve_build_requests(int socket, int device) {
  constexpr int kPatience = 10'000;  // ms
  (void)ocl::device(device);
  Answer answer{Answer::ready, 0};
  std::string message;
  while (send(socket, &answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer) {
    pollfd watched{socket, POLLIN, 0};
    if (poll(&watched, 1, kPatience) <= 0) return;
    uint64_t size = 0;
    if (!read_all(socket, reinterpret_cast<char*>(&size), sizeof size)) return;
    message.resize(size);
    if (!read_all(socket, message.data(), size)) return;
    answer = answer_to(message);
  }
}

}  // namespace ocl
