// A program that builds kernels for another process: see opencl/build_workers.h.
//
//     build_worker [--loader <libOpenCL>]... [--driver <library>]... <device>
//
// Requests come at descriptor 3, a socket. The process that asks ends it by closing the other end.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "opencl/api.h"
#include "opencl/build_workers.h"
#include "opencl/platform.h"

int main(int count, char** arguments) {
  std::signal(SIGINT, SIG_IGN);  // Ctrl-C is meant for the process that asks
  // Others would wait for the end of its sockets and locks.
  const long most = sysconf(_SC_OPEN_MAX);
  for (int other = 4; other < std::min(most, 65536L); ++other) close(other);
  std::vector<std::string> loaders, drivers;
  int i = 1;
  for (; i + 1 < count; i += 2) {
    const bool names_loader = std::string_view(arguments[i]) == "--loader";
    (names_loader ? loaders : drivers).emplace_back(arguments[i + 1]);
  }
  if (i >= count) return 2;
  ocl::configure_loader(std::move(loaders), std::move(drivers));
  try {
    ocl::serve_build_requests(3, std::atoi(arguments[i]));
  } catch (const std::exception&) {  // no device: the process that asks builds by itself
  }
  _exit(0);  // drivers take their time to tear down
}
