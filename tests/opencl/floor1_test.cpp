// Floor 1 (csrc/opencl) alone, without torch, on every device that the machine's drivers offer.
//
// Build and run, with the OpenCL headers' folder in $CL_INCLUDE:
//   python codegen/embed_kernels.py --root kernels --out /tmp/floor1/embedded_kernels.cpp
//   g++ -std=c++20 -O2 -Icsrc -isystem $CL_INCLUDE tests/opencl/floor1_test.cpp csrc/opencl/*.cpp
//   /tmp/floor1/embedded_kernels.cpp -o /tmp/floor1/floor1_test -ldl -pthread
//   /tmp/floor1/floor1_test           # PASS/FAIL lines; the exit code is the number of failed
//   tests /tmp/floor1/floor1_test --bench   # µs per launch, ns per lookup
//
// Environment is read once per process, so tests of it run this program again as a child with a
// name.

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <latch>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "opencl/device_assert.h"
#include "opencl/kernel.h"
#include "opencl/log.h"
#include "opencl/program.h"

namespace fs = std::filesystem;
using namespace ocl;

namespace {

// --- a small harness -----------------------------------------------------------------------------

std::string work_folder;  // kernels and caches of this run

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

#define REQUIRE(condition)                                                                     \
  do {                                                                                         \
    if (!(condition))                                                                          \
      throw Failure(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " #condition); \
  } while (false)

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

#define REQUIRE_CONTAINS(text, part)                                                              \
  do {                                                                                            \
    const std::string text_ = (text);                                                             \
    if (!contains(text_, part))                                                                   \
      throw Failure(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": no \"" + (part) + \
                    "\" in \"" + text_ + "\"");                                                   \
  } while (false)

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Failure&) {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

void write_file(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Result {
  int code;
  std::string output;  // stdout and stderr
};

/// Runs this program as the named child with extra environment, "A=1 B=2".
Result child(const std::string& name, const std::string& environment = {}) {
  const std::string self = fs::read_symlink("/proc/self/exe");
  const std::string command =
      "env " + environment + " timeout 120 " + self + " --child " + name + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, n);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), output};
}

/// Device memory mapped in the address space, as an allocator's segment is.
class Memory {
 public:
  Memory(Device& device, size_t bytes) : device_(device) {
    cl_int code;
    mem_ = api().clCreateBuffer(device.context(), CL_MEM_READ_WRITE, bytes, nullptr, &code);
    check(code, "clCreateBuffer", &device);
    address_ = static_cast<char*>(device.addresses().map(mem_, bytes));
  }
  ~Memory() {
    device_.addresses().unmap(address_);
    api().clReleaseMemObject(mem_);
  }
  char* at(size_t offset = 0) const { return address_ + offset; }

