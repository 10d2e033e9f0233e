// cudnn_convolution_relu, cudnn_convolution_add_relu and MIOpen's of the same meaning: the
// convolution's kernels store what kernels/conv/relu.clh makes of their sums.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <string>

#include "engine/dtype.h"
#include "ops/DtypeChecks.h"
#include "ops/convolution/ConvolutionEpilogue.h"
#include "ops/convolution_overrideable.h"
#include "ops/cudnn_convolution_add_relu.h"
#include "ops/cudnn_convolution_relu.h"
#include "ops/miopen_convolution_add_relu.h"
#include "ops/miopen_convolution_relu.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

/// The lists that these ops take.
struct Settings {
  at::IntArrayRef stride, padding, dilation;
  int64_t groups;
};

/// The most lanes of an epilogue's functions: torch_ocl/inductor/templates/convolutions.py.
int lanes_of(at::ScalarType dtype, bool cpu) {
  constexpr size_t kVectorBytes = 64, kGpuBytes = 16;
  if (cpu) return static_cast<int>(kVectorBytes / c10::elementSize(at::toOpMathType(dtype)));
  const size_t bytes = c10::elementSize(dtype);
  return bytes <= 4 ? static_cast<int>(kGpuBytes / bytes) : 1;
}

const ModifiedKernels& make_kernels(at::ScalarType dtype, int lanes, bool adds) {
  return ModifiedKernels::of(std::string("#define RELU_OF ") + tag(dtype) + "\n#define RELU_ADDS " +
                             (adds ? "1" : "0") + "\n#define EPILOGUE_LANES " +
                             std::to_string(lanes > 1 ? lanes : 0) +
                             "\n#include \"conv/relu.clh\"\n");
}

/// The kernels with the epilogue, which is written once.
const ModifiedKernels& kernels_of(at::ScalarType dtype, bool cpu, int lanes, bool adds) {
  constexpr size_t kDtypes = 16;  // more than the number of the last floating one
  static std::array<std::atomic<const ModifiedKernels*>, kDtypes * 4> made{};
  const size_t at = static_cast<size_t>(dtype) * 4 + (cpu ? 2 : 0) + (adds ? 1 : 0);
  const ModifiedKernels* kernels = made.at(at).load(std::memory_order_acquire);
  if (kernels == nullptr) {
    kernels = &make_kernels(dtype, lanes, adds);
    made.at(at).store(kernels, std::memory_order_release);
  }
  return *kernels;
}

void check_list(const char* op, const char* name, at::IntArrayRef list, int64_t axes,
                int64_t least) {
  TORCH_CHECK(static_cast<int64_t>(list.size()) == axes, op, ": expected ", name,
              " to be a list of ", axes, " values to match the convolution dimensions, but got ",
              name, "=", list);
  TORCH_CHECK(std::ranges::all_of(list, [&](int64_t value) { return value >= least; }), op, ": ",
              least > 0 ? "non-positive " : "negative ", name, " is not supported");
}

/// Upstream's convolution checks this, but these ops don't go through it.
void check_operands(const char* op, const at::Tensor& input, const at::Tensor& weight,
                    const at::Tensor& bias, const Settings& settings) {
  const int64_t axes = input.dim() - 2;
  TORCH_CHECK(axes >= 1 && axes <= 3, op, ": expected an input of 3 to 5 dimensions, but got ",
              input.sizes());
  TORCH_CHECK(weight.dim() == input.dim(), op, ": expected a weight of ", input.dim(),
              " dimensions, but got ", weight.sizes());
  check_floating(op, input);
  check_same_dtype(weight, input.scalar_type());
  check_list(op, "stride", settings.stride, axes, 1);
  check_list(op, "padding", settings.padding, axes, 0);
  check_list(op, "dilation", settings.dilation, axes, 1);
  TORCH_CHECK(settings.groups > 0, op,
              ": expected groups to be greater than 0, but got groups=", settings.groups);
  TORCH_CHECK(weight.size(0) % settings.groups == 0, op, ": expected weight to be divisible by ",
              settings.groups, " at dimension 0, but got weight of size ", weight.sizes());
  TORCH_CHECK(input.size(1) == weight.size(1) * settings.groups, op,
              ": given groups=", settings.groups, ", weight of size ", weight.sizes(),
              ", expected input", input.sizes(), " to have ", weight.size(1) * settings.groups,
              " channels, but got ", input.size(1), " channels instead");
  if (bias.defined()) {
    check_same_dtype(bias, input.scalar_type());
    TORCH_CHECK(bias.dim() == 1 && bias.size(0) == weight.size(0), op, ": expected bias to be 1-",
                "dimensional with ", weight.size(0), " elements, but got bias of size ",
                bias.sizes());
  }
  for (int64_t i = 0; i < axes; ++i) {
    const auto at = static_cast<size_t>(i);
    TORCH_CHECK(weight.size(2 + i) > 0, op, ": expected a window of at least one element, but got ",
                "weight of size ", weight.sizes());
    const int64_t window = settings.dilation[at] * (weight.size(2 + i) - 1) + 1;
    const int64_t padded = input.size(2 + i) + 2 * settings.padding[at];
    TORCH_CHECK(padded >= window, op,
                ": Kernel size can't be greater than actual input size: ", window, " and ", padded,
                " in dimension ", 2 + i);
  }
}

