// torch_ocl::gguf_*: matrices that stay in the blocks of GGUF files, as bytes. They
// serve torch_ocl/utils/gguf.py.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/ceil_div.h"
#include "opencl/device_assert.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "ops/linalg/LinearAlgebra.h"
#include "ops/quantize/Aligned.h"
#include "runtime/stream.h"

namespace ocl::native {

using at::Tensor;

namespace {

const KernelFamily product_family{"quantize/gguf_product.cl", "gguf_product"};
const KernelFamily group_family{"quantize/gguf_product.cl", "gguf_product_group"};
const KernelFamily rows_family{"quantize/gguf_rows.cl", "gguf_rows"};
const AssertSite embedding_site{"embedding"};

constexpr int64_t kMostRows = 8;  // of activations: past that, numbers in memory pay
/// So many numbers of a matrix are in memory at a time.
constexpr int64_t kMostNumbers = int64_t{1} << 24;
constexpr uint32_t kShare = 32;  // work-items that share a row, on GPUs

/// As the header of kernels/quantize/gguf has it. `step` is 16 * PARTS.
struct Format {
  std::string_view name;
  const char* define;
  int64_t block, bytes, step;
};

constexpr std::array<Format, 5> kFormats{{{"Q4_0", "FORMAT_Q4_0", 32, 18, 32},
                                          {"Q4_K", "FORMAT_Q4_K", 256, 144, 64},
                                          {"Q5_K", "FORMAT_Q5_K", 256, 176, 64},
                                          {"Q6_K", "FORMAT_Q6_K", 256, 210, 128},
                                          {"Q8_0", "FORMAT_Q8_0", 32, 34, 32}}};

const Format& format_of(std::string_view name) {
  const auto* found = std::ranges::find(kFormats, name, &Format::name);
  TORCH_CHECK(found != kFormats.end(),
              "expected a format of GGUF files, Q4_0, Q4_K, Q5_K, Q6_K or ", "Q8_0, got ", name);
  return *found;
}

/// Rows of blocks, contiguous.
struct Matrix {
  Tensor bytes;
  const Format& format;
  int64_t n, k;

