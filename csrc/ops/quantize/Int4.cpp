// Products with matrices of 4-bit integers: a kernel's where few rows meet them, and the gemm
// engine's with unpacked numbers.
#include "ops/quantize/Int4.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "ops/linalg/LinearAlgebra.h"
#include "ops/linalg/LinearPieces.h"
#include "ops/quantize/Aligned.h"
#include "runtime/stream.h"

namespace ocl::native {

using at::Tensor;

namespace {

const KernelFamily lanes_family{"quantize/int4_lanes.cl", "int4_product_lanes"};
const KernelFamily expand_lanes_family{"quantize/int4_lanes.cl", "int4_expand_lanes"};
const KernelFamily expand_family{"quantize/int4.cl", "int4_expand"};

constexpr int64_t kMostRows = 8;   // of activations on CPUs: past that, unpacked numbers pay
constexpr uintptr_t kVector = 32;  // the bytes of 8 floats
/// So many unpacked numbers are in memory at a time.
constexpr int64_t kMostNumbers = int64_t{1} << 24;

Pointer pointer(const Tensor& tensor) {
  return Pointer{tensor.defined() ? tensor.const_data_ptr() : nullptr};
}

/// A CPU's product, whose bits are in lanes.
void product_in_lanes(const Tensor& x, const Int4Matrix& matrix, const Tensor& bias,
                      const Tensor& out) {
  Queue& queue = current_queue(x.device().index());
  const int64_t count = x.size(0);
  const uint32_t together = count <= 1 ? 1 : count <= 2 ? 2 : count <= 4 ? 4 : 8;
  // Registers that the rows' sums leave.
  const uint32_t of_matrix = together <= 2 ? 64 : together <= 4 ? 32 : 16;
  std::array<Define, 6> defines{{{"TAG", tag(x.scalar_type())},
                                 {"PAIRS", tag(matrix.pairs.scalar_type())},
                                 {"NQ", together},
                                 {"ROWS", of_matrix}}};
  size_t given = 4;
  if (matrix.has_points) defines[given++] = {"POINTS", 1};
  if (bias.defined()) defines[given++] = {"BIAS", 1};
  const auto rows = static_cast<uint32_t>(count), n = static_cast<uint32_t>(matrix.n),
             k = static_cast<uint32_t>(matrix.k), group = static_cast<uint32_t>(matrix.group);
  launch(lanes_family.get(queue.device(), {defines.data(), given}), queue,
         NDRange::linear(ceil_div(n, of_matrix), 1), pointer(x), pointer(matrix.bits),
         pointer(matrix.pairs), pointer(bias), Pointer{out.mutable_data_ptr()}, rows, n, k, group);
}

/// A GPU's product of few rows; false where there are too many.
bool product_by_groups(const Tensor& x, const Int4Matrix& matrix, const Tensor& bias,
                       const Tensor& out) {
  const LinearWeights weights{{aligned(matrix.bits, kVector)}, {matrix.pairs}, matrix.has_points};
  return linear_in_one_launch(aligned(x, kVector), weights, {}, bias, out);
}

/// The numbers of rows from `start` on, as many as `out` has. In lanes they are whole vectors of
/// rows.
void unpack(const Int4Matrix& matrix, int64_t start, const Tensor& out) {
  Queue& queue = current_queue(out.device().index());
  Device& device = queue.device();
  const int64_t rows = out.size(0), blocks = matrix.k / kInt4Block;
  const auto n = static_cast<uint32_t>(matrix.n), k = static_cast<uint32_t>(matrix.k),
             group = static_cast<uint32_t>(matrix.group);
  std::array<Define, 3> defines{
      {{"PAIRS", tag(matrix.pairs.scalar_type())}, {"OUT", tag(out.scalar_type())}, {"POINTS", 1}}};
  const size_t given = matrix.has_points ? 3 : 2;
  const Pointer bits{static_cast<const char*>(matrix.bits.const_data_ptr()) +
                     start * (matrix.k / 2)};
  const Pointer pairs{static_cast<const char*>(matrix.pairs.const_data_ptr()) +
                      2 * start * static_cast<int64_t>(matrix.pairs.element_size())};
  const Pointer numbers{out.mutable_data_ptr()};
  if (matrix.in_lanes) {
    launch(expand_lanes_family.get(device, {defines.data(), given}), queue,
           NDRange::grid(matrix.k / kInt4Lanes, rows / kInt4Lanes, 1, 1), bits, pairs, numbers, n,
           k, group);
  } else {
    launch(expand_family.get(device, {defines.data(), given}), queue,
           NDRange::linear(rows * blocks, group_of_lanes(device)), bits, pairs, numbers,
           static_cast<uint32_t>(rows), n, k, group);
  }
}

/// Calls run(start, numbers) for a matrix's rows from `start` on, as many as are in memory at a
/// time.
template <class Run>
void by_parts(const Int4Matrix& matrix, at::ScalarType dtype, const Run& run) {
  const int64_t vectors = std::max<int64_t>(1, kMostNumbers / kInt4Lanes / matrix.k);
  for (int64_t start = 0; start < matrix.n; start += vectors * kInt4Lanes) {
    const int64_t count = std::min(vectors * kInt4Lanes, matrix.n - start);
    const Tensor numbers = at::empty({count, matrix.k}, matrix.bits.options().dtype(dtype));
    unpack(matrix, start, numbers);
    run(start, numbers);
  }
}

}  // namespace

bool int4_lies_in_lanes(const Tensor& tensor, int64_t n) {
  return device(tensor.device().index()).is_cpu() && n % kInt4Lanes == 0;
}

std::pair<Tensor, bool> int4_pack(const Tensor& values) {
  const int64_t n = values.size(0), k = values.size(1);
  const bool in_lanes = int4_lies_in_lanes(values, n);
  const Tensor pairs =
      in_lanes ? values.reshape({n / kInt4Lanes, kInt4Lanes, k / 2, 2}).permute({3, 0, 2, 1})
               : values.reshape({n, k / kInt4Block, 2, kInt4Block / 2}).permute({2, 0, 1, 3});
  // The first of two integers is in the low half of a byte.
  const Tensor bytes = at::add(pairs.select(0, 0), pairs.select(0, 1), 16).to(at::kByte);
  return {bytes.contiguous().view({n, k / 2}), in_lanes};
}

void int4_product(const char* name, const Tensor& x, const Int4Matrix& matrix, const Tensor& bias,
                  at::ScalarType unpacked, const Tensor& out) {
  if (out.numel() == 0) return;
  if (matrix.k == 0) {
    bias.defined() ? out.copy_(bias.expand_as(out)) : out.zero_();
    return;
  }
  const bool is_cpu = device(x.device().index()).is_cpu();
  if (is_cpu && matrix.in_lanes && x.size(0) <= kMostRows) {
    return product_in_lanes(x, matrix, bias, out);
  }
  if (!is_cpu && !matrix.in_lanes && product_by_groups(x, matrix, bias, out)) return;
  by_parts(matrix, unpacked, [&](int64_t start, const Tensor& numbers) {
    const int64_t count = numbers.size(0);
    const Tensor c = bias.defined() ? bias.narrow(0, start, count) : Tensor();
    run_gemm(name, x, numbers.t(), c, out.narrow(1, start, count), 1, bias.defined() ? 1 : 0);
  });
}

void int4_transposed_product(const char* name, const Tensor& x, const Int4Matrix& matrix,
                             const Tensor& sums) {
  if (sums.numel() == 0) return;
  if (matrix.n == 0) {
    sums.zero_();
    return;
  }
  by_parts(matrix, x.scalar_type(), [&](int64_t start, const Tensor& numbers) {
    run_gemm(name, x.narrow(1, start, numbers.size(0)), numbers, start > 0 ? sums : Tensor(), sums,
             1, start > 0 ? 1 : 0);
  });
}

void int4_unpack(const Int4Matrix& matrix, const Tensor& out) {
  if (out.numel() > 0) unpack(matrix, 0, out);
}

}  // namespace ocl::native