/// Whether a sum that is stored is rounded no more than it was.
bool rounds_once(at::ScalarType dtype) { return at::toOpMathType(dtype) == dtype; }

/// relu(convolution + alpha * z), or relu(convolution) if z is undefined.
at::Tensor convolution_relu(const char* op, const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& z, double alpha, const at::Tensor& bias,
                            const Settings& settings) {
  check_operands(op, input, weight, bias, settings);
  const at::ScalarType dtype = input.scalar_type();
  const at::MemoryFormat format = convolution_format(input, weight);
  const at::DimVector sizes(at::native::conv_output_size(
      input.sizes(), weight.sizes(), settings.padding, settings.stride, settings.dilation));
  at::Tensor addend;
  if (z.defined()) {
    check_same_dtype(z, dtype);
    TORCH_CHECK(z.sizes() == at::IntArrayRef(sizes), op, ": expected z of the result's size ",
                at::IntArrayRef(sizes), ", but got ", z.sizes());
    addend = z.contiguous(format);
  }
  const bool last = format != at::MemoryFormat::Contiguous;
  const Device& device = current_queue(current_device()).device();
  const bool cpu = device.is_cpu();
  const bool apart = addend.defined() && rounds_once(dtype) && at::multiply_integers(sizes) != 0 &&
                     !conv::takes_other_tensors(device, last, settings.groups == weight.size(0));
  const at::Tensor out =
      apart ? convolution_overrideable(input, weight, bias, settings.stride, settings.padding,
                                       settings.dilation, false,
                                       at::DimVector(settings.stride.size(), 0), settings.groups)
            : at::empty(sizes, input.options().memory_format(format));
  if (out.numel() == 0) return out;
  const int64_t channels = out.size(1), plane = out.numel() / (out.size(0) * channels);
  const int lanes = lanes_of(dtype, cpu);
  Epilogue epilogue{kernels_of(dtype, cpu, lanes, z.defined()), lanes > 1 ? lanes : 0, {}, {}};
  if (addend.defined()) epilogue.operands.push_back(addend.const_data_ptr());
  epilogue.operands.push_back(out.mutable_data_ptr());
  const int64_t bits = dtype == at::kDouble ? std::bit_cast<int64_t>(alpha)
                                            : std::bit_cast<int32_t>(static_cast<float>(alpha));
  // z is a group with channels last, or an image.
  const int64_t matrix = settings.groups > 1 ? channels / settings.groups : channels * plane;
  epilogue.numbers = {last ? channels : plane, matrix, bits};
  const conv::MatrixEpilogue of_matrix{epilogue, last, /*images_as_z=*/true};
  if (apart) {
    conv::apply(of_matrix, out.const_data_ptr(), dtype, 0, out.size(0) * channels, plane);
  } else {
    run_convolution_with_epilogue(input, weight, bias, settings.stride, settings.padding,
                                  settings.dilation, settings.groups, of_matrix);
  }
  return out;
}

double value_or_one(const std::optional<at::Scalar>& alpha) {
  return alpha ? alpha->to<double>() : 1.0;
}

}  // namespace

at::Tensor cudnn_convolution_relu(const at::Tensor& self, const at::Tensor& weight,
                                  const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                  at::IntArrayRef padding, at::IntArrayRef dilation,
                                  int64_t groups) {
  return convolution_relu("cudnn_convolution_relu", self, weight, {}, 0,
                          bias.value_or(at::Tensor()), {stride, padding, dilation, groups});
}

at::Tensor cudnn_convolution_add_relu(const at::Tensor& self, const at::Tensor& weight,
                                      const at::Tensor& z, const std::optional<at::Scalar>& alpha,
                                      const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                      at::IntArrayRef padding, at::IntArrayRef dilation,
                                      int64_t groups) {
  return convolution_relu("cudnn_convolution_add_relu", self, weight, z, value_or_one(alpha),
                          bias.value_or(at::Tensor()), {stride, padding, dilation, groups});
}

at::Tensor miopen_convolution_relu(const at::Tensor& self, const at::Tensor& weight,
                                   const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                   at::IntArrayRef padding, at::IntArrayRef dilation,
                                   int64_t groups) {
  return convolution_relu("miopen_convolution_relu", self, weight, {}, 0,
                          bias.value_or(at::Tensor()), {stride, padding, dilation, groups});
}

at::Tensor miopen_convolution_add_relu(const at::Tensor& self, const at::Tensor& weight,
                                       const at::Tensor& z, const std::optional<at::Scalar>& alpha,
                                       const std::optional<at::Tensor>& bias,
                                       at::IntArrayRef stride, at::IntArrayRef padding,
                                       at::IntArrayRef dilation, int64_t groups) {
  return convolution_relu("miopen_convolution_add_relu", self, weight, z, value_or_one(alpha),
                          bias.value_or(at::Tensor()), {stride, padding, dilation, groups});
}

}  // namespace ocl::native
