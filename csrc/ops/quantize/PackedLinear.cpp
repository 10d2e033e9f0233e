// torch_ocl::pack_linear_weight and torch_ocl::packed_linear: linear layers whose weight lies as
// the matrix product's kernel reads it. It serves torch_ocl/api/packed.py.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <optional>
#include <vector>

#include "engine/gemm/gemm.h"
#include "opencl/device.h"
#include "opencl/platform.h"
#include "ops/linalg/LinearAlgebra.h"
#include "runtime/stream.h"

namespace ocl::native {

using at::Tensor;

namespace {

/// [panels, depth, columns] (bfloat16's may be [panels, depth, columns, 2]), or those of the weight
/// itself [n, k] where the device's kernels read it as it lies.
std::vector<int64_t> packed_sizes(const gemm::Panels& layout, int64_t k, int64_t n) {
  if (layout.panels == 0) return {n, k};
  std::vector<int64_t> sizes{layout.panels, layout.depth, layout.columns};
  if (layout.group > 1) sizes.push_back(layout.group);
  return sizes;
}

/// The weight's panels, or a copy of it: packed_sizes.
Tensor pack_linear_weight(const Tensor& weight) {
  TORCH_CHECK(weight.dim() == 2, "pack_linear_weight: expected a weight of 2 dimensions, got ",
              weight.dim());
  const at::ScalarType dtype = weight.scalar_type();
  TORCH_CHECK_TYPE(
      dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16,
      "pack_linear_weight: expected a floating-point weight, got ", dtype);
  const c10::DeviceGuard guard(weight.device());
  const int64_t n = weight.size(0), k = weight.size(1);
  const gemm::Panels layout = gemm::panels_for(device(current_device()), dtype, k, n);
  if (layout.panels == 0) return weight.clone(at::MemoryFormat::Contiguous);
  Tensor panels = at::empty(packed_sizes(layout, k, n), weight.options().dtype(layout.dtype));
  gemm::pack(gemm_operand(weight.resolve_neg().t()), k, n, panels.mutable_data_ptr());
  return panels;
}

void check_panels(const Tensor& input, const Tensor& panels, const std::optional<Tensor>& bias,
                  int64_t out_features) {
  TORCH_CHECK(panels.device() == input.device(), "packed_linear: input is on ", input.device(),
              " but the packed weight on ", panels.device());
  const int64_t k = input.size(-1);
  const at::ScalarType packed_from = panels.dim() == 4 ? at::kBFloat16 : panels.scalar_type();
  const gemm::Panels layout =
      gemm::panels_for(device(current_device()), packed_from, k, out_features);
  const bool plain = layout.panels == 0;
  TORCH_CHECK(panels.is_contiguous() && panels.sizes() == packed_sizes(layout, k, out_features) &&
                  (plain || panels.scalar_type() == layout.dtype),
              "packed_linear: a packed weight of sizes ", panels.sizes(), " is not that of ", k,
              " input and ", out_features, " output features on this device");
  const at::ScalarType dtype = input.scalar_type();
  // Halves are kept as float32 where the device has no products of them.
  const bool widened = layout.dtype == at::kFloat && (dtype == at::kHalf || dtype == at::kBFloat16);
  const bool fits = dtype == packed_from || (!plain && layout.group == 1 && widened);
  TORCH_CHECK(fits, "packed_linear: an input of ", dtype, " does not go with a packed weight of ",
              panels.scalar_type());
  if (!bias) return;
  TORCH_CHECK(bias->dim() == 1 && bias->size(0) == out_features && bias->scalar_type() == dtype &&
                  bias->device() == input.device(),
              "packed_linear: expected a bias of ", out_features, " elements of ", dtype, " on ",
              input.device());
}

Tensor packed_linear(const Tensor& input, const Tensor& panels, const std::optional<Tensor>& bias,
                     int64_t out_features) {
  TORCH_CHECK(input.dim() >= 1 && out_features >= 0,
              "packed_linear: expected an input of at least 1 dimension");
  const c10::DeviceGuard guard(input.device());
  check_panels(input, panels, bias, out_features);
  if (panels.dim() == 2) return at::linear(input, panels, bias);
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes.back() = out_features;
  Tensor out = at::empty(sizes, input.options());
  if (out.numel() == 0) return out;
  const Tensor rows = input.resolve_neg().reshape({-1, input.size(-1)});
  const Tensor results = out.view({-1, out_features});
  gemm::Description description;
  description.m = rows.size(0);
  description.n = out_features;
  description.k = rows.size(1);
  description.a = gemm_operand(rows);
  description.b.data = panels.const_data_ptr();
  description.b.dtype = panels.scalar_type();
  description.b_packed = true;
  description.out = gemm_operand(results);
  description.out.data = results.mutable_data_ptr();
  Tensor addend;
  if (bias) {
    addend = bias->resolve_neg().expand(results.sizes());
    description.beta = 1;
    description.c = gemm_operand(addend);
  }
  gemm::run(description);
  return out;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ocl, library) {
  library.def("pack_linear_weight(Tensor weight) -> Tensor");
  library.def(
      "packed_linear(Tensor input, Tensor panels, Tensor? bias, int out_features) -> Tensor");
}

TORCH_LIBRARY_IMPL(torch_ocl, PrivateUse1, library) {
  library.impl("pack_linear_weight", TORCH_FN(pack_linear_weight));
  library.impl("packed_linear", TORCH_FN(packed_linear));
}

}  // namespace ocl::native
