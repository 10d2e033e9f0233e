// Blocks, segments and the free lists of the caching allocator; knows neither OpenCL calls nor
// locks.
//
// BlockPool is a two-level segregated fit: constant time, intrusive lists.
#pragma once

#include <c10/core/Stream.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "opencl/api.h"

namespace ocl {

struct Block;

/// One cl_mem, mapped at `base` of the device's address space and cut into blocks.
struct Segment {
  cl_mem mem;
  char* base;
  size_t size;
  c10::StreamId stream;  // or a pool's number (memory_pools.h)
  bool small;
  bool whole;  // never cut into blocks
};

/// A range of a segment: allocated, waiting for events, or in a free list.
struct Block {
  Segment* segment;
  char* address;
  size_t size;       // multiple of kBlockAlign
  size_t requested;  // what the caller asked for
  Block* previous;   // neighbours by address, same segment
  Block* next;
  Block* free_previous;  // links of the free list
  Block* free_next;
  bool free;
  uint32_t pending_events;
  // Streams other than the segment's own that record_stream named; allocated only for those.
  std::unique_ptr<std::vector<c10::StreamId>> used_by;

  bool is_split() const { return previous != nullptr || next != nullptr; }
};

inline constexpr size_t kBlockAlign = 512;

/// The free blocks of one stream and one kind of segment. Not thread-safe.
class BlockPool {
 public:
  void insert(Block* block) {
    const size_t index = class_of(block->size);
    block->free = true;
    block->free_previous = nullptr;
    block->free_next = heads_[index];
    if (block->free_next) block->free_next->free_previous = block;
    heads_[index] = block;
    occupied_[index / 64] |= uint64_t{1} << (index % 64);
  }

  bool empty() const {
    return std::ranges::all_of(occupied_, [](uint64_t bits) { return bits == 0; });
  }

  void remove(Block* block) {
    const size_t index = class_of(block->size);
    block->free = false;
    if (block->free_next) block->free_next->free_previous = block->free_previous;
    if (block->free_previous) {
      block->free_previous->free_next = block->free_next;
    } else {
      heads_[index] = block->free_next;
      if (!heads_[index]) occupied_[index / 64] &= ~(uint64_t{1} << (index % 64));
    }
  }

  /// The smallest of the first few blocks that hold `size` bytes, removed from its list; null if
  /// there is none.
  Block* take(size_t size) {
    const size_t index = class_of(size);
    // The request's own class may hold a large enough block: the usual case, since a training step
    // asks again for the sizes it has just freed.
    Block* block = best_of(heads_[index], size);
    for (size_t next = index; !block && (next = next_occupied(next + 1)) < kClasses;) {
      block = best_of(heads_[next], size);
    }
    if (block) remove(block);
    return block;
  }

  template <class Visit>
  void for_each(Visit visit) const {
    for (Block* head : heads_) {
      for (Block* block = head; block != nullptr; block = block->free_next) visit(block);
    }
  }

  /// Calls visit(block) for every free block that is a whole segment; visit may remove it.
  template <class Visit>
  void for_each_whole_segment(Visit visit) {
    for (Block* head : heads_) {
      for (Block* block = head; block != nullptr;) {
        Block* next = block->free_next;
        if (!block->is_split()) visit(block);
        block = next;
      }
    }
  }

 private:
  // 16 linear classes per power of two, in units of kBlockAlign: at most 1/16 of a block is lost to
  // the rounding of a class. 512 classes reach 2^41 bytes.
  static constexpr size_t kClasses = 512;
  static constexpr int kCandidates = 16;

  static size_t class_of(size_t size) {
    const uint64_t units = size / kBlockAlign;
    if (units < 16) return units;
    const int shift = std::bit_width(units) - 5;
    return static_cast<size_t>(shift) * 16 + (units >> shift);
  }

  static Block* best_of(Block* head, size_t size) {
    Block* best = nullptr;
    int seen = 0;
    for (Block* block = head; block && seen < kCandidates; block = block->free_next, ++seen) {
      if (block->size == size) return block;
      if (block->size > size && (!best || block->size < best->size)) best = block;
    }
    return best;
  }

  size_t next_occupied(size_t index) const {
    for (size_t word = index / 64; word < occupied_.size(); ++word) {
      uint64_t bits = occupied_[word];
      if (word == index / 64) bits &= ~uint64_t{0} << (index % 64);
      if (bits) return word * 64 + std::countr_zero(bits);
    }
    return kClasses;
  }

  std::array<Block*, kClasses> heads_{};
  std::array<uint64_t, kClasses / 64> occupied_{};
};

}  // namespace ocl
