// quantile and nanquantile: upstream's composite functions after a check that upstream leaves out
// on all devices but the CPU, since it reads q there.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/_assert_async.h>
#include <ATen/ops/nanquantile_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/quantile_compositeimplicitautograd_dispatch.h>
#include <torch/library.h>

namespace ocl::native {
namespace {

using at::Tensor;

/// The device checks the values, and who waits for it next gets the error. Traced and transformed
/// functions stay without.
void check_q(const Tensor& q) {
  const bool taken = q.scalar_type() == at::kFloat || q.scalar_type() == at::kDouble;
  if (!q.is_privateuseone() || !taken ||
      q.key_set().has_any(c10::DispatchKeySet(
          {c10::DispatchKey::Python, c10::DispatchKey::FuncTorchGradWrapper,
           c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::Functionalize}))) {
    return;
  }
  const Tensor values = q.detach();
  at::_assert_async(values.ge(0).logical_and_(values.le(1)).all(),
                    "quantile() q values must be in the range [0, 1]");
}

Tensor quantile(const Tensor& self, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                std::string_view interpolation) {
  check_q(q);
  return at::compositeimplicitautograd::quantile(self, q, dim, keepdim, interpolation);
}

Tensor& quantile_out(const Tensor& self, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                     std::string_view interpolation, Tensor& out) {
  check_q(q);
  return at::compositeimplicitautograd::quantile_out(out, self, q, dim, keepdim, interpolation);
}

Tensor nanquantile(const Tensor& self, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                   std::string_view interpolation) {
  check_q(q);
  return at::compositeimplicitautograd::nanquantile(self, q, dim, keepdim, interpolation);
}

Tensor& nanquantile_out(const Tensor& self, const Tensor& q, std::optional<int64_t> dim,
                        bool keepdim, std::string_view interpolation, Tensor& out) {
  check_q(q);
  return at::compositeimplicitautograd::nanquantile_out(out, self, q, dim, keepdim, interpolation);
}

void implement(torch::Library& m) {
  m.impl("quantile", TORCH_FN(quantile));
  m.impl("quantile.out", TORCH_FN(quantile_out));
  m.impl("nanquantile", TORCH_FN(nanquantile));
  m.impl("nanquantile.out", TORCH_FN(nanquantile_out));
}

// Composite functions are registered below autograd too, for inference mode.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { implement(m); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { implement(m); }

}  // namespace
}  // namespace ocl::native
