// A program that counts the usable devices: torch.ocl.is_available() and device_count() run it,
// since drivers start threads as soon as they are asked, and a process that has asked can't be
// forked for use of a device any more.
//
//     device_count [--loader <libOpenCL>]... [--driver <library>]...
//
// Prints "devices: <n> <type>..."; drivers may print other lines. Knows nothing of torch, which
// takes longer to load than most drivers.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "opencl/api.h"
#include "opencl/device.h"
#include "opencl/device_types.h"
#include "opencl/platform.h"

int main(int count, char** arguments) {
  std::vector<std::string> loaders, drivers;
  for (int i = 1; i + 1 < count; i += 2) {
    const bool names_loader = std::string_view(arguments[i]) == "--loader";
    (names_loader ? loaders : drivers).emplace_back(arguments[i + 1]);
  }
  ocl::configure_loader(std::move(loaders), std::move(drivers));
  std::printf("\ndevices: %d", ocl::device_count());
  for (const std::string& type : ocl::device_types()) std::printf(" %s", type.c_str());
  std::printf("\n");
  std::fflush(stdout);
  _exit(0);  // drivers take their time to tear down
}
