// How much pinned memory a group's calls have at a time.
//
// Calls take of it in the program's order. So whoever waits for memory waits only for calls that
// the inner backend has already, which end without him: all ranks make the same calls.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "distributed/staging.h"

namespace ocl::distributed {

class PinnedBudget : public std::enable_shared_from_this<PinnedBudget> {
 public:
  using Uses = std::vector<EventPtr>;
  /// Bytes that a call has; they come back with it.
  class Share {
   public:
    Share(std::shared_ptr<PinnedBudget> from, int64_t bytes)
        : from_(std::move(from)), bytes_(bytes) {}
    ~Share() { give_back({}); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    /// Gives them back, for use once the events have come; none: at once. A freed block may be
    /// allocated again when both streams for copies have passed what they had by then.
    void give_back(Uses after);

   private:
    std::shared_ptr<PinnedBudget> from_;
    int64_t bytes_;
  };
  using SharePtr = std::shared_ptr<Share>;

  /// How a call enters the queue.
  struct Turn {
    std::unique_lock<std::mutex> order;  // no other call enters in between
    SharePtr share;                      // the memory, if there is some by now
    std::shared_ptr<void> behind;        // else: later calls wait until the last copy of it is gone
  };

  explicit PinnedBudget(int64_t bytes) : limit_(bytes) {}

  /// The turn of a call that needs so many bytes; 0: it waits for nothing. Never waits for calls.
  Turn enter(int64_t bytes);
  /// The turn of a call that takes what it needs piece by piece.
  Turn enter_in_pieces();
  /// Waits until there are as many bytes, or no other call has any: on the queue's thread only,
  /// where waiting keeps nobody from ending.
  SharePtr take(int64_t bytes);
  /// Null if it would have to wait.
  SharePtr try_take(int64_t bytes);

 private:
  bool take_now(int64_t bytes);
  SharePtr share_of(int64_t bytes) { return std::make_shared<Share>(shared_from_this(), bytes); }
  std::shared_ptr<void> stand_in_line();

  const int64_t limit_;
  std::mutex order_;  // before the other
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  int64_t used_ = 0;
  int64_t in_line_ = 0;                             // calls that have not all they need
  std::deque<std::pair<Uses, int64_t>> returning_;  // among those used: copies are under way
};

}  // namespace ocl::distributed
