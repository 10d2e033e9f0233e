#include "engine/conv/contraction.h"

#include <algorithm>
#include <cstdlib>

#include "engine/conv/dtype.h"
#include "opencl/ceil_div.h"
#include "runtime/allocator.h"

namespace ocl::conv {

void AffineIndex::add(int64_t size, int64_t first, int64_t second) {
  if (size == 0) empty_ = true;
  if (size <= 1) return;
  dimensions_[static_cast<size_t>(count_++)] = {size, first, second};
}

int64_t AffineIndex::elements() const {
  int64_t count = empty_ ? 0 : 1;
  for (int d = 0; d < count_; ++d) count *= dimensions_[static_cast<size_t>(d)].size;
  return count;
}

AffineIndex AffineIndex::joined(Join join) const {
  AffineIndex result;
  result.empty_ = empty_;
  for (int d = 0; d < count_; ++d) {
    const Dimension& inner = dimensions_[static_cast<size_t>(d)];
    if (result.count_ > 0) {
      Dimension& outer = result.dimensions_[static_cast<size_t>(result.count_ - 1)];
      const bool first = outer.first == inner.first * inner.size || join == Join::second;
      const bool second = outer.second == inner.second * inner.size || join == Join::first;
      if (first && second) {
        outer = {outer.size * inner.size, inner.first, inner.second};
        continue;
      }
    }
    result.dimensions_[static_cast<size_t>(result.count_++)] = inner;
  }
  return result;
}

AffineIndex::Dimension AffineIndex::innermost() const {
  return count_ == 0 ? Dimension{1, 0, 0} : dimensions_[static_cast<size_t>(count_ - 1)];
}

void AffineIndex::store(uint32_t* size, int64_t* first, int64_t* second) const {
  for (int i = 0; i < 4; ++i) {
    const int d = i - (4 - count_);
    const Dimension dimension = d < 0 ? Dimension{1, 0, 0} : dimensions_[static_cast<size_t>(d)];
    size[i] = static_cast<uint32_t>(dimension.size);
    if (first != nullptr) first[i] = dimension.first;
    if (second != nullptr) second[i] = dimension.second;
  }
}

int64_t AffineIndex::first_span() const {
  int64_t span = 0;
  for (const Dimension& d : dimensions_)
    span += (std::max<int64_t>(d.size, 1) - 1) * std::abs(d.first);
  return span;
}

int64_t AffineIndex::second_span() const {
  int64_t span = 0;
  for (const Dimension& d : dimensions_)
    span += (std::max<int64_t>(d.size, 1) - 1) * std::abs(d.second);
  return span;
}

const char* refuse_parts(const Contraction& contraction) {
  if (!contraction.is_whole()) return "the sum goes on in another call";
  if (contraction.bias_channels != 0) return "the bias repeats";
  return contraction.k.elements() == 0 ? "there is nothing to sum" : nullptr;
}

const char* Contraction::compute_tag() const { return sums_tag(compute); }

ContractionArguments Contraction::arguments() const {
  ContractionArguments c{};
  rows.joined(AffineIndex::Join::both).store(c.row_size, c.row_a, c.row_out);
  k.joined(AffineIndex::Join::first).store(c.k_size, c.k_a, nullptr);
  c.m = static_cast<uint32_t>(rows.elements());
  c.n = static_cast<uint32_t>(columns);
  c.k = static_cast<uint32_t>(k.elements());
  c.groups = static_cast<uint32_t>(groups);
  c.a_group = a_group;
  c.b_group = b_group;
  c.out_group = out_group;
  c.column_b = column_b;
  c.column_out = column_out;
  c.flags = bias != nullptr ? kConvBias : 0;
  c.bias_channels = static_cast<uint32_t>(bias_channels != 0 ? bias_channels : groups * columns);
  c.splits = 1;
  c.split_k = c.k;
  c.position0 = static_cast<uint64_t>(position0);
  c.plane = static_cast<uint32_t>(plane);
  c.all = static_cast<uint32_t>(all);
  return c;
}

Workspace::Workspace(const Contraction& contraction, ContractionArguments& c, size_t own_bytes,
                     size_t total_bytes) {
  Accumulator* const accumulator = contraction.accumulator;
  const bool shared = !contraction.is_whole();
  own_bytes = round_up(own_bytes, 512);
  memory_ = allocator()->allocate(own_bytes + (shared ? 0 : total_bytes));
  totals_ = memory_.get();
  if (shared) {
    if (accumulator->first) {
      accumulator->memory = allocator()->allocate(total_bytes);
      accumulator->splits = c.splits;
    }
    totals_ = accumulator->memory.get();
    if (!accumulator->first) c.flags |= kConvResume;
  } else if (total_bytes > 0) {
    totals_ = static_cast<const char*>(memory_.get()) + own_bytes;
  }
  if (c.splits > 1 || (shared && !accumulator->last)) c.flags |= kConvKeep;
  finishes_ = c.splits > 1 && (!shared || accumulator->last);
}

}  // namespace ocl::conv