  Matrix part(int64_t start, int64_t count) const {
    return {bytes.narrow(0, start, count), format, count, k};
  }
};

Matrix matrix_of(const Tensor& blocks, std::string_view name) {
  const Format& format = format_of(name);
  TORCH_CHECK(blocks.scalar_type() == at::kByte && blocks.dim() > 0, "expected blocks of ", name,
              " as bytes, got ", blocks.dim(), " dimensions of ", blocks.scalar_type());
  TORCH_CHECK(blocks.size(-1) % format.bytes == 0, "expected rows of ", name, " of a multiple of ",
              format.bytes, " bytes, got ", blocks.size(-1));
  // Loads are of two bytes or more.
  const Tensor bytes = aligned(blocks.contiguous(), 2);
  const int64_t k = blocks.size(-1) / format.bytes * format.block;
  const int64_t n = c10::multiply_integers(blocks.sizes().slice(0, blocks.dim() - 1));
  return {bytes.view({n, blocks.size(-1)}), format, n, k};
}

void check_dtype(at::ScalarType dtype) {
  TORCH_CHECK(dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16,
              "expected float32, float16 or bfloat16, got ", dtype);
}

Pointer pointer(const Tensor& tensor) {
  return Pointer{tensor.defined() ? tensor.const_data_ptr() : nullptr};
}

/// Enqueues out[i] = matrix[indices[i]], or matrix[i] if there are none, for a contiguous out.
void read_rows(const Matrix& matrix, const Tensor& indices, const Tensor& out) {
  if (out.numel() == 0) return;
  Queue& queue = current_queue(out.device().index());
  Device& device = queue.device();
  const char* type = tag(out.scalar_type());
  const auto rows = static_cast<size_t>(out.numel() / matrix.k);
  const auto steps = static_cast<size_t>(matrix.k / matrix.format.step);
  Kernel& kernel = indices.defined()
                       ? rows_family.get(device, {{matrix.format.define, 1},
                                                  {"E", type},
                                                  {"INDEX", tag(indices.scalar_type())}})
                       : rows_family.get(device, {{matrix.format.define, 1}, {"E", type}});
  launch(kernel, queue, NDRange::grid(steps, rows, std::min(steps, group_of_lanes(device)), 1),
         pointer(matrix.bytes), pointer(indices), Pointer{out.mutable_data_ptr()},
         static_cast<uint64_t>(rows), static_cast<uint64_t>(matrix.n), static_cast<uint32_t>(steps),
         device.asserts().mem(), embedding_site.id());
}

/// out = x @ matrix.t() + bias for up to kMostRows rows of x; bias may be undefined.
void product_of_few_rows(const Tensor& x, const Matrix& matrix, const Tensor& bias,
                         const Tensor& out) {
  Queue& queue = current_queue(x.device().index());
  Device& device = queue.device();
  const bool cpu = device.is_cpu();
  const int64_t rows = x.size(0);
  const uint32_t together = rows <= 1 ? 1 : rows <= 2 ? 2 : rows <= 4 ? 4 : 8;
  // Registers that the rows' sums leave.
  const uint32_t of_matrix = together <= 1 ? 8 : together <= 4 ? 4 : 2;
  std::array<Define, 6> defines{{{matrix.format.define, 1},
                                 {"E", tag(x.scalar_type())},
                                 {"NQ", together},
                                 {cpu ? "ROWS" : "SHARE", cpu ? of_matrix : kShare}}};
  size_t count = 4;
  if (!cpu) defines[count++] = {"ALIGNED_VECTORS", 1};
  if (bias.defined()) defines[count++] = {"BIAS", 1};
  const NDRange range = cpu ? NDRange::linear(ceil_div(matrix.n, of_matrix), 4)
                            : NDRange::linear(matrix.n * kShare, 64);
  constexpr uintptr_t kVector = 64;  // 16 floats
  const Tensor activations = cpu ? x : aligned(x, kVector);
  launch((cpu ? product_family : group_family).get(device, {defines.data(), count}), queue, range,
         pointer(activations), pointer(matrix.bytes), pointer(bias),
         Pointer{out.mutable_data_ptr()}, static_cast<uint32_t>(rows),
         static_cast<uint32_t>(matrix.n), static_cast<uint32_t>(matrix.k));
}

/// Calls run(start, numbers) for a matrix's rows from `start` on, as many as are in memory at a
/// time.
template <class Run>
void by_parts(const Matrix& matrix, at::ScalarType dtype, const Run& run) {
  const int64_t most = std::max<int64_t>(1, kMostNumbers / std::max<int64_t>(1, matrix.k));
  for (int64_t start = 0; start < matrix.n; start += most) {
    const Matrix part = matrix.part(start, std::min(most, matrix.n - start));
    const Tensor numbers = at::empty({part.n, part.k}, matrix.bytes.options().dtype(dtype));
    read_rows(part, Tensor(), numbers);
    run(start, numbers);
  }
}

std::vector<int64_t> with_last(const Tensor& tensor, int64_t size) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes.back() = size;
  return sizes;
}

void check_operands(const char* name, const Tensor& input, const Tensor& blocks, int64_t expected) {
  check_dtype(input.scalar_type());
  TORCH_CHECK(blocks.device() == input.device(), name, ": the input is on ", input.device(),
              " but the weight on ", blocks.device());
  TORCH_CHECK(blocks.dim() == 2, name, ": expected a weight of 2 dimensions, got ", blocks.dim());
  TORCH_CHECK(input.dim() > 0 && input.size(-1) == expected, name, ": an input of sizes ",
              input.sizes(), " does not go with ", expected, " features");
}

}  // namespace

Tensor gguf_dequantize(const Tensor& blocks, std::string_view format, at::ScalarType dtype) {
  const c10::DeviceGuard guard(blocks.device());
  check_dtype(dtype);
  const Matrix matrix = matrix_of(blocks, format);
  const Tensor out = at::empty(with_last(blocks, matrix.k), blocks.options().dtype(dtype));
  read_rows(matrix, Tensor(), out);
  return out;
}

