// Matrix products, linear layers and convolutions with a fused epilogue of torch.compile's
// (torch_ocl/inductor/templates/template.py): how Python calls them.
#include <ATen/core/Tensor.h>
#include <Python.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/attention/plan.h"
#include "engine/conv/epilogue.h"
#include "engine/epilogue.h"
#include "engine/gemm/gemm.h"
#include "engine/lanes.h"
#include "engine/modified_kernels.h"
#include "opencl/error.h"
#include "opencl/platform.h"
#include "ops/convolution/ConvolutionEpilogue.h"
#include "ops/linalg/GemmEpilogue.h"
#include "ops/linalg/LinearPieces.h"
#include "python/bindings.h"
#include "python/errors.h"
#include "runtime/device_guard.h"

namespace py = pybind11;

namespace ocl::python {
namespace {

/// State that stays the same from call to call.
struct Fused {
  const ModifiedKernels& kernels;
  int lanes;
  size_t inputs, tensors, numbers;
  std::function<void(std::span<const at::Tensor> inputs, const Epilogue& epilogue)> run;
  py::object refuse;  // raises, given the driver's log
};

constexpr const char* kCapsule = "torch_ocl fused product";

const at::Tensor& tensor_of(PyObject* object) {
  if (!THPVariable_Check(object)) throw py::type_error("a fused product takes tensors here");
  return THPVariable_Unpack(object);
}

/// The function's arguments: the inputs, some of which may be None, the tensors of the epilogue,
/// its numbers.
PyObject* call(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  const auto& fused = *static_cast<const Fused*>(PyCapsule_GetPointer(self, kCapsule));
  try {
    const size_t expected = fused.inputs + fused.tensors + fused.numbers;
    if (static_cast<size_t>(count) != expected) {
      throw py::type_error("a fused product takes " + std::to_string(expected) +
                           " arguments, got " + std::to_string(count));
    }
    c10::SmallVector<at::Tensor, 8> inputs;
    for (size_t i = 0; i < fused.inputs; ++i) {
      inputs.push_back(arguments[i] == Py_None ? at::Tensor() : tensor_of(arguments[i]));
    }
    arguments += fused.inputs;
    Epilogue epilogue{fused.kernels, fused.lanes, {}, {}};
    for (size_t i = 0; i < fused.tensors; ++i) {
      epilogue.operands.push_back(tensor_of(arguments[i]).const_data_ptr());
    }
    for (size_t i = 0; i < fused.numbers; ++i) {
      const int64_t number = PyLong_AsLongLong(arguments[fused.tensors + i]);
      if (number == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
      epilogue.numbers.push_back(number);
    }
    const py::gil_scoped_release release;  // kernels may have to be built
    fused.run({inputs.data(), inputs.size()}, epilogue);
  } catch (const Error& error) {
    if (error.call() != std::string_view("clBuildProgram")) {
      set_python_error();
      return nullptr;
    }
    PyObject* result = PyObject_CallFunction(fused.refuse.ptr(), "s", error.what());
    Py_XDECREF(result);
    return nullptr;
  } catch (...) {
    set_python_error();
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyMethodDef method{"fused_product",
                   reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call)),
                   METH_FASTCALL, "A product or convolution with a fused epilogue."};

py::object function_of(std::unique_ptr<Fused> fused) {
  const py::capsule capsule(fused.release(), kCapsule, [](PyObject* self) {
    delete static_cast<Fused*>(PyCapsule_GetPointer(self, kCapsule));
  });
  PyObject* function = PyCFunction_New(&method, capsule.ptr());
  if (function == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(function);
}

/// A function of a, b, c or None, so many tensors and numbers: alpha * a @ b + beta * c. Where the
/// driver refuses the epilogue, it calls `refuse` with the driver's log, which has to raise.
py::object fused_product(const std::string& text, int lanes, size_t tensors, size_t numbers,
                         double alpha, double beta, py::object refuse) {
  const auto run = [alpha, beta](std::span<const at::Tensor> inputs, const Epilogue& epilogue) {
    native::run_gemm_with_epilogue(inputs[0], inputs[1], inputs[2], alpha, beta, epilogue);
  };
  return function_of(std::make_unique<Fused>(
      Fused{ModifiedKernels::of(text), lanes, 3, tensors, numbers, run, std::move(refuse)}));
}

/// A function of an input, `pieces` weights, as many scales where there are any, and the weight of
/// a norm where there is an epsilon: torch.ops.ocl.linear_pieces, whose results have that dtype.
py::object fused_pieces(const std::string& text, int lanes, size_t tensors, size_t numbers,
                        size_t pieces, bool scaled, bool points, at::ScalarType dtype,
                        std::optional<double> epsilon, double shift, py::object refuse) {
  const auto run = [=](std::span<const at::Tensor> inputs, const Epilogue& epilogue) {
    const auto weights = inputs.subspan(1, pieces);
    const auto scales = inputs.subspan(1 + pieces, scaled ? pieces : 0);
    std::optional<native::RmsNorm> norm;
    if (epsilon) norm = native::RmsNorm{*epsilon, inputs.back(), shift};
    native::linear_pieces_with_epilogue(inputs[0], weights, scales, points, norm, dtype, epilogue);
  };
  const size_t inputs = 1 + pieces * (scaled ? 2 : 1) + (epsilon ? 1 : 0);
  return function_of(std::make_unique<Fused>(
      Fused{ModifiedKernels::of(text), lanes, inputs, tensors, numbers, run, std::move(refuse)}));
}

/// A convolution of an input, a weight, and a bias or None.
py::object fused_convolution(const std::string& text, int lanes, size_t tensors, size_t numbers,
                             std::vector<int64_t> stride, std::vector<int64_t> padding,
                             std::vector<int64_t> dilation, int64_t groups, bool channels_last,
                             py::object refuse) {
  const auto run = [=](std::span<const at::Tensor> inputs, const Epilogue& epilogue) {
    native::run_convolution_with_epilogue(inputs[0], inputs[1], inputs[2], stride, padding,
                                          dilation, groups, {epilogue, channels_last});
  };
  return function_of(std::make_unique<Fused>(
      Fused{ModifiedKernels::of(text), lanes, 3, tensors, numbers, run, std::move(refuse)}));
}

}  // namespace

void bind_fused_product(py::module_& module) {
  module.def("fused_product", &fused_product);
  module.def("fused_pieces", &fused_pieces);
  module.def("fused_convolution", &fused_convolution);
  module.attr("CPU_VECTOR_BYTES") = kCpuVectorBytes;
  module.attr("GPU_VECTOR_BYTES") = kGpuVectorBytes;
  module.attr("SKINNY_COLUMNS") = gemm::kSkinnyColumns;
  module.attr("SKINNY_RESULTS") = gemm::kSkinnyResults;
  module.attr("MOST_PIECES") = gemm::kMostPieces;
  module.def("vector_bytes",
             [](int index) { return attention::register_bytes(device(checked_index(index))); });
  module.def("prefers_dots", [](int index, at::ScalarType a, at::ScalarType b, at::ScalarType out,
                                int64_t few, int64_t k) {
    const DeviceGuard guard(checked_index(index));
    return gemm::prefers_dots(a, b, out, few, k);
  });
  module.def("convolution_takes_other_tensors", [](int index, bool channels_last, bool depthwise) {
    return conv::takes_other_tensors(device(index), channels_last, depthwise);
  });
}

}  // namespace ocl::python
