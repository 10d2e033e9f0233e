// Which tile of the product a work-group takes, and into how many parts k is split.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "engine/device_tiles.h"
#include "engine/gemm/plan.h"
#include "opencl/kernel_family.h"

namespace ocl::gemm {

/// The time of `groups` work-groups of `depth` elements of k on the busiest compute unit, in sums.
/// As many run there together as its registers allow (384 work-items, where the shape's aren't
/// known), and hide each other's latencies.
double tile_cost(const TileShape& shape, const TileModel& model, int64_t groups, int64_t depth,
                 const Device& device);

struct TileChoice {
  int index = -1;  // of the shape; -1: none of them
  int64_t splits = 1;
};

/// A problem that tiles are chosen for, and the parts that its k may have.
struct TileSearch {
  const Device& device;
  int64_t m, n, k, batch;
  int64_t least_splits, most_splits, least_part;
  double launch_cost;  // in sums of one compute unit
  int terms = 1;       // of each of k
};
/// The shape, of those that `fits`, and the number of parts of k, with the least work on the
/// busiest compute unit.
TileChoice cheapest_tile(const TileSearch& search, std::span<const TileShape> shapes, uint64_t fits,
                         const TileModel& model);

/// The cheapest of those that `fits`, where the plan's parameters don't say.
/// TORCH_OCL_GEMM_TILE=<m>x<n>x<k> names the shape, for tests and comparisons. `launch_cost`: in
/// sums of one compute unit.
TileChoice choose_tile(const Plan& plan, std::span<const TileShape> shapes, uint64_t fits,
                       double launch_cost, const TileModel& model = {});

/// Warns of a TORCH_OCL_GEMM_TILE that names no tile, whether or not a product comes to use one.
void check_forced_tile();

/// The shapes that fit (stage 0), and the numbers of parts of k (1), for the tuner.
std::vector<Variation> vary_tile(const Plan& plan, std::span<const TileShape> shapes, uint64_t fits,
                                 int stage);

/// The parts of a long k, as of a convolution's positions, whose sums round no more than CPU
/// torch's, where the parts' totals, of `result_bytes` each, take no more memory than they may.
int64_t least_parts(int64_t k, size_t result_bytes);

/// Splits the plan's k into (about) that many parts, each a multiple of `multiple`.
void set_splits(Arguments& problem, int64_t splits, int64_t multiple);

/// Work-groups of a launch, one after another: tiles, batches, parts of k.
size_t tile_groups(const Arguments& problem, const TileShape& shape);

/// Whether neighbouring work-items should read an operand along k, given its strides along its
/// lines (rows of a, columns of b) and along k.
inline bool reads_by_k(uint64_t line_stride, uint64_t k_stride) { return k_stride <= line_stride; }

/// True if vectors of `width` elements along the direction read are contiguous, aligned and within
/// the matrix: `lines` lines, `line_stride` apart.
bool takes_vectors(const char* data, size_t element_size, int64_t width, uint64_t lines,
                   uint64_t line_stride, uint64_t k, uint64_t k_stride, uint64_t batch_stride,
                   bool whole_lines);

/// Runs a kernel whose work-groups take those tiles, brought by kernels/gemm/fetch.clh, with the
/// compile parameters that it has besides those of fetch.clh (at most 7), and adds up the parts
/// into which k is split. Loads have up to 4 elements, along k up to `most_along_k`.
void run_tiles(const KernelFamily& family, const Plan& source, const TileShape& tile,
               int64_t splits, std::initializer_list<Define> parameters, size_t most_along_k = 4);

}  // namespace ocl::gemm
