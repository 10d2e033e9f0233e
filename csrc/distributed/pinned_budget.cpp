#include "distributed/pinned_budget.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace ocl::distributed {

void PinnedBudget::Share::give_back(Uses after) {
  const auto from = std::exchange(from_, nullptr);
  if (!from) return;
  {
    std::lock_guard lock(from->mutex_);
    if (!after.empty()) {
      from->returning_.emplace_back(std::move(after), bytes_);
    } else {
      from->used_ -= bytes_;
    }
  }
  from->changed_.notify_all();
}

/// With the mutex held.
bool PinnedBudget::take_now(int64_t bytes) {
  // One whose work has failed is over, too: who waits for results is told.
  const auto over = [](const EventPtr& event) {
    try {
      return event->query();
    } catch (const std::exception&) {
      return true;
    }
  };
  while (!returning_.empty() && std::ranges::all_of(returning_.front().first, over)) {
    used_ -= returning_.front().second;
    returning_.pop_front();
  }
  if (used_ != 0 && used_ + bytes > limit_) return false;
  used_ += bytes;
  return true;
}

std::shared_ptr<void> PinnedBudget::stand_in_line() {
  std::lock_guard lock(mutex_);
  ++in_line_;
  return {this, [self = shared_from_this()](void*) {
            std::lock_guard lock(self->mutex_);
            --self->in_line_;
          }};
}

PinnedBudget::Turn PinnedBudget::enter(int64_t bytes) {
  if (bytes == 0) return {};
  Turn turn{std::unique_lock(order_), nullptr, nullptr};
  {
    std::lock_guard lock(mutex_);
    // A later call would take from one in line, which the queue makes before it.
    if (in_line_ == 0 && take_now(bytes)) turn.share = share_of(bytes);
  }
  if (!turn.share) turn.behind = stand_in_line();
  return turn;
}

PinnedBudget::Turn PinnedBudget::enter_in_pieces() {
  std::unique_lock order(order_);
  return {std::move(order), nullptr, stand_in_line()};
}

PinnedBudget::SharePtr PinnedBudget::try_take(int64_t bytes) {
  std::lock_guard lock(mutex_);
  return take_now(bytes) ? share_of(bytes) : nullptr;
}

PinnedBudget::SharePtr PinnedBudget::take(int64_t bytes) {
  std::unique_lock lock(mutex_);
  while (!take_now(bytes)) {
    if (returning_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto [uses, returned] = std::move(returning_.front());
    returning_.pop_front();
    lock.unlock();
    for (const EventPtr& event : uses) {
      try {
        event->synchronize();
      } catch (const std::exception&) {  // as above
      }
    }
    lock.lock();
    used_ -= returned;
  }
  return share_of(bytes);
}

}  // namespace ocl::distributed