 private:
  Device& device_;
  cl_mem mem_;
  char* address_;
};

// --- kernels of the tests ------------------------------------------------------------------------

void write_kernels() {
  const std::string root = work_folder + "/kernels/";
  write_file(root + "include/twice.clh", "static inline int twice(int x) { return 2 * x; }\n");
  write_file(root + "include/both.clh",
             "#include \"include/twice.clh\"\n#include \"include/assert.clh\"\n");
  write_file(root + "include/assert.clh", std::string(embedded_kernel("include/assert.clh")));
  write_file(root + "test/near.clh", "#define NEAR 7\n");
  write_file(
      root + "test/fill.cl",
      "#include \"include/twice.clh\"\n#include \"test/near.clh\"\n#include \"include/both.clh\"\n"
      "#ifndef T\n#define T int\n#endif\n#ifndef ADD\n#define ADD 0\n#endif\n"
      "kernel void fill(global T* base, ulong offset, int n, int value) {\n"
      "  global T* out = (global T*)((global char*)base + offset);\n"
      "  const int i = get_global_id(0);\n"
      "  if (i < n) out[i] = (T)(twice(value) + NEAR + ADD + i);\n}\n"
      "kernel void empty(global char* base, ulong offset, int n) {}\n"
      "kernel void null_operand(global int* base, ulong offset, global int* other, ulong o) {\n"
      "  if (get_global_id(0) == 0) base[offset / 4] = other == 0 ? 41 : 40;\n}\n");
  write_file(root + "test/other.cl",
             "#include \"include/twice.clh\"\n"
             "kernel void other(global int* base, ulong offset, local int* tmp) {\n"
             "  tmp[get_local_id(0)] = get_local_id(0);\n  barrier(CLK_LOCAL_MEM_FENCE);\n"
             "  base[offset / 4 + get_global_id(0)] = twice(tmp[get_local_size(0) - 1 - "
             "get_local_id(0)]);\n}\n");
  write_file(root + "test/slow.cl",
             "kernel void slow(global float* base, ulong offset, int n) {\n"
             "  float x = get_global_id(0);\n  for (int i = 0; i < n; ++i) x = sin(x) + 1.0f;\n"
             "  base[get_global_id(0)] = x;\n}\n");
  write_file(
      root + "test/math.cl",
      "kernel void math(global float* d, ulong offset, int n) {\n"
      "  const int i = get_global_id(0);\n  if (i >= n) return;\n"
      "  const float a = d[i], b = d[n + i], c = d[2 * n + i];\n"
      "  d[3 * n + i] = a * b + c;\n  d[4 * n + i] = a / b;\n  d[5 * n + i] = sqrt(fabs(a));\n"
      "  d[6 * n + i] = fma(a, b, c);\n}\n");
  write_file(
      root + "test/features.cl",
      "#define BIT(n) bits |= 1 << n;\n"
      "kernel void features(global int* base, ulong offset) {\n  int bits = 0;\n"
      "#ifdef OCL_HAS_FP64\n  BIT(0)\n#endif\n#ifdef OCL_HAS_FP16\n  BIT(1)\n#endif\n"
      "#ifdef OCL_HAS_SUBGROUPS\n  BIT(2)\n  bits += (sub_group_reduce_add(0));\n#endif\n"
      "#ifdef OCL_HAS_INT64_ATOMICS\n  BIT(3)\n#endif\n"
      "#ifdef OCL_HAS_WORK_GROUP_REDUCE\n  BIT(4)\n  bits += work_group_reduce_add(0);\n#endif\n"
      "#ifdef OCL_DEVICE_CPU\n  BIT(5)\n#endif\n#ifdef OCL_DEVICE_GPU\n  BIT(6)\n#endif\n"
      "#ifdef __FAST_RELAXED_MATH__\n  BIT(7)\n#endif\n"
      "  base[offset / 4] = bits;\n}\n");
  write_file(root + "test/checked.cl",
             "#include \"include/both.clh\"\n"
             "kernel void checked(global const long* index, ulong offset, long size, global int* "
             "asserts,\n"
             "                    uint site, global int* out, ulong out_offset) {\n"
             "  const int i = get_global_id(0);\n  const long at = index[offset / 8 + i];\n"
             "  if (check_wrapped_index(at, size, asserts, site)) out[out_offset / 4 + i] = "
             "wrap_index(at, size);\n}\n");
  write_file(root + "test/branches.cl",
             "#ifdef ONE\n#include \"include/twice.clh\"\n#include \"include/twice.clh\"\n"
             "#elif defined(TWO)\n#include \"include/both.clh\"\n#endif\n"
             "#include \"include/twice.clh\"\n#include \"include/both.clh\"\n"
             "kernel void branches(global int* p, ulong o) { p[o / 4] = twice(21); }\n");
  write_file(root + "include/broken.clh",
             "// one\n// two\nint f(void) { return undeclared_name; }\n");
  write_file(
      root + "test/broken.cl",
      "#include \"include/broken.clh\"\nkernel void broken(global int* p) { p[0] = f(); }\n");
  write_file(root + "test/no_include.cl", "\n#include \"include/absent.clh\"\n");
}

const KernelFamily fill_kernel{"test/fill.cl", "fill"};
const KernelFamily empty_kernel{"test/fill.cl", "empty"};
const KernelFamily null_kernel{"test/fill.cl", "null_operand"};
const KernelFamily other_kernel{"test/other.cl", "other"};
const KernelFamily slow_kernel{"test/slow.cl", "slow"};
const KernelFamily math_kernel{"test/math.cl", "math"};
const KernelFamily features_kernel{"test/features.cl", "features"};
const KernelFamily checked_kernel{"test/checked.cl", "checked"};
const KernelFamily broken_kernel{"test/broken.cl", "broken"};
const KernelFamily no_include_kernel{"test/no_include.cl", "x"};
const KernelFamily branches_kernel{"test/branches.cl", "branches"};
const KernelFamily absent_kernel{"test/absent.cl", "x"};
const KernelFamily absent_name_kernel{"test/other.cl", "no_such_kernel"};

// --- tests without a device ----------------------------------------------------------------------

void test_errors() {
  REQUIRE(std::string(error_name(-5)) == "CL_OUT_OF_RESOURCES");
  REQUIRE(std::string(error_name(-1001)) == "CL_PLATFORM_NOT_FOUND_KHR");
  REQUIRE(std::string(error_name(-31337)) == "unknown OpenCL error");
  const Error error("clFinish", -5, nullptr, "detail");
  REQUIRE(std::string(error.what()) == "clFinish failed: CL_OUT_OF_RESOURCES (-5): detail");
  REQUIRE(error.out_of_memory() && !Error("clFinish", -30, nullptr).out_of_memory());
}

void test_address_space() {
  constexpr size_t kGranule = AddressSpace::kGranule;
  AddressSpace space(8 * kGranule);
  const auto mem = [](uintptr_t n) { return reinterpret_cast<cl_mem>(n); };
  REQUIRE(space.find(nullptr).mem == nullptr && space.find(nullptr).offset == 0);
  char* a = static_cast<char*>(space.map(mem(1), kGranule + 1));  // two granules
  char* b = static_cast<char*>(space.map(mem(2), 1));
  REQUIRE(reinterpret_cast<uintptr_t>(a) % kGranule == 0 && b != a);
  REQUIRE(space.find(a + kGranule + 5).mem == mem(1) &&
          space.find(a + kGranule + 5).offset == kGranule + 5);
  REQUIRE(space.find(b).mem == mem(2) && space.find(b).offset == 0);
  REQUIRE(space.contains(a) && !space.contains(&space));
  REQUIRE_CONTAINS(message_of([&] { space.find(&space); }), "not memory of this device");
  REQUIRE_CONTAINS(message_of([&] { space.find(b + kGranule); }), "freed");
  REQUIRE_CONTAINS(message_of([&] { space.map(mem(3), 6 * kGranule); }), "exhausted");
  REQUIRE_CONTAINS(message_of([&] { space.unmap(a + 1); }), "not the start");
  const uint32_t epoch = space.epoch();
  space.unmap(a);
  REQUIRE(space.epoch() != epoch);
  REQUIRE_CONTAINS(message_of([&] { space.find(a); }), "freed");
  space.unmap(b);
  space.unmap(space.map(mem(4), 8 * kGranule));  // the holes have grown together
  AddressSpace full;                             // the default size
  REQUIRE(full.contains(full.map(mem(5), size_t{1} << 36)));
}

void test_sources() {
  REQUIRE(contains(std::string(embedded_kernel("include/assert.clh")), "check_index"));
  REQUIRE(embedded_kernel("include/absent.clh").empty());
  const std::string text = kernel_source("test/fill.cl");
  REQUIRE_CONTAINS(text, "#line 1 \"include/twice.clh\"\nstatic inline");
  REQUIRE_CONTAINS(text, "#define NEAR 7\n#endif\n#line 3 \"test/fill.cl\"\n");
  REQUIRE(text.find("int twice(") == text.rfind("int twice("));  // once, though included twice
  REQUIRE(!contains(text, "#include"));
  // Under conditions: once in each branch, and behind a guard after them.
  const std::string branches = kernel_source("test/branches.cl");
  size_t copies = 0;
  for (size_t at = 0; (at = branches.find("int twice(", at)) != std::string::npos; ++at) ++copies;
  REQUIRE(copies == 3);
  REQUIRE_CONTAINS(message_of([] { kernel_source("test/no_include.cl"); }), "test/no_include.cl:2");
  REQUIRE_CONTAINS(message_of([] { kernel_source("test/absent.cl"); }),
                   "no kernel file \"test/absent.cl\"");
}

void test_registry() {
  REQUIRE(api().unavailable.empty() && !api().loader_path.empty());
  REQUIRE(device_count() > 0 && unavailable_reason().empty() && is_initialized());
  REQUIRE_CONTAINS(message_of([] { device(device_count()); }), "out of range; the devices are 0: ");
  REQUIRE_CONTAINS(message_of([] { device(-1); }), "-1 is out of range");
  for (int i = 0; i < device_count(); ++i) {
    REQUIRE(&device(i) == &device(i) && device(i).index() == i);
    REQUIRE(!device(i).properties().name.empty() && device(i).properties().global_memory > 0);
  }
}

// --- tests on each device ------------------------------------------------------------------------

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

std::vector<int> read_ints(Queue& queue, const void* address, size_t n) {
  std::vector<int> values(n);
  queue.read(values.data(), address, n * sizeof(int), true);
  return values;
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
  REQUIRE_CONTAINS(log, "include/broken.clh:3");
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
      message_of([&] { device.programs().get_from_source("mine", "kernel oops", ""); }), "mine");
}

