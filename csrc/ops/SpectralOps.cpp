// Fourier transforms: the three functions behind all of torch.fft, stft and istft.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/fft/fft.h"
#include "ops/_fft_c2c.h"
#include "ops/_fft_c2r.h"
#include "ops/_fft_r2c.h"

namespace ocl::native {

namespace {

using fft::Direction;
using fft::Kind;

// Values of upstream's `normalization`.
enum Normalization : int64_t { kNone, kByRoot, kByN };

double scale_of(int64_t normalization, c10::IntArrayRef sizes, c10::IntArrayRef dims) {
  if (normalization == kNone) return 1;
  double n = 1;
  for (const int64_t d : dims) n *= static_cast<double>(sizes[d]);
  return 1 / (normalization == kByRoot ? std::sqrt(n) : n);
}

void check_input(const at::Tensor& self, c10::IntArrayRef dims, c10::IntArrayRef signal_sizes) {
  const c10::ScalarType precision = c10::toRealValueType(self.scalar_type());
  TORCH_CHECK(precision == at::kFloat || precision == at::kDouble,
              "ocl: FFT doesn't support tensors of type: ", precision,
              "; CPU torch does not either. Use float32");
  for (const int64_t size : signal_sizes) {
    TORCH_CHECK(size > 0, "ocl: an FFT needs elements, got sizes ", signal_sizes);
  }
  std::vector<bool> seen(signal_sizes.size());
  for (const int64_t d : dims) {
    TORCH_CHECK(d >= 0 && d < self.dim() && !seen[d],
                "ocl: FFT dimensions must differ and be from "
                "0 to ",
                self.dim() - 1, ", got ", dims);
    seen[d] = true;
  }
}

/// `dims`, those with larger strides first; the last one stays last if `exclude_last`.
std::vector<int64_t> sorted_dims(const at::Tensor& self, c10::IntArrayRef dims, bool exclude_last) {
  std::vector<int64_t> sorted = dims.vec();
  std::stable_sort(sorted.begin(), sorted.end() - (exclude_last ? 1 : 0),
                   [&](int64_t a, int64_t b) { return self.stride(a) > self.stride(b); });
  return sorted;
}

/// A tensor with the strides that CPU torch gives the transform of `self`, which compiled graphs
/// rely on: the transformed dimensions innermost, the others in the order of self's strides.
at::Tensor empty_result(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef dims,
                        c10::ScalarType dtype) {
  std::vector<int64_t> order(self.dim());
  std::iota(order.begin(), order.end(), 0);
  const auto batch_end = std::stable_partition(order.begin(), order.end(), [&](int64_t d) {
    return std::find(dims.begin(), dims.end(), d) == dims.end();
  });
  std::stable_sort(order.begin(), batch_end,
                   [&](int64_t a, int64_t b) { return self.stride(a) > self.stride(b); });
  std::copy(dims.begin(), dims.end(), batch_end);
  std::vector<int64_t> strides(self.dim());
  int64_t stride = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    strides[*d] = stride;
    stride *= sizes[*d];
  }
  return at::empty_strided(sizes, strides, self.options().dtype(dtype));
}

/// Transforms `data` in place along all of `dims`; the first result takes the scale.
void transform_in_place(const at::Tensor& data, c10::IntArrayRef dims, Direction direction) {
  for (auto d = dims.rbegin(); d != dims.rend(); ++d) {
    fft::transform(data, data, *d, Kind::complex, direction, 1);
  }
}

at::Tensor& store_in(at::Tensor& out, const at::Tensor& result) {
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

}  // namespace

at::Tensor _fft_c2c(const at::Tensor& self, c10::IntArrayRef dim, int64_t normalization,
                    bool forward) {
  TORCH_CHECK(self.is_complex(), "Only supports complex dtypes, but found: ", self.scalar_type());
  if (dim.empty()) return self.clone();
  check_input(self, dim, self.sizes());
  const std::vector<int64_t> dims = sorted_dims(self, dim, false);
  const at::Tensor out = empty_result(self, self.sizes(), dims, self.scalar_type());
  const Direction direction = forward ? Direction::forward : Direction::backward;
  fft::transform(self, out, dims.back(), Kind::complex, direction,
                 scale_of(normalization, self.sizes(), dims));
  transform_in_place(out, c10::IntArrayRef(dims).slice(0, dims.size() - 1), direction);
  return out;
}

at::Tensor& _fft_c2c_out(const at::Tensor& self, c10::IntArrayRef dim, int64_t normalization,
                         bool forward, at::Tensor& out) {
  return store_in(out, _fft_c2c(self, dim, normalization, forward));
}

at::Tensor _fft_r2c(const at::Tensor& self, c10::IntArrayRef dim, int64_t normalization,
                    bool onesided) {
  TORCH_CHECK(self.is_floating_point(),
              "Only supports floating-point dtypes, but found: ", self.scalar_type());
  TORCH_CHECK(!dim.empty(), "ocl: an FFT of real numbers needs a dimension");
  check_input(self, dim, self.sizes());
  const int64_t last = dim.back();
  std::vector<int64_t> sizes = self.sizes().vec();
  if (onesided) sizes[last] = sizes[last] / 2 + 1;
  const std::vector<int64_t> dims = sorted_dims(self, dim, true);
  const at::Tensor out = empty_result(self, sizes, dims, c10::toComplexType(self.scalar_type()));
  fft::transform(self, out, last, onesided ? Kind::real_onesided : Kind::real, Direction::forward,
                 scale_of(normalization, self.sizes(), dims));
  transform_in_place(out, c10::IntArrayRef(dims).slice(0, dims.size() - 1), Direction::forward);
  return out;
}

at::Tensor& _fft_r2c_out(const at::Tensor& self, c10::IntArrayRef dim, int64_t normalization,
                         bool onesided, at::Tensor& out) {
  return store_in(out, _fft_r2c(self, dim, normalization, onesided));
}

at::Tensor _fft_c2r(const at::Tensor& self, c10::IntArrayRef dim, int64_t normalization,
                    int64_t last_dim_size) {
  TORCH_CHECK(self.is_complex(), "Only supports complex dtypes, but found: ", self.scalar_type());
  TORCH_CHECK(!dim.empty(), "ocl: an FFT to real numbers needs a dimension");
  const int64_t last = dim.back();
  check_input(self, dim, self.sizes());
  TORCH_CHECK(last_dim_size > 0 && self.size(last) == last_dim_size / 2 + 1, "ocl: an FFT to ",
              last_dim_size, " real numbers takes ", last_dim_size / 2 + 1, " complex ones, got ",
              self.size(last));
  // The other dimensions first, as a transform of complex numbers: so a spectrum that is not quite
  // Hermitian gives what NumPy's gives.
  at::Tensor input = self;
  if (dim.size() > 1) {
    input = _fft_c2c(self, dim.slice(0, dim.size() - 1), normalization, /*forward=*/false);
  }
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[last] = last_dim_size;
  const at::Tensor out = empty_result(input, sizes, last, c10::toRealValueType(self.scalar_type()));
  fft::transform(input, out, last, Kind::complex_to_real, Direction::backward,
                 scale_of(normalization, sizes, last));
  return out;
}

at::Tensor& _fft_c2r_out(const at::Tensor& self, c10::IntArrayRef dim, int64_t normalization,
                         int64_t last_dim_size, at::Tensor& out) {
  return store_in(out, _fft_c2r(self, dim, normalization, last_dim_size));
}

}  // namespace ocl::native
