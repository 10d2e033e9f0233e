// torch._assert_async: checks that the host doesn't wait for; a failure is raised at the next
// synchronisation.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#include "engine/dtype.h"
#include "opencl/device_assert.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "ops/_assert_async.h"
#include "ops/_functional_assert_async.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

const KernelFamily nonzero_family{"check/nonzero.cl", "check_nonzero"};

void check_nonzero(const at::Tensor& self, uint32_t site) {
  TORCH_CHECK(self.numel() != 0, "Boolean value of Tensor with no values is ambiguous");
  TORCH_CHECK(self.numel() == 1, "Boolean value of Tensor with more than one value is ambiguous");
  Queue& queue = current_queue(self.device().index());
  Device& device = queue.device();
  launch(nonzero_family.get(device, {{"IN", tag(self.scalar_type())}}), queue,
         NDRange::linear(1, 1).of_work(1), Pointer{self.const_data_ptr()}, device.asserts().mem(),
         site);
}

}  // namespace

void _assert_async(const at::Tensor& self) {
  static const uint32_t site =
      message_site("Expected Tensor with single nonzero value, but got zero");
  check_nonzero(self, site);
}

void _assert_async_msg(const at::Tensor& self, std::string_view message) {
  check_nonzero(self, message_site(message.empty() ? "Assertion is failed" : std::string(message)));
}

at::Tensor _functional_assert_async_msg(const at::Tensor& self, std::string_view message,
                                        const at::Tensor& dep_token) {
  _assert_async_msg(self, message);
  return dep_token.clone();
}

}  // namespace ocl::native
