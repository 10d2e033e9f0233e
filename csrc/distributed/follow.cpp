#include "distributed/follow.h"

#include <thread>

namespace ocl::distributed {
namespace {

thread_local bool makes_calls = false;

void end_elsewhere(std::function<void()> end) {
  if (makes_calls) {
    std::thread(std::move(end)).detach();
  } else {
    end();
  }
}

}  // namespace

void this_thread_makes_calls() { makes_calls = true; }

void conclude(std::function<void()> arrived, std::function<void(std::exception_ptr)> failed) {
  end_elsewhere([arrived = std::move(arrived), failed = std::move(failed)] {
    try {
      arrived();
    } catch (...) {
      failed(std::current_exception());
    }
  });
}

void follow(c10d::Work& inner, std::function<void()> arrived,
            std::function<void(std::exception_ptr)> failed) {
  inner.getFuture()->addCallback(
      [arrived = std::move(arrived), failed = std::move(failed)](c10::ivalue::Future& future) {
        // The future of a work that has ended already calls back at once.
        if (std::exception_ptr error = future.exception_ptr()) {
          end_elsewhere([failed, error] { failed(error); });
        } else {
          conclude(arrived, failed);
        }
      },
      /*uses_future=*/false);
}

}  // namespace ocl::distributed
