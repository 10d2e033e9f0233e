// Recursive factorisations: halve the matrix, factor one half, bring the other up to date with a
// triangular solve and a product, factor that.
#include "engine/device_table.h"
#include "engine/linalg/launch.h"
#include "engine/linalg/linalg.h"
#include "opencl/device_assert.h"
#include "opencl/kernel_family.h"

namespace ocl::linalg {

namespace {

constexpr int64_t kBlock = 32;         // of Cholesky's: a work-item per row
constexpr int64_t kWholeUpdate = 256;  // symmetric updates up to this size are made as a square

const KernelFamily cholesky_family{"linalg/cholesky.cl", "cholesky_block"};
const KernelFamily cholesky_columns_family{"linalg/cholesky_columns.cl", "cholesky_columns"};
const KernelFamily panel_family{"linalg/lu.cl", "lu_panel"};
const KernelFamily columns_family{"linalg/lu_columns.cl", "lu_columns"};
const KernelFamily swap_family{"linalg/lu.cl", "lu_swap_rows"};
const KernelFamily householder_family{"linalg/householder.cl", "householder_panel"};
const KernelFamily householder_columns_family{"linalg/householder_columns.cl",
                                              "householder_factor_columns"};
const KernelFamily apply_columns_family{"linalg/householder_columns.cl",
                                        "householder_apply_columns"};
const KernelFamily ldl_factor_family{"linalg/ldl.cl", "ldl_factor"};
const KernelFamily ldl_solve_family{"linalg/ldl.cl", "ldl_solve"};

/// The lower triangle of c -= a @ a^H. Small squares are updated whole: products of slivers are
/// slow.
void subtract_square(const MatrixBatch& c, const MatrixBatch& a) {
  if (c.rows <= kWholeUpdate) {
    subtract_product(c, a, a.transposed().conjugated());
    return;
  }
  const int64_t half = half_of(c.rows, kBlock), rest = c.rows - half;
  const MatrixBatch above = a.block(0, 0, half, a.columns);
  const MatrixBatch below = a.block(half, 0, rest, a.columns);
  subtract_square(c.block(0, 0, half, half), above);
  subtract_product(c.block(half, 0, rest, half), below, above.transposed().conjugated());
  subtract_square(c.block(half, half, rest, rest), below);
}

const char* no_columns(const MatrixBatch& a) {
  return vector_lanes(a) == 1 ? "no CPU, or elements that don't lie by columns" : nullptr;
}

/// A Cholesky factorisation; row and column `first` of the whole matrix are the batch's first.
struct CholeskyPlan {
  const MatrixBatch& a;
  int32_t* info;
  int64_t first;
};

void cholesky_from(const MatrixBatch& a, int32_t* info, int64_t first);

void run_cholesky(CholeskyPlan& plan, Kernel& kernel, size_t group) {
  const MatrixBatch& a = plan.a;
  launch(kernel, current_queue(a.device), NDRange::linear(a.batch * group, group), Pointer{a.data},
         Pointer{plan.info}, strides_of(a), static_cast<uint32_t>(a.rows),
         static_cast<uint32_t>(plan.first));
}

void cholesky_by_halves(CholeskyPlan& plan) {
  const auto& [a, info, first] = plan;
  const int64_t n = a.rows;
  const int64_t half = half_of(n, kBlock), rest = n - half;
  const MatrixBatch a11 = a.block(0, 0, half, half), a21 = a.block(half, 0, rest, half);
  const MatrixBatch a22 = a.block(half, half, rest, rest);
  cholesky_from(a11, info, first);
  // L21 L11^H = A21, transposed.
  solve_triangular(a11.conjugated(), a21.transposed(), /*upper=*/false, /*unit=*/false);
  subtract_square(a22, a21);
  cholesky_from(a22, info, first + half);
}

constexpr Implementation<CholeskyPlan> cholesky_columns{
    "columns",
    [](const CholeskyPlan& plan) -> const char* {
      const MatrixBatch& a = plan.a;
      if (const char* reason = no_columns(a)) return reason;
      const int64_t bytes = a.rows * a.rows * static_cast<int64_t>(c10::elementSize(a.dtype));
      return bytes > device_row(current_queue(a.device).device()).first_cache_bytes
                 ? "more than the first cache holds"
                 : nullptr;
    },
    [](CholeskyPlan& plan) {
      const MatrixBatch& a = plan.a;
      Kernel& kernel = cholesky_columns_family.get(
          current_queue(a.device).device(), {{"C", tag(a.dtype)}, {"LANES", vector_lanes(a)}});
      run_cholesky(plan, kernel, 1);
    }};
constexpr Implementation<CholeskyPlan> cholesky_group{
    "group",
    [](const CholeskyPlan& plan) {
      return plan.a.rows > kBlock ? "more rows than a work-group takes" : nullptr;
    },
    [](CholeskyPlan& plan) {
      Device& device = current_queue(plan.a.device).device();
      run_cholesky(plan, cholesky_family.get(device, {{"C", tag(plan.a.dtype)}}), kBlock);
    }};
constexpr Implementation<CholeskyPlan> cholesky_halves{
    "halves", [](const CholeskyPlan& plan) { return plan.a.rows <= kBlock ? "few rows" : nullptr; },
    cholesky_by_halves};
constexpr const Implementation<CholeskyPlan>* kCholesky[] = {&cholesky_columns, &cholesky_group,
                                                             &cholesky_halves};
const Engine cholesky_engine{"linalg_cholesky", kCholesky};

void cholesky_from(const MatrixBatch& a, int32_t* info, int64_t first) {
  CholeskyPlan plan{a, info, first};
  run_first(cholesky_engine, kCholesky, plan,
            [](const CholeskyPlan& plan) { return describe(cholesky_engine, plan.a); });
}

/// Columns of a panel that one work-group factors: fewer the longer they are, since it works alone.
int64_t panel_columns(const MatrixBatch& a) {
  if (vector_lanes(a) == 1) return a.rows <= 64 ? 32 : a.rows <= 256 ? 16 : 8;
  // As many as stay in the first or second cache.
  const int64_t column_bytes = a.rows * static_cast<int64_t>(c10::elementSize(a.dtype));
  return column_bytes <= 1024 ? 64 : column_bytes <= 2048 ? 32 : column_bytes <= 4096 ? 16 : 8;
}

/// A panel of an LU factorisation, at row and column `first` of the whole matrix.
struct PanelPlan {
  const MatrixBatch& a;
  const Pivots& pivots;
  int32_t* info;
  bool pivot;
  int64_t first;
};

void run_panel(PanelPlan& plan, Kernel& kernel, size_t group) {
  const MatrixBatch& a = plan.a;
  launch(kernel, current_queue(a.device), NDRange::linear(a.batch * group, group), Pointer{a.data},
         Pointer{plan.pivots.data}, Pointer{plan.info}, strides_of(a),
         static_cast<uint32_t>(a.rows), static_cast<uint32_t>(a.columns),
         static_cast<uint32_t>(plan.first), static_cast<uint32_t>(plan.pivots.stride));
}

constexpr Implementation<PanelPlan> panel_columns_form{
    "columns", [](const PanelPlan& plan) { return no_columns(plan.a); },
    [](PanelPlan& plan) {
      Kernel& kernel = columns_family.get(
          current_queue(plan.a.device).device(),
          {{"C", tag(plan.a.dtype)}, {"LANES", vector_lanes(plan.a)}, {"PIVOT", plan.pivot}});
      run_panel(plan, kernel, 1);
    }};
constexpr Implementation<PanelPlan> panel_group{
    "group", [](const PanelPlan&) -> const char* { return nullptr; },
    [](PanelPlan& plan) {
      Device& device = current_queue(plan.a.device).device();
      const size_t group = group_of(device);
      run_panel(plan,
                panel_family.get(
                    device, {{"C", tag(plan.a.dtype)}, {"GROUP", group}, {"PIVOT", plan.pivot}}),
                group);
    }};
constexpr const Implementation<PanelPlan>* kPanels[] = {&panel_columns_form, &panel_group};
const Engine lu_engine{"linalg_lu", kPanels};

void lu_panel(const MatrixBatch& a, const Pivots& pivots, int32_t* info, bool pivot,
              int64_t first) {
  PanelPlan plan{a, pivots, info, pivot, first};
  run_first(lu_engine, kPanels, plan,
            [](const PanelPlan& plan) { return describe(lu_engine, plan.a); });
}

/// A panel of a QR factorisation.
struct ReflectionPlan {
  const MatrixBatch& a;
  void* tau;
  int64_t tau_stride;
};

void run_reflections(ReflectionPlan& plan, Kernel& kernel, size_t group) {
  const MatrixBatch& a = plan.a;
  launch(kernel, current_queue(a.device), NDRange::linear(a.batch * group, group), Pointer{a.data},
         Pointer{plan.tau}, strides_of(a), static_cast<uint32_t>(a.rows),
         static_cast<uint32_t>(a.columns), static_cast<uint32_t>(plan.tau_stride));
}

constexpr Implementation<ReflectionPlan> reflections_columns{
    "columns", [](const ReflectionPlan& plan) { return no_columns(plan.a); },
    [](ReflectionPlan& plan) {
      Kernel& kernel = householder_columns_family.get(
          current_queue(plan.a.device).device(),
          {{"C", tag(plan.a.dtype)}, {"LANES", vector_lanes(plan.a)}});
      run_reflections(plan, kernel, 1);
    }};
constexpr Implementation<ReflectionPlan> reflections_group{
    "group", [](const ReflectionPlan&) -> const char* { return nullptr; },
    [](ReflectionPlan& plan) {
      Device& device = current_queue(plan.a.device).device();
      const size_t group = group_of(device);
      run_reflections(plan,
                      householder_family.get(device, {{"C", tag(plan.a.dtype)}, {"GROUP", group}}),
                      group);
    }};
constexpr const Implementation<ReflectionPlan>* kReflections[] = {&reflections_columns,
                                                                  &reflections_group};
const Engine qr_engine{"linalg_qr", kReflections};

/// Rows [first, ...) of the whole matrix, of which `a` is the trailing part.
void lu_from(const MatrixBatch& a, const Pivots& pivots, int32_t* info, bool pivot, int64_t first) {
  const int64_t most = panel_columns(a), steps = std::min(a.rows, a.columns);
  if (a.columns <= most) return lu_panel(a, pivots, info, pivot, first);
  const int64_t half = steps <= most ? steps : half_of(steps, most);
  const int64_t below = a.rows - half, rest = a.columns - half;
  lu_from(a.block(0, 0, a.rows, half), pivots, info, pivot, first);
  const MatrixBatch right = a.block(0, half, a.rows, rest), top = a.block(0, half, half, rest);
  // Pivots count rows of the whole matrix.
  const MatrixBatch whole_right = right.block(-first, 0, a.rows + first, rest);
  if (pivot) swap_rows(whole_right, pivots, first, half, /*undo=*/false);
  solve_triangular(a.block(0, 0, half, half), top, /*upper=*/false, /*unit=*/true);
  if (below == 0) return;
  const MatrixBatch a21 = a.block(half, 0, below, half), a22 = a.block(half, half, below, rest);
  subtract_product(a22, a21, top);
  lu_from(a22, pivots, info, pivot, first + half);
  const MatrixBatch whole_left = a.block(-first, 0, a.rows + first, half);
  if (pivot) swap_rows(whole_left, pivots, first + half, steps - half, /*undo=*/false);
}

}  // namespace

void cholesky(const MatrixBatch& a, int32_t* info) {
  if (!a.empty()) cholesky_from(a, info, 0);
}

void lu_factor(const MatrixBatch& a, const Pivots& pivots, int32_t* info, bool pivot) {
  if (!a.empty()) lu_from(a, pivots, info, pivot, 0);
}

void swap_rows(const MatrixBatch& b, const Pivots& pivots, int64_t first, int64_t count,
               bool undo) {
  static const uint32_t site =
      message_site("Pivots given to lu_solve must all be between 1 and LU.size(-2)");
  if (b.empty() || count == 0) return;
  Queue& queue = current_queue(b.device);
  Device& device = queue.device();
  const size_t local = group_of_lanes(device);
  Kernel& kernel =
      swap_family.get(device, {{"C", tag(b.dtype)}, {"GROUP", group_of(device)}, {"PIVOT", 1}});
  launch(kernel, queue, columns_range(b, local), Pointer{b.data}, Pointer{pivots.data},
         strides_of(b), static_cast<uint32_t>(b.rows), static_cast<uint32_t>(b.columns),
         static_cast<uint32_t>(first), static_cast<uint32_t>(count),
         static_cast<uint32_t>(pivots.stride), static_cast<uint32_t>(undo), device.asserts().mem(),
         site);
}

void householder_panel(const MatrixBatch& a, void* tau, int64_t tau_stride) {
  if (a.empty()) return;
  ReflectionPlan plan{a, tau, tau_stride};
  run_first(qr_engine, kReflections, plan,
            [](const ReflectionPlan& plan) { return describe(qr_engine, plan.a); });
}

bool reflects_columns(const MatrixBatch& v, const MatrixBatch& c) {
  return vector_lanes(v) > 1 && vector_lanes(c) > 1;
}

void reflect_columns(const MatrixBatch& v, const void* tau, int64_t tau_stride,
                     const MatrixBatch& c, bool adjoint, bool triangle) {
  if (v.empty() || c.empty()) return;
  Queue& queue = current_queue(c.device);
  Kernel& kernel =
      apply_columns_family.get(queue.device(), {{"C", tag(c.dtype)}, {"LANES", vector_lanes(c)}});
  const auto items = static_cast<size_t>(c.batch * ceil_div(c.columns, 4));
  launch(kernel, queue, NDRange::linear(items, 1), Pointer{v.data}, Pointer{tau}, Pointer{c.data},
         strides_of(v), strides_of(c), static_cast<uint32_t>(c.rows),
         static_cast<uint32_t>(c.columns), static_cast<uint32_t>(v.columns),
         static_cast<uint32_t>(tau_stride), static_cast<uint32_t>(adjoint),
         static_cast<uint32_t>(triangle));
}

void ldl_factor(const MatrixBatch& a, int32_t* pivots, int32_t* info, bool hermitian) {
  if (a.empty()) return;
  Queue& queue = current_queue(a.device);
  Device& device = queue.device();
  const size_t group = group_of(device);
  Kernel& kernel = ldl_factor_family.get(
      device, {{"C", tag(a.dtype)}, {"GROUP", group}, {"HERMITIAN", hermitian}});
  launch(kernel, queue, NDRange::linear(a.batch * group, group), Pointer{a.data}, Pointer{pivots},
         Pointer{info}, strides_of(a), static_cast<uint32_t>(a.rows));
}

void ldl_solve(const MatrixBatch& a, const int32_t* pivots, const MatrixBatch& b, bool hermitian) {
  static const uint32_t site = message_site(
      "Pivots given to ldl_solve must all be ldl_factor's, with 1 <= |pivot| <= LD.size(-2)");
  if (b.empty()) return;
  Queue& queue = current_queue(b.device);
  Device& device = queue.device();
  const size_t local = group_of_lanes(device);
  Kernel& kernel = ldl_solve_family.get(
      device, {{"C", tag(b.dtype)}, {"GROUP", group_of(device)}, {"HERMITIAN", hermitian}});
  launch(kernel, queue, columns_range(b, b.columns == 1 ? 1 : local), Pointer{a.data},
         Pointer{pivots}, Pointer{b.data}, strides_of(a), strides_of(b),
         static_cast<uint32_t>(b.rows), static_cast<uint32_t>(b.columns), device.asserts().mem(),
         site);
}

}  // namespace ocl::linalg
