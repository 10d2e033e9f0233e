// Copies and launches: arguments, compile parameters, rounding, and what goes wrong.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "harness.h"
#include "kernels.h"
#include "opencl/program.h"
#include "tests.h"

namespace floor1 {

void test_copies(Device& device) {
  Queue queue(device);
  Memory memory(device, size_t{3} << 20);
  std::vector<int> data(1000), back(1000);
  for (int i = 0; i < 1000; ++i) data[static_cast<size_t>(i)] = i;
  queue.write(memory.at(4096), data.data(), 4000, true);
  queue.copy(memory.at((2 << 20) + 64), memory.at(4096), 4000);  // in the second granule
  queue.read(back.data(), memory.at((2 << 20) + 64), 4000, true);
  REQUIRE(back == data);
  const int pattern = 0x01020304;
  queue.fill(memory.at(8), &pattern, 4, 400);
  queue.read(back.data(), memory.at(8), 400, false);
  queue.finish();
  REQUIRE(std::all_of(back.begin(), back.begin() + 100, [&](int x) { return x == pattern; }));
  queue.write(nullptr, nullptr, 0, true);
  REQUIRE_CONTAINS(message_of([&] { queue.read(back.data(), back.data(), 4, true); }),
                   "not memory");
}

void test_kernels(Device& device) {
  Queue queue(device);
  Memory memory(device, 1 << 16);
  Kernel& plain = fill_kernel.get(device, {});
  launch(plain, queue, NDRange::linear(100, 64), Pointer{memory.at(256)}, 100, 5);
  REQUIRE(read_ints(queue, memory.at(256), 100)[99] == 2 * 5 + 7 + 99);
  Kernel& added = fill_kernel.get(device, {{"T", "int"}, {"ADD", 1000}});
  REQUIRE(&added != &plain && &added == &fill_kernel.get(device, {{"T", "int"}, {"ADD", 1000}}));
  launch(added, queue, NDRange::linear(100, 64), Pointer{memory.at(256)}, 100, 5);
  REQUIRE(read_ints(queue, memory.at(256), 1)[0] == 1017);
  // The memo of arguments follows what changes, and nothing else.
  launch(added, queue, NDRange::linear(100, 64), Pointer{memory.at(256)}, 100, 6);
  REQUIRE(read_ints(queue, memory.at(256), 1)[0] == 1019);
  launch(added, queue, NDRange::linear(0, 64), Pointer{memory.at(256)}, 0, 9);  // nothing to do
  REQUIRE(read_ints(queue, memory.at(256), 1)[0] == 1019);
  launch(null_kernel.get(device, {}), queue, NDRange::linear(1, 1), Pointer{memory.at(8)},
         Pointer{nullptr});
  REQUIRE(read_ints(queue, memory.at(8), 1)[0] == 41);
  Kernel& other = other_kernel.get(device, {});
  for (size_t local : {8, 4, 4}) {
    launch(other, queue, NDRange::linear(8, local), Pointer{memory.at()}, LocalMemory{local * 4});
    REQUIRE(read_ints(queue, memory.at(), 1)[0] == 2 * static_cast<int>(local - 1));
  }
  REQUIRE(plain.max_work_group_size() >= 64);
  for (const char* branch : {"ONE", "TWO", "NEITHER"}) {
    launch(branches_kernel.get(device, {{branch, 1}}), queue, NDRange{}, Pointer{memory.at()});
    REQUIRE(read_ints(queue, memory.at(), 1)[0] == 42);
  }
}

void test_epoch(Device& device) {
  Queue queue(device);
  Kernel& kernel = fill_kernel.get(device, {});
  // A released segment's handle is often given to the next buffer: the memo must not keep it.
  for (int i = 0; i < 20; ++i) {
    Memory memory(device, 4096);
    launch(kernel, queue, NDRange::linear(4, 4), Pointer{memory.at()}, 4, i);
    REQUIRE(read_ints(queue, memory.at(), 1)[0] == 2 * i + 7);
  }
}

void test_failures(Device& device) {
  const std::string log = message_of([&] { broken_kernel.get(device, {{"N", 3}}); });
  REQUIRE_CONTAINS(
      log, "clBuildProgram failed: CL_BUILD_PROGRAM_FAILURE (-11) on " + device.description());
  REQUIRE_CONTAINS(log, "test/broken.cl");
  REQUIRE_CONTAINS(log, "-DN=3");
  // NVIDIA's compiler passes over #line: it counts lines of the expanded source.
  const bool keeps_lines = !contains(device.properties().platform, "NVIDIA");
  if (keeps_lines) REQUIRE_CONTAINS(log, "include/broken.clh:3");
  if (keeps_lines) {
    REQUIRE_CONTAINS(message_of([&] { skipped_kernel.get(device, {}); }), "test/skipped.cl:9");
  }
  REQUIRE_CONTAINS(log, "undeclared_name");
  REQUIRE_CONTAINS(message_of([&] { absent_kernel.get(device, {}); }), "test/absent.cl");
  REQUIRE_CONTAINS(message_of([&] { no_include_kernel.get(device, {}); }), "absent.clh");
  REQUIRE_CONTAINS(message_of([&] { absent_name_kernel.get(device, {}); }),
                   "no_such_kernel of test/other.cl");
  REQUIRE_CONTAINS(message_of([&] { fill_kernel.get(device, {{"T", "unsigned int"}}); }),
                   "white space");
  Queue queue(device);
  const size_t huge = device.properties().max_work_group_size * 4;
  Kernel& kernel = empty_kernel.get(device, {});
  const std::string launch_error =
      message_of([&] { launch(kernel, queue, NDRange::linear(huge, huge), Pointer{nullptr}, 0); });
  REQUIRE_CONTAINS(launch_error, "clEnqueueNDRangeKernel failed: CL_");
  REQUIRE_CONTAINS(launch_error, "empty of test/fill.cl, global size " + std::to_string(huge));
  REQUIRE_CONTAINS(message_of([&] { kernel.set_value(9, 1); }), "argument 9 (4 bytes) of empty");
  REQUIRE_CONTAINS(
      message_of([&] { device.programs().of_text("mine", "kernel oops", "").wait(); }), "mine");
}

void test_from_source(Device& device) {
  const std::string text = "kernel void k(global int* p, ulong o) { p[o / 4] = VALUE; }";
  Program& program = device.programs().of_text("mine", text, "-DVALUE=12");
  REQUIRE(&program == &device.programs().of_text("mine", text, "-DVALUE=12"));
  REQUIRE(&program != &device.programs().of_text("mine", text + "\n", "-DVALUE=12"));
  Kernel kernel(device, program, "k");
  Queue queue(device);
  Memory memory(device, 64);
  launch(kernel, queue, NDRange{}, Pointer{memory.at(4)});
  REQUIRE(read_ints(queue, memory.at(4), 1)[0] == 12);
}

void test_features(Device& device) {
  Queue queue(device);
  Memory memory(device, 64);
  launch(features_kernel.get(device, {}), queue, NDRange::linear(1, 1), Pointer{memory.at()});
  const DeviceProperties& p = device.properties();
  const int expected = p.has_fp64 | p.has_fp16 << 1 | p.has_subgroups << 2 |
                       p.has_int64_atomics << 3 | p.has_work_group_reduce << 4 |
                       device.is_cpu() << 5 | (p.tuning_class == DeviceClass::gpu) << 6;
  REQUIRE(read_ints(queue, memory.at(), 1)[0] == expected);
}

// Rounding is CPU torch's: two roundings in a * b + c, one in fma, correctly rounded quotients and
// roots.
void test_rounding(Device& device) {
  constexpr size_t n = 4096;
  std::vector<float> data(7 * n);
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-10.f, 10.f);
  for (size_t i = 0; i < 3 * n; ++i) data[i] = uniform(random);
  Queue queue(device);
  Memory memory(device, data.size() * 4);
  queue.write(memory.at(), data.data(), data.size() * 4, true);
  launch(math_kernel.get(device, {}), queue, NDRange::linear(n, 64), Pointer{memory.at()},
         static_cast<int>(n));
  queue.read(data.data(), memory.at(), data.size() * 4, true);
  size_t contracted = 0, quotients = 0, roots = 0, fmas = 0;
  for (size_t i = 0; i < n; ++i) {
    const float a = data[i], b = data[n + i], c = data[2 * n + i];
    volatile float product = a * b;
    contracted += data[3 * n + i] != product + c;
    quotients += data[4 * n + i] != a / b;
    roots += data[5 * n + i] != std::sqrt(std::fabs(a));
    fmas += data[6 * n + i] != std::fma(a, b, c);
  }
  std::printf("     of %zu: %zu contracted, %zu quotients, %zu roots, %zu fma differ\n", n,
              contracted, quotients, roots, fmas);
  REQUIRE(contracted == 0 && fmas == 0);
  if (device.properties().correctly_rounded_divide_sqrt) REQUIRE(quotients == 0 && roots == 0);
}

}  // namespace floor1
