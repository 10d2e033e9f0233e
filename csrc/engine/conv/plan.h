// A convolution on its way to a kernel: what conv.cpp and the implementations share.
//
// Offers: Contraction, AffineIndex, ConvPlan, ConvAccumulator, PaddedCopy, and what runs them.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <initializer_list>

#include "engine/conv/conv.h"
#include "opencl/kernel.h"

namespace ocl {

/// The layout of Contraction in kernels/conv/conv.clh.
struct Contraction {
  uint64_t a_offset, b_offset, bias_offset, out_offset, work_offset;
  uint64_t totals;
  int64_t a_group, b_group, out_group;
  int64_t row_a[4], row_out[4];
  int64_t k_a[4], k_b[4];
  int64_t column_b, column_out;
  uint32_t row_size[4], k_size[4];
  uint32_t m, n, k, groups;
  uint32_t flags, block, chunk, splits, split_k, bias_channels;
};
static_assert(sizeof(Contraction) == 288);

namespace conv_flag {
inline constexpr uint32_t bias = 1, resume = 2, keep = 4;
}

/// Elements numbered by up to four dimensions, outermost first, with strides in two tensors.
class AffineIndex {
 public:
  struct Dimension {
    int64_t size, first, second;
  };
  enum class Join { both, first, second };

  void add(int64_t size, int64_t first, int64_t second);
  int64_t elements() const;
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

/// A sum of products in terms of tensors' elements: see kernels/conv/conv.clh.
struct ConvPlan {
  Device& device;
  Queue& queue;
  AffineIndex rows{};  // strides in a and in out
  AffineIndex k{};     // strides in a and in b
  int64_t columns = 0, column_b = 0, column_out = 0;
  int64_t groups = 1, a_group = 0, b_group = 0, out_group = 0;
  int64_t bias_channels = 0;  // if it repeats, which only run_conv_panels() takes; 0: it doesn't
  // Addresses of the first elements.
  const char *a = nullptr, *b = nullptr, *bias = nullptr;
  char* out = nullptr;
  c10::ScalarType dtype{}, b_dtype{}, compute{};  // of out and bias; of b; of a and the sums

  /// The kernels' argument: k's dimensions joined by a's strides. Offsets and what an
  /// implementation decides are zero.
  Contraction contraction() const;
  /// The operands' buffers; sets their offsets.
  struct Buffers {
    cl_mem a, b, bias, out;
  };
  Buffers locate(Contraction& contraction) const;
  const char* compute_tag() const;
};

/// A sum over several plans that differ in k: all but the last leave their part in `memory`, all
/// but the first go on from there. None has more of k than the first.
struct ConvAccumulator {
  c10::DataPtr memory;
  int64_t splits = 1;
  bool first = true, last = true;
};

/// A call's workspace: `own_bytes` for itself, then the totals of its parts of k, which are the
/// accumulator's where the sum goes on in other calls. Sets the contraction's offsets and flags.
class ConvWorkspace {
 public:
  ConvWorkspace(const ConvPlan& plan, ConvAccumulator* accumulator, Contraction& contraction,
                size_t own_bytes, size_t total_bytes);
  cl_mem own() const { return own_.mem; }
  cl_mem totals() const { return totals_.mem; }
  /// Whether the totals are to be added up after this call.
  bool finishes() const { return finishes_; }

 private:
  c10::DataPtr memory_;
  Location own_, totals_;
  bool finishes_;
};

/// For CPUs (kernels/conv/panels.cl) and for GPUs (kernels/conv/tiled.cl). Without an accumulator
/// the plan is the whole sum.
void run_conv_panels(const ConvPlan& plan, ConvAccumulator* accumulator);
/// Whether its tiles of that plan are turned in registers where that is how the result lies, and
/// not stored one element at a time.
bool conv_panels_turn(const ConvPlan& plan);
/// Its panels' columns.
int64_t conv_panel_columns(const ConvPlan& plan);
void run_conv_tiled(const ConvPlan& plan, ConvAccumulator* accumulator);

/// Where groups have few columns (kernels/conv/narrow.cl, few_columns.cl), on CPUs and on GPUs.
/// False if it doesn't take the plan; needs the whole sum.
bool run_conv_narrow(const ConvPlan& plan);
bool run_conv_direct(const ConvPlan& plan);
bool run_conv_few_columns(const ConvPlan& plan);
/// For CPUs, where fewer windows than columns, or short sums, make it the faster one
/// (kernels/conv/gathered.cl). As run_conv_narrow().
bool run_conv_gathered(const ConvPlan& plan);
/// On GPUs, what is a matrix product as it stands: windows of one element. `out` = the convolution
/// of `in`; transposed: the gradient of a convolution's input, from `in`, its result's. False if it
/// doesn't take the convolution.
bool run_conv_product(const ConvTensor& out, const ConvTensor& in, const ConvTensor& weight,
                      const void* bias, const ConvWindow& window, bool transposed);
/// On CPUs, likewise the gradient of such a convolution's weight, where memory is to be read once.
bool run_conv_weight_product(const ConvTensor& weight, const ConvTensor& in, const ConvTensor& out,
                             const ConvWindow& window);
/// On CPUs, transposed convolutions whose windows lie side by side, with channels last: all
/// elements of a window's line are columns of one sum. `in` = the result, as of
/// convolution_input().
bool run_conv_side_by_side(const ConvTensor& in, const ConvTensor& out, const ConvTensor& weight,
                           const void* bias, const ConvWindow& window);
/// For CPUs, windows of 3 x 3 with a stride of 1 by fewer products, Winograd's
/// (kernels/conv/winograd.cl). As run_conv_product().
bool run_conv_winograd(const ConvTensor& out, const ConvTensor& in, const ConvTensor& weight,
                       const void* bias, const ConvWindow& window, bool transposed);

/// A contiguous copy of five dimensions, outermost first, with zeros around the source's elements.
struct PaddedCopy {
  const char* in = nullptr;
  char* copy = nullptr;
  c10::ScalarType in_dtype{}, dtype{};
  std::array<int64_t, 5> size{}, source{}, before{}, stride{};  // strides of the source
};
void run_padded_copy(const PaddedCopy& copy);

}  // namespace ocl
