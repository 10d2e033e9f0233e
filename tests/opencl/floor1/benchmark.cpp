#include <chrono>
#include <cstdio>

#include "harness.h"
#include "kernels.h"
#include "tests.h"

namespace floor1 {

namespace {

template <class Body>
double ns_per(int repeats, Body&& body) {
  double best = 1e300;
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    body(repeats);
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count() / repeats);
  }
  return best;
}

}  // namespace

void benchmark(Device& device) {
  Queue queue(device);
  Memory memory(device, 1 << 16);
  Kernel& kernel = empty_kernel.get(device, {{"T", "int"}, {"ADD", 3}});
  const auto run = [&](int n, bool wait) {
    for (int i = 0; i < n; ++i) {
      launch(empty_kernel.get(device, {{"T", "int"}, {"ADD", 3}}), queue, NDRange::linear(1, 1),
             Pointer{memory.at(static_cast<size_t>(i % 16) * 64)}, i);
    }
    if (wait) queue.finish();
  };
  run(1000, true);
  const double launch_finish = ns_per(1000, [&](int n) { run(n, true); });
  double enqueue_only = 1e300;
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    run(1000, false);
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
    enqueue_only = std::min(enqueue_only, taken.count() / 1000);
    queue.finish();
  }
  const double bare = ns_per(1000, [&](int n) {
    const size_t one = 1;
    for (int i = 0; i < n; ++i) {
      api().clEnqueueNDRangeKernel(queue.handle(), kernel.handle(), 1, nullptr, &one, &one, 0,
                                   nullptr, nullptr);
    }
    queue.finish();
  });
  const double arguments = ns_per(100000, [&](int n) {
    for (int i = 0; i < n; ++i) kernel.set_value(2, i);
  });
  const double get = ns_per(1000000, [&](int n) {
    for (int i = 0; i < n; ++i) {
      Kernel* found = &empty_kernel.get(device, {{"T", "int"}, {"ADD", 3}});
      asm volatile("" : : "r"(found) : "memory");
    }
  });
  const double find = ns_per(1000000, [&](int n) {
    for (int i = 0; i < n; ++i) {
      Location found = device.addresses().find(memory.at(static_cast<size_t>(i & 1023) * 8));
      asm volatile("" : : "r"(found.mem), "r"(found.offset) : "memory");
    }
  });
  std::printf(
      "%s\n  launch with get, find, arguments: %.2f us incl. finish, %.2f us enqueue only; bare "
      "clEnqueueNDRangeKernel %.2f us; clSetKernelArg %.0f ns; get %.1f ns; find %.1f ns\n",
      device.description().c_str(), launch_finish / 1e3, enqueue_only / 1e3, bare / 1e3, arguments,
      get, find);
}

}  // namespace floor1
