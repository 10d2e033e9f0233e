// The least that ops must move and compute, for profiles: their operands' bytes, and floating point
// operations where a formula knows them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ocl {

/// The cost of one op that enqueued commands by itself, not by ops within it.
struct OpCost {
  uint64_t id = 0;    // profile::Tags::op of its commands
  std::string name;   // "aten::mm"
  std::string dtype;  // "float32": of its first operand; empty where there is none
  double bytes = 0;   // each operand read once, and each result written once
  double flops = 0;   // 0: no formula
};

/// Watches the ops of all threads while it lives, and tags their commands. At most one lives at a
/// time; a second throws std::runtime_error.
class OpCosts {
 public:
  OpCosts();
  ~OpCosts();
  OpCosts(const OpCosts&) = delete;
  OpCosts& operator=(const OpCosts&) = delete;

  /// Those of the ops that have ended.
  std::vector<OpCost> take();

 private:
  uint64_t handle_ = 0;
};

}  // namespace ocl
