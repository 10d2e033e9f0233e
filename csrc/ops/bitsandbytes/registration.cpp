// Registers bitsandbytes' ops for `ocl`: under torch_ocl at once, under bitsandbytes once it has
// declared them.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "ops/bitsandbytes/bitsandbytes.h"

namespace ocl::bitsandbytes {

namespace {

/// Calls add(name, function) for each.
template <class Add>
void each_op(const Add& add) {
  add("quantize_4bit", TORCH_FN(quantize_4bit));
  add("dequantize_4bit", TORCH_FN(dequantize_4bit));
  add("dequantize_4bit.out", TORCH_FN(dequantize_4bit_out));
  add("quantize_blockwise", TORCH_FN(quantize_blockwise));
  add("dequantize_blockwise", TORCH_FN(dequantize_blockwise));
  add("dequantize_blockwise.out", TORCH_FN(dequantize_blockwise_out));
  add("gemm_4bit", TORCH_FN(gemm_4bit));
  add("gemv_4bit", TORCH_FN(gemv_4bit));
  add("gemv_4bit.out", TORCH_FN(gemv_4bit_out));
  add("int8_linear_matmul", TORCH_FN(int8_linear_matmul));
  add("int8_linear_matmul.out", TORCH_FN(int8_linear_matmul_out));
  add("int8_vectorwise_quant", TORCH_FN(int8_vectorwise_quant));
  add("int8_double_quant", TORCH_FN(int8_double_quant));
  add("int8_mm_dequant", TORCH_FN(int8_mm_dequant));
}

}  // namespace

std::vector<std::string> register_ops() {
  std::vector<std::string> refused;
  each_op([&refused](const char* name, auto function) {
    // Leaked, as static registrations are; unregistered if the schema is another one.
    auto library = std::make_unique<torch::Library>(
        torch::Library::IMPL, "bitsandbytes", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    try {
      library->impl(name, function);
      (void)library.release();
    } catch (const c10::Error& error) {
      refused.push_back(std::string(name) + ": " + error.what_without_backtrace());
    }
  });
  return refused;
}

TORCH_LIBRARY_FRAGMENT(torch_ocl, library) {
  library.def(
      "quantize_4bit(Tensor A, int blocksize, str quant_type, ScalarType quant_storage) -> "
      "(Tensor, Tensor)");
  library.def(
      "dequantize_4bit(Tensor A, Tensor absmax, int blocksize, str quant_type, int[] shape, "
      "ScalarType dtype) -> Tensor");
  library.def(
      "dequantize_4bit.out(Tensor A, Tensor absmax, int blocksize, str quant_type, int[] shape, "
      "ScalarType dtype, Tensor(a!) out) -> ()");
  library.def("quantize_blockwise(Tensor A, Tensor code, int blocksize) -> (Tensor, Tensor)");
  library.def(
      "dequantize_blockwise(Tensor A, Tensor absmax, Tensor code, int blocksize, ScalarType "
      "dtype) -> Tensor");
  library.def(
      "dequantize_blockwise.out(Tensor A, Tensor absmax, Tensor code, int blocksize, ScalarType "
      "dtype, Tensor(a!) out) -> ()");
  library.def(
      "gemm_4bit(Tensor A, Tensor B, int[] shapeB, Tensor absmax, int blocksize, str quant_type, "
      "Tensor? bias=None, Tensor? absmax_8bit=None, Tensor? absmax_code=None, Tensor? "
      "absmax_offset=None) -> Tensor");
  library.def(
      "gemv_4bit(Tensor A, Tensor B, int[] shapeB, Tensor absmax, Tensor code, int blocksize) -> "
      "Tensor");
  library.def(
      "gemv_4bit.out(Tensor A, Tensor B, int[] shapeB, Tensor absmax, Tensor code, int "
      "blocksize, Tensor(a!) out) -> ()");
  library.def("int8_linear_matmul(Tensor A, Tensor B) -> Tensor");
  library.def("int8_linear_matmul.out(Tensor A, Tensor B, Tensor(a!) out) -> ()");
  library.def("int8_vectorwise_quant(Tensor A, float threshold=0.0) -> (Tensor, Tensor, Tensor?)");
  library.def(
      "int8_double_quant(Tensor A, float threshold=0.0) -> (Tensor, Tensor, Tensor, Tensor, "
      "Tensor?)");
  library.def(
      "int8_mm_dequant(Tensor A, Tensor row_stats, Tensor col_stats, ScalarType? dtype=None, "
      "Tensor? bias=None) -> Tensor");
}

TORCH_LIBRARY_IMPL(torch_ocl, PrivateUse1, library) {
  each_op([&library](const char* name, auto function) { library.impl(name, function); });
}

}  // namespace ocl::bitsandbytes
