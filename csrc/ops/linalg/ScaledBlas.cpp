// Products of float8 matrices with scales, per tensor or per row.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/BlasBackend.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/headeronly/version.h>

#include "ops/_scaled_mm.h"
#include "ops/_scaled_mm_v2.h"

namespace ocl::native {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using OptionalDtype = std::optional<at::ScalarType>;

namespace {

void check_scale(const Tensor& scale, const char* name, int64_t rows, int64_t columns) {
  TORCH_CHECK_VALUE(scale.scalar_type() == at::kFloat &&
                        (scale.numel() == 1 || scale.sizes() == c10::IntArrayRef({rows, columns})),
                    "Invalid scaling configuration: ", name,
                    " must be float32, of one element or of the size [", rows, ", ", columns,
                    "], got ", scale.scalar_type(), " of ", scale.sizes());
}

Tensor& scaled_product(const Tensor& mat_a, const Tensor& mat_b, const Tensor& scale_a,
                       const Tensor& scale_b, const OptionalTensor& bias,
                       const OptionalTensor& scale_result, Tensor& out) {
  TORCH_CHECK(mat_a.dim() == 2 && mat_b.dim() == 2, "mat_a and mat_b must be matrices, got ",
              mat_a.dim(), " and ", mat_b.dim(), " dimensions");
  TORCH_CHECK(mat_a.size(1) == mat_b.size(0), "mat_a and mat_b shapes cannot be multiplied (",
              mat_a.size(0), "x", mat_a.size(1), " and ", mat_b.size(0), "x", mat_b.size(1), ")");
  for (const Tensor* matrix : {&mat_a, &mat_b}) {
    TORCH_CHECK_VALUE(c10::isFloat8Type(matrix->scalar_type()), "Expected a Float8 matrix, got ",
                      matrix->scalar_type());
  }
  const int64_t rows = mat_a.size(0), columns = mat_b.size(1);
  TORCH_CHECK_VALUE((scale_a.numel() == 1) == (scale_b.numel() == 1) || rows == 1 || columns == 1,
                    "Invalid scaling configuration: a scale per tensor and one per row");
  check_scale(scale_a, "scale_a", rows, 1);
  check_scale(scale_b, "scale_b", 1, columns);
  TORCH_CHECK_VALUE(!bias.has_value() || bias->numel() == columns, "Bias must be of ", columns,
                    " elements, got ", bias.has_value() ? bias->numel() : 0);
  at::native::resize_output(out, {rows, columns});
  // Scaled before the product, in float, as the CPU does it.
  const Tensor a = mat_a.to(at::kFloat).mul_(scale_a.reshape({-1, 1}));
  const Tensor b = mat_b.to(at::kFloat).mul_(scale_b.reshape({1, -1}));
  Tensor product = bias.has_value() ? at::addmm(bias->to(at::kFloat), a, b) : at::mm(a, b);
  if (scale_result.has_value()) {
    product.mul_(scale_result->reshape({}).reciprocal());
  }
  return out.copy_(product);
}

/// Whether both recipes are that one.
bool are(c10::IntArrayRef recipe_a, c10::IntArrayRef recipe_b, at::blas::ScalingType type) {
  const auto wanted = static_cast<int64_t>(type);
  return recipe_a == c10::IntArrayRef(wanted) && recipe_b == c10::IntArrayRef(wanted);
}

void check_recipes(size_t scales_a, c10::IntArrayRef recipe_a, size_t scales_b,
                   c10::IntArrayRef recipe_b) {
  using at::blas::ScalingType;
  TORCH_CHECK_VALUE((are(recipe_a, recipe_b, ScalingType::TensorWise) ||
                     are(recipe_a, recipe_b, ScalingType::RowWise)) &&
                        scales_a == 1 && scales_b == 1,
                    "Invalid scaling configuration: ocl takes a scale per tensor or per row");
}

}  // namespace

Tensor& _scaled_mm_out(const Tensor& self, const Tensor& mat2, const Tensor& scale_a,
                       const Tensor& scale_b, const OptionalTensor& bias,
                       const OptionalTensor& scale_result, OptionalDtype out_dtype,
                       bool /*use_fast_accum*/, Tensor& out) {
  TORCH_CHECK_VALUE(!out_dtype.has_value() || *out_dtype == out.scalar_type(),
                    "out_dtype must match output matrix type");
  // As on the CPU, the result is scaled where its dtype is asked for by name.
  const bool scales = out_dtype.has_value() && c10::isFloat8Type(*out_dtype);
  return scaled_product(self, mat2, scale_a, scale_b, bias,
                        scales ? scale_result : OptionalTensor(), out);
}

Tensor _scaled_mm(const Tensor& self, const Tensor& mat2, const Tensor& scale_a,
                  const Tensor& scale_b, const OptionalTensor& bias,
                  const OptionalTensor& scale_result, OptionalDtype out_dtype,
                  bool use_fast_accum) {
  Tensor out = at::empty({0}, self.options().dtype(out_dtype.value_or(self.scalar_type())));
  return _scaled_mm_out(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum,
                        out);
}

// From torch 2.14 on the shape and the dtype of the result are upstream's to find.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14

TORCH_IMPL_FUNC(_scaled_mm_v2_out)(const Tensor& self, const Tensor& mat2,
                                   const at::ITensorListRef& scale_a, c10::IntArrayRef recipe_a,
                                   c10::IntArrayRef /*swizzle_a*/,
                                   const at::ITensorListRef& scale_b, c10::IntArrayRef recipe_b,
                                   c10::IntArrayRef /*swizzle_b*/, at::OptionalTensorRef bias,
                                   OptionalDtype out_dtype, c10::IntArrayRef /*contraction_dim*/,
                                   bool use_fast_accum, const Tensor& out) {
  check_recipes(scale_a.size(), recipe_a, scale_b.size(), recipe_b);
  Tensor result = out;
  _scaled_mm_out(self, mat2, *scale_a.begin(), *scale_b.begin(),
                 bias.has_value() ? OptionalTensor(*bias) : std::nullopt, std::nullopt, out_dtype,
                 use_fast_accum, result);
}

#else

Tensor& _scaled_mm_v2_out(const Tensor& self, const Tensor& mat2, at::ArrayRef<Tensor> scale_a,
                          c10::IntArrayRef recipe_a, c10::IntArrayRef /*swizzle_a*/,
                          at::ArrayRef<Tensor> scale_b, c10::IntArrayRef recipe_b,
                          c10::IntArrayRef /*swizzle_b*/, const OptionalTensor& bias,
                          OptionalDtype out_dtype, c10::IntArrayRef /*contraction_dim*/,
                          bool use_fast_accum, Tensor& out) {
  check_recipes(scale_a.size(), recipe_a, scale_b.size(), recipe_b);
  return _scaled_mm_out(self, mat2, scale_a[0], scale_b[0], bias, std::nullopt, out_dtype,
                        use_fast_accum, out);
}

Tensor _scaled_mm_v2(const Tensor& self, const Tensor& mat2, at::ArrayRef<Tensor> scale_a,
                     c10::IntArrayRef recipe_a, c10::IntArrayRef swizzle_a,
                     at::ArrayRef<Tensor> scale_b, c10::IntArrayRef recipe_b,
                     c10::IntArrayRef swizzle_b, const OptionalTensor& bias,
                     OptionalDtype out_dtype, c10::IntArrayRef contraction_dim,
                     bool use_fast_accum) {
  const OptionalDtype dtype = out_dtype.value_or(self.scalar_type());
  Tensor out = at::empty({0}, self.options().dtype(*dtype));
  return _scaled_mm_v2_out(self, mat2, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b,
                           bias, dtype, contraction_dim, use_fast_accum, out);
}

#endif

}  // namespace ocl::native
