// The C interface for inductor's C++: torch.compile with cpp_wrapper, and AOTInductor's models.
//
// As torch/csrc/inductor/aoti_torch/c/shim.h has it: functions return an error code, and keep the
// error's words for aoti_runtime's checks. Ops have functions of their own (c_shim_ocl.h).
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#ifdef __cplusplus
extern "C" {
#endif

/// The message of the last function that failed in this thread; torch's functions, too.
AOTI_TORCH_EXPORT const char* aoti_torch_ocl_error();

/// A size of a launch: a constant, or which number of the call it is.
struct AOTIOclSize {
  int64_t value;
  int32_t is_number;
};

/// A kernel's check on the device: an index, or a condition with a message.
struct AOTIOclCheck {
  const char* text;
  int32_t is_message;
};

/// Kernels that are built together. The source may include the package's kernel files.
struct AOTIOclProgram {
  const char* label;  // in build logs
  const char* source;
};

/// A generated kernel; engine/generated/kernel.h has what the members mean. Everything is read when
/// the kernel is made.
struct AOTIOclKernel {
  const char* name;
  const AOTIOclProgram* program;
  const char* origin;  // the ops that it computes, for errors
  int64_t tensors;
  const char* kinds;  // of the numbers: 'l', 'd' or 'f' each
  const AOTIOclCheck* checks;
  int64_t check_count;
  const char* form;
  int64_t width, group, lines;
  AOTIOclSize columns, rows, length;
  int64_t work;
};

struct AOTIOclKernelOpaque;
using AOTIOclKernelHandle = AOTIOclKernelOpaque*;

/// Builds programs side by side, or loads them from the cache on disk; those that the driver
/// refuses fail when their kernels are launched.
AOTI_TORCH_EXPORT AOTITorchError aoti_torch_ocl_build_programs(int32_t device_index,
                                                               const AOTIOclProgram* programs,
                                                               int64_t count);
AOTI_TORCH_EXPORT AOTITorchError aoti_torch_ocl_create_kernel(const AOTIOclKernel* kernel,
                                                              int32_t device_index,
                                                              AOTIOclKernelHandle* handle);
AOTI_TORCH_EXPORT AOTITorchError aoti_torch_ocl_delete_kernel(AOTIOclKernelHandle handle);
/// Launches on the current stream of the kernel's device. A number is an int64_t, or a double where
/// its kind is 'd' or 'f', as eight bytes. From any thread.
AOTI_TORCH_EXPORT AOTITorchError aoti_torch_ocl_launch_kernel(AOTIOclKernelHandle handle,
                                                              const AtenTensorHandle* tensors,
                                                              int64_t tensor_count,
                                                              const uint64_t* numbers,
                                                              int64_t number_count);

/// A matrix product or convolution with a fused epilogue, whose source is `text`
/// (engine/epilogue.h).
struct AOTIOclFused {
  const char* name;
  const char* origin;  // the ops that it computes, for errors
  const char* text;
  int64_t lanes;       // the most columns that the epilogue's functions take
  double alpha, beta;  // of a product: alpha * a @ b + beta * c
  int64_t axes;        // of a convolution; 0: a product
  const int64_t *stride, *padding, *dilation;
  int64_t groups;
  int32_t channels_last;
};

struct AOTIOclKernelsOpaque;
using AOTIOclKernelsHandle = AOTIOclKernelsOpaque*;

/// The kernels with an epilogue. They live until the process ends.
AOTI_TORCH_EXPORT AOTITorchError aoti_torch_ocl_kernels_of_text(const char* text,
                                                                AOTIOclKernelsHandle* handle);
/// Runs on the current stream of the current device. a, b and c: the factors and the addend, or the
/// input, the weight and the bias; c may be null. tensors: what the epilogue reads and writes.
AOTI_TORCH_EXPORT AOTITorchError aoti_torch_ocl_run_fused(
    const AOTIOclFused* fused, AOTIOclKernelsHandle kernels, AtenTensorHandle a, AtenTensorHandle b,
    AtenTensorHandle c, const AtenTensorHandle* tensors, int64_t tensor_count,
    const int64_t* numbers, int64_t number_count);

/// aoti_torch_empty_strided for this device, without the dispatcher.
AOTI_TORCH_EXPORT AOTITorchError aoti_torch_ocl_empty_strided(int64_t dimensions,
                                                              const int64_t* sizes,
                                                              const int64_t* strides, int32_t dtype,
                                                              int32_t device_index,
                                                              AtenTensorHandle* made);

/// Makes a device current, or a stream of it by its id (torch.ocl.Stream.stream_id). `previous`
/// gets what was, unless it is null.
AOTI_TORCH_EXPORT AOTITorchError aoti_torch_ocl_exchange_device(int32_t device_index,
                                                                int32_t* previous);
AOTI_TORCH_EXPORT AOTITorchError aoti_torch_ocl_exchange_stream(int32_t device_index,
                                                                int64_t stream_id,
                                                                int64_t* previous);

/// Memory of constants, on the current device.
AOTI_TORCH_EXPORT AOTITorchError aoti_torch_ocl_malloc(void** buffer, size_t bytes);
AOTI_TORCH_EXPORT AOTITorchError aoti_torch_ocl_free(void* buffer);
/// buffer[offset:offset + size] = start[read:read + size], from the host.
AOTI_TORCH_EXPORT AOTITorchError aoti_torch_ocl_memcpy(void* buffer, size_t offset, size_t read,
                                                       size_t size, uint8_t* start);
/// destination[to:to + size] = source[0:size] on a device; an error if `from`, where the source
/// begins in its storage, is not 0.
AOTI_TORCH_EXPORT AOTITorchError aoti_torch_ocl_copy_buffer(void* source, void* destination,
                                                            size_t size, size_t from, size_t to);

#ifdef __cplusplus
}  // extern "C"
#endif
