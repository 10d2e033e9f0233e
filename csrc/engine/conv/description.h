// A convolution on its way to a kernel: what conv.cpp and the implementations share.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <utility>

#include "engine/conv/dtype.h"
#include "engine/conv/epilogue.h"
#include "engine/conv/window.h"
#include "engine/dispatch.h"
#include "opencl/device.h"
#include "runtime/stream.h"

namespace ocl::conv {

inline constexpr int kAxes = 3;

/// A tensor seen as [batch][channel][depth][height][width], a weight as [out][in / groups][...].
struct Operand {
  Operand() = default;
  /// `tensor` has two dimensions and then 1 to 3 spatial ones.
  explicit Operand(const at::Tensor& tensor);

  at::Tensor tensor;
  char* data = nullptr;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::array<int64_t, 5> size{1, 1, 1, 1, 1}, stride{};
};

enum class Pass : uint8_t { forward, input_gradient, weight_gradient };

/// The distance of neighbouring positions if all of an image's are equally far apart; 0 if not, or
/// if they are all the same element, as an expanded tensor's are.
int64_t position_stride(const Operand& tensor);

/// A convolution or one of its gradients, checked. `in`, `out` and `weight` are the convolution's,
/// whichever of them is written. That one is not empty.
struct Description {
  Description(Pass pass, const at::Tensor& in, const at::Tensor& out, const at::Tensor& weight,
              const at::Tensor& bias, const Window& window, const Precision& precision,
              const MatrixEpilogue* epilogue = nullptr);

  Device& device;
  Queue& queue;
  Pass pass;
  Operand in, out, weight;
  at::Tensor bias;  // may be undefined, and is for Pass::weight_gradient
  Window window;
  Precision precision;
  /// The epilogue left to apply: who applies it, or hands it on, leaves null here.
  /// run_convolution() applies it after others.
  const MatrixEpilogue* epilogue;
  bool out_of_memory = false;  // bfloat16x3 found none for its parts

  /// The epilogue, for an implementation that stores its elements channels last or in planes.
  const Epilogue* take_epilogue(bool channels_last) {
    if (epilogue == nullptr || epilogue->channels_last != channels_last) return nullptr;
    return &std::exchange(epilogue, nullptr)->epilogue;
  }
  bool transposed() const { return pass == Pass::input_gradient; }
  /// The operands that are written, and read beside the weight, but for Pass::weight_gradient.
  const Operand& result() const { return transposed() ? in : out; }
  const Operand& source() const { return transposed() ? out : in; }
  const void* bias_data() const { return bias.defined() ? bias.const_data_ptr() : nullptr; }
};

/// implementations.cpp has the lists by pass and kind of device.
using Implementation = ocl::Implementation<Description>;
extern Engine engine;
extern const Implementation space_to_depth, bfloat16_parts, bfloat16x3, implicit_gemm,
    depthwise_lanes, depthwise_transposed, depthwise_planes, depthwise_direct, gemm, amx,
    one_by_one, winograd, phases, side_by_side, to_planes, contract;

/// Runs the first implementation that takes the description, and the epilogue after it if that one
/// didn't.
void run_convolution(Description& description);

/// The most output channels that GPUs have a kernel of their own for, which reads neighbouring
/// positions side by side (kernels/conv/few_columns.cl).
inline constexpr int64_t kFewColumns = 16;
/// The most that CPUs have kernels for (kernels/conv/narrow.cl).
inline constexpr int64_t kNarrowColumns = 4;

/// Planes of fewer elements fill too little of a matrix product's tiles.
inline constexpr int64_t kLeastPlane = 128;

inline char* advance(char* data, c10::ScalarType dtype, int64_t elements) {
  return data + elements * static_cast<int64_t>(c10::elementSize(dtype));
}

}  // namespace ocl::conv
