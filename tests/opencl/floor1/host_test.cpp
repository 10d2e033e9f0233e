// Tests that need no device: errors, the address space, kernel sources, the list of devices.
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "harness.h"
#include "kernels.h"
#include "opencl/build_log.h"
#include "opencl/driver_text.h"
#include "opencl/error.h"
#include "opencl/program.h"
#include "opencl/retarget.h"
#include "tests.h"
#include "opencl/platform.h"
#include "opencl/sources.h"

namespace floor1 {

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
  char own[8];
  char* c = static_cast<char*>(space.map(mem(5), sizeof own, own));
  REQUIRE(space.find_host(c + 3) == reinterpret_cast<uintptr_t>(own + 3));
  REQUIRE(space.find_host(nullptr) == 0);
  space.unmap(c);
  REQUIRE_CONTAINS(message_of([&] { space.find_host(c); }), "freed");
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

void test_address_space_where_it_is_limited() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  rlimit limited = before;
  limited.rlim_cur = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + (size_t{20} << 30);
  REQUIRE(setrlimit(RLIMIT_AS, &limited) == 0);
  const auto mem = reinterpret_cast<cl_mem>(uintptr_t{1});
  std::string message;
  {
    AddressSpace space;  // 16 GiB fit; half of that is left to the buffers
    space.unmap(space.map(mem, size_t{8} << 30));
    message = message_of([&] { space.map(mem, size_t{9} << 30); });
  }
  limited.rlim_cur -= (size_t{20} << 30) - (size_t{1} << 29);
  setrlimit(RLIMIT_AS, &limited);
  const std::string refused = message_of([] { AddressSpace space; });
  setrlimit(RLIMIT_AS, &before);
  REQUIRE_CONTAINS(message, "8 GiB");
  REQUIRE_CONTAINS(refused, "ulimit -v");
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
  // The preprocessor passes over the #line behind a file that it skips: the end of the branch has one.
  REQUIRE_CONTAINS(kernel_source("test/skipped.cl"), "\n#endif\n#line 8 \"test/skipped.cl\"\n");
  // Not within a comment; and what looks like a directive there is none.
  REQUIRE_CONTAINS(kernel_source("test/comments.cl"),
                   "#endif /* of\nboth */\n#line 8 \"test/comments.cl\"\n");
  REQUIRE_CONTAINS(message_of([] { kernel_source("test/no_include.cl"); }), "test/no_include.cl:2");
  REQUIRE_CONTAINS(message_of([] { kernel_source("test/absent.cl"); }),
                   "no kernel file \"test/absent.cl\"");
}

// Messages of drivers that count the lines of the whole text name the files' lines.
void test_build_log() {
  const std::string source =
      "#line 1 \"<kernel f>\"\n#define WIDE 1\n#line 7 \"/a \\\\ b.py\"\nint x\n#include\n"
      "#line 40\nint y;\n";
  REQUIRE(with_named_lines("<kernel>:4:6: error: expected ';'\nint x\n     ^\n<kernel>:7:1: note\n",
                           source) ==
          "/a \\ b.py:7:6: error: expected ';'\nint x\n     ^\n/a \\ b.py:40:1: note\n");
  REQUIRE(with_named_lines("<kernel>:2:1: x", source) == "<kernel f>:1:1: x");
  for (const char* other : {"", "no place", "<kernel>: x", "<kernel>:0:1", "<kernel>:99:1: x",
                            "<kernel>:99999999999999999999999", "file:3:1: x", "<kernel>:"}) {
    REQUIRE(with_named_lines(other, source) == other);
    REQUIRE(with_named_lines(other, "") == other);
  }
  REQUIRE(with_named_lines("<kernel>:1:1", "int x") == "<kernel>:1:1");
}

void test_retarget() {
  REQUIRE(value_of_define("-DA=1 -DOCL_PTX_TARGET=sm_90a -DB=2", "OCL_PTX_TARGET") == "sm_90a");
  REQUIRE(value_of_define("-DA=1", "OCL_PTX_TARGET").empty());
  const std::string ptx =
      ".version 9.0\n.target sm_90, texmode_independent\n\t//@target one;\n//@target two;\n";
  REQUIRE(retarget_ptx(ptx, "sm_90a") ==
          ".version 9.0\n.target sm_90a, texmode_independent\n\tone;\ntwo;\n");
  REQUIRE_CONTAINS(message_of([] { retarget_ptx("ELF", "sm_90a"); }), "not PTX");

  const std::string array = ".shared .align 1024 .b8 tiles[1024];\nld.shared.f32 %f1, [%r1+8];\n";
  REQUIRE(resize_local_array(array, "196608") ==
          ".shared .align 1024 .b8 tiles[196608];\nld.shared.f32 %f1, [%r1+8];\n");
  for (const std::string& other : {std::string("ld.shared.f32 %f1, [%r1];\n"), array + array,
                                   std::string(".shared .b32 one;\n.reg .b32 r[4];\n"),
                                   std::string(".shared .b8 open[10")}) {
    REQUIRE_CONTAINS(message_of([&] { resize_local_array(other, "196608"); }), "array");
  }
}

void test_driver_text() {
  for (const std::string& good : {"", "Mali-G610", "\xC3\xA4\xE2\x82\xAC", "\xF0\x9F\x98\x80"}) {
    REQUIRE(driver_text("  " + good + std::string(" \0 \0", 4)) == good);
  }
  REQUIRE(driver_text("a\xFF" "b\xC3") == "a?b?" && driver_text("\xE2\x82") == "??");
  // A longer form than needed, half a pair, and what is past the last character.
  REQUIRE(driver_text("\xC0\x80") == "??" && driver_text("\xE0\x80\x80") == "???");
  REQUIRE(driver_text("\xED\xA0\x80") == "???" && driver_text("\xF4\x90\x80\x80") == "????");
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

}  // namespace floor1
