// A product on its way to a kernel: what gemm.cpp and the implementations share.
//
// Offers: GemmPlan, GemmVariation, GemmImplementation and the list of them, panels_of(),
// pack_columns(), launch_gemm(), Workspace.
#pragma once

#include <c10/core/Allocator.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "engine/gemm/gemm.h"
#include "engine/gemm/windows.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"

namespace ocl {

/// The layout of Problem in kernels/gemm/gemm.clh.
struct GemmProblem {
  struct Strides {
    uint64_t row, column, batch;
  } a, b, c, out;
  uint32_t m, n, k, batch, flags, splits, split_k, unused;
};
static_assert(sizeof(GemmProblem) == 128);

namespace gemm_flag {
inline constexpr uint32_t addend = 1, conjugate_a = 2, conjugate_b = 4, conjugate_c = 8,
                          conjugate_out = 16, wide = 32;
}

/// A checked description with what every implementation asks for.
struct GemmPlan {
  explicit GemmPlan(Queue& queue) : device(queue.device()), queue(queue) {}

  Device& device;
  Queue& queue;
  GemmProblem problem{};
  // Addresses in the device's address space.
  const char *a = nullptr, *b = nullptr, *c = nullptr;
  char* out = nullptr;
  const char *a_tag = nullptr, *b_tag = nullptr, *out_tag = nullptr, *compute_tag = nullptr;
  size_t a_size = 0, b_size = 0, out_size = 0, compute_size = 0;  // bytes of an element
  bool complex = false;   // the kernels have no vectors of complex numbers
  bool b_packed = false;  // for gemm_packed alone
  int activation = 0;
  ScalarArgument alpha{}, beta{};
  GemmParameters parameters{};
  const GemmWindows* windows = nullptr;  // for gemm_tensor_core alone

  /// The same product transposed: out^T = b^T a^T.
  GemmPlan transposed() const;
};

/// Other parameters for an implementation, and what they are called in a file of tuning results:
/// without commas, colons and white space.
struct GemmVariation {
  std::string name;
  GemmParameters parameters;
};

struct GemmImplementation : Implementation<const GemmPlan> {
  /// What the tuner may make of the plan's parameters at that stage (from 0), the most promising
  /// first; nothing past its last stage. Null where there is nothing to vary.
  std::vector<GemmVariation> (*vary)(const GemmPlan& plan, int stage) = nullptr;
};

extern Engine gemm_engine;
extern const GemmImplementation gemm_small, gemm_blocks, gemm_packed, gemm_skinny, gemm_tensor_core,
    gemm_tensor_core_f64, gemm_subgroup_matrix, gemm_subgroup, gemm_tiled, gemm_direct;

/// The elements along k that gemm_packed makes one value of a panel: 1, or as many as a processor's
/// dot product takes, 2 of bfloat16 or 4 of int8 (kernels/gemm/dot_*.clh, written for one tile).
int packed_group(const GemmPlan& plan);
/// The panels gemm_packed makes of the plan's b, and what makes them.
GemmPanels panels_of(const GemmPlan& plan);
void pack_columns(const GemmPlan& plan, void* panels);

/// The implementations for that device in order of preference. The last one takes everything.
std::span<const GemmImplementation* const> gemm_implementations(const Device& device);
/// Those of all devices.
std::span<const GemmImplementation* const> all_gemm_implementations();

/// Runs the plan as the tuner found best for its class of shapes, looking for that at first. False
/// if the tuner is off or prefers the order of gemm_implementations().
bool run_tuned_gemm(const GemmPlan& plan);

/// Device memory (none for 0 bytes) until the end of the scope; the allocator keeps stream order.
class Workspace {
 public:
  explicit Workspace(size_t bytes);
  char* data() const { return static_cast<char*>(memory_.get()); }

 private:
  c10::DataPtr memory_;
};

/// A kernel of kernels/gemm with the plan's types and the implementation's `parameters`.
Kernel& gemm_kernel(const KernelFamily& family, const GemmPlan& plan,
                    std::span<const Define> parameters = {});

/// Enqueues with the operands of gemm.clh and `extra` (a trailing struct, may be empty).
void launch_gemm(Kernel& kernel, const GemmPlan& plan, const NDRange& range,
                 const void* workspace = nullptr, std::span<const unsigned char> extra = {});

/// Copies `lines` lines of `length` elements per batch to `copy`, each contiguous and `pitch`
/// elements after the last. Strides in elements: within a line, from line to line, from batch to
/// batch.
void gemm_gather(const GemmPlan& plan, const char* source, size_t element_size, uint64_t stride,
                 uint64_t line_stride, uint64_t batch_stride, uint32_t length, uint32_t lines,
                 uint64_t pitch, char* copy);

/// Sets splits and split_k so that about `target` work-items run where `items` would, with no part
/// of k shorter than `least` and parts a multiple of `multiple`.
void split_k(GemmProblem& problem, int64_t items, int64_t target, int64_t least, int64_t multiple);
/// Bytes of the sums that a split product leaves; 0 if it is not split.
size_t split_bytes(const GemmPlan& plan);
/// Adds up the sums and applies the epilogue. No work if k is not split.
void finish_split(const GemmPlan& plan, const void* sums);

}  // namespace ocl
