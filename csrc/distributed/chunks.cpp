#include "distributed/chunks.h"

#include <ATen/ops/full.h>
#include <c10/util/irange.h>

#include <thread>

namespace ocl::distributed {
namespace {

// Mostly all ranks make a group at a time, and say that they are there right after it is connected.
constexpr std::chrono::seconds kPresence{3};

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string key_of(int rank) { return "torch_ocl/" + std::to_string(rank); }

}  // namespace

Chunks::Chunks(c10d::Backend& inner, c10::intrusive_ptr<c10d::Store> store, int64_t bytes)
    : inner_(inner), store_(std::move(store)), bytes_(bytes) {
  if (store_ && bytes_ > 0 && inner_.getSize() > 1) {
    store_->set(key_of(inner_.getRank()), bytes_of(std::to_string(bytes_)));
  } else {
    state_ = whole;
  }
}

// A process without torch_ocl has gloo alone and sends whole tensors, as all must then, and where
// ranks have different sizes of a chunk. The store is polled: a wait would keep other threads from
// it.
bool Chunks::all_present() {
  std::vector<std::string> keys;
  for (const int rank : c10::irange(inner_.getSize())) keys.push_back(key_of(rank));
  const auto end = std::chrono::steady_clock::now() + kPresence;
  bool present = true;
  while (present && !store_->check(keys)) {
    present = std::chrono::steady_clock::now() < end;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const std::vector<uint8_t> mine = bytes_of(std::to_string(bytes_));
  for (size_t rank = 0; present && rank < keys.size(); ++rank) {
    present = store_->get(keys[rank]) == mine;
  }
  // A rank may come late, and find the others there. So what the first one finds holds for all.
  const std::vector<uint8_t> yes = bytes_of("all"), no = bytes_of("not all");
  return store_->compareSet("torch_ocl/present", {}, present ? yes : no) == yes;
}

at::Tensor Chunks::largest(at::Tensor mine) {
  std::vector<at::Tensor> any{std::move(mine)};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MAX;
  inner_.allreduce(any, options)->wait();
  return any[0];
}

int64_t Chunks::largest(int64_t mine) {
  return largest(at::full({1}, mine, at::kLong)).item<int64_t>();
}

bool Chunks::apply(bool copies) {
  if (state_ == unknown) {
    State agreed = whole;
    if (all_present()) {
      const at::Tensor any = largest(at::full({1}, copies ? 1 : 0, at::kByte));
      if (any.item<uint8_t>() != 0) agreed = chunked;
    }
    state_ = agreed;
  }
  return state_ == chunked;
}

}  // namespace ocl::distributed
