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

/// Null: the work has none. Gloo's reduce_scatter is such.
c10::intrusive_ptr<c10::ivalue::Future> future_of(c10d::Work& work) {
  try {
    return work.getFuture();
  } catch (const c10::Error&) {
    return nullptr;
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

void follow(const WorkPtr& inner, std::function<void()> arrived,
            std::function<void(std::exception_ptr)> failed) {
  const auto future = future_of(*inner);
  if (!future) {
    std::thread([inner, arrived = std::move(arrived), failed = std::move(failed)] {
      conclude(
          [&] {
            inner->wait();
            arrived();
          },
          failed);
    }).detach();
    return;
  }
  future->addCallback(
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
