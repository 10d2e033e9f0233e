// Samples of gamma, Dirichlet, Poisson and binomial variables, and their gradients.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/pointwise/pointwise.h"
#include "opencl/device_assert.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "ops/_dirichlet_grad.h"
#include "ops/_sample_dirichlet.h"
#include "ops/_standard_gamma.h"
#include "ops/_standard_gamma_grad.h"
#include "ops/binomial.h"
#include "ops/poisson.h"
#include "runtime/generator.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

const KernelFamily gamma_family{"random/rejection.cl", "gamma_samples"};
const KernelFamily log_gamma_family{"random/rejection.cl", "log_gamma_samples"};
const KernelFamily poisson_family{"random/rejection.cl", "poisson_samples"};
const KernelFamily binomial_family{"random/rejection.cl", "binomial_samples"};
const pointwise::Op gamma_grad_op{"standard_gamma_grad", 0, pointwise::flag::special};
const pointwise::Op dirichlet_grad_op{"dirichlet_grad", 0, pointwise::flag::special};

// Philox calls an element may take: two for each of the kernels' 200 attempts, and one more.
constexpr uint64_t kIncrement = 404;

void check_floating(const char* op, at::ScalarType dtype) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(dtype), "\"", op, "\" not implemented for '",
                              dtype, "'");
}

double smallest_normal(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return std::numeric_limits<double>::min();
    case at::kHalf:
      return 0x1p-14;
    default:
      return std::numeric_limits<float>::min();
  }
}

/// Fills `out`, contiguous, with the kernel's samples for parameters of `dtype`; `arguments` come
/// after the generator's.
template <class... Arguments>
void sample(const KernelFamily& family, const at::Tensor& out, at::ScalarType dtype,
            const std::optional<at::Generator>& generator, const Arguments&... arguments) {
  const PhiloxState state = reserve_philox(generator, out.device().index(), kIncrement);
  if (out.numel() == 0) return;
  Queue& queue = current_queue(out.device().index());
  Kernel& kernel =
      family.get(queue.device(), {{"E", tag(dtype)}, {"C", tag(compute_dtype(dtype))}});
  const auto n = static_cast<uint64_t>(out.numel());
  // A double takes two calls for each number the kernel counts.
  const uint64_t counter = dtype == at::kDouble ? (state.offset + 1) / 2 : state.offset;
  launch(kernel, queue, element_range(queue.device(), n), Pointer{out.data_ptr()}, n, state.seed,
         counter, arguments...);
}

/// Samples gamma variables, or their logarithms; none is below `least`.
void sample_gamma(const KernelFamily& family, const at::Tensor& out, const at::Tensor& shapes,
                  const std::optional<at::Generator>& generator, double least) {
  const at::Tensor dense = shapes.contiguous();
  const at::ScalarType dtype = shapes.scalar_type();
  const Pointer parameters{dense.const_data_ptr()};
  if (dtype == at::kDouble) {
    sample(family, out, dtype, generator, parameters, least);
  } else {
    sample(family, out, dtype, generator, parameters, static_cast<float>(least));
  }
}

}  // namespace

at::Tensor _standard_gamma(const at::Tensor& self, std::optional<at::Generator> generator) {
  check_floating("gamma", self.scalar_type());
  const at::Tensor out = at::empty(self.sizes(), self.options());
  sample_gamma(gamma_family, out, self, generator, smallest_normal(self.scalar_type()));
  return out;
}

at::Tensor _sample_dirichlet(const at::Tensor& self, std::optional<at::Generator> generator) {
  const at::ScalarType dtype = self.scalar_type();
  check_floating("dirichlet", dtype);
  // Gamma variables of small concentrations are too small for a float, often all of a row: their
  // shares come from logarithms.
  const at::ScalarType wide = compute_dtype(dtype);
  const at::Tensor logarithms = at::empty(self.sizes(), self.options().dtype(wide));
  const double lowest = wide == at::kDouble ? std::numeric_limits<double>::lowest()
                                            : std::numeric_limits<float>::lowest();
  sample_gamma(log_gamma_family, logarithms, self, generator, lowest);
  // A component is neither 0 nor 1: its log density stays finite.
  const double largest = dtype == at::kDouble  ? 1 - 0x1p-53
                         : dtype == at::kFloat ? 1 - 0x1p-24
                         : dtype == at::kHalf  ? 1 - 0x1p-11
                                               : 1 - 0x1p-8;
  return at::softmax(logarithms, -1).to(dtype).clamp_(smallest_normal(dtype), largest);
}

at::Tensor poisson(const at::Tensor& self, std::optional<at::Generator> generator) {
  static const uint32_t site =
      message_site("invalid Poisson rate, expected rate to be non-negative");
  check_floating("poisson", self.scalar_type());
  const at::Tensor rates = self.contiguous();
  const at::Tensor out = at::empty(self.sizes(), self.options());
  sample(poisson_family, out, self.scalar_type(), generator, Pointer{rates.const_data_ptr()},
         device(self.device().index()).asserts().mem(), site);
  return out;
}

at::Tensor binomial(const at::Tensor& count, const at::Tensor& prob,
                    std::optional<at::Generator> generator) {
  TORCH_CHECK_VALUE(
      at::isFloatingType(count.scalar_type()),
      "binomial only supports floating-point dtypes for count, got: ", count.scalar_type());
  TORCH_CHECK_VALUE(
      at::isFloatingType(prob.scalar_type()),
      "binomial only supports floating-point dtypes for prob, got: ", prob.scalar_type());
  TORCH_CHECK(count.scalar_type() == prob.scalar_type(), "Found dtype ", prob.scalar_type(),
              " but expected ", count.scalar_type());
  const auto sizes = at::infer_size_dimvector(count.sizes(), prob.sizes());
  const at::Device device =
      count.device().type() == at::kPrivateUse1 ? count.device() : prob.device();
  const at::Tensor counts = count.to(device).expand(sizes).contiguous();
  const at::Tensor probabilities = prob.to(device).expand(sizes).contiguous();
  const at::Tensor out = at::empty(sizes, counts.options());
  sample(binomial_family, out, counts.scalar_type(), generator, Pointer{counts.const_data_ptr()},
         Pointer{probabilities.const_data_ptr()});
  return out;
}

at::Tensor _standard_gamma_grad(const at::Tensor& self, const at::Tensor& output) {
  check_floating("_standard_gamma_grad", self.scalar_type());
  at::Tensor result;
  auto iter = at::TensorIteratorConfig()
                  .add_output(result)
                  .add_const_input(self)
                  .add_const_input(output)
                  .build();
  pointwise::run(iter, gamma_grad_op);
  return iter.output();
}

at::Tensor _dirichlet_grad(const at::Tensor& x, const at::Tensor& alpha, const at::Tensor& total) {
  check_floating("_dirichlet_grad", x.scalar_type());
  at::Tensor result;
  auto iter = at::TensorIteratorConfig()
                  .add_output(result)
                  .add_const_input(x)
                  .add_const_input(alpha)
                  .add_const_input(total)
                  .build();
  pointwise::run(iter, dirichlet_grad_op);
  return iter.output();
}

}  // namespace ocl::native
