#include "distributed/chunks.h"

#include <ATen/ops/full.h>
#include <c10/util/irange.h>

#include <thread>

namespace ocl::distributed {
namespace {

// All ranks make a group at a time, and say that they are there right after it is connected.
constexpr std::chrono::seconds kPresence{3};

std::string key_of(int rank) { return "torch_ocl/" + std::to_string(rank); }

}  // namespace

Chunks::Chunks(c10d::Backend& inner, c10::intrusive_ptr<c10d::Store> store, int64_t bytes)
    : inner_(inner), store_(std::move(store)), bytes_(bytes) {
  if (store_ && bytes_ > 0 && inner_.getSize() > 1) {
    store_->set(key_of(inner_.getRank()), std::vector<uint8_t>{1});
  } else {
    state_ = whole;
  }
}

// A process without torch_ocl has gloo alone and sends whole tensors, as all must then. The store
// is polled: a wait would keep other threads from it.
bool Chunks::all_present() {
  std::vector<std::string> keys;
  for (const int rank : c10::irange(inner_.getSize())) keys.push_back(key_of(rank));
  const auto end = std::chrono::steady_clock::now() + kPresence;
  while (!store_->check(keys)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

bool Chunks::apply(bool copies) {
  if (state_ == unknown) {
    State agreed = whole;
    if (all_present()) {
      std::vector<at::Tensor> any{at::full({1}, copies ? 1 : 0, at::kByte)};
      c10d::AllreduceOptions options;
      options.reduceOp = c10d::ReduceOp::MAX;
      inner_.allreduce(any, options)->wait();
      if (any[0].item<uint8_t>() != 0) agreed = chunked;
    }
    state_ = agreed;
  }
  return state_ == chunked;
}

}  // namespace ocl::distributed
