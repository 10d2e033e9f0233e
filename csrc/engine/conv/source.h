// A convolution reads images where they lie, or a padded copy of some of them.
#pragma once

#include <c10/core/Allocator.h>

#include <array>

#include "engine/conv/description.h"
#include "engine/conv/dtype.h"
#include "opencl/device.h"

namespace ocl::conv {

/// The coordinates that windows touch along each axis.
struct Reach {
  std::array<int64_t, kAxes> low{}, high{};
};

/// Images of a tensor as a kernel reads them: where they lie, or a padded copy.
struct Source {
  c10::DataPtr copy;
  const char* data = nullptr;  // of coordinate 0, which may be in the padding
  std::array<int64_t, 5> stride{};
  bool channels_last = false;
};

/// Whether windows of that reach can't read the tensor as it is.
bool needs_copy(const Operand& tensor, const Reach& reach);
/// Bytes of an image's copy; 0 where none is needed.
int64_t copy_bytes(const Operand& tensor, const Reach& reach);
/// Images [first, first + count) of `tensor`. `planes`: as a copy with a channel's positions side
/// by side if they don't lie so.
Source source_of(const Operand& tensor, int64_t first, int64_t count, const Reach& reach,
                 bool planes = false);

/// A contiguous copy of five dimensions, outermost first, with zeros around the source's elements.
struct PaddedCopy {
  const char* in = nullptr;
  char* copy = nullptr;
  c10::ScalarType in_dtype{}, dtype{};
  std::array<int64_t, 5> size{}, source{}, before{}, stride{};  // strides of the source
};
void run_padded_copy(const PaddedCopy& copy);

/// A depthwise weight copied with its channels next to each other, in the dtype computed with.
/// `copy` keeps it.
Operand weight_channels_last(const Operand& weight, c10::DataPtr& copy);

/// How many images to take at a time, so that what is made of them stays in a CPU's cache.
int64_t images_at_a_time(const Device& device, int64_t images, int64_t bytes_per_image);

}  // namespace ocl::conv
