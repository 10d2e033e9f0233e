#include "engine/linalg/linalg.h"

#include "engine/device_table.h"
#include "engine/gemm/gemm.h"
#include "engine/linalg/launch.h"
#include "opencl/kernel_family.h"

namespace ocl::linalg {

namespace {

const KernelFamily triangular_family{"linalg/triangular.cl", "triangular_solve"};
const KernelFamily columns_family{"linalg/triangular_columns.cl", "triangular_columns"};
const KernelFamily rows_family{"linalg/triangular_columns.cl", "triangular_rows"};

gemm::Operand operand_of(const MatrixBatch& matrices) {
  return {matrices.data,          matrices.dtype,        matrices.row_stride,
          matrices.column_stride, matrices.batch_stride, matrices.conjugate};
}

/// Rows of a triangle that is solved in registers: a GPU's work-item has them for 16 complex
/// numbers.
int64_t rows_in_registers(const MatrixBatch& b) {
  return !current_queue(b.device).device().is_cpu() && c10::isComplexType(b.dtype) ? 16 : 32;
}

/// A triangular system.
struct Plan {
  const MatrixBatch& a;
  const MatrixBatch& b;
  bool upper, unit;

  uint32_t flags() const {
    return (upper ? kUpper : 0) | (unit ? kUnit : 0) | (a.conjugate ? kConjugate : 0);
  }
};

const char* refuse_columns(const Plan& plan) {
  const MatrixBatch &a = plan.a, &b = plan.b;
  if (vector_lanes(b) == 1) return "no CPU, or right-hand sides that don't lie by columns";
  if (a.row_stride != 1 && a.column_stride != 1) return "a matrix whose elements lie apart";
  const int64_t bytes = a.rows * a.rows * static_cast<int64_t>(c10::elementSize(a.dtype));
  return b.rows > rows_in_registers(b) &&
                 bytes > device_row(current_queue(b.device).device()).first_cache_bytes
             ? "more than the first cache holds"
             : nullptr;
}

void run_columns(Plan& plan) {
  const MatrixBatch &a = plan.a, &b = plan.b;
  Queue& queue = current_queue(b.device);
  const KernelFamily& family = a.row_stride == 1 ? columns_family : rows_family;
  Kernel& kernel = family.get(queue.device(), {{"C", tag(b.dtype)}, {"LANES", vector_lanes(b)}});
  launch(kernel, queue, NDRange::linear(b.batch * ceil_div(b.columns, 4), 1), Pointer{a.data},
         Pointer{b.data}, strides_of(a), strides_of(b), static_cast<uint32_t>(b.rows),
         static_cast<uint32_t>(b.columns), plan.flags());
}

void run_group(Plan& plan) {
  const MatrixBatch &a = plan.a, &b = plan.b;
  Queue& queue = current_queue(b.device);
  Device& device = queue.device();
  // A vector's columns per group on a CPU; a single column is better off without idle lanes.
  const size_t most = group_of_lanes(device);
  const size_t local = b.columns == 1 ? 1 : most;
  launch(triangular_family.get(device, {{"C", tag(b.dtype)}, {"SIZE", rows_in_registers(b)}}),
         queue, columns_range(b, local), Pointer{a.data}, Pointer{b.data}, strides_of(a),
         strides_of(b), static_cast<uint32_t>(b.rows), static_cast<uint32_t>(b.columns),
         plan.flags());
}

void run_halves(Plan& plan) {
  const auto& [a, b, upper, unit] = plan;
  const int64_t n = b.rows;
  const int64_t half = half_of(n, rows_in_registers(b)), rest = n - half;
  const MatrixBatch first = b.block(0, 0, half, b.columns);
  const MatrixBatch second = b.block(half, 0, rest, b.columns);
  const MatrixBatch a11 = a.block(0, 0, half, half), a22 = a.block(half, half, rest, rest);
  if (upper) {
    solve_triangular(a22, second, upper, unit);
    subtract_product(first, a.block(0, half, half, rest), second);
    solve_triangular(a11, first, upper, unit);
  } else {
    solve_triangular(a11, first, upper, unit);
    subtract_product(second, a.block(half, 0, rest, half), first);
    solve_triangular(a22, second, upper, unit);
  }
}

constexpr Implementation<Plan> by_columns{"columns", refuse_columns, run_columns};
constexpr Implementation<Plan> by_group{
    "group",
    [](const Plan& plan) {
      return plan.b.rows > rows_in_registers(plan.b) ? "more rows than registers hold" : nullptr;
    },
    run_group};
constexpr Implementation<Plan> by_halves{
    "halves",
    [](const Plan& plan) {
      return plan.b.rows <= rows_in_registers(plan.b) ? "few rows" : nullptr;
    },
    run_halves};
constexpr const Implementation<Plan>* kImplementations[] = {&by_columns, &by_group, &by_halves};

const Engine engine{"linalg_triangular", kImplementations};

}  // namespace

std::string describe(const Engine& engine, const MatrixBatch& matrices) {
  return std::string(engine.name()) + " " + std::to_string(matrices.batch) + "x" +
         std::to_string(matrices.rows) + "x" + std::to_string(matrices.columns) + " " +
         tag(matrices.dtype);
}

MatrixBatch MatrixBatch::block(int64_t row, int64_t column, int64_t rows, int64_t columns) const {
  MatrixBatch result = *this;
  result.data +=
      (row * row_stride + column * column_stride) * static_cast<int64_t>(c10::elementSize(dtype));
  result.rows = rows;
  result.columns = columns;
  return result;
}

MatrixBatch MatrixBatch::transposed() const {
  MatrixBatch result = *this;
  std::swap(result.rows, result.columns);
  std::swap(result.row_stride, result.column_stride);
  return result;
}

MatrixBatch MatrixBatch::conjugated() const {
  MatrixBatch result = *this;
  result.conjugate = c10::isComplexType(dtype) && !conjugate;
  return result;
}

void subtract_product(const MatrixBatch& c, const MatrixBatch& a, const MatrixBatch& b) {
  if (c.empty() || a.columns == 0) return;
  gemm::Description description;
  description.m = c.rows;
  description.n = c.columns;
  description.k = a.columns;
  description.batch = c.batch;
  description.a = operand_of(a);
  description.b = operand_of(b);
  description.c = description.out = operand_of(c);
  description.alpha = -1;
  description.beta = 1;
  gemm::run(description);
}

void solve_triangular(const MatrixBatch& a, const MatrixBatch& b, bool upper, bool unit) {
  if (b.empty()) return;
  Plan plan{a, b, upper, unit};
  run_first(engine, kImplementations, plan,
            [](const Plan& plan) { return describe(engine, plan.b); });
}

}  // namespace ocl::linalg
