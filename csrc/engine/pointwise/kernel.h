// One launch of a pointwise kernel, whatever its access mode: how wide the work-items read, the
// compile options, the kernel and its arguments.
#pragma once

#include <c10/util/FunctionRef.h>

#include <array>
#include <new>
#include <span>

#include "engine/pointwise/launch.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"

namespace ocl::pointwise {

class DefineList {
 public:
  void add(const Define& define) { new (&storage_[count_++]) Define(define); }
  std::span<const Define> view() const {
    return {reinterpret_cast<const Define*>(storage_.data()), count_};
  }

 private:
  struct alignas(Define) Slot {
    unsigned char bytes[sizeof(Define)];
  };
  std::array<Slot, 32> storage_;
  size_t count_ = 0;
};

/// How many elements a work-item's vectors have, whether they all are aligned to their size,
/// whether stores go past the caches, how many vectors of contiguous operands it takes, and whether
/// by pairs (kernels/include/vector_pairs.clh).
struct Access {
  int width = 1;
  bool aligned = false;
  bool streaming = false;
  int vectors = 1;
  bool paired = false;
};

/// Whether results would only push other things out of a CPU's caches: an ordinary store reads the
/// line first. What the operands don't fit into at once, a next op won't find there anyway. Not for
/// what is updated in place, whose lines are there, nor where nothing is read: the last lines of a
/// fill are found in the caches by what reads it, at the cost of writing them back later.
/// `moved`: bytes read and written. A little more than the cache holds is better left to it.
bool should_stream(const Device& device, const Operands& operands, uint64_t moved);

/// Whether the functor is one of ops/special.clh, which takes one element at a time.
bool is_special(const Device& device, const Operands& operands, const Op& op);

/// `is_aligned(i, b)` says whether all vectors of operand i start at multiples of b bytes; `moved`:
/// bytes read and written.
Access choose_access(const Device& device, const Operands& operands, const Op& op, uint64_t moved,
                     c10::function_ref<bool(int, size_t)> is_aligned);

/// Vectors to a work-item of a CPU where all operands are contiguous.
int vectors_per_item(const Device& device, const Operands& operands, const Op& op,
                     const Access& access);

/// Whether a CPU's work-item takes a vector of complex numbers as they lie in memory.
bool takes_complex_vectors(const Device& device, const Operands& operands, const Op& op);

/// Work-items to a group, of `items`, each of which takes `vectors`.
size_t local_size(const Device& device, size_t items, size_t vectors);

/// The options that all access modes share.
void common_defines(DefineList& defines, const Device& device, const Operands& operands,
                    const Op& op, const Access& access);

/// The kernel of a family. A functor that does not build for the dtype has no meaning for it
/// (an order of complex numbers, say): NotImplementedError, as CPU torch raises.
Kernel& kernel_of(const KernelFamily& family, Device& device, const DefineList& defines,
                  const Operands& operands, const Op& op);

/// Sets the arguments: operands, `own` (the kernel's own parameter), scalars, and the operands of a
/// check.
void enqueue(Kernel& kernel, Queue& queue, const NDRange& range, const Operands& operands,
             const Op& op, const Bytes& own);

}  // namespace ocl::pointwise