void test_from_source(Device& device) {
  const std::string text = "kernel void k(global int* p, ulong o) { p[o / 4] = VALUE; }";
  cl_program program = device.programs().get_from_source("mine", text, "-DVALUE=12");
  REQUIRE(program == device.programs().get_from_source("mine", text, "-DVALUE=12"));
  REQUIRE(program != device.programs().get_from_source("mine", text + "\n", "-DVALUE=12"));
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

// What CPU torch computes: two roundings in a * b + c, one in fma, correctly rounded quotients and
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

void test_asserts(Device& device) {
  static const AssertSite first_site("index_select");
  static const AssertSite second_site("gather");
  REQUIRE(first_site.id() != 0 && first_site.id() != second_site.id());
  Queue queue(device), unrelated(device);
  Memory memory(device, 4096);
  const auto run = [&](const AssertSite& site, std::vector<int64_t> index) {
    queue.write(memory.at(), index.data(), index.size() * 8, true);
    launch(checked_kernel.get(device, {}), queue, NDRange::linear(index.size(), 1),
           Pointer{memory.at()}, cl_long{10}, device.asserts().mem(), site.id(),
           Pointer{memory.at(2048)});
  };
  run(first_site, {0, 9, -10, -1});
  queue.finish();
  REQUIRE(!device.asserts().take(queue));
  REQUIRE(read_ints(queue, memory.at(2048), 4) == (std::vector<int>{0, 9, 0, 9}));
  run(second_site, {0, 11, 2, 3});
  REQUIRE(!device.asserts().take(unrelated));
  queue.finish();
  const auto failure = device.asserts().take(queue);
  REQUIRE(failure && failure->op == "gather" && failure->index == 11 && failure->size == 10);
  REQUIRE(!device.asserts().take(queue));
  run(first_site, {-11});  // the memo skips the argument, the check is noticed all the same
  queue.finish();
  REQUIRE(device.asserts().take(queue)->index == -11);
}

void test_events(Device& device) {
  Queue queue(device), second(device, -1);
  Memory memory(device, 4096);
  REQUIRE(queue.idle());
  Event nothing;
  REQUIRE(nothing.query() && !nothing.recorded());
  nothing.synchronize();
  nothing.block(queue);
  Kernel& slow = slow_kernel.get(device, {});
  launch(slow, queue, NDRange::linear(1, 1), Pointer{memory.at()}, 1);
  queue.finish();
  Event start, end, plain;
  start.record(queue, true);
  launch(slow, queue, NDRange::linear(1, 1), Pointer{memory.at()}, 1 << 20);
  end.record(queue, true);
  plain.record(queue);
  REQUIRE(!queue.idle() && !end.query());
  end.block(second);
  launch(fill_kernel.get(device, {}), second, NDRange::linear(4, 4), Pointer{memory.at()}, 4, 3);
  REQUIRE(read_ints(second, memory.at(), 1)[0] == 13);  // after slow, which writes there too
  end.synchronize();
  start.synchronize();
  REQUIRE(end.query() && plain.query());
  const double ms = Event::elapsed_ms(start, end);
  REQUIRE(ms > 1 && ms < 10000);
  REQUIRE_CONTAINS(message_of([&] { Event::elapsed_ms(start, plain); }), "timing");
  int polls = 0;
  while (!queue.idle() && ++polls < 1000000) std::this_thread::yield();
  REQUIRE(queue.idle());
  if (device_count() > 1) {  // across contexts
    Queue foreign(ocl::device(device.index() == 0 ? 1 : 0));
    end.block(foreign);
  }
}

void test_threads(Device& device) {
  Memory memory(device, 8 * 4096);
  std::atomic<int> wrong{0};
  std::set<Kernel*> first, second;
  std::mutex mutex;
  const auto work = [&](size_t t, std::set<Kernel*>& used, std::latch& all_done) {
    try {
      Queue queue(device);
      char* mine = memory.at(t * 4096);
      for (int i = 0; i < 50; ++i) {
        const int add = i % 4;
        Kernel& kernel = fill_kernel.get(device, {{"ADD", add}});
        {
          std::lock_guard<std::mutex> lock(mutex);
          used.insert(&kernel);
        }
        launch(kernel, queue, NDRange::linear(1000, 64), Pointer{mine}, 1000, static_cast<int>(t));
        if (read_ints(queue, mine, 1000)[999] != 2 * static_cast<int>(t) + 7 + add + 999) ++wrong;
      }
    } catch (const std::exception& error) {
      std::printf("     %s\n", error.what());
      ++wrong;
    }
    all_done.arrive_and_wait();  // a thread that ended early would give its kernels to the others
  };
  const uint64_t before = program_stats().built + program_stats().loaded;
  for (auto* used : {&first, &second}) {
    std::latch all_done(8);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 8; ++t)
      threads.emplace_back(work, t, std::ref(*used), std::ref(all_done));
    for (std::thread& thread : threads) thread.join();
  }
  REQUIRE(wrong == 0);
  REQUIRE(program_stats().built + program_stats().loaded == before + 4);  // not once per thread
  REQUIRE(first.size() == 32);
  REQUIRE(std::includes(first.begin(), first.end(), second.begin(), second.end()));  // reused
}

