// The C interface (shim.h): kernels, tensors, the current device and stream.
#include <c10/core/Device.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#if __has_include(<torch/csrc/shim_exception_state.h>)
#include <torch/csrc/shim_exception_state.h>
#endif

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "aoti/refused.h"
#include "aoti/shim.h"
#include "engine/generated/kernel.h"
#include "opencl/platform.h"
#include "opencl/program.h"
#include "opencl/sources.h"
#include "ops/Factories.h"
#include "runtime/stream.h"

using ocl::generated::Generated;
using torch::aot_inductor::new_tensor_handle;
using torch::aot_inductor::tensor_handle_to_tensor_pointer;

namespace {

/// The name of a program in build logs.
std::string file_of(const AOTIOclProgram& program) {
  return std::string("inductor:") + program.label;
}

std::string source_of(const AOTIOclProgram& program) {
  return ocl::expand_kernel_source("inductor", program.source);
}

void build(int device, const AOTIOclProgram& program) {
  ocl::device(device).programs().of_text(file_of(program), source_of(program), "").wait();
}

Generated* generated_of(AOTIOclKernelHandle handle) { return reinterpret_cast<Generated*>(handle); }

ocl::generated::Description description_of(const AOTIOclKernel& kernel, int device) {
  ocl::generated::Description made;
  made.device = device;
  made.source = source_of(*kernel.program);
  made.name = kernel.name;
  made.file = file_of(*kernel.program);
  made.tensors = static_cast<size_t>(kernel.tensors);
  made.kinds = kernel.kinds;
  for (int64_t i = 0; i < kernel.check_count; ++i) {
    made.sites.push_back(
        ocl::generated::assert_site(kernel.checks[i].text, kernel.checks[i].is_message != 0));
  }
  made.form = ocl::generated::form_of(kernel.form);
  made.width = static_cast<size_t>(kernel.width);
  made.group = static_cast<size_t>(kernel.group);
  made.lines = static_cast<size_t>(kernel.lines);
  const auto size = [](const AOTIOclSize& of) {
    return ocl::generated::Size{of.value, of.is_number != 0};
  };
  made.columns = size(kernel.columns);
  made.rows = size(kernel.rows);
  made.length = size(kernel.length);
  made.work = kernel.work;
  return made;
}

}  // namespace

const char* aoti_torch_ocl_error() {
#if __has_include(<torch/csrc/shim_exception_state.h>)
  return torch::csrc::shim::details::get_torch_exception_what_without_backtrace().c_str();
#else
  return "";
#endif
}

AOTITorchError aoti_torch_ocl_build_programs(int32_t device_index, const AOTIOclProgram* programs,
                                             int64_t count) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    ocl::device(device_index);  // an error if there is none
    std::atomic<int64_t> next{0};
    const auto work = [&] {
      for (int64_t i = next++; i < count; i = next++) {
        try {
          build(device_index, programs[i]);
        } catch (const std::exception&) {  // again where a kernel is made, which says its ops
        }
      }
    };
    const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
    std::vector<std::thread> threads;
    for (int64_t i = 1; i < std::min(count, std::clamp<int64_t>(cores, 1, 4)); ++i) {
      threads.emplace_back(work);
    }
    work();
    for (std::thread& thread : threads) thread.join();
  });
}

AOTITorchError aoti_torch_ocl_create_kernel(const AOTIOclKernel* kernel, int32_t device_index,
                                            AOTIOclKernelHandle* handle) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    auto made = std::make_unique<Generated>(description_of(*kernel, device_index));
    try {
      made->kernel();
    } catch (const std::exception& error) {
      throw ocl::aoti::refused(kernel->name, kernel->origin, error);
    }
    *handle = reinterpret_cast<AOTIOclKernelHandle>(made.release());
  });
}

AOTITorchError aoti_torch_ocl_delete_kernel(AOTIOclKernelHandle handle) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({ delete generated_of(handle); });
}

AOTITorchError aoti_torch_ocl_launch_kernel(AOTIOclKernelHandle handle,
                                            const AtenTensorHandle* tensors, int64_t tensor_count,
                                            const uint64_t* numbers, int64_t number_count) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    const Generated& kernel = *generated_of(handle);
    const ocl::generated::Description& of = kernel.description();
    if (static_cast<size_t>(tensor_count) != of.tensors ||
        static_cast<size_t>(number_count) != of.kinds.size()) {
      throw std::invalid_argument(of.name + " takes " + std::to_string(of.tensors) +
                                  " tensors and " + std::to_string(of.kinds.size()) + " numbers");
    }
    ocl::generated::Call call(kernel);
    for (int64_t i = 0; i < tensor_count; ++i) {
      call.add(*tensor_handle_to_tensor_pointer(tensors[i]));
    }
    for (int64_t i = 0; i < number_count; ++i) {
      if (of.kinds[static_cast<size_t>(i)] == 'l') {
        call.add_integer(static_cast<int64_t>(numbers[i]));
      } else {
        call.add_real(std::bit_cast<double>(numbers[i]));
      }
    }
    call.launch();
  });
}

AOTITorchError aoti_torch_ocl_empty_strided(int64_t dimensions, const int64_t* sizes,
                                            const int64_t* strides, int32_t dtype,
                                            int32_t device_index, AtenTensorHandle* made) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    const auto count = static_cast<size_t>(dimensions);
    const c10::Device device(ocl::kDeviceType, static_cast<c10::DeviceIndex>(device_index));
    *made = new_tensor_handle(ocl::native::empty_strided_with(
        {sizes, count}, {strides, count},
        c10::TensorOptions(device).dtype(static_cast<c10::ScalarType>(dtype))));
  });
}

AOTITorchError aoti_torch_ocl_exchange_device(int32_t device_index, int32_t* previous) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    const auto was = ocl::exchange_device(static_cast<c10::DeviceIndex>(device_index));
    if (previous != nullptr) *previous = was;
  });
}

AOTITorchError aoti_torch_ocl_exchange_stream(int32_t device_index, int64_t stream_id,
                                              int64_t* previous) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    const c10::Device device(ocl::kDeviceType, static_cast<c10::DeviceIndex>(device_index));
    const c10::Stream stream(c10::Stream::UNSAFE, device, stream_id);
    ocl::queue_of(stream);  // an error if there is none
    const c10::Stream was = ocl::exchange_stream(stream);
    if (previous != nullptr) *previous = was.id();
  });
}
