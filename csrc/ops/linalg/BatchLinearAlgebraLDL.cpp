// LDL factors of symmetric and Hermitian matrices, and what is solved with them: the kernels behind
// upstream's stubs.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/ops/linalg_ldl_factor_ex.h>
#include <ATen/ops/linalg_ldl_solve.h>

#include "ops/HostStaged.h"
#include "ops/linalg/BatchLinearAlgebra.h"

namespace ocl::native {

using at::Tensor;

// Upstream passes upper = false always.
void ldl_factor_in_place(const Tensor& LD, const Tensor& pivots, const Tensor& info, bool /*upper*/,
                         bool hermitian) {
  if (LD.size(-1) > kMostLdl) {
    HostStage stage("linalg_ldl_factor_ex");
    const auto [factors, swaps, infos] = at::linalg_ldl_factor_ex(stage.in(LD), hermitian);
    LD.copy_(factors);
    pivots.copy_(swaps);
    info.copy_(infos);
    return;
  }
  const InPlace work(LD);
  const Tensor swaps = pivots.contiguous(), infos = info.contiguous();
  ldl_factor(work.matrices(), swaps.mutable_data_ptr<int32_t>(), infos.mutable_data_ptr<int32_t>(),
             hermitian && LD.is_complex());
  work.finish();
  if (!swaps.is_same(pivots)) pivots.copy_(swaps);
  if (!infos.is_same(info)) info.copy_(infos);
}

void ldl_solve_in_place(const Tensor& LD, const Tensor& pivots, const Tensor& result,
                        bool /*upper*/, bool hermitian) {
  if (result.numel() == 0) return;
  if (LD.size(-1) > kMostLdl) {
    HostStage stage("linalg_ldl_solve");
    result.copy_(at::linalg_ldl_solve(stage.in(LD), stage.in(pivots), stage.in(result), hermitian));
    return;
  }
  const at::IntArrayRef batch(result.sizes().data(), result.dim() - 2);
  at::DimVector matrix_sizes(batch), pivot_sizes(batch);
  matrix_sizes.append({LD.size(-2), LD.size(-1)});
  pivot_sizes.push_back(pivots.size(-1));
  const Tensor factors = batched(LD.expand(matrix_sizes).resolve_conj().resolve_neg());
  const Tensor swaps = pivots.expand(pivot_sizes).contiguous();
  const InPlace work(result);
  ldl_solve(matrices(factors), swaps.const_data_ptr<int32_t>(), work.matrices(),
            hermitian && LD.is_complex());
  work.finish();
}

}  // namespace ocl::native