void test_forked_child(Device& device) {
  Queue queue(device);
  Memory memory(device, 4096);
  Kernel& kernel = fill_kernel.get(device, {});
  launch(kernel, queue, NDRange::linear(4, 4), Pointer{memory.at()}, 4, 3);
  queue.finish();
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    int code = 0;
    if (device_count() != 0 || !process_was_forked()) code = 2;
    if (!contains(unavailable_reason(), "spawn")) code = 3;
    if (!contains(message_of([] { ocl::device(0); }), "spawn")) code = 4;
    if (!contains(message_of([&] { queue.finish(); }), "spawn")) code = 5;
    if (!contains(message_of([&] { kernel.enqueue(queue, NDRange{}); }), "spawn")) code = 6;
    if (!contains(message_of([&] { queue.read(&code, memory.at(), 4, true); }), "spawn")) code = 7;
    {
      Queue* leaked = &queue;
      (void)leaked;
      Event event;
    }
    exit(code);  // with destructors, as an interpreter leaves
  }
  int status = 0;
  waitpid(pid, &status, 0);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  launch(kernel, queue, NDRange::linear(4, 4), Pointer{memory.at()}, 4, 4);  // the parent goes on
  REQUIRE(read_ints(queue, memory.at(), 1)[0] == 15);
}

