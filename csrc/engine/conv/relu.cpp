// Convolutions whose kernels store what kernels/conv/relu.clh makes of their sums.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/OpMathType.h>

#include <array>
#include <atomic>
#include <bit>
#include <string>

#include "engine/conv/conv.h"
#include "engine/dtype.h"
#include "engine/lanes.h"
#include "runtime/stream.h"

namespace ocl::conv {

namespace {

/// The most lanes of an epilogue's functions: torch_ocl/inductor/templates/convolutions.py.
int lanes_of(at::ScalarType dtype, bool cpu) {
  if (cpu) return static_cast<int>(longest_lanes(at::toOpMathType(dtype)));
  const size_t bytes = c10::elementSize(dtype);
  return bytes <= 4 ? static_cast<int>(kGpuVectorBytes / bytes) : 1;
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

/// Whether a sum that is stored is rounded no more than it was.
bool rounds_once(at::ScalarType dtype) { return at::toOpMathType(dtype) == dtype; }

}  // namespace

void forward(const at::Tensor& out, const at::Tensor& in, const at::Tensor& weight,
             const at::Tensor& bias, const Window& window, const Precision& precision,
             const Relu& relu) {
  if (out.numel() == 0) return;
  const at::ScalarType dtype = out.scalar_type();
  const Device& device = current_queue(current_device()).device();
  const int64_t channels = out.size(1), plane = out.numel() / (out.size(0) * channels);
  const bool last = relu.channels_last, adds = relu.addend.defined();
  const int lanes = lanes_of(dtype, device.is_cpu());
  Epilogue epilogue{kernels_of(dtype, device.is_cpu(), lanes, adds), lanes > 1 ? lanes : 0, {}, {}};
  if (adds) epilogue.operands.push_back(relu.addend.const_data_ptr());
  epilogue.operands.push_back(out.mutable_data_ptr());
  const int64_t bits = dtype == at::kDouble
                           ? std::bit_cast<int64_t>(relu.alpha)
                           : std::bit_cast<int32_t>(static_cast<float>(relu.alpha));
  // z is a group with channels last, or an image.
  const int64_t matrix = window.groups > 1 ? channels / window.groups : channels * plane;
  epilogue.numbers = {last ? channels : plane, matrix, bits};
  const MatrixEpilogue of_matrix{epilogue, last, /*images_as_z=*/true};
  if (adds && rounds_once(dtype) &&
      !takes_other_tensors(device, last, window.groups == weight.size(0))) {
    forward(out, in, weight, bias, window, precision);
    apply(of_matrix, out);
  } else {
    forward_into(of_matrix, out.sizes(), in, weight, bias, window, precision);
  }
}

}  // namespace ocl::conv
