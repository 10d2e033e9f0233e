// What the forms of index::reduce() share.
//
// Offers: Job, Dimensions, max_reduce_dims(), name_of(), put_dimensions(), reduce_sorted().
#pragma once

#include <array>

#include "engine/dtype.h"
#include "engine/index_problem.h"

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

/// The form for devices of many work-items (kernels/index/reduce_sorted.cl). columns: the
/// dimensions in which the result is not indexed; steps: the others. False if it does not take the
/// problem.
bool reduce_sorted(Queue& queue, const Problem& problem, const Job& job, const Dimensions& columns,
                   const Dimensions& steps);

}  // namespace ocl::index