// --- tests in children ---------------------------------------------------------------------------

std::string index_text(const Device& device) { return std::to_string(device.index()); }

void test_disk_cache(Device& device) {
  const std::string cache = work_folder + "/cache" + index_text(device);
  const std::string environment = "TORCH_OCL_CACHE_DIR=" + cache +
                                  " CHILD_DEVICE=" + index_text(device) +
                                  " POCL_CACHE_DIR=" + cache + "-pocl";
  const auto run = [&](const char* expected) {
    const Result result = child("build", environment);
    REQUIRE_CONTAINS(result.output, expected);
    REQUIRE(result.code == 0);
  };
  run("built 1 loaded 0");
  run("built 0 loaded 1");
  REQUIRE(std::distance(fs::directory_iterator(cache), {}) == 1);
  const std::string path = fs::directory_iterator(cache)->path();
  const std::string good = read_file(path);
  std::string flipped = good;
  flipped[good.size() * 3 / 4] ^= 1;
  std::string renamed = good;  // intact, but of another key
  const size_t at = good.find("driver: ");
  REQUIRE(at != std::string::npos);
  renamed[at + 8] ^= 1;
  for (const std::string& bad : {good.substr(0, good.size() / 2), flipped, renamed,
                                 std::string("junk"), std::string(), std::string(5000, 'x')}) {
    write_file(path, bad);
    run("built 1 loaded 0");
    run("built 0 loaded 1");
  }
  REQUIRE_CONTAINS(child("build", environment + " TORCH_OCL_CACHE=0").output, "built 1 loaded 0");
  // A folder that can't be made: one warning, and the kernels run.
  write_file(work_folder + "/plain_file", "");
  const Result result =
      child("build", environment + " TORCH_OCL_CACHE_DIR=" + work_folder + "/plain_file/sub");
  REQUIRE_CONTAINS(result.output, "built 1 loaded 0");
  const size_t warning = result.output.find("can't be written");
  REQUIRE(result.code == 0 && warning != std::string::npos);
  REQUIRE(result.output.find("can't be written", warning + 1) == std::string::npos);
}

