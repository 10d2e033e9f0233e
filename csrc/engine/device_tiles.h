// The device table's part on tiles says which tiles of sums a GPU's kernels of matrix products and
// convolutions can take, and how fast a compute unit is that is full of one. The kernels choose by
// these numbers (gemm/tiles.h); what the tuner finds for one device takes their place. A table for
// some GPUs alone says so in its name. All others start from what was measured on NVIDIA's, less
// the tiles that exceed a class's registers or local memory (occupancy.h).
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace ocl {

/// A work-group of `items` work-items takes m x n sums, k elements of each at a time.
struct TileShape {
  int m, n, k, items;
  float efficiency;   // of a compute unit full of these, beside the other shapes of the kernel
  int registers = 0;  // of a work-item, if known: it bounds how many groups a compute unit runs
};

/// The cost model (gemm/tiles.h) has these numbers for each implementation.
struct TileModel {
  double warps = 1.5;         // so many on a compute unit reach half of what many would
  double ends = 64;           // what a tile's beginning and epilogue take, in elements of k
  double split_launches = 1;  // what splitting k costs, in launches
  double part = 48;           // what a part of a result costs to write and read, in sums
};

/// An implementation's shapes each have a `tile`. Their tiles lie side by side as well.
template <class Shape, size_t count>
struct ShapeTable {
  std::array<Shape, count> shapes;
  std::array<TileShape, count> tiles;
  TileModel model{};
  constexpr ShapeTable with(const TileModel& other) const { return {shapes, tiles, other}; }
  /// It makes this table with more shapes.
  template <class... Shapes>
  constexpr ShapeTable<Shape, count + sizeof...(Shapes)> also(const Shapes&... others) const {
    ShapeTable<Shape, count + sizeof...(Shapes)> all{{}, {}, model};
    const Shape more[] = {others...};
    for (size_t i = 0; i < count + sizeof...(Shapes); ++i) {
      all.shapes[i] = i < count ? shapes[i] : more[i - count];
      all.tiles[i] = all.shapes[i].tile;
    }
    return all;
  }
};
template <class Shape, class... Shapes>
constexpr ShapeTable<Shape, 1 + sizeof...(Shapes)> shape_table(const Shape& first,
                                                               const Shapes&... others) {
  return {{first, others...}, {first.tile, others.tile...}};
}
/// It stands for a table of any length.
template <class Shape>
struct TileCandidates {
  template <size_t count>
  TileCandidates(const ShapeTable<Shape, count>& table)
      : shapes(table.shapes), tiles(table.tiles), model(table.model) {}
  std::span<const Shape> shapes;
  std::span<const TileShape> tiles;
  const TileModel& model;
};

/// Tiles in local memory, for any GPU. A work-item has rows x columns sums, in runs of `run`
/// elements (16 bytes); `slices` work-items share them.
struct TiledShape {
  TileShape tile;
  int rows, columns, run, slices;
};
constexpr TiledShape tiled_shape(int m, int n, int k, int rows, int columns, int run,
                                 float efficiency, int slices = 1) {
  return {{m, n, k, m * n / (rows * columns) * slices, efficiency}, rows, columns, run, slices};
}

/// Its registers hold the sums, two pieces of each operand, and addresses.
constexpr TiledShape known_shape(TiledShape shape) {
  shape.tile.registers = shape.rows * shape.columns + 2 * (shape.rows + shape.columns) + 40;
  return shape;
}

// gemm/tiled.cl, by the bytes of a sum. Those of 4 bytes are fitted, with the cost model's other
// numbers, to 252 times of products of networks in float32 on an NVIDIA H100 (50 TFLOP/s is 2.0):
// the choices are within 3% of the best, 20% better than without registers. Those of 8 were
// measured in float64 on an H200. Complex ones are derived from those.
constexpr auto kTiled4 = shape_table(known_shape(tiled_shape(256, 128, 8, 16, 8, 4, 1.95F)),
                                     known_shape(tiled_shape(128, 128, 8, 16, 8, 4, 1.79F)),
                                     known_shape(tiled_shape(64, 128, 8, 16, 8, 4, 1.73F)),
                                     known_shape(tiled_shape(64, 128, 16, 8, 8, 4, 1.72F, 2)),
                                     known_shape(tiled_shape(64, 64, 32, 8, 8, 4, 1.51F, 4)),
                                     known_shape(tiled_shape(64, 64, 16, 8, 4, 4, 1.15F)),
                                     known_shape(tiled_shape(32, 64, 32, 4, 8, 4, 0.91F, 4)),
                                     known_shape(tiled_shape(128, 16, 16, 8, 4, 4, 0.79F)),
                                     known_shape(tiled_shape(32, 32, 32, 4, 4, 4, 0.71F)),
                                     known_shape(tiled_shape(32, 32, 8, 4, 4, 4, 0.72F)))
                             .with({8.5, 37, 3, 40});
// GPUs whose waves are counted (DeviceRow::wanted_items) have those, and tiles with less local
// memory and fewer registers to a work-item. They are derived from kTiled4's, by sums of a
// work-item, and not measured.
constexpr auto kTiledWaves4 = kTiled4.also(known_shape(tiled_shape(128, 128, 8, 8, 8, 4, 1.65F)),
                                           known_shape(tiled_shape(128, 64, 8, 8, 4, 4, 1.35F)),
                                           known_shape(tiled_shape(64, 64, 8, 8, 4, 4, 1.10F)),
                                           known_shape(tiled_shape(64, 64, 8, 4, 4, 4, 0.90F)),
                                           known_shape(tiled_shape(32, 64, 16, 4, 8, 4, 0.88F, 4)));
constexpr auto kTiled8 =
    shape_table(tiled_shape(64, 128, 8, 8, 8, 2, 1.00F), tiled_shape(64, 64, 8, 8, 8, 2, 0.96F),
                tiled_shape(64, 64, 8, 8, 4, 2, 0.86F), tiled_shape(64, 64, 8, 4, 4, 2, 0.72F),
                tiled_shape(32, 32, 8, 4, 4, 2, 0.60F));
constexpr auto kTiledComplex8 =
    shape_table(tiled_shape(64, 64, 8, 4, 4, 1, 1.00F), tiled_shape(32, 32, 8, 4, 2, 1, 0.70F));
constexpr auto kTiledComplex16 =
    shape_table(tiled_shape(32, 32, 8, 4, 2, 1, 1.00F), tiled_shape(16, 16, 8, 2, 2, 1, 0.60F));

// conv/tiled.cl, by the bytes of a sum. Those of 4 bytes are fitted to 295 times of ResNet-50's
// convolutions in float32 on an NVIDIA H100: within 2% of the best, 13% better than without
// registers. Those of 8 were measured on an H200.
constexpr auto kConvTiled4 = shape_table(known_shape(tiled_shape(128, 128, 8, 16, 8, 4, 1.04F)),
                                         known_shape(tiled_shape(128, 64, 8, 8, 8, 4, 0.95F)),
                                         known_shape(tiled_shape(64, 64, 16, 8, 8, 4, 0.81F)),
                                         known_shape(tiled_shape(64, 64, 16, 8, 8, 4, 0.72F, 4)),
                                         known_shape(tiled_shape(128, 32, 8, 8, 4, 4, 0.71F)),
                                         known_shape(tiled_shape(32, 64, 32, 4, 8, 4, 0.60F, 4)),
                                         known_shape(tiled_shape(64, 16, 8, 4, 4, 4, 0.44F)))
                                 .with({2.9, 90, 3, 526});
// As kTiledWaves4.
constexpr auto kConvTiledWaves4 =
    kConvTiled4.also(known_shape(tiled_shape(128, 64, 8, 8, 4, 4, 0.85F)),
                     known_shape(tiled_shape(64, 64, 8, 8, 4, 4, 0.72F)),
                     known_shape(tiled_shape(64, 64, 8, 4, 4, 4, 0.60F)),
                     known_shape(tiled_shape(32, 64, 16, 4, 8, 4, 0.58F, 4)));
constexpr auto kConvTiled8 =
    shape_table(tiled_shape(64, 64, 8, 4, 4, 2, 1.00F), tiled_shape(64, 32, 8, 4, 4, 2, 0.90F),
                tiled_shape(64, 16, 8, 4, 4, 2, 0.70F));

/// A sub-group of Intel's and AMD's GPUs has `size` work-items. It takes rows x columns of the
/// tile's sums.
struct SubgroupShape {
  TileShape tile;
  int rows, columns, size;
};
constexpr SubgroupShape subgroup_shape(int m, int n, int k, int rows, int columns, int size,
                                       float efficiency) {
  return {{m, n, k, m / rows * (n / columns) * size, efficiency}, rows, columns, size};
}

// gemm/subgroup.cl: by matrix instructions, and by broadcasts, by the bytes of a sum. The sums of a
// work-item are to leave room for the operands among its registers: it has 128 of them in a
// sub-group of 8, of 4 bytes each, and in one of 16 as many on the GPUs that have no smaller ones,
// half as many on the others. They are derived from how often an operand is read again, not
// measured.
constexpr auto kSubgroupMatrix = shape_table(
    subgroup_shape(128, 128, 32, 32, 32, 16, 1.00F), subgroup_shape(64, 64, 32, 32, 32, 16, 0.80F),
    subgroup_shape(32, 32, 32, 16, 16, 16, 0.50F), subgroup_shape(128, 64, 32, 32, 16, 8, 1.00F),
    subgroup_shape(64, 32, 32, 32, 16, 8, 0.80F), subgroup_shape(32, 32, 16, 16, 16, 8, 0.50F));
constexpr auto kSubgroup4 = shape_table(
    subgroup_shape(64, 128, 16, 16, 32, 8, 1.00F), subgroup_shape(64, 64, 16, 16, 32, 8, 0.95F),
    subgroup_shape(32, 32, 16, 8, 16, 8, 0.70F), subgroup_shape(64, 64, 16, 16, 32, 16, 0.90F),
    subgroup_shape(32, 32, 16, 8, 16, 16, 0.65F));
constexpr auto kSubgroup8 = shape_table(subgroup_shape(64, 64, 16, 16, 16, 8, 1.00F),
                                        subgroup_shape(32, 32, 16, 8, 16, 8, 0.70F),
                                        subgroup_shape(32, 32, 16, 8, 16, 16, 0.65F));

// gemm/subgroup.cl by waves of AMD's GPUs: WMMA of 32 work-items, MFMA of 64, that of single
// precision, and dot products of two halves by waves of 64 and 32. Tiles leave two waves to a SIMD,
// by registers and by local memory, as clang counts them. They are derived from how often an
// operand is read again, not measured.
constexpr auto kWmma = shape_table(
    subgroup_shape(128, 128, 32, 64, 32, 32, 1.00F), subgroup_shape(128, 64, 32, 32, 32, 32, 0.85F),
    subgroup_shape(64, 64, 32, 32, 32, 32, 0.75F), subgroup_shape(32, 32, 32, 16, 16, 32, 0.40F));
constexpr auto kMfma = shape_table(
    subgroup_shape(128, 128, 32, 64, 64, 64, 1.00F), subgroup_shape(128, 64, 32, 64, 32, 64, 0.85F),
    subgroup_shape(64, 64, 32, 32, 32, 64, 0.70F), subgroup_shape(32, 32, 32, 16, 16, 64, 0.35F));
constexpr auto kMfmaFloats = shape_table(
    subgroup_shape(128, 128, 16, 64, 64, 64, 1.00F), subgroup_shape(128, 64, 16, 64, 32, 64, 0.90F),
    subgroup_shape(64, 64, 16, 32, 32, 64, 0.75F), subgroup_shape(32, 32, 16, 16, 16, 64, 0.40F));
constexpr auto kDot64 = shape_table(subgroup_shape(128, 128, 16, 64, 64, 64, 1.00F),
                                    subgroup_shape(128, 64, 32, 64, 32, 64, 0.90F),
                                    subgroup_shape(64, 64, 32, 32, 32, 64, 0.70F));
constexpr auto kDot32 = shape_table(subgroup_shape(128, 128, 32, 64, 32, 32, 1.00F),
                                    subgroup_shape(64, 64, 32, 32, 32, 32, 0.80F));

/// With NVIDIA's tensor cores each warp takes warp_m x warp_n of the tile's sums; `stages` tiles
/// are in local memory.
struct TensorCoreShape {
  TileShape tile;
  int warp_m, warp_n, stages;
  int lag;          // tiles between an operand's last use and the next one in its place
  bool warpgroup;   // by Hopper's instructions for 4 warps
  int element = 2;  // bytes

  /// Bytes for operands that lie by k or not: lines of floats that don't are 8 longer.
  constexpr size_t local_memory(bool a_by_k = true, bool b_by_k = true) const {
    const auto lines = [&](int size, bool by_k) { return by_k || element != 4 ? size : size + 8; };
    return static_cast<size_t>((lines(tile.m, a_by_k) + lines(tile.n, b_by_k)) * tile.k * stages *
                               element);
  }
  /// Tiles of as many bytes, of 8-bit integers and of floats.
  constexpr TensorCoreShape of_bytes() const {
    TensorCoreShape shape = *this;
    shape.tile.k *= 2;
    shape.element = 1;
    return shape;
  }
  constexpr TensorCoreShape of_floats() const {
    TensorCoreShape shape = *this;
    shape.tile.k /= 2;
    shape.tile.efficiency /= 2;
    shape.element = 4;
    return shape;
  }
};
constexpr TensorCoreShape warp_shape(int m, int n, int k, int warp_m, int warp_n, int stages,
                                     float efficiency) {
  const int items = m / warp_m * (n / warp_n) * 32;
  return {{m, n, k, items, efficiency}, warp_m, warp_n, stages, 1, false};
}
constexpr TensorCoreShape warpgroup_shape(int m, int n, int k, int stages, int lag,
                                          float efficiency) {
  return {{m, n, k, m * 2, efficiency}, 16, n, stages, lag, true};
}

// These are for gemm/tensor_core.cl. They were measured on an NVIDIA H200 in bfloat16 (460 TFLOP/s
// is 1).
constexpr auto kTensorCore = shape_table(
    warpgroup_shape(128, 256, 64, 4, 2, 1.70F), warpgroup_shape(128, 192, 64, 5, 2, 1.60F),
    warpgroup_shape(128, 128, 64, 3, 1, 1.36F), warpgroup_shape(64, 128, 64, 4, 2, 1.12F),
    warpgroup_shape(128, 64, 64, 4, 2, 1.20F), warpgroup_shape(128, 128, 32, 3, 1, 0.96F),
    warpgroup_shape(64, 128, 64, 2, 1, 1.00F), warp_shape(128, 128, 32, 64, 64, 3, 0.84F),
    warp_shape(64, 64, 64, 32, 32, 3, 0.68F));
// These are tiles of float32 in parts (PARTS), where each sum has two registers. They were measured
// on an NVIDIA H200. Where the driver refuses Hopper's instructions, the last two serve.
constexpr auto kTensorCoreParts = shape_table(
    warpgroup_shape(128, 192, 64, 4, 2, 1.40F), warpgroup_shape(128, 128, 64, 4, 2, 1.35F),
    warpgroup_shape(64, 128, 64, 4, 2, 1.22F), warpgroup_shape(128, 64, 64, 4, 2, 1.05F),
    warpgroup_shape(128, 128, 32, 3, 1, 0.96F), warpgroup_shape(64, 128, 64, 2, 1, 1.00F),
    warp_shape(128, 128, 32, 64, 32, 3, 0.84F), warp_shape(64, 64, 64, 32, 32, 3, 0.68F));
constexpr auto kTensorCoreBytes =
    shape_table(kTensorCore.shapes[0].of_bytes(), kTensorCore.shapes[1].of_bytes(),
                kTensorCore.shapes[2].of_bytes(), kTensorCore.shapes[3].of_bytes(),
                kTensorCore.shapes[4].of_bytes(), kTensorCore.shapes[5].of_bytes(),
                kTensorCore.shapes[6].of_bytes());
constexpr auto kTensorCoreFloats = shape_table(
    kTensorCore.shapes[0].of_floats(), kTensorCore.shapes[1].of_floats(),
    kTensorCore.shapes[2].of_floats(), kTensorCore.shapes[3].of_floats(),
    kTensorCore.shapes[4].of_floats(), kTensorCore.shapes[5].of_floats(),
    kTensorCore.shapes[6].of_floats(), warp_shape(128, 128, 64, 64, 64, 3, 0.70F).of_floats(),
    warp_shape(128, 64, 64, 64, 32, 3, 0.60F).of_floats(),
    warp_shape(64, 64, 64, 32, 32, 3, 0.50F).of_floats(),
    warp_shape(128, 128, 32, 64, 64, 2, 0.50F).of_floats(),
    warp_shape(64, 64, 32, 32, 32, 3, 0.40F).of_floats());

/// With NVIDIA's tensor cores in double precision each warp takes warp_m x warp_n of the tile's
/// sums.
struct TensorCoreF64Shape {
  TileShape tile;
  int warp_m, warp_n;
};
constexpr TensorCoreF64Shape f64_shape(int m, int n, int k, int warp_m, int warp_n,
                                       float efficiency) {
  return {{m, n, k, m / warp_m * (n / warp_n) * 32, efficiency}, warp_m, warp_n};
}

// These are for gemm/tensor_core_f64.cl. They were measured on an NVIDIA H200 (45 TFLOP/s is 1).
constexpr auto kTensorCoreF64 =
    shape_table(f64_shape(128, 128, 8, 32, 64, 0.90F), f64_shape(64, 128, 8, 32, 64, 1.00F),
                f64_shape(64, 64, 16, 32, 32, 0.92F), f64_shape(32, 64, 16, 16, 32, 0.75F),
                f64_shape(32, 32, 16, 16, 16, 0.50F));

}  // namespace ocl
