#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "engine/dtype.h"
#include "engine/spatial/spatial.h"
#include "opencl/kernel_family.h"
#include "ops/DtypeChecks.h"
#include "ops/max_unpool2d.h"
#include "ops/max_unpool3d.h"
#include "ops/spatial/SpatialShapes.h"

namespace ocl::native {

namespace {

const KernelFamily unpool_family{"spatial/unpool.cl", "max_unpool"};
const AssertSite unpool2d_site{"max_unpool2d", Raises::runtime_error},
    unpool3d_site{"max_unpool3d", Raises::runtime_error};

at::Tensor& unpool(const at::Tensor& self, const at::Tensor& indices, at::IntArrayRef output_size,
                   at::Tensor& out, int axes, const char* nondeterministic,
                   const AssertSite& site) {
  // Several elements may name one position.
  at::globalContext().alertNotDeterministic(nondeterministic);
  TORCH_CHECK(indices.scalar_type() == at::kLong,
              "elements in indices should be type int64 but got: ", indices.scalar_type());
  TORCH_CHECK(output_size.size() == static_cast<size_t>(axes), "There should be exactly ", axes,
              " elements in output_size, but got ", output_size.size(), " elements.");
  TORCH_CHECK(self.dim() == axes + 1 || self.dim() == axes + 2, "Input to max_unpooling", axes,
              "d should be a ", axes + 1, "d or ", axes + 2, "d Tensor, but got a tensor with ",
              self.dim(), " dimensions.");
  TORCH_CHECK(self.sizes() == indices.sizes(),
              "Expected shape of indices to be same as that of the input tensor (", self.sizes(),
              ") but got indices tensor with shape: ", indices.sizes());
  for (int64_t dim = 1; dim < self.dim(); ++dim) {
    TORCH_CHECK(self.size(dim) > 0, "max_unpooling", axes,
                "d_forward_out_cpu(): Expected input to have non-zero size for non-batch "
                "dimensions, but got ",
                self.sizes(), " with dimension ", dim, " being empty.");
  }
  check_same_dtype(out, self.scalar_type());
  check_floating("max_unpool", self);
  spatial::UnpoolArguments arguments{1};
  for (const int64_t size : output_size) {
    TORCH_CHECK(size >= 0, "max_unpool: output_size must not be negative, but got ", output_size);
    arguments.plane *= static_cast<uint64_t>(size);
  }
  // CPU torch's volumes, and those that compiled graphs expect, are contiguous.
  out.resize_(with_spatial_sizes(self, output_size),
              axes == 3 ? at::MemoryFormat::Contiguous : self.suggest_memory_format());
  out.zero_();
  if (self.numel() == 0) return out;
  TORCH_CHECK(arguments.plane > 0, "max_unpool: no index is valid for output_size ", output_size);
  spatial::run(
      unpool_family, {{"E", bits_tag(self.itemsize())}},
      {spatial::operand(self, axes), spatial::operand(out, axes), spatial::operand(indices, axes)},
      {.cost = 2, .checks = &site}, arguments);
  return out;
}

}  // namespace

at::Tensor& max_unpool2d_out(const at::Tensor& self, const at::Tensor& indices,
                             at::IntArrayRef output_size, at::Tensor& out) {
  return unpool(self, indices, output_size, out, 2, "max_unpooling2d_forward_out", unpool2d_site);
}

at::Tensor max_unpool2d(const at::Tensor& self, const at::Tensor& indices,
                        at::IntArrayRef output_size) {
  at::Tensor out = at::empty({0}, self.options());
  return max_unpool2d_out(self, indices, output_size, out);
}

at::Tensor& max_unpool3d_out(const at::Tensor& self, const at::Tensor& indices,
                             at::IntArrayRef output_size, at::IntArrayRef stride,
                             at::IntArrayRef padding, at::Tensor& out) {
  TORCH_CHECK(stride.size() == 3 && padding.size() == 3,
              "There should be exactly three elements (depth, height, width) in stride and "
              "padding, but got ",
              stride, " and ", padding);
  TORCH_CHECK(stride[0] > 0 && stride[1] > 0 && stride[2] > 0,
              "strides should be greater than zero, but got stride: ", stride);
  return unpool(self, indices, output_size, out, 3, "max_unpooling3d_forward_out", unpool3d_site);
}

at::Tensor max_unpool3d(const at::Tensor& self, const at::Tensor& indices,
                        at::IntArrayRef output_size, at::IntArrayRef stride,
                        at::IntArrayRef padding) {
  at::Tensor out = at::empty({0}, self.options());
  return max_unpool3d_out(self, indices, output_size, stride, padding, out);
}

}  // namespace ocl::native