void test_verbose(Device& device) {
  const Result result =
      child("build", "TORCH_OCL_VERBOSE=build,launch CHILD_DEVICE=" + index_text(device));
  REQUIRE_CONTAINS(result.output, "torch_ocl: build: ");
  REQUIRE_CONTAINS(result.output, "test/fill.cl");
  REQUIRE_CONTAINS(result.output,
                   "torch_ocl: launch: fill of test/fill.cl, global size 128, local size 64");
  REQUIRE(!contains(child("build").output, "torch_ocl:"));
}

void test_exit(Device& device) {
  // Leaving with work under way, from main and with a thread alive, must not crash.
  for (const char* name : {"exit_pending", "exit_thread"}) {
    const Result result = child(name, "CHILD_DEVICE=" + index_text(device));
    if (result.code != 0) std::printf("     %s: %s\n", name, result.output.c_str());
    REQUIRE(result.code == 0);
  }
}

void test_selectors() {
  const auto list = [](const std::string& selectors) {
    return child("list", "TORCH_OCL_DEVICES='" + selectors + "'").output;
  };
  const std::string all = list("");
  const int count = device_count();
  REQUIRE_CONTAINS(all, "count " + std::to_string(count));
  REQUIRE_CONTAINS(list("0"), "count 1");
  REQUIRE_CONTAINS(list("0, 0,0"), "count 1");
  REQUIRE_CONTAINS(list("no such device"), "count 0");
  REQUIRE_CONTAINS(list("no such device"), "matches none of 0: ");
  if (count > 1) {
    const std::string swapped = list("1,0");
    REQUIRE_CONTAINS(swapped, "0 " + device(1).description());
    REQUIRE_CONTAINS(swapped, "1 " + device(0).description());
    std::string platform = device(1).properties().platform;
    std::transform(platform.begin(), platform.end(), platform.begin(), ::toupper);
    REQUIRE_CONTAINS(list(platform.substr(0, 8)), "0 " + device(1).description());
  }
}

