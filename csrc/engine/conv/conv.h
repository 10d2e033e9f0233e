// The convolution engine: any number of groups, strides, dilations and paddings in up to three
// dimensions, any strides of the tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "engine/epilogue.h"

namespace ocl::conv {

/// How windows lie over the input; axes are depth, height, width, missing ones have the defaults.
struct Window {
  std::array<int64_t, 3> kernel{1, 1, 1}, stride{1, 1, 1}, pad{}, dilation{1, 1, 1};
  int64_t groups = 1;
  bool tf32 = false;      // factors of single precision may be rounded to 11 bits
  int rounded_terms = 0;  // so many products in bfloat16 will do for one of single precision
};

/// A tensor seen as [batch][channel][depth][height][width], a weight as [out][in / groups][...].
struct Operand {
  Operand() = default;
  /// `tensor` has two dimensions and then `axes` (1 to 3) spatial ones.
  Operand(const at::Tensor& tensor, int axes);

  char* data = nullptr;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::array<int64_t, 5> size{1, 1, 1, 1, 1}, stride{};
};

/// What takes a convolution's results on: an epilogue, which sees them as a matrix
/// (kernels/conv/results.clh). Channels last or not, they are dense.
struct Results {
  const Epilogue& epilogue;
  bool channels_last = false;
  bool images_as_z = false;  // a matrix per image will do, if there is one group
};

/// The most output channels that GPUs have a kernel of their own for, which reads neighbouring
/// positions side by side (kernels/conv/few_columns.cl).
inline constexpr int64_t kFewColumns = 16;
/// The most that CPUs have kernels for (kernels/conv/narrow.cl).
inline constexpr int64_t kNarrowColumns = 4;

/// out = the convolution of `in` with `weight`, plus `bias` (a contiguous vector; may be null).
///
/// Tensors have one dtype (floating or int64; half types are summed in float) and the sizes that
/// belong together; an axis of `in` may have elements that no window covers. Enqueues on the
/// current stream. Throws NotImplementedError for other dtypes, Error for a device failure.
///
/// TORCH_OCL_VERBOSE=dispatch prints which kernel ran and why others were refused,
/// TORCH_OCL_CONV=<name> asks for one.
///
/// With `results` an epilogue sees each element. out's memory is as for others, and may be written
/// or not: kernels that have no place for a text store there, and another hands it to the text.
void forward(const Operand& out, const Operand& in, const Operand& weight, const void* bias,
             const Window& window, const Results* results = nullptr);

/// Hands dense memory of that dtype to the epilogue: `rows` rows of `columns`, from row `first` on.
void hand_over(const Results& results, const void* memory, c10::ScalarType dtype, int64_t first,
               int64_t rows, int64_t columns);

/// `in` = the gradient of forward()'s input (or a transposed convolution, which is the same), plus
/// `bias`, one number for each channel of `in`. Elements that windows of this size and stride never
/// cover (see covers_all()) are left as they are.
void input_gradient(const Operand& in, const Operand& out, const Operand& weight, const void* bias,
                    const Window& window);

/// Whether every element of an input could be covered by some window.
bool covers_all(const Window& window);

/// `weight` = the gradient of forward()'s weight, where `out` holds the gradient of its result.
void weight_gradient(const Operand& weight, const Operand& in, const Operand& out,
                     const Window& window);

/// Whether weight_gradient() does better where `weight` has its first dimension innermost, as the
/// channels of `in` and `out` are.
bool weight_gradient_wants_channels_last(const Operand& weight, const Operand& in,
                                         const Operand& out, const Window& window);

}  // namespace ocl::conv
