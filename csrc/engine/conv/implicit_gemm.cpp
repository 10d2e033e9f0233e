#include "engine/conv/implicit_gemm.h"

#include <c10/util/Exception.h>

#include "engine/gemm/gemm.h"
#include "engine/gemm/windows.h"

namespace ocl::conv {

namespace {

int64_t product(const std::array<int64_t, 3>& sizes) { return sizes[0] * sizes[1] * sizes[2]; }

/// Whether positions of all images follow each other at the distance of the innermost.
bool is_linear(const Operand& t, const std::array<int64_t, 3>& positions) {
  int64_t next = 0;
  bool any = false;
  for (int d = 2; d >= -1; --d) {
    const int64_t size = d < 0 ? t.size[0] : positions[static_cast<size_t>(d)];
    const int64_t stride = d < 0 ? t.stride[0] : t.stride[static_cast<size_t>(2 + d)];
    if (size == 1) continue;
    if (any && stride != next) return false;
    any = true;
    next = stride * size;
  }
  return true;
}

/// The distance of positions that follow each other.
int64_t innermost(const Operand& t, const std::array<int64_t, 3>& positions) {
  for (int d = 2; d >= 0; --d) {
    if (positions[static_cast<size_t>(d)] > 1) return t.stride[static_cast<size_t>(2 + d)];
  }
  return t.size[0] > 1 ? t.stride[0] : t.size[1];
}

gemm::Windows windows_of(gemm::Windows::Side side, const Operand& out, const Operand& source,
                         const WindowGrid& grid, int64_t channels) {
  const auto element = static_cast<int64_t>(c10::elementSize(source.dtype));
  gemm::Windows windows;
  windows.side = side;
  gemm::WindowArguments& w = windows.arguments;
  w.image = static_cast<uint64_t>(source.stride[0] * element);
  w.out_image = static_cast<uint64_t>(out.stride[0]);
  w.channels = static_cast<uint32_t>(channels);
  std::array<int64_t, 3> move{};  // bytes from one tap to the next
  for (size_t i = 0; i < 3; ++i) {
    w.size[i] = static_cast<uint32_t>(source.size[2 + i]);
    w.stride[i] =
        static_cast<uint32_t>(source.size[2 + i] == 1 ? 0 : source.stride[2 + i] * element);
    w.step[i] = static_cast<int32_t>(grid.step[i]);
    w.origin[i] = static_cast<int32_t>(grid.origin[i]);
    w.tap_step[i] = static_cast<int32_t>(grid.tap_step[i]);
    w.taps[i] = static_cast<uint32_t>(grid.taps[i]);
    w.out_stride[i] = static_cast<uint32_t>(grid.positions[i] == 1 ? 0 : out.stride[2 + i]);
    windows.set_grid(static_cast<int>(i), static_cast<uint32_t>(grid.positions[i]));
    move[i] = grid.tap_step[i] * w.stride[i];
  }
  int64_t back = channels * element;
  for (size_t i = 3; i-- > 0;) {
    w.next[i] = static_cast<int32_t>(move[i] - back);
    back += (grid.taps[i] - 1) * move[i];
  }
  w.linear = is_linear(out, grid.positions);
  return windows;
}

}  // namespace

const char* refuse_implicit_gemm(c10::ScalarType dtype, const Window& window, bool tiles) {
  if (const char* reason = gemm::refuse_windows(dtype, window.tf32, tiles)) return reason;
  return product(window.kernel) > kMostTaps ? "more than 64 taps" : nullptr;
}

void implicit_gemm(const Operand& out, const Operand& source, const void* weight, const void* bias,
                   const WindowGrid& grid, int64_t groups, const Epilogue* epilogue) {
  const int64_t channels = source.size[1] / groups, columns = out.size[1] / groups;
  const gemm::Windows windows = windows_of(gemm::Windows::a, out, source, grid, channels);
  gemm::Description d;
  d.tf32 = grid.tf32;
  d.plane_terms = grid.plane_terms;
  d.a_plane = grid.source_plane;
  d.b_plane = grid.other_plane;
  d.m = out.size[0] * product(grid.positions);
  d.n = columns;
  d.k = product(grid.taps) * channels;
  d.batch = groups;
  d.beta = bias != nullptr ? 1 : 0;
  d.a = {source.data, source.dtype, d.k, 1, channels};
  d.b = {weight, source.dtype, 1, d.k, columns * d.k};
  d.c = {bias, out.dtype, 0, 1, columns};
  d.out = {out.data, out.dtype, innermost(out, grid.positions), 1, columns};
  d.windows = &windows;
  gemm::product(d, epilogue);
}

void implicit_gemm_weight(void* weight, c10::ScalarType dtype, const Operand& out,
                          const Operand& source, const WindowGrid& grid, int64_t groups) {
  const int64_t channels = source.size[1] / groups, rows = out.size[1] / groups;
  const gemm::Windows windows = windows_of(gemm::Windows::b, out, source, grid, channels);
  TORCH_INTERNAL_ASSERT(windows.arguments.linear);
  gemm::Description d;
  d.tf32 = grid.tf32;
  d.plane_terms = grid.plane_terms;
  d.a_plane = grid.other_plane;
  d.b_plane = grid.source_plane;
  d.m = rows;
  d.n = product(grid.taps) * channels;
  d.k = out.size[0] * product(grid.positions);
  d.batch = groups;
  d.a = {out.data, out.dtype, 1, innermost(out, grid.positions), rows};
  d.b = {source.data, source.dtype, d.n, 1, channels};
  d.out = {weight, dtype, d.n, 1, rows * d.n};
  d.windows = &windows;
  gemm::product(d);
}

}  // namespace ocl::conv