void test_unavailable() {
  const Result no_loader = child("list", "TORCH_OCL_LOADER=/nonexistent/libOpenCL.so.1");
  REQUIRE_CONTAINS(no_loader.output, "count 0");
  REQUIRE_CONTAINS(no_loader.output, "/nonexistent/libOpenCL.so.1");
  REQUIRE_CONTAINS(no_loader.output, "pip install intel-opencl-rt");
  REQUIRE_CONTAINS(no_loader.output, "threw OpenCL is not available");
  REQUIRE_CONTAINS(child("list", "TORCH_OCL_LOADER=libc.so.6").output, "has no clGetPlatformIDs");
  const Result no_driver = child("list", "-u OCL_ICD_FILENAMES OCL_ICD_VENDORS=/nonexistent/");
  REQUIRE_CONTAINS(no_driver.output, "count 0");
  REQUIRE_CONTAINS(no_driver.output, "No OpenCL driver is installed");
  // A configured loader that is absent is passed over; files are appended to what the user has.
  const std::string icd = work_folder + "/second_icd";
  write_file(icd, "");
  const Result configured =
      child("configure", "OCL_ICD_FILENAMES=/first LOADER=" + api().loader_path + " ICD=" + icd);
  REQUIRE_CONTAINS(configured.output,
                   "loader " + api().loader_path + "\nfiles /first:" + icd + "\n");
  REQUIRE_CONTAINS(child("fork_first").output, "child has devices");
}

// --- children ------------------------------------------------------------------------------------

Device& child_device() {
  const char* index = std::getenv("CHILD_DEVICE");
  return device(index == nullptr ? 0 : std::atoi(index));
}

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
                     {"/first", "/nonexistent/icd", std::getenv("ICD")});
    const std::string path = api().loader_path;
    std::printf("loader %s\nfiles %s\n", path.c_str(), std::getenv("OCL_ICD_FILENAMES"));
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
  Device& device = child_device();
  if (name == "build") {
    Queue queue(device);
    Memory memory(device, 4096);
    launch(fill_kernel.get(device, {}), queue, NDRange::linear(100, 64), Pointer{memory.at()}, 100,
           1);
    const bool right = read_ints(queue, memory.at(), 100)[99] == 108;
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

// --- benchmark -----------------------------------------------------------------------------------

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

int failures = 0;

void report(const std::string& name, const std::function<void()>& test) {
  const auto start = std::chrono::steady_clock::now();
  std::string reason;
  try {
    test();
  } catch (const std::exception& error) {
    reason = error.what();
    ++failures;
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::printf("%s %s (%.2f s)%s%s\n", reason.empty() ? "PASS" : "FAIL", name.c_str(), taken.count(),
              reason.empty() ? "" : ": ", reason.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--child") return run_child(argv[2]);
  char folder[] = "/tmp/floor1_test.XXXXXX";
  work_folder = mkdtemp(folder);
  write_kernels();
  setenv("TORCH_OCL_KERNEL_DIR", (work_folder + "/kernels").c_str(), 1);
  setenv("TORCH_OCL_CACHE_DIR", (work_folder + "/cache").c_str(), 1);
  setenv("POCL_CACHE_DIR", (work_folder + "/pocl").c_str(), 1);
  fs::create_directories(work_folder + "/pocl");
  if (argc == 2 && std::string(argv[1]) == "--bench") {
    for (int i = 0; i < device_count(); ++i) benchmark(device(i));
    fs::remove_all(work_folder);
    return 0;
  }
  report("errors", test_errors);
  report("address space", test_address_space);
  report("sources", test_sources);
  report("registry", test_registry);
  const std::pair<const char*, void (*)(Device&)> tests[] = {{"copies", test_copies},
                                                             {"kernels", test_kernels},
                                                             {"epoch", test_epoch},
                                                             {"failures", test_failures},
                                                             {"from source", test_from_source},
                                                             {"features", test_features},
                                                             {"rounding", test_rounding},
                                                             {"asserts", test_asserts},
                                                             {"events", test_events},
                                                             {"threads", test_threads},
                                                             {"fork", test_forked_child},
                                                             {"disk cache", test_disk_cache},
                                                             {"verbose", test_verbose},
                                                             {"exit", test_exit}};
  for (int i = 0; i < device_count(); ++i) {
    for (const auto& [name, test] : tests) {
      report(std::string(name) + " on " + device(i).description(), [&] { test(device(i)); });
    }
  }
  report("selectors", test_selectors);
  report("unavailable", test_unavailable);
  fs::remove_all(work_folder);
  return failures;
}
