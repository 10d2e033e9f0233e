// The convolution engine: any number of groups, strides, dilations and paddings in up to three
// dimensions, any strides of the tensors.
//
// Offers: ConvWindow, ConvTensor, kFewColumns, kNarrowColumns, kPlaneColumns, kPlaneLength,
// convolution(), convolution_input(), covers_all(), convolution_weight().
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace ocl {

/// How windows lie over the input; axes are depth, height, width, missing ones have the defaults.
struct ConvWindow {
  std::array<int64_t, 3> kernel{1, 1, 1}, stride{1, 1, 1}, pad{}, dilation{1, 1, 1};
  int64_t groups = 1;
};

/// A tensor seen as [batch][channel][depth][height][width], a weight as [out][in / groups][...].
struct ConvTensor {
  ConvTensor() = default;
  /// `tensor` has two dimensions and then `axes` (1 to 3) spatial ones.
  ConvTensor(const at::Tensor& tensor, int axes);

  char* data = nullptr;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::array<int64_t, 5> size{1, 1, 1, 1, 1}, stride{};
};

/// The most output channels that GPUs have a kernel of their own for, which reads neighbouring
/// positions side by side (kernels/conv/few_columns.cl).
inline constexpr int64_t kFewColumns = 16;
/// The most that CPUs have kernels for (kernels/conv/narrow.cl).
inline constexpr int64_t kNarrowColumns = 4;
/// The most whose sums CPUs keep in registers, as vectors of positions, along lines of that length
/// or more.
inline constexpr int64_t kPlaneColumns = 8, kPlaneLength = 16;

/// out = the convolution of `in` with `weight`, plus `bias` (a contiguous vector; may be null).
///
/// Tensors have one dtype (floating or int64; half types are summed in float) and the sizes that
/// belong together; an axis of `in` may have elements that no window covers. Enqueues on the
/// current stream. Throws NotImplementedError for other dtypes, Error for a device failure.
void convolution(const ConvTensor& out, const ConvTensor& in, const ConvTensor& weight,
                 const void* bias, const ConvWindow& window);

/// `in` = the gradient of convolution()'s input (or a transposed convolution, which is the same),
/// plus `bias`, one number for each channel of `in`. Elements that windows of this size and stride
/// never cover (see covers_all()) are left as they are.
void convolution_input(const ConvTensor& in, const ConvTensor& out, const ConvTensor& weight,
                       const void* bias, const ConvWindow& window);

/// Whether every element of an input could be covered by some window.
bool covers_all(const ConvWindow& window);

/// `weight` = the gradient of convolution()'s weight, where `out` holds the gradient of its result.
void convolution_weight(const ConvTensor& weight, const ConvTensor& in, const ConvTensor& out,
                        const ConvWindow& window);

}  // namespace ocl
