#include "python/sub_buffer.h"

#include "opencl/platform.h"

namespace ocl::python {

SubBuffer::SubBuffer(Device& device, const void* address, size_t bytes) {
  const Location location = device.addresses().find(address);
  offset_ = location.offset % device.properties().base_address_align;
  const cl_buffer_region region{location.offset - offset_, offset_ + bytes};
  cl_int code = CL_SUCCESS;
  // No flags: those of the whole buffer.
  mem_ = api().clCreateSubBuffer(location.mem, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  check(code, "clCreateSubBuffer", &device);
}

SubBuffer::~SubBuffer() {
  if (mem_ != nullptr && !process_was_forked()) api().clReleaseMemObject(mem_);
}

}  // namespace ocl::python
