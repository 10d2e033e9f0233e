// Reduction to two diagonals by reflections, the implicit QR iteration on those, and all its
// rotations applied to rows of the vectors at once.
#include "engine/linalg/spectral.h"

#include "engine/lanes.h"
#include "engine/linalg/launch.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"
#include "runtime/allocator.h"

namespace ocl::linalg {

namespace {

const KernelFamily tridiagonal_family{"linalg/condensed.cl", "tridiagonalise"};
const KernelFamily bidiagonal_family{"linalg/condensed.cl", "bidiagonalise"};
const KernelFamily tridiagonal_columns_family{"linalg/condensed_columns.cl",
                                              "tridiagonalise_columns"};
const KernelFamily bidiagonal_columns_family{"linalg/condensed_columns.cl",
                                             "bidiagonalise_columns"};
/// An iteration for one matrix, and for several side by side.
struct Iteration {
  KernelFamily alone, lanes;
};
const Iteration eigenvalue_iteration{{"linalg/implicit_qr.cl", "tridiagonal_qr"},
                                     {"linalg/implicit_qr_lanes.cl", "tridiagonal_qr_lanes"}};
const Iteration singular_value_iteration{{"linalg/implicit_qr.cl", "bidiagonal_qr"},
                                         {"linalg/implicit_qr_lanes.cl", "bidiagonal_qr_lanes"}};
const KernelFamily vector_family{"linalg/vectors.cl", "apply_to_rows"};

/// Scratch memory while matrices are worked on, at most; the rest of a batch waits.
constexpr size_t kScratchBytes = size_t{256} << 20;

/// Rows up to which single precision matrices are computed in double precision throughout where a
/// CPU has it: they stay in its second cache, so that this takes 1.2 to 2.0 times as long, and
/// results are exact but for the last rounding. Larger ones take as much as 2.5 times.
constexpr uint64_t kMostDouble = 128;

c10::ScalarType doubled(c10::ScalarType dtype) {
  return c10::isComplexType(dtype) ? c10::ScalarType::ComplexDouble : c10::ScalarType::Double;
}

/// Scratch memory and launches for a slice of a batch of n x n matrices; `streams` of rotations.
class Spectral {
 public:
  Spectral(const MatrixBatch& a, uint32_t sides, bool vectors)
      : dtype_(a.dtype),
        compute_(a.dtype),
        iterate_(c10::toRealValueType(a.dtype)),
        queue_(current_queue(a.device)),
        device_(queue_.device()),
        group_(group_of(device_)),
        sides_(sides) {
    const uint64_t n = static_cast<uint64_t>(a.rows);
    if (device_.is_cpu() && device_.properties().has_fp64) {
      if (n <= kMostDouble) compute_ = doubled(a.dtype);
      // One work-item's chain takes a tenth longer, and the values' error is a tenth.
      iterate_ = c10::ScalarType::Double;
    }
    element_ = c10::elementSize(compute_);
    const size_t real = c10::elementSize(c10::toRealValueType(compute_));
    shape_.n = static_cast<uint32_t>(n);
    // A work-item's rows are a vector's on a CPU: of doubles two registers, which don't wait for
    // each other.
    width_ = !device_.is_cpu() ? 1 : n <= 8 ? 8 : 16;
    items_ = device_.is_cpu() ? 1 : 32;
    // A value takes two or three sweeps, over half of the matrix on average. What the vectors need
    // is written down, which bounds the iteration.
    shape_.streams = vectors ? sides : 0;
    shape_.sweep_capacity = static_cast<uint32_t>(vectors ? 6 * n + 64 : 32 * n);
    shape_.capacity = static_cast<uint32_t>(vectors ? 3 * n * n + 64 * n : 32 * n * n);
    // An odd number of cache lines: columns don't fall into the same sets.
    ld_ = static_cast<uint32_t>((n + 15) / 16 | 1) * 16;
    const uint64_t rows = round_up(n, width_ * items_);
    bytes_ = {sides * n * ld_ * element_,
              sides * n * element_,
              2 * n * c10::elementSize(iterate_),
              vectors ? 2 * sides * shape_.capacity * real : 0,
              vectors ? 2 * shape_.sweep_capacity * sizeof(uint32_t) : 0,
              (n + 1) * sizeof(uint32_t),
              vectors ? rows * n * element_ : 0};
    uint64_t each = 0;
    for (const uint64_t bytes : bytes_) each += bytes;
    slice_ = std::clamp<int64_t>(static_cast<int64_t>(kScratchBytes / each), 1, a.batch);
    for (size_t i = 0; i < bytes_.size(); ++i)
      memory_[i] = allocator()->allocate(std::max<size_t>(bytes_[i] * slice_, 1));
  }

