// index::reduce(): the parts that its implementations share.
#pragma once

#include <array>
#include <initializer_list>
#include <span>

#include "engine/dtype.h"
#include "engine/index/problem.h"
#include "opencl/kernel_family.h"

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

/// A reduction on its way to a kernel. Steps are the dimensions in which the result is indexed,
/// columns the others.
struct ReducePlan {
  Queue& queue;
  const Problem& problem;
  const Job& job;
  const Dimensions& columns;
  const Dimensions& steps;

  Device& device() const { return queue.device(); }
};

using ReduceImplementation = Implementation<ReducePlan>;
extern const ReduceImplementation reduce_sorted, reduce_rows, reduce_lines, reduce_elements;

/// In the order in which they are tried.
std::span<const ReduceImplementation* const> reduce_implementations();

/// The kernels' name of a reduction.
const char* name_of(Reduction reduction);

/// The arguments of a reduction, but for how the work is shared out. Sizes and strides are those of
/// `problem`.
ReduceArguments make_arguments(const Problem& problem, const Job& job, const Dimensions& columns,
                               const Dimensions& steps);

/// A kernel of kernels/index/reduce.cl or reduce_lines.cl, with up to two parameters of its own.
Kernel& reduce_kernel(const ReducePlan& plan, const KernelFamily& family,
                      std::initializer_list<Define> own);
/// Enqueues it over columns by parts.
void enqueue_reduce(const ReducePlan& plan, Kernel& kernel, const Problem& problem,
                    const ReduceArguments& arguments, size_t local);

}  // namespace ocl::index
