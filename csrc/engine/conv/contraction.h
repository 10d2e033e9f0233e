// Convolutions as contractions, sums over k with affine indices, which contract.cpp makes of a
// description.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <utility>

#include "engine/conv/epilogue.h"
#include "engine/dispatch.h"
#include "engine/kernel_types.h"
#include "opencl/kernel.h"

namespace ocl::conv {

using namespace kernel_types;
#include "conv/arguments.clh"

/// Elements numbered by up to four dimensions, outermost first, with strides in two tensors.
class AffineIndex {
 public:
  struct Dimension {
    int64_t size, first, second;
  };
  enum class Join { both, first, second };

  void add(int64_t size, int64_t first, int64_t second);
  int64_t elements() const;
  /// The greatest distance, in either direction, of two elements in a tensor.
  int64_t first_span() const;
  int64_t second_span() const;
  /// With dimensions joined that are one in both tensors, or in one of them alone (the strides of
  /// the other are then meaningless).
  AffineIndex joined(Join join) const;
  /// The innermost dimension; of size 1 if there is none.
  Dimension innermost() const;
  /// Fills arrays of four, missing dimensions outermost; null ones are left out.
  void store(uint32_t* size, int64_t* first, int64_t* second) const;

 private:
  std::array<Dimension, 4> dimensions_{};
  int count_ = 0;
  bool empty_ = false;
};

/// A sum over several contractions that differ in k: all but the last leave their part in `memory`,
/// all but the first go on from there. None has more of k than the first.
struct Accumulator {
  c10::DataPtr memory;
  int64_t splits = 1;
  bool first = true, last = true;
};

/// A sum over k in terms of tensors' elements: see kernels/conv/conv.clh.
struct Contraction {
  /// implementations.cpp has the list of each kind of device.
  using Implementation = ocl::Implementation<Contraction>;

  Device& device;
  Queue& queue;
  AffineIndex rows{};  // strides in a and in out
  AffineIndex k{};     // strides in a and in b
  int64_t columns = 0, column_b = 0, column_out = 0;
  int64_t groups = 1, a_group = 0, b_group = 0, out_group = 0;
  int64_t bias_channels = 0;  // if it repeats, which only packed takes; 0: it doesn't
  // Addresses of the first elements.
  const char *a = nullptr, *b = nullptr, *bias = nullptr;
  char* out = nullptr;
  c10::ScalarType dtype{}, b_dtype{}, compute{};  // of out and bias; of b; of a and the sums
  Accumulator* accumulator = nullptr;             // null: the contraction is the whole sum
  // As in Description. The positions before the first row's, those of an image (0 with channels
  // last), and all channels of the result.
  const MatrixEpilogue* epilogue = nullptr;
  int64_t position0 = 0, plane = 0, all = 0;

  const Epilogue* take_epilogue() {
    return epilogue == nullptr ? nullptr : &std::exchange(epilogue, nullptr)->epilogue;
  }

  bool is_whole() const {
    return accumulator == nullptr || (accumulator->first && accumulator->last);
  }
  /// The kernels' argument: k's dimensions joined by a's strides. What a kernel's host part decides
  /// is zero.
  ContractionArguments arguments() const;
  /// Without a bias the kernel reads none, but gets a buffer.
  Pointer bias_or_out() const { return {bias != nullptr ? bias : out}; }
  const char* compute_tag() const;
  size_t element_size() const { return c10::elementSize(compute); }
};

/// A call's workspace: `own_bytes` for itself, then the totals of its parts of k, which are the
/// accumulator's where the sum goes on in other calls. Sets the arguments' flags.
class Workspace {
 public:
  Workspace(const Contraction& contraction, ContractionArguments& arguments, size_t own_bytes,
            size_t total_bytes);
  Pointer own() const { return {memory_.get()}; }
  Pointer totals() const { return {totals_}; }
  /// Whether the totals are to be added up after this call.
  bool finishes() const { return finishes_; }

 private:
  c10::DataPtr memory_;
  const void* totals_;
  bool finishes_;
};

extern const Contraction::Implementation narrow_groups, narrow_positions, narrow_k, im2col, packed,
    few_columns, direct, tiled;

/// The most columns whose sums CPUs keep in registers, as vectors of positions, along lines of that
/// length or more.
inline constexpr int64_t kPlaneColumns = 8, kPlaneLength = 16;

/// Elements of a panel that a work-item packs.
inline constexpr int64_t kPackElements = 8192;

/// Runs the first that takes the contraction, of the list for its device.
void run_contraction(Contraction& contraction);
/// Why a kernel for whole sums does not take the contraction, and for a bias that does not repeat.
const char* refuse_parts(const Contraction& contraction);
/// Whether its tiles of that contraction are transposed in registers where that is how the result
/// lies, and not stored one element at a time.
bool packed_transposes(const Contraction& contraction);
/// Its panels' columns.
int64_t packed_panel_columns(const Contraction& contraction);

}  // namespace ocl::conv
