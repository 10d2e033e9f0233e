// What the matrix product kernels work with where the tuner has found nothing else.
#include <algorithm>
#include <cstddef>

#include "engine/gemm/gemm.h"
#include "opencl/environment.h"

namespace ocl {

namespace {

/// The parameters of a class of devices, but for the vectors' width: that is the elements in
/// `register_bytes`.
struct ClassDefaults {
  bool cpu;
  int register_bytes;
  int packed_rows, packed_vectors, packed_kc;
  int64_t packed_block_bytes;
  int skinny_rows, skinny_local, skinny_columns;
};

// The first that fits serves. With 32 registers 12 x 2 sums fit beside the operands, with 16
// registers 6 x 2 do. Tiles for GPUs are chosen among those of tiled.cpp and
// tensor_core.cpp.
constexpr ClassDefaults kDefaults[] = {
    {true, 64, 12, 2, 512, 256 << 10, 4, 16, 8},
    {true, 32, 6, 2, 512, 256 << 10, 4, 16, 8},
    {true, 16, 6, 2, 512, 256 << 10, 4, 16, 8},
    {false, 16, 4, 2, 512, 64 << 10, 1, 128, 8},
};

const ClassDefaults& defaults_of(const Device& device) {
  // What the device calls a vector of floats is a register of a CPU, and at least 16 bytes.
  const int vector_bytes =
      std::max(static_cast<int>(device.properties().vector_width_float) * 4, 16);
  const auto* found =
      std::find_if(std::begin(kDefaults), std::end(kDefaults), [&](const ClassDefaults& d) {
        return d.cpu == device.is_cpu() && (!d.cpu || d.register_bytes <= vector_bytes);
      });
  return *found;
}

/// TORCH_OCL_GEMM_WORKSPACE (bytes) serves the tests of the blocked path.
int64_t max_workspace() {
  static const int64_t bytes = positive_number("TORCH_OCL_GEMM_WORKSPACE", int64_t{512} << 20);
  return bytes;
}

}  // namespace

GemmParameters gemm_parameters(const Device& device, size_t compute_size, bool complex) {
  const ClassDefaults& d = defaults_of(device);
  // The packed kernel takes complex numbers apart; the others have no vectors of them.
  const int real_size = static_cast<int>(complex ? compute_size / 2 : compute_size);
  const int width = d.register_bytes / real_size;
  GemmParameters parameters{};
  parameters.packed = {width, d.packed_rows, d.packed_vectors, d.packed_kc, d.packed_block_bytes};
  parameters.skinny = {complex ? 1 : width, d.skinny_rows, d.skinny_local, d.skinny_columns};
  parameters.max_workspace = max_workspace();
  return parameters;
}

}  // namespace ocl
