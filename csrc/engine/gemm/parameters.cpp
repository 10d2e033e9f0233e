// The matrix product kernels' parameters where the tuner has found nothing else.
#include "engine/gemm/parameters.h"

#include <cstddef>

#include "engine/device_table.h"
#include "opencl/environment.h"

namespace ocl::gemm {

namespace {

/// TORCH_OCL_GEMM_WORKSPACE (bytes) serves the tests of the blocked path.
int64_t max_workspace() {
  static const int64_t bytes = positive_number("TORCH_OCL_GEMM_WORKSPACE", int64_t{512} << 20);
  return bytes;
}

}  // namespace

Parameters parameters_of(const Device& device, size_t compute_size, bool complex) {
  const DeviceRow& row = device_row(device);
  // The packed kernel takes complex numbers apart; the others have no vectors of them.
  const int real_size = static_cast<int>(complex ? compute_size / 2 : compute_size);
  const int width = row.register_bytes / real_size;
  Parameters parameters{};
  parameters.packed = {width, row.packed_rows, row.packed_vectors, row.packed_kc,
                       row.packed_block_bytes};
  parameters.skinny = {complex ? 1 : width, row.skinny_rows, row.skinny_local};
  parameters.max_workspace = max_workspace();
  return parameters;
}

PackedParameters parameters_of_amx() {
  // A work-item's row panels fill a quarter of the second cache. Its sums go through memory every
  // 2048 elements of bfloat16.
  return {16, kAmxRows, 2, 1024, int64_t{512} << 10};
}

}  // namespace ocl::gemm
