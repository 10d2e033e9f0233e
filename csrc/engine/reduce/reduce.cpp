#include "engine/reduce/reduce.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "engine/dispatch.h"
#include "engine/geometry.h"
#include "engine/reduce/operands.h"
#include "engine/reduce/plan.h"
#include "runtime/stream.h"

namespace ocl::reduce {

namespace {

// Vectors of a CPU's work-item: long stretches of every row keep the prefetchers going, and their
// states still lie in the L1 cache.
constexpr uint32_t kMostColumnVectors = 64;

const char* refuse_few_columns(const Plan& plan, int64_t least) {
  if (plan.columns() == 0) return "no columns lie side by side";
  return plan.columns() < least ? "there are few columns" : nullptr;
}

const char* refuse_column_tiles(const Plan& plan) {
  if (!plan.device().is_cpu()) return "only for CPU devices";
  return refuse_few_columns(plan, 4 * plan.width());
}
void run_column_tiles(Plan& plan) { plan.run_columns(plan.width(), kMostColumnVectors); }

const char* refuse_columns(const Plan& plan) {
  return refuse_few_columns(plan, std::min(plan.width(), 4));
}
void run_columns(Plan& plan) {
  plan.run_columns(plan.columns() >= plan.width() ? plan.width() : 4, 1);
}

const char* refuse_rows_registers(const Plan& plan) {
  if (plan.device().is_cpu()) return "only for GPU devices";
  return plan.held_vectors() == 0 ? "not moments of rows that registers hold" : nullptr;
}
void run_rows_registers(Plan& plan) { plan.run_rows(plan.held_vectors()); }

const char* refuse_rows(const Plan&) { return nullptr; }
void run_rows(Plan& plan) { plan.run_rows(0); }

constexpr Implementation<Plan> kColumnTiles{"column_tiles", refuse_column_tiles, run_column_tiles},
    kColumns{"columns", refuse_columns, run_columns},
    kRowsRegisters{"rows_registers", refuse_rows_registers, run_rows_registers},
    kRows{"rows", refuse_rows, run_rows};
constexpr const Implementation<Plan>* kImplementations[] = {&kColumnTiles, &kColumns,
                                                            &kRowsRegisters, &kRows};

Engine engine{"reduce", kImplementations};

void start(const Op& op, c10::DeviceIndex index, Operands& operands, Geometry& geometry,
           Scalars scalars) {
  geometry.order();
  Plan plan(op, current_queue(index), operands, geometry, scalars);
  run_first(engine, kImplementations, plan, [](const Plan& plan) { return plan.describe(); });
}

}  // namespace

void run(const Op& op, const at::Tensor& self, std::bitset<64> reduced, bool keepdim,
         const at::Tensor& out, const at::Tensor& second, Scalars scalars) {
  if (out.numel() == 0) return;
  const c10::DeviceIndex index = self.device().index();
  Operands operands = describe(op, ocl::device(index), self.scalar_type(), out.scalar_type());
  operands.in = const_cast<void*>(self.const_data_ptr());
  operands.out = out.mutable_data_ptr();
  operands.has_second = second.defined();
  if (second.defined()) operands.second = second.mutable_data_ptr();

  Geometry geometry;
  const int64_t out_size = out.element_size();
  const int64_t second_size = second.defined() ? second.element_size() : 0;
  int64_t out_dim = 0;
  for (int64_t d = 0; d < self.dim(); ++d) {
    Dimension dimension{self.size(d), self.stride(d) * operands.in_size, {0, 0}};
    if (reduced[d]) {
      geometry.add(true, dimension);
      out_dim += keepdim;
      continue;
    }
    dimension.out[0] = out.stride(out_dim) * out_size;
    if (second.defined()) dimension.out[1] = second.stride(out_dim) * second_size;
    geometry.add(false, dimension);
    ++out_dim;
  }
  start(op, index, operands, geometry, scalars);
}

void run(const Op& op, at::TensorIteratorBase& iter, Scalars scalars) {
  TORCH_INTERNAL_ASSERT(iter.noutputs() == 1 && iter.ninputs() == 1);
  if (iter.output(0).numel() == 0) return;
  const c10::DeviceIndex index = iter.device(0).index();
  Operands operands = describe(op, ocl::device(index), iter.dtype(1), iter.dtype(0));
  operands.in = iter.data_ptr(1);
  operands.out = iter.data_ptr(0);
  Geometry geometry;
  for (int d = 0; d < iter.ndim(); ++d) {
    const int64_t in = iter.strides(1)[d], out = iter.strides(0)[d];
    // TensorIterator gives reduced dimensions of the output stride 0.
    geometry.add(out == 0, Dimension{iter.shape()[d], in, {out, 0}});
  }
  start(op, index, operands, geometry, scalars);
}

}  // namespace ocl::reduce
