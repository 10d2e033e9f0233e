// How a generated kernel's elements are shared out among work-items.
#pragma once

#include "engine/generated/kernel.h"

namespace ocl::generated {

struct Sizes {
  int64_t columns, rows, length;
};

/// The launch's range, and the runs of columns and rows to a work-item.
struct Geometry {
  NDRange range;
  int64_t columns_each = 1, rows_each = 1;
};

/// The geometry of a launch with sizes of 1 and more.
Geometry geometry_of(const Description& of, const Device& device, const Sizes& sizes);

}  // namespace ocl::generated
