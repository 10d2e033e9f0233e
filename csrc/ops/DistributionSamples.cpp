// Samples of gamma, Dirichlet, Poisson and binomial variables, and their gradients.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

#include <cmath>
#include <limits>

#include "engine/dtype.h"
#include "engine/pointwise.h"
#include "opencl/device_assert.h"
#include "opencl/kernel.h"
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
const KernelFamily poisson_family{"random/rejection.cl", "poisson_samples"};
const KernelFamily binomial_family{"random/rejection.cl", "binomial_samples"};
const pointwise::Op gamma_grad_op{"standard_gamma_grad", 0, pointwise::flag::special};
const pointwise::Op dirichlet_grad_op{"dirichlet_grad", 0, pointwise::flag::special};

constexpr size_t kLocalSize = 64;
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

/// Fills `out`, contiguous, with the kernel's samples; `arguments` come after the generator's.
template <class... Arguments>
void sample(const KernelFamily& family, const at::Tensor& out,
            const std::optional<at::Generator>& generator, const Arguments&... arguments) {
  const PhiloxState state = reserve_philox(generator, out.device().index(), kIncrement);
  if (out.numel() == 0) return;
  Queue& queue = current_queue(out.device().index());
  const at::ScalarType dtype = out.scalar_type();
  Kernel& kernel =
      family.get(queue.device(), {{"E", tag(dtype)}, {"C", tag(compute_dtype(dtype))}});
  const auto n = static_cast<uint64_t>(out.numel());
  // A double takes two calls for each number the kernel counts.
  const uint64_t counter = dtype == at::kDouble ? (state.offset + 1) / 2 : state.offset;
  launch(kernel, queue, NDRange::linear(n, kLocalSize), Pointer{out.data_ptr()}, n, state.seed,
         counter, arguments...);
}

}  // namespace

at::Tensor _standard_gamma(const at::Tensor& self, std::optional<at::Generator> generator) {
  check_floating("gamma", self.scalar_type());
  const at::Tensor shapes = self.contiguous();
  const at::Tensor out = at::empty(self.sizes(), self.options());
  const Pointer parameters{shapes.const_data_ptr()};
  const double smallest = smallest_normal(self.scalar_type());
  if (self.scalar_type() == at::kDouble) {
    sample(gamma_family, out, generator, parameters, smallest);
  } else {
    sample(gamma_family, out, generator, parameters, static_cast<float>(smallest));
  }
  return out;
}

at::Tensor _sample_dirichlet(const at::Tensor& self, std::optional<at::Generator> generator) {
  check_floating("dirichlet", self.scalar_type());
  const at::Tensor gamma = _standard_gamma(self, generator);
  // A component is neither 0 nor 1: its log density stays finite.
  const double largest = self.scalar_type() == at::kDouble  ? 1 - 0x1p-53
                         : self.scalar_type() == at::kFloat ? 1 - 0x1p-24
                         : self.scalar_type() == at::kHalf  ? 1 - 0x1p-11
                                                            : 1 - 0x1p-8;
  return gamma.div(at::sum(gamma, -1, true)).clamp_(smallest_normal(self.scalar_type()), largest);
}

at::Tensor poisson(const at::Tensor& self, std::optional<at::Generator> generator) {
  static const uint32_t site =
      message_site("invalid Poisson rate, expected rate to be non-negative");
  check_floating("poisson", self.scalar_type());
  const at::Tensor rates = self.contiguous();
  const at::Tensor out = at::empty(self.sizes(), self.options());
  sample(poisson_family, out, generator, Pointer{rates.const_data_ptr()},
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
  sample(binomial_family, out, generator, Pointer{counts.const_data_ptr()},
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