  /// Matrices done at a time.
  int64_t slice() const { return slice_; }

  /// To a diagonal and the one beside it. `upper`: the triangle that is read.
  void tridiagonalise(const MatrixBatch& a, bool upper, int32_t* info) const {
    reduce({*this, a, info, false, upper});
  }
  void bidiagonalise(const MatrixBatch& a, int32_t* info) const {
    reduce({*this, a, info, true, false});
  }

  void iterate(const Iteration& iteration, void* values, int32_t* info, int64_t batch) const {
    IterationPlan plan{*this, iteration, values, info, batch};
    run_first(iteration_engine, kIterations, plan, [](const IterationPlan& plan) {
      return std::string(iteration_engine.name()) + " " + std::to_string(plan.batch) + "x" +
             std::to_string(plan.spectral.shape_.n) + " " + tag(plan.spectral.iterate_);
    });
  }

  /// Side `side` of the vectors, whose rotations are those of `stream`.
  void vectors(const MatrixBatch& out, uint32_t side, uint32_t stream, uint32_t first,
               bool negate) const {
    const VectorArguments arguments{shape_.n,        ld_,
                                    first,           sides_ * shape_.n,
                                    shape_.capacity, shape_.sweep_capacity,
                                    shape_.streams,  stream,
                                    out.conjugate,   negate};
    Kernel& kernel = vector_family.get(
        device_,
        {{"C", tag(compute_)}, {"OUT", tag(dtype_)}, {"WIDTH", width_}, {"GROUP", items_}});
    const size_t items = round_up(shape_.n, width_ * items_) / width_;
    launch(kernel, queue_, NDRange::linear(out.batch * items, items_), reflections(side), tau(side),
           at(kRotations), at(kSweeps), at(kOrders), at(kRows), Pointer{out.data}, strides_of(out),
           arguments);
  }

 private:
  struct ReductionPlan {
    const Spectral& spectral;
    const MatrixBatch& a;
    int32_t* info;
    bool two_sided, upper;
  };
  struct IterationPlan {
    const Spectral& spectral;
    const Iteration& iteration;
    void* values;
    int32_t* info;
    int64_t batch;
  };
  static const Implementation<ReductionPlan> reduction_columns, reduction_group;
  static const Implementation<IterationPlan> iteration_lanes, iteration_single;
  static const Implementation<ReductionPlan>* const kReductions[2];
  static const Implementation<IterationPlan>* const kIterations[2];
  static const Engine reduction_engine, iteration_engine;

  void reduce(ReductionPlan plan) const {
    run_first(reduction_engine, kReductions, plan,
              [](const ReductionPlan& plan) { return describe(reduction_engine, plan.a); });
  }
  void reduce_columns(const ReductionPlan& plan) const;
  void reduce_group(const ReductionPlan& plan) const;
  /// Matrices in the lanes of a vector: every compute unit gets a work-item before a vector gets
  /// another lane.
  size_t iteration_width(int64_t batch) const {
    const int64_t units = device_.properties().compute_units;
    const size_t most = longest_lanes(iterate_);
    size_t width = 1;
    while (device_.is_cpu() && width < std::min<size_t>(most, 8) &&
           static_cast<int64_t>(width) * units < batch)
      width *= 2;
    return width;
  }
  void iterate_lanes(const IterationPlan& plan) const;
  void iterate_single(const IterationPlan& plan) const;

  enum Part { kReflections, kTau, kDiagonals, kRotations, kSweeps, kOrders, kRows, kParts };

