// Transposed convolutions whose windows lie side by side. On CPUs a line of windows is a sum
// (kernels/conv/packed.cl), on GPUs all of them are one matrix product.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "engine/conv/contraction.h"
#include "engine/conv/description.h"
#include "engine/conv/source.h"
#include "engine/gemm/gemm.h"

namespace ocl::conv {

namespace {

/// Whether windows of the input gradient lie side by side and cover it.
bool lie_side_by_side(const Description& description) {
  const Window& w = description.window;
  for (size_t axis = 0; axis < kAxes; ++axis) {
    if (w.kernel[axis] != w.stride[axis] || w.pad[axis] != 0) return false;
    if (w.kernel[axis] > 1 && w.dilation[axis] != 1) return false;
    if (description.in.size[2 + axis] != description.out.size[2 + axis] * w.stride[axis])
      return false;
  }
  return w.groups == 1;
}

/// The sum but for its rows, k and places.
Contraction contraction_of(const Description& description) {
  const Operand &in = description.in, &weight = description.weight;
  const int64_t channels = weight.size[1], taps = description.window.kernel[2];
  Contraction c{description.device, description.queue};
  c.dtype = c.b_dtype = description.out.dtype;
  c.compute = computed_in(description.out.dtype);
  c.columns = taps * channels;
  c.column_b = weight.stride[1];
  c.column_out = 1;
  // The lines of a window are groups that read the same.
  c.groups = description.window.kernel[1];
  c.b_group = weight.stride[3];
  c.out_group = in.stride[3];
  c.bias_channels = channels;
  c.bias = static_cast<const char*>(description.bias_data());
  return c;
}

const char* refuse_on_cpu(const Description& description) {
  const Operand &in = description.in, &weight = description.weight;
  const int64_t channels = weight.size[1];
  if (description.window.kernel[2] == 1) return "windows have one element across";
  // No other kernel has a bias that repeats.
  if (engine.reason_to_leave_out(packed.name) != nullptr) return "packed is left out";
  // (element of a line, channel) is one dimension of both.
  if (in.stride[1] != 1 || in.stride[4] != channels) return "channels aren't last";
  if (weight.stride[4] != channels * weight.stride[1]) return "the weight's channels aren't last";
  if (channels % packed_panel_columns(contraction_of(description)) != 0) {
    return "a panel's bias would be in two parts";
  }
  return nullptr;
}

void run_on_cpu(const Description& description) {
  const Operand &in = description.in, &out = description.out, &weight = description.weight;
  const Window& w = description.window;
  Contraction c = contraction_of(description);
  const Reach reach;  // what it reads is not padded
  const auto size = static_cast<int64_t>(c10::elementSize(out.dtype));
  const int64_t images = out.size[0];
  const int64_t step = images_at_a_time(description.device, images, copy_bytes(out, reach));
  for (int64_t image = 0; image < images; image += step) {
    const int64_t count = std::min(step, images - image);
    const Source source = source_of(out, image, count, reach);
    c.rows = c.k = {};
    c.rows.add(count, source.stride[0], in.stride[0]);
    for (size_t d = 2; d < 5; ++d) {
      c.rows.add(out.size[d], source.stride[d], w.stride[d - 2] * in.stride[d]);
    }
    c.k.add(out.size[1], source.stride[1], weight.stride[0]);
    c.a = source.data;
    for (int64_t plane = 0; plane < w.kernel[0]; ++plane) {
      c.b = weight.data + plane * weight.stride[2] * size;
      c.out = in.data + (image * in.stride[0] + plane * in.stride[2]) * size;
      run_contraction(c);
    }
  }
}

const char* refuse_on_gpu(const Description& description) {
  if (!c10::isFloatingType(description.in.dtype)) return "the dtype is no floating one";
  if (description.bias.defined() && c10::elementSize(description.in.dtype) < 4) {
    return "half types would be rounded before the bias is added";
  }
  return nullptr;
}

gemm::Operand operand_of(const at::Tensor& matrices) {
  return {matrices.const_data_ptr(), matrices.scalar_type(), matrices.stride(-2),
          matrices.stride(-1), matrices.dim() == 3 ? matrices.stride(0) : 0};
}

/// A matrix times one or a batch of them.
at::Tensor multiply(at::Tensor a, at::Tensor b, const Precision& precision) {
  at::DimVector sizes(b.sizes().begin(), b.sizes().end());
  sizes[sizes.size() - 2] = a.size(0);
  const at::Tensor product = at::empty(sizes, a.options());
  gemm::Description d;
  d.tf32 = precision.tf32;
  d.rounded_terms = precision.rounded_terms;
  d.m = a.size(0);
  d.n = b.size(-1);
  d.k = a.size(1);
  d.batch = b.dim() == 3 ? b.size(0) : 1;
  d.a = operand_of(a);
  d.b = operand_of(b);
  d.out = operand_of(product);
  if (gemm::wants_contiguous_k(d)) {
    a = a.contiguous();
    b = b.mT().contiguous().mT();
    d.a = operand_of(a);
    d.b = operand_of(b);
  }
  gemm::run(d);
  return product;
}

/// One product with every element of the windows, whose elements then take their places.
void run_on_gpu(const Description& description) {
  const at::Tensor &in = description.in.tensor, &out = description.out.tensor,
                   &weight = description.weight.tensor;
  const int64_t axes = weight.dim() - 2, taps = description.window.taps();
  const int64_t positions = out.numel() / (out.size(0) * out.size(1));
  const int64_t images = out.size(0), channels = out.size(1), columns = weight.size(1);
  const bool last = in.stride(1) == 1 && columns > 1;
  // The product's dimensions in the order of `in`: image, channel, then positions and taps by
  // turns.
  at::DimVector shape, order{0};
  at::Tensor product;
  if (last) {
    const at::Tensor rows = out.movedim(1, -1).reshape({images * positions, channels});
    product = multiply(rows, weight.movedim(1, -1).reshape({channels, taps * columns}),
                       description.precision);
    shape.push_back(images);
    for (int64_t i = 0; i < axes; ++i) shape.push_back(out.size(2 + i));
    for (int64_t i = 0; i < axes; ++i) shape.push_back(weight.size(2 + i));
    shape.push_back(columns);
    order.push_back(1 + 2 * axes);
    for (int64_t i = 0; i < axes; ++i) order.append({1 + i, 1 + axes + i});
  } else {
    const at::Tensor taken = weight.reshape({channels, columns * taps}).t();
    product = multiply(taken, out.reshape({images, channels, positions}), description.precision);
    shape.append({images, columns});
    for (int64_t i = 0; i < axes; ++i) shape.push_back(weight.size(2 + i));
    for (int64_t i = 0; i < axes; ++i) shape.push_back(out.size(2 + i));
    order.push_back(1);
    for (int64_t i = 0; i < axes; ++i) order.append({2 + axes + i, 2 + i});
  }
  const at::Tensor places = product.view(shape).permute(order);
  const at::Tensor whole = in.view(places.sizes());
  if (description.bias.defined()) {
    at::DimVector along(static_cast<size_t>(places.dim()), 1);
    along[1] = columns;
    at::Tensor result = whole;
    at::add_out(result, places, description.bias.view(along));
  } else {
    whole.copy_(places);
  }
}

const char* refuse(const Description& description) {
  if (description.pass != Pass::input_gradient) return "it serves gradients of inputs alone";
  if (description.window.taps() == 1) return "windows have one element";
  if (!lie_side_by_side(description)) return "windows overlap or lie apart";
  return description.device.is_cpu() ? refuse_on_cpu(description) : refuse_on_gpu(description);
}

void run(Description& description) {
  if (description.device.is_cpu()) return run_on_cpu(description);
  run_on_gpu(description);
}

}  // namespace

const Implementation side_by_side{"side_by_side", refuse, run};

}  // namespace ocl::conv
