#include "engine/geometry.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace ocl::reduce {

namespace {

/// Sorts by the input's stride and merges; returns the new count. Stride 0 (expanded) goes last: it
/// is no direction to walk along.
int order_dimensions(Dimension* dims, int count) {
  const auto key = [](const Dimension& d) {
    return d.in == 0 ? std::numeric_limits<int64_t>::max() : std::abs(d.in);
  };
  // Insertion sort: a handful of dimensions, mostly in order.
  for (int i = 1; i < count; ++i) {
    for (int k = i; k > 0 && key(dims[k]) < key(dims[k - 1]); --k) std::swap(dims[k], dims[k - 1]);
  }
  int last = 0;
  for (int i = 1; i < count; ++i) {
    Dimension& inner = dims[last];
    const Dimension& outer = dims[i];
    if (inner.in * inner.size == outer.in && inner.out[0] * inner.size == outer.out[0] &&
        inner.out[1] * inner.size == outer.out[1]) {
      inner.size *= outer.size;
    } else {
      dims[++last] = outer;
    }
  }
  return count == 0 ? 0 : last + 1;
}

int64_t elements_of(const Dimension* dims, int count) {
  int64_t n = 1;
  for (int i = 0; i < count; ++i) n *= dims[i].size;
  return n;
}

}  // namespace

void Geometry::add(bool is_reduced, const Dimension& dimension) {
  if (dimension.size == 1) return;
  if (is_reduced) {
    reduced[reduced_count++] = dimension;
  } else {
    kept[kept_count++] = dimension;
  }
}

void Geometry::order() {
  reduced_count = order_dimensions(reduced.data(), reduced_count);
  kept_count = order_dimensions(kept.data(), kept_count);
}

bool Geometry::column_first(int64_t element_size) {
  for (int i = 0; i < kept_count; ++i) {
    if (kept[i].in != element_size) continue;
    std::rotate(kept.data(), kept.data() + i, kept.data() + i + 1);
    return true;
  }
  return false;
}

int64_t Geometry::outputs() const { return elements_of(kept.data(), kept_count); }

int64_t Geometry::reduced_elements() const { return elements_of(reduced.data(), reduced_count); }

}  // namespace ocl::reduce
