// The matrix product engine: out = act(alpha * a @ b + beta * c), batched, any dtype, any strides.
#pragma once

#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "opencl/device.h"

namespace ocl {
struct Epilogue;
}

namespace ocl::gemm {

struct Windows;

/// Further tensors with columns of b, with the strides of the first. `second` and `third` are the
/// first columns there: n where there is none.
inline constexpr size_t kMostPieces = 3;
/// The rows of a are normalised first (RMS norm), on GPUs: divided by the root of epsilon and their
/// squares' mean, and multiplied by the weight, contiguous, plus `shift`.
struct NormOfA {
  const void* weight = nullptr;
  c10::ScalarType dtype = c10::ScalarType::Float;
  float epsilon = 0, shift = 0;
};
/// Columns of b are integers with scales, on GPUs (kernels/gemm/scaled_rows.clh): of 8 bits with a
/// number each, or of 4 bits, which b has as bytes. Those have a pair of numbers for each `group`
/// of k, a multiple of kFourBitBlock.
struct ScalesOfB {
  std::array<const void*, kMostPieces> data{};
  c10::ScalarType dtype = c10::ScalarType::Float;
  int64_t group = 0;  // 0: of 8 bits
  bool has_points = false;
};
inline constexpr int64_t kFourBitBlock = 32;
struct PiecesOfB {
  const void *second_data = nullptr, *third_data = nullptr;
  int64_t second = 0, third = 0;
  const NormOfA* norm = nullptr;
  const ScalesOfB* scales = nullptr;
};

/// A batch of matrices in device memory. Strides are in elements and may be 0 (broadcast).
struct Operand {
  const void* data = nullptr;
  c10::ScalarType dtype = c10::ScalarType::Float;
  int64_t row_stride = 0, column_stride = 0, batch_stride = 0;
  bool conjugate = false;  // what is stored is the conjugate of what is meant
};

enum class Activation : uint8_t { none, relu, gelu };

/// out[z, i, j] = activation(alpha * sum_k a[z, i, k] * b[z, k, j] + beta * c[z, i, j]).
///
/// a: [batch, m, k], b: [batch, k, n], c and out: [batch, m, n] of one dtype. beta == 0 never reads
/// c, alpha == 0 never reads a and b. c may be out itself, element for element; a and b must not
/// overlap out. Half and bfloat16 are summed in float, integers wrap. An activation needs a
/// floating-point out.
struct Description {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  Operand a, b, c, out;
  c10::Scalar alpha = 1, beta = 0;
  Activation activation = Activation::none;
  bool tf32 = false;  // a and b of single precision may be rounded to 11 bits (TF32)
  /// Their elements may be cut to one number in bfloat16, or to two. A term of the sum then becomes
  /// 1 or 3; 0: they may not be cut.
  int rounded_terms = 0;
  /// a and b are the parts that bfloat16x3.h makes of single precision, which lie so many bytes
  /// apart. A term of the sum becomes so many.
  int exact_terms = 1;
  uint64_t a_part = 0, b_part = 0;
  /// The operand that lies in the windows of a convolution (windows.h), if one does.
  const Windows* windows = nullptr;
  bool b_packed = false;  // b is what pack() made of it: b.data, and b.dtype as panels_for'
};

/// Enqueues the product on the current stream of the current device. Sizes may be 0. Throws
/// NotImplementedError for a dtype that it does not take (bool), Error for a device failure.
///
/// The first implementation in implementations.cpp that does not refuse runs.
/// TORCH_OCL_VERBOSE=dispatch prints the reasons, TORCH_OCL_GEMM=<name> asks for one (where it
/// refuses, the order holds). With torch.ocl.tunable it is the one that the tuner found fastest.
///
/// An epilogue sees each element. out then says how results are rounded and where they would lie;
/// its data need only be memory of the device, and its rows are contiguous.
void run(const Description& description, const Epilogue* epilogue = nullptr);

/// Whether run() on a CPU reads the operands once and packs nothing large: few rows and columns
/// over a long k (kernels/gemm/k_blocking.cl).
bool takes_k_blocking(const Description& description);

/// Rows or columns for which every device has kernels that read the other operand once, as it lies
/// (kernels/gemm/skinny_*.cl, group_*.cl). Their sums are no vectors of columns: an epilogue
/// follows in a launch of its own where there are more results than that.
inline constexpr uint32_t kSkinnyColumns = 8, kSkinnyResults = 2048;

/// Whether a CPU takes dot products of the operands as they lie, contiguous along k, where `few` is
/// the lesser of m and n.
bool prefers_dots(c10::ScalarType a, c10::ScalarType b, c10::ScalarType out, int64_t few,
                  int64_t k);

/// run() for a b whose columns lie in several tensors. False, and nothing is enqueued, where no
/// kernel takes it: they take few rows, and columns that are contiguous. A norm and scales need a
/// GPU. Columns of 4 bits begin at multiples of 16 bytes, and a row of a at one of 8 elements.
bool run_pieces(const Description& description, const PiecesOfB& pieces,
                const Epilogue* epilogue = nullptr);

/// Whether run() is so much faster with a's rows and b's columns contiguous that it pays to
/// copy them: Hopper's matrix instructions for 8-bit integers and TF32 read them only so.
bool wants_contiguous_k(const Description& description);

/// A matrix b that many products share, packed once: panels of adjacent columns, each a row of
/// `columns` elements after the other, padded with zeros.
struct Panels {
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  int64_t panels = 0, depth = 0, columns = 0;
  int64_t group = 1;  // rows of b whose elements lie beside each other
};

/// The panels that pack() makes of b: [k, n]: `panels` is 0 where the device's kernels would not
/// use it.
Panels panels_for(const Device& device, c10::ScalarType dtype, int64_t k, int64_t n);
/// Packs b: [k, n] into memory of panels * depth * columns * group elements.
void pack(const Operand& b, int64_t k, int64_t n, void* panels);

/// True if the engine takes operands of that dtype.
bool takes(c10::ScalarType dtype);

}  // namespace ocl::gemm
