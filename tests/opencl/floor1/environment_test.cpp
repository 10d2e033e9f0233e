// Environment variables. They are read once per process, so children read them.
#include <algorithm>
#include <cctype>

#include "harness.h"
#include "opencl/platform.h"
#include "tests.h"

namespace floor1 {

void test_verbose(Device& device) {
  const Result result =
      child("build", "TORCH_OCL_VERBOSE=build,launch CHILD_DEVICE=" + index_text(device));
  REQUIRE_CONTAINS(result.output, "torch_ocl: build: ");
  REQUIRE_CONTAINS(result.output, "test/fill.cl");
  REQUIRE_CONTAINS(result.output,
                   "torch_ocl: launch: fill of test/fill.cl, global size 128, local size 64");
  REQUIRE(!contains(child("build").output, "torch_ocl:"));
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
  // A driver's name is looked at first: the same processor may also be another driver's, by its
  // name.
  for (int i = 0; i < count; ++i) {
    const std::string word = device(i).properties().platform.substr(0, 5);
    int expected = 0;
    for (int j = 0; j < count; ++j) expected += contains(device(j).properties().platform, word);
    REQUIRE_CONTAINS(list(word), "count " + std::to_string(expected));
  }
}

// Values that can't be understood are named in one warning and ignored.
void test_variables() {
  const auto warnings = [](const std::string& environment) {
    const Result result = child("build", environment);
    REQUIRE(result.code == 0);
    std::string found;
    size_t at = 0;
    while ((at = result.output.find("torch_ocl: warning: ", at)) != std::string::npos) {
      const size_t end = result.output.find('\n', at);
      found += result.output.substr(at, end - at) + "|";
      at = end;
    }
    return found;
  };
  REQUIRE(warnings("TORCH_OCL_WITHOUT=fp64,fp16") == "");
  REQUIRE(
      warnings("TORCH_OCL_WITHOUT='fp64, fp61'") ==
      "torch_ocl: warning: TORCH_OCL_WITHOUT: no feature \"fp61\" (there are fp64 fp16 subgroups "
      "int64_atomics work_group_reduce tensor_cores warpgroup_mma fast_bfloat16 "
      "assembled_local_memory avx512 bf16_dot int8_dot amx system_svm unified_memory "
      "command_buffers)|");
  REQUIRE(warnings("TORCH_OCL_CACHE_SIZE=5") == "");
  for (const char* bad : {"many", "0", "-1", "1.5", "5MB", "99999999999999999999"}) {
    REQUIRE(warnings(std::string("TORCH_OCL_CACHE_SIZE=") + bad) ==
            std::string("torch_ocl: warning: TORCH_OCL_CACHE_SIZE=") + bad +
                " is not a whole number above 0: it is ignored, and 1024 is used|");
  }
  REQUIRE_CONTAINS(warnings("TORCH_OCL_VERBOSE=built"), "no topic \"built\"");
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
  // A configured loader that is absent is passed over; drivers are appended to what the user has,
  // and only while the loader looks for them.
  const std::string icd = work_folder + "/second_icd";
  write_file(icd, "");
  const Result configured =
      child("configure", "OCL_ICD_FILENAMES=/first LOADER=" + api().loader_path + " ICD=" + icd);
  REQUIRE_CONTAINS(configured.output, "loader " + api().loader_path + "\nfiles /first:" + icd +
                                          ":libname.so.1\nthen /first\n");
  REQUIRE_CONTAINS(child("fork_first").output, "child has devices");
}

}  // namespace floor1
