// Random numbers behind upstream's stubs; the argument checks are upstream's.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

#include <bit>
#include <cmath>
#include <limits>

#include "engine/dtype.h"
#include "engine/random/random.h"
#include "ops/DtypeChecks.h"
#include "ops/randperm.h"

namespace ocl::native {

using random::Distribution;
using random::Generator;

namespace {

/// Binary digits of a floating dtype's significand.
int digits_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 53;
    case at::kFloat:
      return 24;
    case at::kHalf:
      return 11;
    case at::kBFloat16:
      return 8;
    default:
      return 0;
  }
}

double rounded(at::ScalarType dtype, double value) {
  switch (dtype) {
    case at::kDouble:
      return value;
    case at::kHalf:
      return static_cast<float>(c10::Half(static_cast<float>(value)));
    case at::kBFloat16:
      return static_cast<float>(c10::BFloat16(static_cast<float>(value)));
    default:
      return static_cast<float>(value);
  }
}

template <class Number, class Bits>
double step_down(Number value) {
  const Bits bits = std::bit_cast<Bits>(value);
  constexpr Bits kSign = Bits{1} << (sizeof(Bits) * 8 - 1);
  if ((bits & ~kSign) == 0) return static_cast<float>(std::bit_cast<Number>(Bits(kSign | 1)));
  const Bits next = (bits & kSign) != 0 ? Bits(bits + 1) : Bits(bits - 1);
  return static_cast<float>(std::bit_cast<Number>(next));
}

/// The dtype's largest number below `value`, which is one of its numbers.
double below(at::ScalarType dtype, double value) {
  switch (dtype) {
    case at::kDouble:
      return std::nextafter(value, -std::numeric_limits<double>::infinity());
    case at::kHalf:
      return step_down<c10::Half, uint16_t>(c10::Half(static_cast<float>(value)));
    case at::kBFloat16:
      return step_down<c10::BFloat16, uint16_t>(c10::BFloat16(static_cast<float>(value)));
    default:
      return std::nextafter(static_cast<float>(value), -std::numeric_limits<float>::infinity());
  }
}

void check_floating(const char* op, at::ScalarType dtype) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isFloatingType(dtype), "\"", op, "\" not implemented for '",
                              dtype, "'");
}

}  // namespace

void uniform(at::TensorIteratorBase& iter, const double from, const double to,
             Generator generator) {
  const at::ScalarType dtype = iter.dtype(0);
  const double low = rounded(dtype, from), high = rounded(dtype, to);
  const double top = std::max(low, below(dtype, high));
  random::fill_real(iter.tensor_base(0), {"uniform", low, high - low, top, digits_of(dtype)},
                    generator);
}

void normal(const at::TensorBase& self, const double mean, const double std, Generator generator) {
  check_floating("normal_kernel_ocl", self.scalar_type());
  at::assert_no_internal_overlap(self);
  random::fill_real(self, {"normal", mean, std}, generator);
}

void log_normal(at::TensorIteratorBase& iter, const double mean, const double std,
                Generator generator) {
  check_floating("log_normal_ocl", iter.dtype(0));
  random::fill_real(iter.tensor_base(0), {"log_normal", mean, std}, generator);
}

void exponential(at::TensorIteratorBase& iter, const double lambda, Generator generator) {
  TORCH_CHECK(c10::isFloatingType(iter.dtype(0)),
              "Exponential distribution is a continuous probability distribution. dtype must be a "
              "floating point but you specified ",
              iter.dtype(0));
  random::fill_real(iter.tensor_base(0), {"exponential", 1 / lambda}, generator);
}

void cauchy(at::TensorIteratorBase& iter, const double median, const double sigma,
            Generator generator) {
  random::fill_real(iter.tensor_base(0), {"cauchy", median, sigma}, generator);
}

void geometric(at::TensorIteratorBase& iter, const double p, Generator generator) {
  check_supported("geometric", iter.dtype(0),
                  iter.dtype(0) != at::kBool && !at::isComplexType(iter.dtype(0)));
  random::fill_real(iter.tensor_base(0), {"geometric", 1 / std::log1p(-p)}, generator);
}

void random_from_to(at::TensorIteratorBase& iter, const uint64_t range, const int64_t base,
                    Generator generator) {
  random::fill_integer(iter.tensor_base(0), base, range, generator);
}

void random_full_64_bits_range(at::TensorIteratorBase& iter, Generator generator) {
  const at::ScalarType dtype = iter.dtype(0);
  TORCH_CHECK(
      dtype == at::kLong || (c10::isFloatingType(dtype) && dtype != at::kHalf),
      "random_full_64_bits_range_kernel_ocl handles only int64, double, float and bfloat16");
  random::fill_integer(iter.tensor_base(0), 0, 0, generator);
}

// All numbers of an integer dtype from 0 on, or the integers that a floating dtype holds exactly.
void random_dtype_range(at::TensorIteratorBase& iter, Generator generator) {
  const at::ScalarType dtype = iter.dtype(0);
  uint64_t range = 0;
  if (c10::isFloatingType(dtype)) {
    range = (uint64_t{1} << digits_of(dtype)) + 1;
  } else if (dtype == at::kBool) {
    range = 2;
  } else if (c10::isIntegralType(dtype, false)) {
    const int bits = static_cast<int>(8 * c10::elementSize(dtype)) - c10::isSignedType(dtype);
    range = bits == 64 ? 0 : uint64_t{1} << bits;
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "\"random_kernel_ocl\" not implemented for '", dtype, "'");
  }
  random::fill_integer(iter.tensor_base(0), 0, range, generator);
}

void bernoulli_scalar(const at::TensorBase& self, const double p, Generator generator) {
  check_supported("bernoulli_scalar_", self.scalar_type(), !self.is_complex());
  random::fill_bernoulli(self, p, generator);
}

void bernoulli_tensor(const at::TensorBase& self, const at::TensorBase& p, Generator generator) {
  check_supported("bernoulli_tensor_", self.scalar_type(), !self.is_complex());
  check_floating("bernoulli_tensor_ocl_p_", p.scalar_type());
  const at::Tensor probabilities = at::Tensor(p).to(self.device()).expand(self.sizes());
  random::fill_bernoulli(self, probabilities, generator);
}

at::Tensor& randperm_generator_out(int64_t n, std::optional<at::Generator> generator,
                                   at::Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  const at::ScalarType dtype = out.scalar_type();
  const bool floating = c10::isFloatingType(dtype);
  // CPU torch lets bfloat16 round.
  if (floating && dtype != at::kBFloat16) {
    const int64_t most = (int64_t{1} << digits_of(dtype)) + 1;
    TORCH_CHECK(n <= most, "n cannot be greater than ", most, " for ", dtype, " type.");
  }
  if (!floating && n > 0) {
    const int bits = static_cast<int>(8 * c10::elementSize(dtype)) - c10::isSignedType(dtype);
    TORCH_CHECK(dtype == at::kBool || bits >= 63 || n - 1 < int64_t{1} << bits, "randperm(): ", n,
                " numbers do not fit in ", dtype);
  }
  out.resize_({n});  // without a warning, as on the CPU
  check_supported(
      "randperm", dtype,
      floating || (c10::isIntegralType(dtype, false) && !c10::isBarebonesUnsignedType(dtype)));
  if (out.is_contiguous()) {
    random::permute(out, generator);
  } else {
    const at::Tensor dense = at::empty({n}, out.options());
    random::permute(dense, generator);
    out.copy_(dense);
  }
  return out;
}

}  // namespace ocl::native
