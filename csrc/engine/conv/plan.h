// A convolution on its way to a kernel: what conv.cpp and the implementations share.
//
// There are two kinds of implementations. Those of a Plan take a convolution or gradient as a
// whole. Where they all refuse, conv.cpp brings it into the form of sums of products, and those of
// a Contraction compute each of these.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>

#include "engine/conv/conv.h"
#include "engine/dispatch.h"
#include "engine/kernel_types.h"
#include "opencl/kernel.h"

namespace ocl::conv {

using namespace kernel_types;
#include "conv/arguments.clh"

enum class Pass : uint8_t { forward, input_gradient, weight_gradient };

/// A convolution or one of its gradients, checked. `in`, `out` and `weight` are the convolution's,
/// whichever of them is written.
struct Plan {
  Device& device;
  Queue& queue;
  Pass pass;
  const Operand &in, &out, &weight;
  const void* bias;  // null with Pass::weight_gradient
  const Window& window;
  /// Null unless a text is to have the results. Who hands them to it says so.
  const Results* results = nullptr;
  bool* handed_over = nullptr;

  /// The text, for an implementation that stores results channels last or in planes.
  const Epilogue* take_results(bool channels_last) const {
    if (results == nullptr || results->channels_last != channels_last) return nullptr;
    *handed_over = true;
    return &results->epilogue;
  }
  bool transposed() const { return pass == Pass::input_gradient; }
  /// The operands that are written, and read beside the weight, but for Pass::weight_gradient.
  const Operand& result() const { return transposed() ? in : out; }
  const Operand& source() const { return transposed() ? out : in; }
};

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

/// The tag of sums computed in that dtype.
const char* sums_tag(c10::ScalarType compute);

/// A sum over several contractions that differ in k: all but the last leave their part in `memory`,
/// all but the first go on from there. None has more of k than the first.
struct Accumulator {
  c10::DataPtr memory;
  int64_t splits = 1;
  bool first = true, last = true;
};

/// A sum of products in terms of tensors' elements: see kernels/conv/conv.clh.
struct Contraction {
  Device& device;
  Queue& queue;
  AffineIndex rows{};  // strides in a and in out
  AffineIndex k{};     // strides in a and in b
  int64_t columns = 0, column_b = 0, column_out = 0;
  int64_t groups = 1, a_group = 0, b_group = 0, out_group = 0;
  int64_t bias_channels = 0;  // if it repeats, which only run_packed() takes; 0: it doesn't
  // Addresses of the first elements.
  const char *a = nullptr, *b = nullptr, *bias = nullptr;
  char* out = nullptr;
  c10::ScalarType dtype{}, b_dtype{}, compute{};  // of out and bias; of b; of a and the sums
  Accumulator* accumulator = nullptr;             // null: the contraction is the whole sum
  // As in Plan. The positions before the first row's, those of an image (0 with channels last), and
  // all channels of the result.
  const Results* results = nullptr;
  bool* handed_over = nullptr;
  int64_t position0 = 0, plane = 0, all = 0;

  const Epilogue* take_results() const {
    if (results == nullptr) return nullptr;
    *handed_over = true;
    return &results->epilogue;
  }

  bool is_whole() const {
    return accumulator == nullptr || (accumulator->first && accumulator->last);
  }
  /// The kernels' argument: k's dimensions joined by a's strides. What an implementation decides is
  /// zero.
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

/// Implementations for whole convolutions. On CPUs: depthwise ones, and windows of 3 x 3 by fewer
/// products. On GPUs: depthwise_direct. On both: what is a matrix product as it stands.
using Whole = Implementation<const Plan>;
extern const Whole depthwise_lanes, depthwise_transposed, depthwise_planes, depthwise_direct,
    product, winograd, side_by_side;
/// For sums of products. On CPUs the first five, on GPUs the next three, before packed.
using Sum = Implementation<const Contraction>;
extern const Sum narrow_groups, narrow_positions, narrow_k, im2col, packed, few_columns, direct,
    tiled;

/// The most columns whose sums CPUs keep in registers, as vectors of positions, along lines of that
/// length or more.
inline constexpr int64_t kPlaneColumns = 8, kPlaneLength = 16;

/// What packed runs, which takes every contraction.
void run_packed(const Contraction& contraction);
/// Whether its tiles of that contraction are transposed in registers where that is how the result
/// lies, and not stored one element at a time.
bool packed_transposes(const Contraction& contraction);
/// Its panels' columns.
int64_t packed_panel_columns(const Contraction& contraction);

/// A contiguous copy of five dimensions, outermost first, with zeros around the source's elements.
struct PaddedCopy {
  const char* in = nullptr;
  char* copy = nullptr;
  c10::ScalarType in_dtype{}, dtype{};
  std::array<int64_t, 5> size{}, source{}, before{}, stride{};  // strides of the source
};
void run_padded_copy(const PaddedCopy& copy);

/// A depthwise weight copied with its channels next to each other, in the dtype computed with.
/// `copy` keeps it.
Operand weight_channels_last(const Operand& weight, c10::DataPtr& copy);

inline char* advance(char* data, c10::ScalarType dtype, int64_t elements) {
  return data + elements * static_cast<int64_t>(c10::elementSize(dtype));
}

}  // namespace ocl::conv
