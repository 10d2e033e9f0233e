// The C interface (shim.h): memory of a model's constants.
#include <c10/util/Exception.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include "aoti/shim.h"
#include "opencl/platform.h"
#include "runtime/allocator.h"
#include "runtime/staged_copy.h"
#include "runtime/stream.h"

namespace {

c10::DeviceIndex device_of(const void* address) {
  const auto index = ocl::device_of_pointer(address);
  TORCH_CHECK(index, "a constant's memory is not on an ocl device");
  return *index;
}

}  // namespace

AOTITorchError aoti_torch_ocl_malloc(void** buffer, size_t bytes) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    const c10::DeviceIndex index = ocl::current_device();
    *buffer = ocl::allocate_memory(index, bytes, ocl::current_stream(index).id());
  });
}

AOTITorchError aoti_torch_ocl_free(void* buffer) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({ ocl::release_memory(buffer); });
}

AOTITorchError aoti_torch_ocl_memcpy(void* buffer, size_t offset, size_t read, size_t size,
                                     uint8_t* start) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    ocl::Queue& queue = ocl::current_queue(device_of(buffer));
    std::byte* const to = static_cast<std::byte*>(buffer) + offset;
    if (ocl::takes_staged_copy(queue.device(), size)) {
      ocl::staged_write(queue, to, start + read, size);
    } else {
      queue.write(to, start + read, size, /*blocking=*/true);
    }
  });
}

AOTITorchError aoti_torch_ocl_copy_buffer(void* source, void* destination, size_t size, size_t from,
                                          size_t to) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    // torch hands over a view's address with the size of its whole storage.
    TORCH_CHECK(from == 0, "a constant can't be updated from a view with an offset: clone it");
    const c10::DeviceIndex index = device_of(destination);
    TORCH_CHECK(device_of(source) == index, "the new constant is on ocl:", int{device_of(source)},
                ", the model on ocl:", int{index});
    ocl::Queue& queue = ocl::current_queue(index);
    queue.copy(static_cast<std::byte*>(destination) + to, source, size);
    queue.finish();
  });
}