  Kernel& reduction(const KernelFamily& family) const {
    return family.get(
        device_,
        {{"C", tag(compute_)}, {"A", tag(dtype_)}, {"D", tag(iterate_)}, {"GROUP", group_}});
  }
  Kernel& columns_reduction(const KernelFamily& family) const {
    const size_t lanes = longest_lanes(c10::toRealValueType(compute_));
    return family.get(
        device_,
        {{"C", tag(compute_)}, {"A", tag(dtype_)}, {"D", tag(iterate_)}, {"LANES", lanes}});
  }
  /// Rows of a column that is whole vectors.
  uint32_t padded() const { return (shape_.n + 15) / 16 * 16; }
  Pointer at(Part part) const { return {memory_[part].get()}; }
  Pointer reflections(uint32_t side) const {
    const size_t each = size_t{shape_.n} * ld_ * element_;
    return {static_cast<char*>(memory_[kReflections].get()) + side * slice_ * each};
  }
  Pointer tau(uint32_t side) const {
    return {static_cast<char*>(memory_[kTau].get()) + side * shape_.n * element_};
  }

  c10::ScalarType dtype_, compute_, iterate_;
  Queue& queue_;
  Device& device_;
  size_t element_ = 0, group_, width_ = 1, items_ = 1;
  uint32_t sides_, ld_ = 0;
  IterationArguments shape_{};
  std::array<uint64_t, kParts> bytes_{};
  std::array<c10::DataPtr, kParts> memory_;
  int64_t slice_ = 1;
};

void Spectral::reduce_columns(const ReductionPlan& plan) const {
  const MatrixBatch& a = plan.a;
  const NDRange range = NDRange::linear(a.batch, 1);
  if (plan.two_sided) {
    launch(columns_reduction(bidiagonal_columns_family), queue_, range, Pointer{a.data},
           reflections(0), reflections(1), tau(0), at(kDiagonals), Pointer{plan.info},
           strides_of(a), shape_.n, ld_, padded(), LocalMemory{8 * padded() * element_});
  } else {
    launch(columns_reduction(tridiagonal_columns_family), queue_, range, Pointer{a.data},
           reflections(0), tau(0), at(kDiagonals), Pointer{plan.info}, strides_of(a), shape_.n, ld_,
           padded(), static_cast<uint32_t>(plan.upper), LocalMemory{4 * padded() * element_});
  }
}

void Spectral::reduce_group(const ReductionPlan& plan) const {
  const MatrixBatch& a = plan.a;
  const NDRange range = NDRange::linear(a.batch * group_, group_);
  const LocalMemory vector{a.rows * element_};
  if (plan.two_sided) {
    launch(reduction(bidiagonal_family), queue_, range, Pointer{a.data}, reflections(0),
           reflections(1), tau(0), at(kDiagonals), Pointer{plan.info}, strides_of(a), shape_.n, ld_,
           vector, vector, vector, vector);
  } else {
    launch(reduction(tridiagonal_family), queue_, range, Pointer{a.data}, reflections(0), tau(0),
           at(kDiagonals), Pointer{plan.info}, strides_of(a), shape_.n, ld_,
           static_cast<uint32_t>(plan.upper), vector, vector);
  }
}

void Spectral::iterate_single(const IterationPlan& plan) const {
  const char* value = tag(c10::toRealValueType(dtype_));
  const char* rotation = tag(c10::toRealValueType(compute_));
  launch(plan.iteration.alone.get(device_,
                                  {{"C", tag(iterate_)}, {"OUT", value}, {"ROTATION", rotation}}),
         queue_, NDRange::linear(plan.batch, 1), at(kDiagonals), Pointer{plan.values},
         at(kRotations), at(kSweeps), at(kOrders), Pointer{plan.info}, shape_,
         static_cast<uint64_t>(plan.batch));
}

void Spectral::iterate_lanes(const IterationPlan& plan) const {
  const size_t width = iteration_width(plan.batch);
  const char* value = tag(c10::toRealValueType(dtype_));
  const char* rotation = tag(c10::toRealValueType(compute_));
  launch(plan.iteration.lanes.get(
             device_,
             {{"C", tag(iterate_)}, {"OUT", value}, {"ROTATION", rotation}, {"WIDTH", width}}),
         queue_, NDRange::linear(ceil_div(static_cast<size_t>(plan.batch), width), 1),
         at(kDiagonals), Pointer{plan.values}, at(kRotations), at(kSweeps), at(kOrders),
         Pointer{plan.info}, shape_, static_cast<uint64_t>(plan.batch),
         LocalMemory{2 * shape_.n * width * c10::elementSize(iterate_)});
}

const Implementation<Spectral::ReductionPlan> Spectral::reduction_columns{
    "columns",
    [](const ReductionPlan& plan) {
      return plan.spectral.device_.is_cpu() ? nullptr : "a kernel for CPUs";
    },
    [](ReductionPlan& plan) { plan.spectral.reduce_columns(plan); }};
const Implementation<Spectral::ReductionPlan> Spectral::reduction_group{
    "group", [](const ReductionPlan&) -> const char* { return nullptr; },
    [](ReductionPlan& plan) { plan.spectral.reduce_group(plan); }};
const Implementation<Spectral::IterationPlan> Spectral::iteration_lanes{
    "lanes",
    [](const IterationPlan& plan) {
      return plan.spectral.iteration_width(plan.batch) == 1 ? "no CPU, or as many cores as matrices"
                                                            : nullptr;
    },
    [](IterationPlan& plan) { plan.spectral.iterate_lanes(plan); }};
const Implementation<Spectral::IterationPlan> Spectral::iteration_single{
    "single", [](const IterationPlan&) -> const char* { return nullptr; },
    [](IterationPlan& plan) { plan.spectral.iterate_single(plan); }};
const Implementation<Spectral::ReductionPlan>* const Spectral::kReductions[2] = {&reduction_columns,
                                                                                 &reduction_group};
const Implementation<Spectral::IterationPlan>* const Spectral::kIterations[2] = {&iteration_lanes,
                                                                                 &iteration_single};
const Engine Spectral::reduction_engine{"linalg_condense", kReductions};
const Engine Spectral::iteration_engine{"linalg_implicit_qr", kIterations};

/// Matrices [first, first + count) of a batch.
MatrixBatch slice_of(const MatrixBatch& matrices, int64_t first, int64_t count) {
  MatrixBatch result = matrices;
  result.data +=
      first * matrices.batch_stride * static_cast<int64_t>(c10::elementSize(matrices.dtype));
  result.batch = count;
  return result;
}

/// Calls work(first, count, their values, their info) for slices of the batch.
template <class Work>
void for_slices(const MatrixBatch& a, int64_t most, void* values, int32_t* info, const Work& work) {
  const int64_t row =
      a.rows * static_cast<int64_t>(c10::elementSize(c10::toRealValueType(a.dtype)));
  for (int64_t first = 0; first < a.batch; first += most)
    work(first, std::min(most, a.batch - first), static_cast<char*>(values) + first * row,
         info + first);
}

}  // namespace

void hermitian_eigen(const MatrixBatch& a, bool upper, void* values, const MatrixBatch* vectors,
                     int32_t* info) {
  if (a.empty()) return;
  const Spectral spectral(a, 1, vectors);
  for_slices(a, spectral.slice(), values, info,
             [&](int64_t first, int64_t count, void* some_values, int32_t* some_info) {
               spectral.tridiagonalise(slice_of(a, first, count), upper, some_info);
               spectral.iterate(eigenvalue_iteration, some_values, some_info, count);
               if (vectors) spectral.vectors(slice_of(*vectors, first, count), 0, 0, 1, false);
             });
}

void square_svd(const MatrixBatch& a, void* values, const MatrixBatch* u, const MatrixBatch* vh,
                int32_t* info) {
  if (a.empty()) return;
  const Spectral spectral(a, 2, u);
  for_slices(a, spectral.slice(), values, info,
             [&](int64_t first, int64_t count, void* some_values, int32_t* some_info) {
               spectral.bidiagonalise(slice_of(a, first, count), some_info);
               spectral.iterate(singular_value_iteration, some_values, some_info, count);
               if (!u) return;
               const MatrixBatch v = slice_of(*vh, first, count).transposed().conjugated();
               spectral.vectors(slice_of(*u, first, count), 0, 1, 0, false);
               spectral.vectors(v, 1, 0, 1, true);
             });
}

}  // namespace ocl::linalg
