// The fast path of nn.MultiheadAttention and nn.TransformerEncoderLayer: projections around the
// attention engine, or upstream's composition where weights or a mask are asked for.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/_native_multi_head_attention_native.h>
#include <ATen/ops/_transform_bias_rescale_qkv.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>

#include "engine/attention/attention.h"
#include "engine/dtype.h"
#include "ops/_native_multi_head_attention.h"

namespace ocl::native {

using at::Tensor;

std::tuple<Tensor, Tensor> _native_multi_head_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, int64_t embed_dim,
    int64_t num_head, const Tensor& qkv_weight, const Tensor& qkv_bias, const Tensor& proj_weight,
    const Tensor& proj_bias, const std::optional<Tensor>& mask, bool need_weights,
    bool average_attn_weights, std::optional<int64_t> mask_type) {
  // A mask of upstream's makes a row that is covered whole a NaN, which the engine doesn't.
  const bool plain = !need_weights && !mask.has_value() && query.is_same(key) &&
                     query.is_same(value) && !query.is_nested() && query.dim() == 3 &&
                     query.numel() > 0 && query.size(2) == embed_dim && num_head > 0 &&
                     embed_dim % num_head == 0 && embed_dim / num_head <= 256;
  if (!plain) {
    return at::native::native_multi_head_attention_cpu(
        query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
        need_weights, average_attn_weights, mask_type);
  }
  TORCH_CHECK(qkv_weight.dim() == 2 && qkv_weight.size(0) == 3 * embed_dim &&
                  qkv_weight.size(1) == embed_dim,
              "expected `qkv_weight` to have 3x embed_dim rows and embed_dim columns, got ",
              qkv_weight.sizes());
  TORCH_CHECK(qkv_bias.dim() == 1 && qkv_bias.size(0) == 3 * embed_dim,
              "expected `qkv_bias` to have 3x embed_dim elements, got ", qkv_bias.sizes());
  const int64_t batch = query.size(0), time = query.size(1);
  attention::Problem problem;  // the rescaled query brings the scale
  std::tie(problem.query, problem.key, problem.value) =
      at::_transform_bias_rescale_qkv(at::linear(query, qkv_weight), qkv_bias, num_head);
  const Tensor context = at::empty({batch, time, num_head, embed_dim / num_head}, query.options());
  const Tensor logsumexp =
      at::empty({batch, num_head, time}, query.options().dtype(compute_dtype(query.scalar_type())));
  attention::forward(problem, context.transpose(1, 2), logsumexp);
  return {at::linear(context.view({batch, time, embed_dim}), proj_weight, proj_bias), Tensor()};
}

}  // namespace ocl::native
