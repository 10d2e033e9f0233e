// The C interface (shim.h): matrix products and convolutions with a fused epilogue.
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include <string>
#include <string_view>

#include "aoti/refused.h"
#include "aoti/shim.h"
#include "engine/epilogue.h"
#include "engine/modified_kernels.h"
#include "opencl/error.h"
#include "ops/convolution/ConvolutionEpilogue.h"
#include "ops/linalg/GemmEpilogue.h"

using torch::aot_inductor::tensor_handle_to_tensor_pointer;

namespace {

const ocl::ModifiedKernels& kernels_of(AOTIOclKernelsHandle handle) {
  return *reinterpret_cast<const ocl::ModifiedKernels*>(handle);
}

void run(const AOTIOclFused& fused, const ocl::Epilogue& epilogue, const at::Tensor& a,
         const at::Tensor& b, const at::Tensor& c) {
  if (fused.axes == 0) {
    return ocl::native::run_gemm_with_epilogue(a, b, c, fused.alpha, fused.beta, epilogue);
  }
  const auto axes = static_cast<size_t>(fused.axes);
  ocl::native::run_convolution_with_epilogue(a, b, c, {fused.stride, axes}, {fused.padding, axes},
                                             {fused.dilation, axes}, fused.groups,
                                             {epilogue, fused.channels_last != 0});
}

}  // namespace

AOTITorchError aoti_torch_ocl_kernels_of_text(const char* text, AOTIOclKernelsHandle* handle) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    auto* kernels = const_cast<ocl::ModifiedKernels*>(&ocl::ModifiedKernels::of(text));
    *handle = reinterpret_cast<AOTIOclKernelsHandle>(kernels);
  });
}

AOTITorchError aoti_torch_ocl_run_fused(const AOTIOclFused* fused, AOTIOclKernelsHandle kernels,
                                        AtenTensorHandle a, AtenTensorHandle b, AtenTensorHandle c,
                                        const AtenTensorHandle* tensors, int64_t tensor_count,
                                        const int64_t* numbers, int64_t number_count) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    ocl::Epilogue epilogue{kernels_of(kernels), static_cast<int>(fused->lanes), {}, {}};
    for (int64_t i = 0; i < tensor_count; ++i) {
      epilogue.operands.push_back(tensor_handle_to_tensor_pointer(tensors[i])->const_data_ptr());
    }
    epilogue.numbers.assign(numbers, numbers + number_count);
    try {
      run(*fused, epilogue, *tensor_handle_to_tensor_pointer(a),
          *tensor_handle_to_tensor_pointer(b),
          c == nullptr ? at::Tensor() : *tensor_handle_to_tensor_pointer(c));
    } catch (const ocl::Error& error) {
      if (error.call() != std::string_view("clBuildProgram")) throw;
      throw ocl::aoti::refused(fused->name, fused->origin, error);
    }
  });
}
