#include "distributed/rows.h"

#include <ATen/ops/from_blob.h>

namespace ocl::distributed {

std::vector<int64_t> sizes_of(const Tensors& parts) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& part : parts) sizes.push_back(part.numel());
  return sizes;
}

at::Tensor joined(const Tensors& parts) {
  char* begin = nullptr;
  int64_t bytes = 0, numel = 0;
  for (const at::Tensor& part : parts) {
    if (part.numel() == 0) continue;
    auto* at = static_cast<char*>(part.data_ptr());
    if (begin == nullptr) begin = at;
    if (at != begin + bytes) return {};
    bytes += static_cast<int64_t>(part.nbytes());
    numel += part.numel();
  }
  return at::from_blob(
      begin, {numel}, [parts](void*) {}, at::TensorOptions(parts[0].scalar_type()));
}

}  // namespace ocl::distributed
