#include "distributed/follow.h"

#include <thread>

namespace ocl::distributed {
namespace {

thread_local bool makes_calls = false;

}  // namespace

void this_thread_makes_calls() { makes_calls = true; }

void follow(c10d::Work& inner, std::function<void()> arrived,
            std::function<void(std::exception_ptr)> failed) {
  inner.getFuture()->addCallback(
      [arrived = std::move(arrived), failed = std::move(failed)](c10::ivalue::Future& future) {
        auto end = [arrived, failed, error = future.exception_ptr()] {
          if (error) return failed(error);
          try {
            arrived();
          } catch (...) {
            failed(std::current_exception());
          }
        };
        // The future of a work that has ended already calls back at once.
        if (makes_calls) {
          std::thread(std::move(end)).detach();
        } else {
          end();
        }
      },
      /*uses_future=*/false);
}

}  // namespace ocl::distributed
