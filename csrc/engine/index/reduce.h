// What the forms of index::reduce() share.
//
// Offers: Job, Dimensions, max_reduce_dims(), name_of(), put_dimensions(), enqueue_reduce(),
// reduce_lines(), reduce_sorted().
#pragma once

#include <array>

#include "engine/dtype.h"
#include "engine/index/problem.h"

namespace ocl::index {

struct Job {
  const Indexing& indexing;
  Reduction reduction;
  int64_t skipped;
  const ScalarArgument* value;  // null: operand 1
};

/// Dimensions of a Problem, by number.
struct Dimensions {
  int count = 0;
  std::array<int, 64> of;
  void add(int dimension) { of[count++] = dimension; }
};

/// The dimensions of one kind that a launch decodes, REDUCE_DIMS in the kernels.
inline int max_reduce_dims(const Problem& problem) { return problem.indices > kFewIndices ? 2 : 6; }

/// The kernels' name of a reduction.
const char* name_of(Reduction reduction);

/// Puts their sizes and strides.
void put_dimensions(ArgumentStruct& arguments, const Problem& problem,
                    const Dimensions& dimensions);

/// What ReduceLayout of kernels/index/reduce_layout.clh says beside the dimensions.
struct ReduceShape {
  int64_t columns, steps, parts, row, chunk;
};

/// Sets the arguments of a kernel that takes a ReduceLayout and enqueues it over columns by parts.
void enqueue_reduce(Queue& queue, Kernel& kernel, const Problem& problem, const Job& job,
                    const Dimensions& columns, const Dimensions& steps, const ReduceShape& shape,
                    size_t local);

/// The form for CPUs where an index serves one element (kernels/index/reduce_lines.cl). False if it
/// does not take the problem.
bool reduce_lines(Queue& queue, Problem problem, const Job& job, const Dimensions& columns,
                  const Dimensions& steps);

/// The form for devices of many work-items (kernels/index/reduce_sorted.cl). columns: the
/// dimensions in which the result is not indexed; steps: the others. False if it does not take the
/// problem.
bool reduce_sorted(Queue& queue, const Problem& problem, const Job& job, const Dimensions& columns,
                   const Dimensions& steps);

}  // namespace ocl::index
