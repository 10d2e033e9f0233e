// Floor 1 (csrc/opencl) alone, without torch, on every device that the machine's drivers offer.
//
// cmake --build build --target floor1_test, or by hand with the OpenCL headers' folder in
// $CL_INCLUDE:
//   python torch_ocl/utils/embed_kernels.py --root kernels --out /tmp/floor1/embedded_kernels.cpp
//   g++ -std=c++20 -O2 -Icsrc -isystem $CL_INCLUDE tests/opencl/floor1/*.cpp csrc/opencl/*.cpp
//     /tmp/floor1/embedded_kernels.cpp -o /tmp/floor1/floor1_test -ldl -pthread
//   /tmp/floor1/floor1_test           # PASS/FAIL lines; the exit code is the number of failures
//   /tmp/floor1/floor1_test --bench   # us per launch, ns per lookup
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "harness.h"
#include "kernels.h"
#include "tests.h"
#include "opencl/platform.h"

using namespace floor1;

namespace {

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
  report("address space where it is limited", test_address_space_where_it_is_limited);
  report("sources", test_sources);
  report("driver text", test_driver_text);
  report("registry", test_registry);
  report("build log", test_build_log);
  report("retarget", test_retarget);
  const std::pair<const char*, void (*)(Device&)> tests[] = {
      {"copies", test_copies},
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
      {"cache trust", test_cache_trust},
      {"cache size", test_cache_size},
      {"verbose", test_verbose},
      {"exit", test_exit},
  };
  for (int i = 0; i < device_count(); ++i) {
    for (const auto& [name, test] : tests) {
      report(std::string(name) + " on " + device(i).description(), [&] { test(device(i)); });
    }
  }
  report("selectors", test_selectors);
  report("variables", test_variables);
  report("unavailable", test_unavailable);
  fs::remove_all(work_folder);
  return failures;
}
