// The op's schema, and its functions for `ocl`. Its gradient and its shapes are Python
// (ocl_swiglu/__init__.py).
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>
#include <torch_ocl/extension.h>

#include <tuple>

namespace {

// A file below kernels/ and a function in it: compiled for each dtype when it is first used.
const ocl::KernelFamily forward_family{"ocl_swiglu/swiglu.cl", "swiglu"};
const ocl::KernelFamily backward_family{"ocl_swiglu/swiglu.cl", "swiglu_backward"};

constexpr size_t kGroup = 64;

void check(const at::Tensor& gate, const at::Tensor& up) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(gate.scalar_type()),
                              "\"swiglu\" not implemented for '", gate.scalar_type(), "'");
  TORCH_CHECK(gate.scalar_type() == up.scalar_type(), "swiglu: gate is ", gate.scalar_type(),
              ", up is ", up.scalar_type());
  TORCH_CHECK(gate.device() == up.device(), "swiglu: gate is on ", gate.device(), ", up is on ",
              up.device());
  TORCH_CHECK(gate.sizes() == up.sizes(), "swiglu: gate has shape ", gate.sizes(), ", up ",
              up.sizes());
}

/// Compile parameters. They must come in the same order at every call.
ocl::Kernel& kernel(const ocl::KernelFamily& family, ocl::Queue& queue, const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  ocl::check_dtype(queue.device(), dtype);
  return family.get(queue.device(),
                    {{"IN", ocl::tag(dtype)}, {"ACC", ocl::tag(ocl::compute_dtype(dtype))}});
}

// A result is contiguous, and so are the operands that the kernels read. An operand that is a view
// of a larger tensor keeps its place: Pointer passes a buffer and an offset.
at::Tensor new_result(const at::Tensor& like) { return at::empty(like.sizes(), like.options()); }

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  check(gate, up);
  const ocl::DeviceGuard guard(gate.device());
  at::Tensor out = new_result(gate);
  if (out.numel() == 0) return out;
  const at::Tensor g = gate.contiguous(), u = up.contiguous();
  const auto n = static_cast<uint64_t>(out.numel());
  ocl::Queue& queue = ocl::current_queue(gate.device().index());
  ocl::launch(kernel(forward_family, queue, out), queue, ocl::NDRange::linear(n, kGroup),
              ocl::Pointer{out.mutable_data_ptr()}, ocl::Pointer{g.const_data_ptr()},
              ocl::Pointer{u.const_data_ptr()}, n);
  return out;
}

std::tuple<at::Tensor, at::Tensor> swiglu_backward(const at::Tensor& grad, const at::Tensor& gate,
                                                   const at::Tensor& up) {
  check(gate, up);
  check(grad, gate);
  const ocl::DeviceGuard guard(gate.device());
  at::Tensor grad_gate = new_result(gate), grad_up = new_result(gate);
  if (gate.numel() == 0) return {grad_gate, grad_up};
  const at::Tensor d = grad.contiguous(), g = gate.contiguous(), u = up.contiguous();
  const auto n = static_cast<uint64_t>(gate.numel());
  ocl::Queue& queue = ocl::current_queue(gate.device().index());
  ocl::launch(kernel(backward_family, queue, gate), queue, ocl::NDRange::linear(n, kGroup),
              ocl::Pointer{grad_gate.mutable_data_ptr()}, ocl::Pointer{grad_up.mutable_data_ptr()},
              ocl::Pointer{d.const_data_ptr()}, ocl::Pointer{g.const_data_ptr()},
              ocl::Pointer{u.const_data_ptr()}, n);
  return {grad_gate, grad_up};
}

TORCH_LIBRARY(ocl_swiglu, library) {
  library.def("swiglu(Tensor gate, Tensor up) -> Tensor");
  library.def("swiglu_backward(Tensor grad, Tensor gate, Tensor up) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(ocl_swiglu, PrivateUse1, library) {
  library.impl("swiglu", &swiglu);
  library.impl("swiglu_backward", &swiglu_backward);
}

}  // namespace
