// The matrix product engine: out = act(alpha * a @ b + beta * c), batched, any dtype, any strides.
#pragma once

#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

#include "opencl/device.h"

namespace ocl::gemm {

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
  bool tf32 = false;  // factors of single precision may be rounded to 11 bits (TF32)
  /// They may be cut to one number in bfloat16 (1), or to two, of whose products three count (3).
  int bfloat16_products = 0;
  /// a and b are parts of single precision in bfloat16_planes.h's planes, of which so many products
  /// count; bytes from each plane to the next.
  int products = 1;
  uint64_t a_plane = 0, b_plane = 0;
  bool b_packed = false;  // b is what pack() made of it: b.data, and b.dtype as panels_for'
};

/// Enqueues the product on the current stream of the current device. Sizes may be 0. Throws
/// NotImplementedError for a dtype without a product (bool), Error for a device failure.
///
/// Of the implementations in implementations.cpp the first that does not refuse runs;
/// TORCH_OCL_VERBOSE=dispatch prints the reasons, TORCH_OCL_GEMM=<name> asks for one (where it
/// refuses, the order holds). With torch.ocl.tunable it is the one that the tuner found fastest.
void product(const Description& description);

/// Whether product() on a CPU reads the operands once and packs nothing large: few rows and columns
/// over a long k (kernels/gemm/k_blocking.cl).
bool takes_k_blocking(const Description& description);

/// Whether product() is so much faster with a's rows and b's columns contiguous that it pays to
/// copy them: Hopper's matrix instructions for 8-bit integers and TF32 read them only so.
bool wants_contiguous_k(const Description& description);

/// A matrix b that many products share, packed once: panels of adjacent columns, each a row of
/// `columns` elements after the other, padded with zeros.
struct Panels {
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  int64_t panels = 0, depth = 0, columns = 0;
  int64_t group = 1;  // rows of b whose elements lie beside each other
};

/// What pack() makes of b: [k, n]: panels is 0 where the device's kernels would not use it.
Panels panels_for(const Device& device, c10::ScalarType dtype, int64_t k, int64_t n);
/// Packs b: [k, n] into memory of panels * depth * columns * group elements.
void pack(const Operand& b, int64_t k, int64_t n, void* panels);

/// True if the engine has products of that dtype.
bool takes(c10::ScalarType dtype);

/// The packed kernel: rows x (vectors * width) sums in registers, added up every kc of k; a
/// work-item covers about block_bytes of row panels.
struct PackedParameters {
  int width, rows, vectors, kc;
  int64_t block_bytes;
};
/// The skinny kernels: rows per work-item (vectors of rows for the axpy one) of `width` elements;
/// `local` work-items per row where a work-group shares it.
struct SkinnyParameters {
  int width, rows, local, max_columns;
};

/// The kernels with tiles in local memory: which of their shapes, and into how many parts k is
/// split. By default a cost model says.
struct TileParameters {
  int shape = -1;
  int splits = 0;
};

/// What the tuner may vary, for one device and one type computed with.
struct Parameters {
  PackedParameters packed;
  SkinnyParameters skinny;
  TileParameters tile;
  int64_t max_workspace;  // bytes; larger problems are packed in blocks
};

/// The defaults of the device's class (the table in parameters.cpp) for values of
/// `compute_size` bytes.
Parameters parameters_of(const Device& device, size_t compute_size, bool complex);

}  // namespace ocl::gemm
