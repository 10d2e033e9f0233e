// The projections of attention, split by heads.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>

#include <cmath>

#include "ops/_transform_bias_rescale_qkv.h"

namespace ocl::native {

std::tuple<at::Tensor, at::Tensor, at::Tensor> _transform_bias_rescale_qkv(
    const at::Tensor& qkv, const at::Tensor& qkv_bias, int64_t num_heads) {
  TORCH_CHECK(qkv.dim() == 3, "expected 3D `qkv`, got ", qkv.dim(), "-D tensor");
  const int64_t batch = qkv.size(0), time = qkv.size(1), width = qkv_bias.size(0);
  TORCH_CHECK(width % 3 == 0 && qkv.size(2) == width,
              "expected `qkv_bias` first dim to be a multiple of 3 and that of `qkv`, got ", width);
  const int64_t dim = width / 3;
  TORCH_CHECK(num_heads > 0 && dim % num_heads == 0, "expected `num_heads` to divide ", dim);
  const int64_t per_head = dim / num_heads;
  at::Tensor result = at::empty({3, batch, num_heads, time, per_head}, qkv.options());
  at::Tensor places = result.permute({1, 3, 0, 2, 4});
  at::add_out(places, qkv.reshape({batch, time, 3, num_heads, per_head}),
              qkv_bias.reshape({3, num_heads, per_head}));
  at::Tensor q = result.select(0, 0);
  q.mul_(1 / std::sqrt(static_cast<double>(per_head)));
  return {q, result.select(0, 1), result.select(0, 2)};
}

}  // namespace ocl::native