Tensor gguf_embedding(const Tensor& blocks, const Tensor& indices, std::string_view format,
                      at::ScalarType dtype) {
  const c10::DeviceGuard guard(blocks.device());
  check_dtype(dtype);
  TORCH_CHECK(blocks.dim() == 2, "embedding: expected a weight of 2 dimensions, got ",
              blocks.dim());
  TORCH_CHECK(blocks.device() == indices.device(), "embedding: the indices are on ",
              indices.device(), " but the weight on ", blocks.device());
  TORCH_CHECK(indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt,
              "embedding: expected indices of int64 or int32, got ", indices.scalar_type());
  const Matrix matrix = matrix_of(blocks, format);
  std::vector<int64_t> sizes = indices.sizes().vec();
  sizes.push_back(matrix.k);
  const Tensor out = at::empty(sizes, blocks.options().dtype(dtype));
  read_rows(matrix, indices.contiguous(), out);
  return out;
}

Tensor gguf_linear(const Tensor& input, const Tensor& blocks, std::string_view format,
                   const std::optional<Tensor>& bias) {
  const c10::DeviceGuard guard(input.device());
  const Matrix matrix = matrix_of(blocks, format);
  check_operands("linear", input, blocks, matrix.k);
  TORCH_CHECK(
      !bias || (bias->dim() == 1 && bias->size(0) == matrix.n &&
                bias->scalar_type() == input.scalar_type() && bias->device() == input.device()),
      "linear: expected a bias of ", matrix.n, " elements of ", input.scalar_type(), " on ",
      input.device());
  Tensor out = at::empty(with_last(input, matrix.n), input.options());
  if (out.numel() == 0) return out;
  const Tensor addend = bias ? bias->resolve_neg().contiguous() : Tensor();
  if (matrix.k == 0) return bias ? out.copy_(addend.expand(out.sizes())) : out.zero_();
  const Tensor x = input.resolve_neg().contiguous().view({-1, matrix.k});
  if (x.size(0) <= kMostRows && matrix.n <= INT32_MAX / 64 && matrix.k <= INT32_MAX) {
    product_of_few_rows(x, matrix, addend, out);
    return out;
  }
  const Tensor results = out.view({-1, matrix.n});
  by_parts(matrix, input.scalar_type(), [&](int64_t start, const Tensor& numbers) {
    const int64_t count = numbers.size(0);
    const Tensor c = bias ? addend.narrow(0, start, count) : Tensor();
    run_gemm("linear", x, numbers.t(), c, results.narrow(1, start, count), 1, bias ? 1 : 0);
  });
  return out;
}

Tensor gguf_linear_gradient(const Tensor& grad, const Tensor& blocks, std::string_view format) {
  const c10::DeviceGuard guard(grad.device());
  const Matrix matrix = matrix_of(blocks, format);
  check_operands("linear_backward", grad, blocks, matrix.n);
  // Sums of several parts stay float32 until all are there.
  Tensor sums = at::empty(with_last(grad, matrix.k), grad.options().dtype(at::kFloat));
  if (sums.numel() == 0 || matrix.n == 0) return sums.zero_().to(grad.scalar_type());
  const Tensor rows = grad.resolve_neg().contiguous().view({-1, matrix.n});
  const Tensor results = sums.view({-1, matrix.k});
  by_parts(matrix, grad.scalar_type(), [&](int64_t start, const Tensor& numbers) {
    run_gemm("linear_backward", rows.narrow(1, start, numbers.size(0)), numbers,
             start > 0 ? results : Tensor(), results, 1, start > 0 ? 1 : 0);
  });
  return sums.to(grad.scalar_type());
}

TORCH_LIBRARY_FRAGMENT(torch_ocl, library) {
  library.def("gguf_dequantize(Tensor blocks, str format, ScalarType dtype) -> Tensor");
  library.def(
      "gguf_embedding(Tensor blocks, Tensor indices, str format, ScalarType dtype) -> Tensor");
  library.def("gguf_linear(Tensor input, Tensor blocks, str format, Tensor? bias) -> Tensor");
  library.def("gguf_linear_gradient(Tensor grad, Tensor blocks, str format) -> Tensor");
}

TORCH_LIBRARY_IMPL(torch_ocl, PrivateUse1, library) {
  library.impl("gguf_dequantize", TORCH_FN(gguf_dequantize));
  library.impl("gguf_embedding", TORCH_FN(gguf_embedding));
  library.impl("gguf_linear", TORCH_FN(gguf_linear));
  library.impl("gguf_linear_gradient", TORCH_FN(gguf_linear_gradient));
}

}  // namespace ocl::native
