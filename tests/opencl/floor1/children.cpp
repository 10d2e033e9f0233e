#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "harness.h"
#include "kernels.h"
#include "opencl/driver_list.h"
#include "opencl/program.h"
#include "tests.h"
#include "opencl/platform.h"

namespace floor1 {

namespace {

Device& child_device() {
  const char* index = std::getenv("CHILD_DEVICE");
  return device(index == nullptr ? 0 : std::atoi(index));
}

}  // namespace

int run_child(const std::string& name) {
  if (name == "list") {
    std::printf("count %d\n%s\n", device_count(), unavailable_reason().c_str());
    for (int i = 0; i < device_count(); ++i)
      std::printf("%d %s\n", i, device(i).description().c_str());
    std::printf("threw %s\n", message_of([] { device(99); }).c_str());
    return 0;
  }
  if (name == "configure") {
    configure_loader({"/nonexistent/libOpenCL.so", std::getenv("LOADER")},
                     {"/first", "/nonexistent/icd", std::getenv("ICD"), "libname.so.1"});
    const auto files = [] { return std::string(std::getenv("OCL_ICD_FILENAMES")); };
    const std::string path = api().loader_path;
    std::string during;
    {
      const DriverList drivers(configured_drivers());
      during = files();
    }
    std::printf("loader %s\nfiles %s\nthen %s\n", path.c_str(), during.c_str(), files().c_str());
    return 0;
  }
  if (name == "fork_first") {  // a fork before OpenCL is touched harms nobody
    const pid_t pid = fork();
    if (pid == 0) {
      std::printf("%s\n", device_count() > 0 ? "child has devices" : "child has none");
      std::fflush(stdout);
      _exit(0);
    }
    waitpid(pid, nullptr, 0);
    return 0;
  }
  if (const char* mask = std::getenv("CHILD_UMASK")) umask(std::strtoul(mask, nullptr, 8));
  Device& device = child_device();
  if (name == "swap") {
    const fs::path cache = std::getenv("TORCH_OCL_CACHE_DIR"), top = cache.parent_path();
    const auto build = [&](int add) {
      Queue queue(device);
      Memory memory(device, 4096);
      launch(fill_kernel.get(device, {{"ADD", add}}), queue, NDRange::linear(100, 64),
             Pointer{memory.at()}, 100, 1);
      queue.finish();
    };
    build(71);
    fs::rename(cache, top / "held");
    fs::create_directory(top / "other");
    fs::create_symlink(top / "other", cache);
    const auto count = [&] { return std::distance(fs::directory_iterator(top / "held"), {}); };
    const auto before = count();
    build(72);
    std::printf("stored %d of 1\n", static_cast<int>(count() - before));
    return 0;
  }
  if (name == "build" || name == "build_other") {
    const char* asked = std::getenv("ADD");
    const int add = name == "build" ? 0 : asked == nullptr ? 1 : std::atoi(asked);
    Queue queue(device);
    Memory memory(device, 4096);
    Kernel& fill = add == 0 ? fill_kernel.get(device, {}) : fill_kernel.get(device, {{"ADD", add}});
    launch(fill, queue, NDRange::linear(100, 64), Pointer{memory.at()}, 100, 1);
    const bool right = read_ints(queue, memory.at(), 100)[99] == 108 + add;
    std::printf("built %d loaded %d in %.1f ms\n", static_cast<int>(program_stats().built),
                static_cast<int>(program_stats().loaded),
                static_cast<double>(program_stats().build_ns + program_stats().load_ns) * 1e-6);
    return right ? 0 : 1;
  }
  if (name == "exit_pending" || name == "exit_thread") {
    static auto* queue = new Queue(device);
    static auto* memory = new Memory(device, 4096);
    Kernel& slow = slow_kernel.get(device, {});
    for (int i = 0; i < 4; ++i)
      launch(slow, *queue, NDRange::linear(64, 1), Pointer{memory->at()}, 100000);
    queue->flush();
    if (name == "exit_thread") {
      std::thread([&] {
        launch(slow_kernel.get(device, {}), *queue, NDRange::linear(64, 1), Pointer{memory->at()},
               100000);
        for (;;) pause();
      }).detach();
      usleep(20000);
    }
    return 0;
  }
  return 99;
}

}  // namespace floor1
