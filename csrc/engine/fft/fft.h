// The Fourier transform engine: transforms of any length along one dimension of strided tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace ocl::fft {

enum class Kind : uint8_t {
  complex,         // complex to complex
  real,            // real to the whole complex spectrum
  real_onesided,   // real to the first half of the spectrum
  complex_to_real  // the first half of a Hermitian spectrum to real
};

enum class Direction : uint8_t { forward, backward };

/// Enqueues out = scale * the transform of `in` along `dim`, as many transforms as the other
/// dimensions say. Real and complex dtypes of one precision, float or double; any strides. `out`
/// has the sizes of `in` but for `dim`, where a half spectrum of n elements has n / 2 + 1; the
/// imaginary parts that such a spectrum can't have are ignored. `out` may be `in` itself. Tensors
/// must not be empty. Throws NotImplementedError for dimensions past 2^30.
void transform(const at::Tensor& in, const at::Tensor& out, int64_t dim, Kind kind,
               Direction direction, double scale);

}  // namespace ocl::fft
