// A product on its way to a kernel: what gemm.cpp and the implementations share.
#pragma once

#include <c10/core/Allocator.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "engine/gemm/epilogue.h"
#include "engine/gemm/gemm.h"
#include "engine/gemm/windows.h"
#include "engine/kernel_types.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"

namespace ocl::gemm {

using namespace kernel_types;
#include "gemm/arguments.clh"

/// A checked description with what every implementation asks for.
struct Plan {
  explicit Plan(Queue& queue) : device(queue.device()), queue(queue) {}

  Device& device;
  Queue& queue;
  Arguments problem{};
  // Addresses in the device's address space.
  const char *a = nullptr, *b = nullptr, *c = nullptr;
  char* out = nullptr;
  const char *a_tag = nullptr, *b_tag = nullptr, *out_tag = nullptr, *compute_tag = nullptr;
  size_t a_size = 0, b_size = 0, out_size = 0, compute_size = 0;  // bytes of an element
  bool tf32 = false;          // of single precision: TF32 will do
  int bfloat16_products = 0;  // of single precision: so many products in bfloat16 will do
  int products = 1;           // in bfloat16 for one of single precision: operands lie in planes
  bool complex = false;       // the kernels have no vectors of complex numbers
  bool b_packed = false;      // for packed alone
  int activation = 0;
  ScalarArgument alpha{}, beta{};
  Parameters parameters{};
  const Windows* windows = nullptr;
  const Epilogue* epilogue = nullptr;

  /// The same product transposed: out^T = b^T a^T.
  Plan transposed() const;
};

/// Other parameters for an implementation, and what they are called in a file of tuning results:
/// without commas, colons and white space.
struct Variation {
  std::string name;
  Parameters parameters;
};

struct Product : Implementation<const Plan> {
  /// What the tuner may make of the plan's parameters at that stage (from 0), the most promising
  /// first; nothing past its last stage. Null where there is nothing to vary.
  std::vector<Variation> (*vary)(const Plan& plan, int stage) = nullptr;
};

extern Engine engine;
extern const Product small, k_blocking, packed, skinny_axpy, skinny_dot, group_axpy, group_dot,
    bfloat16_parts, bfloat16_planes, tensor_core, tensor_core_f64, subgroup_matrix, subgroup, tiled,
    direct;

/// Whether the driver turned out not to take programs with Hopper's instructions.
bool warpgroups_fail();

/// The elements along k that packed makes one value of a panel: 1, or as many as a processor's
/// dot product takes, 2 of bfloat16 or 4 of int8 (kernels/gemm/dot_*.clh, written for one tile).
int packed_group(const Plan& plan);
/// The panels packed makes of the plan's b, and what makes them.
Panels panels_of(const Plan& plan);
void pack_columns(const Plan& plan, void* panels);

/// Runs the first implementation that takes the plan, or as the tuner says.
void run_product(const Plan& plan);

/// The implementations for that device in order of preference. The last one takes everything.
std::span<const Product* const> products(const Device& device);
/// Those of all devices.
std::span<const Product* const> all_products();
/// The same of those that find an operand in windows.
std::span<const Product* const> products_of_windows(const Device& device);
std::span<const Product* const> all_products_of_windows();

/// Runs the plan as the tuner found best for its class of shapes, looking for that at first. False
/// if the tuner is off or prefers the order of products().
bool run_tuned(const Plan& plan);

/// Device memory (none for 0 bytes) until the end of the scope; the allocator keeps stream order.
class Workspace {
 public:
  explicit Workspace(size_t bytes);
  char* data() const { return static_cast<char*>(memory_.get()); }

 private:
  c10::DataPtr memory_;
};

/// A kernel of kernels/gemm with the plan's types and the implementation's `parameters`.
Kernel& get_kernel(const KernelFamily& family, const Plan& plan,
                   std::span<const Define> parameters = {});

/// Enqueues with the operands of gemm.clh and `extra` (a trailing struct, may be empty).
void launch_product(Kernel& kernel, const Plan& plan, const NDRange& range,
                    const void* workspace = nullptr, std::span<const unsigned char> extra = {});

/// The windows' arguments, which follow the operands; nothing where there are no windows.
std::span<const unsigned char> windows_of(const Plan& plan);

/// Copies `lines` lines of `length` elements per batch to `copy`, each contiguous and `pitch`
/// elements after the last. Strides in elements: within a line, from line to line, from batch to
/// batch.
void copy_lines(const Plan& plan, const char* source, size_t element_size, uint64_t stride,
                uint64_t line_stride, uint64_t batch_stride, uint32_t length, uint32_t lines,
                uint64_t pitch, char* copy);

/// Sets splits and split_k so that about `target` work-items run where `items` would, with no part
/// of k shorter than `least` and parts a multiple of `multiple`.
void split_k(Arguments& problem, int64_t items, int64_t target, int64_t least, int64_t multiple);
/// Bytes of the sums that a split product leaves; 0 if it is not split.
size_t split_bytes(const Plan& plan);
/// Adds up the sums and applies the epilogue. No work if k is not split.
void finish_split(const Plan& plan, const void* sums);

}  // namespace ocl::gemm
