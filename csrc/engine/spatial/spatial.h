// Kernels over [batch][channel][depth][height][width]: paddings, poolings, resamplings.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "engine/kernel_types.h"
#include "opencl/device_assert.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"

namespace ocl::spatial {

using namespace kernel_types;
#include "spatial/arguments.clh"

/// A tensor seen with five dimensions. Strides count elements.
struct Operand {
  char* data = nullptr;
  size_t element_size = 0;
  std::array<int64_t, 5> size{1, 1, 1, 1, 1};
  std::array<int64_t, 5> stride{};
};

/// A tensor of shape (channels, spatial...) or (batch, channels, spatial...) with `axes` (1 to 3)
/// spatial dimensions.
Operand operand(const at::Tensor& tensor, int axes);

/// Whether sums over contiguous planes of `out`, each one work-item's, are the way to scatter into
/// it: on a CPU, with planes enough, in a dtype that is summed in memory.
bool sums_by_plane(const at::Tensor& out, int axes);

/// Whether sums over planes are taken so with channels innermost, a work-item's being up to `lanes`
/// channels.
bool sums_by_channels(const at::Tensor& out, int axes, int lanes);

/// The operand with one element for each plane; its strides lead to the planes.
Operand planes_of(const Operand& operand);

/// A plane's cost for planes_of(): one plane is work enough.
inline constexpr int kPlaneCost = 1 << 12;

/// How a kernel's lanes may be used.
struct Access {
  /// Most lanes over adjacent channels, where all operands have them adjacent; 1: none.
  int channel_lanes = 1;
  /// Work of one element, in multiples of a copy's: decides how many a work-item takes.
  int cost = 1;
  /// Longest chunk of a row that the kernel takes, 0: any.
  uint32_t longest_span = 0;
  /// Rows run along the width, even where channels lie innermost.
  bool along_width = false;
  /// The kernel checks indices for this op: it takes the assert buffer and the site's id at the
  /// end.
  const AssertSite* checks = nullptr;
};

/// Enqueues a kernel of kernels/spatial over the elements of operands[0]. Its arguments are the
/// operands, Arguments and `parameters` (a struct of the family's own); `defines` gets
/// CHANNELS_INNER and WIDTH added. Operands past 2^32 elements are split by batch and channel.
/// Throws NotImplementedError if a single channel is that large.
void run(const KernelFamily& family, std::initializer_list<Define> defines,
         std::span<const Operand> operands, const Access& access, const void* parameters,
         size_t parameters_size);

template <class Parameters>
void run(const KernelFamily& family, std::initializer_list<Define> defines,
         std::initializer_list<Operand> operands, const Access& access,
         const Parameters& parameters) {
  run(family, defines, std::span(operands.begin(), operands.size()), access, &parameters,
      sizeof parameters);
}

}  // namespace ocl::spatial
