// QR factors and products of Householder reflections, blocked: kernels factor panels of few
// columns, the rest are matrix products.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <string>

#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "ops/linalg/BatchLinearAlgebra.h"
#include "ops/linalg/LinearAlgebra.h"

namespace ocl::native {

using at::Tensor;

namespace {

constexpr int64_t kPanel = 16;         // columns
constexpr int64_t kColumnsPanel = 32;  // where reflect_columns() serves
// Elements of a matrix that a CPU's work-item factors alone: a launch more would cost as much as
// the others can do.
constexpr int64_t kAlone = 1 << 15;

/// c = H(1) ... H(k) c, or its adjoint's product with c, where H(i) = 1 - tau[i] v[i] v[i]^H and
/// v[i] is column i of `reflectors` below the diagonal, with a one on it. All of three dimensions.
/// `triangle`: c is 0 below its diagonal.
struct ReflectPlan {
  const Tensor &reflectors, &tau, &c;
  bool adjoint, triangle;

  MatrixBatch vectors() const { return matrices(reflectors.narrow(2, 0, tau.size(1))); }
};

const char* refuse_columns(const ReflectPlan& plan) {
  if (plan.tau.stride(1) != 1) return "tau isn't contiguous";
  return reflects_columns(plan.vectors(), matrices(plan.c))
             ? nullptr
             : "not on a CPU, complex, or the columns' elements aren't adjacent";
}

/// One reflection after the other.
void run_columns(ReflectPlan& plan) {
  reflect_columns(plan.vectors(), plan.tau.const_data_ptr(), plan.tau.stride(0), matrices(plan.c),
                  plan.adjoint, plan.triangle);
}

/// The product of all reflections is 1 - V D M^-1 V^H with D = diag(tau) and M the unit upper
/// triangle of V^H V D: no reflection is applied by itself, and tau may be 0.
void run_blocked(ReflectPlan& plan) {
  const Tensor &tau = plan.tau, &c = plan.c;
  const int64_t count = tau.size(1);
  const Tensor v = plan.reflectors.narrow(2, 0, count).tril(-1);
  v.diagonal(0, 1, 2).fill_(1);
  const Tensor v_adjoint = v.mH();
  const Tensor m = at::empty({v.size(0), count, count}, v.options());
  run_gemm("householder", v_adjoint, v, Tensor(), m, 1, 0);
  m.mul_(tau.unsqueeze(1));
  const Tensor w = at::empty({c.size(0), count, c.size(2)}, c.options());
  run_gemm("householder", v_adjoint, c, Tensor(), w, 1, 0);
  if (plan.adjoint) {
    w.mul_(tau.conj().unsqueeze(2));
    solve_triangular(matrices(m).transposed().conjugated(), matrices(w), /*upper=*/false,
                     /*unit=*/true);
  } else {
    solve_triangular(matrices(m), matrices(w), /*upper=*/true, /*unit=*/true);
    w.mul_(tau.unsqueeze(2));
  }
  run_gemm("householder", v, w, c, c, -1, 1);
}

constexpr Implementation<ReflectPlan> kColumns{"columns", refuse_columns, run_columns};
constexpr Implementation<ReflectPlan> kBlocked{
    "blocked", [](const ReflectPlan&) -> const char* { return nullptr; }, run_blocked};
constexpr const Implementation<ReflectPlan>* kReflect[] = {&kColumns, &kBlocked};
const Engine reflect_engine{"linalg_reflect", kReflect};

std::string describe(const ReflectPlan& plan) {
  std::string text = "linalg_reflect " + std::to_string(plan.tau.size(1)) + " of";
  char separator = ' ';
  for (const int64_t size : plan.c.sizes()) {
    text += separator + std::to_string(size);
    separator = 'x';
  }
  return text + " " + tag(plan.c.scalar_type());
}

void apply_reflections(const Tensor& reflectors, const Tensor& tau, const Tensor& c, bool adjoint,
                       bool triangle = false) {
  if (tau.size(1) == 0 || c.numel() == 0) return;
  ReflectPlan plan{reflectors, tau, c, adjoint, triangle};
  run_first(reflect_engine, kReflect, plan, describe);
}

/// [..., k] as [batch, k].
Tensor batched_vectors(const Tensor& tau) { return batched(tau.unsqueeze(-1)).squeeze(-1); }

}  // namespace

void householder_factor(const Tensor& input, const Tensor& tau) {
  check_factored_dtype(input.scalar_type());
  if (input.numel() == 0) return;
  const InPlace work(input);
  const Tensor& a = work.tensor();
  const Tensor taus = batched_vectors(tau);  // contiguous: upstream makes it
  const int64_t rows = a.size(1), columns = a.size(2), count = std::min(rows, columns);
  const MatrixBatch whole = work.matrices();
  const bool by_columns = reflects_columns(whole, whole);
  if (by_columns && rows * columns <= (whole.batch > 1 ? 8 * kAlone : kAlone)) {
    householder_panel(whole, taus.mutable_data_ptr(), taus.stride(0));
    work.finish();
    return;
  }
  const int64_t panel_width = by_columns ? kColumnsPanel : kPanel;
  for (int64_t j = 0; j < count; j += panel_width) {
    const int64_t width = std::min(panel_width, count - j), rest = columns - j - width;
    const Tensor panel = a.narrow(1, j, rows - j).narrow(2, j, width);
    const Tensor factors = taus.narrow(1, j, width);
    householder_panel(matrices(panel), factors.mutable_data_ptr(), taus.stride(0));
    if (rest == 0) continue;
    const Tensor right = a.narrow(1, j, rows - j).narrow(2, j + width, rest);
    apply_reflections(panel, factors, right, /*adjoint=*/true);
  }
  work.finish();
}

Tensor& householder_product(Tensor& result, const Tensor& tau) {
  check_factored_dtype(result.scalar_type());
  if (result.numel() == 0) return result;
  const InPlace work(result);
  const Tensor& q = work.tensor();
  const Tensor product = at::zeros_like(q);
  product.diagonal(0, 1, 2).fill_(1);
  apply_reflections(q, batched_vectors(tau), product, /*adjoint=*/false, /*triangle=*/true);
  q.copy_(product);
  work.finish();
  return result;
}

void householder_multiply(const Tensor& input, const Tensor& tau, const Tensor& other, bool left,
                          bool transpose) {
  check_factored_dtype(other.scalar_type());
  const InPlace work(other);
  const Tensor reflectors = batched(input), taus = batched_vectors(tau);
  if (left) {
    apply_reflections(reflectors, taus, work.tensor(), transpose);
  } else {
    // C Q is the adjoint of Q^H C^H.
    const Tensor c = work.tensor().mH().resolve_conj();
    const Tensor adjoint = c.is_alias_of(work.tensor()) ? c : c.contiguous();
    apply_reflections(reflectors, taus, adjoint, !transpose);
    if (!adjoint.is_alias_of(work.tensor())) work.tensor().copy_(adjoint.mH());
  }
  work.finish();
}

}  // namespace ocl::native
