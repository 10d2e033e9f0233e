// The index engine: one operand of a TensorIterator is addressed through index tensors. An index
// out of range touches no memory and is raised at the next synchronisation.
#pragma once

#include <ATen/TensorIterator.h>
#include <c10/core/Scalar.h>
#include <c10/util/ArrayRef.h>

#include <limits>

#include "engine/kernel_types.h"
#include "opencl/device_assert.h"

namespace ocl::index {

using namespace kernel_types;
// As many index tensors as leave room for 12 dimensions, or all of them and 4.
#define STRIDES (8 * 12)
#include "index/arguments.clh"
#undef STRIDES

/// How index tensors move the indexed operand: element e of it is at the iterator's position plus
/// the sum over k of (value of index tensor k at e) * strides[k]. The iterator's strides of the
/// indexed operand are 0 in the dimensions that index tensors stand for.
struct Indexing {
  c10::IntArrayRef sizes;    // index k is in [0, sizes[k]), or [-sizes[k], sizes[k]) with `wrap`
  c10::IntArrayRef strides;  // bytes
  bool wrap;
  const AssertSite& site;
  /// Where the indexed operand starts if it is no operand of the iterator; all its strides are 0
  /// then.
  void* base = nullptr;
  /// Whether reduce() takes the float8 types, each of whose sums is rounded.
  bool float8 = false;
};

/// out = in[indices]. Operands: out, in (unless indexing.base), then the index tensors (int32 or
/// int64, at most 16). out and in have one dtype.
void gather(at::TensorIteratorBase& iter, const Indexing& indexing);

/// out[indices] = in. Operands: out (unless indexing.base), in, then the index tensors. Which of
/// several values for one place stays is undefined, and the last with deterministic algorithms on.
void scatter(at::TensorIteratorBase& iter, const Indexing& indexing);

/// out[indices] = value. Operands: out, then the index tensors.
void fill(at::TensorIteratorBase& iter, const Indexing& indexing, const c10::Scalar& value);

enum class Reduction { add, mul, amax, amin, assign };

inline constexpr int64_t kSkipNothing = std::numeric_limits<int64_t>::min();

/// out[indices] = reduction(out[indices], in), one after the other in the order of the indices:
/// always deterministic. Operands as for scatter. Values equal to `skipped` in the first index
/// tensor are passed over.
void reduce(at::TensorIteratorBase& iter, const Indexing& indexing, Reduction reduction,
            int64_t skipped = kSkipNothing);

/// reduce() with one value as `in`. Operands as for fill.
void reduce_fill(at::TensorIteratorBase& iter, const Indexing& indexing, Reduction reduction,
                 const c10::Scalar& value);

}  // namespace ocl::index
