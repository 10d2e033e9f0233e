#include "engine/reduce/plan.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <span>

#include "engine/occupancy.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "runtime/allocator.h"

namespace ocl::reduce {

namespace {

// A chunk is what one set of accumulators takes: short enough that rounding errors stay at the
// level of pairwise summation and that a chunk which is read twice (moments) still lies in the L1
// cache.
constexpr uint32_t kRowChunk = 4096;

const KernelFamily rows_family{"reduce/rows.cl", "reduce_rows"};
const KernelFamily columns_family{"reduce/columns.cl", "reduce_columns"};
const KernelFamily partials_family{"reduce/partials.cl", "reduce_partials"};

class DefineList {
 public:
  DefineList(const Op& op, const Operands& operands, int width)
      : defines_{Define{"STATE", static_cast<int>(op.state)},
                 Define{"OP", op.functor},
                 Define{"IN", operands.in_tag},
                 Define{"OUT", operands.out_tag},
                 Define{"C", operands.load_tag},
                 Define{"ACC", operands.acc_tag},
                 Define{"S", operands.scalar_tag},
                 Define{"WIDTH", width},
                 Define{"INDEX_ONLY", op.index_only},
                 Define{"ROOT", op.root},
                 Define{"MEAN", operands.has_second}} {
    if (operands.in_float8) add("NEED_FLOAT8", 1);
  }
  void add(const char* name, int64_t value) { defines_[count_++] = Define{name, value}; }
  std::span<const Define> view() const { return {defines_.data(), count_}; }

 private:
  std::array<Define, 16> defines_;
  size_t count_ = 11;
};

void put_dimension(Arguments& arguments, int index, const Dimension& dimension) {
  arguments.in_stride[index] = dimension.in;
  arguments.out_stride[0][index] = dimension.out[0];
  arguments.out_stride[1][index] = dimension.out[1];
  arguments.size[index] = static_cast<uint32_t>(dimension.size);
}

/// Work-items that share a row on a GPU: neighbours should read neighbouring elements, several
/// vectors each. Where there are rows enough to keep it busy, smaller groups have less to combine.
/// `held`: elements that each can hold in registers between two passes, 0 if one pass is enough.
size_t gpu_group(const Device& device, int64_t elements, int64_t outputs, bool contiguous,
                 int64_t held) {
  const ReduceRow& table = device_row(device).reduce;
  const bool many_rows =
      outputs >= int64_t{device.properties().compute_units} * table.many_rows_per_unit;
  if (elements >= table.large_row && !many_rows) return table.large_group;
  const auto holds = [&](size_t group) { return elements <= static_cast<int64_t>(group) * held; };
  if (held > 0 && !holds(table.small_group)) {
    size_t group = table.small_group;
    while (group < table.large_group && !holds(group)) group *= 2;
    return group;
  }
  if (elements >= table.small_row) return table.small_group;
  return contiguous && elements >= table.least_row ? table.least_group : 1;
}

}  // namespace

Plan::Plan(const Op& op, Queue& queue, const Operands& operands, Geometry& geometry,
           Scalars scalars)
    : op_(op),
      queue_(queue),
      device_(queue.device()),
      operands_(operands),
      geometry_(geometry),
      scalars_(scalars),
      contiguous_rows_(geometry.reduced_count == 0 || geometry.reduced[0].in == operands.in_size) {
  const bool rows = geometry.reduced_count > 0 && contiguous_rows_;
  if (!rows && geometry.reduced_elements() <= UINT32_MAX &&
      geometry.column_first(operands.in_size)) {
    columns_ = geometry.kept[0].size;
  }
  fill_arguments();
  if (!device_.is_cpu()) held_vectors_ = hold_rows();
}

void Plan::fill_arguments() {
  const int reduced_dims = std::max(0, geometry_.reduced_count - 1);
  TORCH_CHECK_NOT_IMPLEMENTED(reduced_dims + geometry_.kept_count <= kMaxDims,
                              "ocl: a reduction of more than ", kMaxDims,
                              " dimensions that can't be merged; make the input contiguous");
  const int64_t outputs = geometry_.outputs();
  TORCH_CHECK_NOT_IMPLEMENTED(outputs <= UINT32_MAX, "ocl: a reduction to ", outputs, " elements");
  arguments_.length = geometry_.reduced_count > 0 ? geometry_.reduced[0].size : 1;
  arguments_.step = geometry_.reduced_count > 0 ? geometry_.reduced[0].in : 0;
  int index = 0;
  for (int i = 1; i < geometry_.reduced_count; ++i) {
    put_dimension(arguments_, index++, geometry_.reduced[i]);
  }
  for (int i = 0; i < geometry_.kept_count; ++i) {
    put_dimension(arguments_, index++, geometry_.kept[i]);
  }
  arguments_.reduced_dims = reduced_dims;
  arguments_.kept_dims = geometry_.kept_count;
  arguments_.outputs = static_cast<uint32_t>(outputs);
  arguments_.outputs_per_item = 1;
  arguments_.splits = 1;
}

void Plan::choose_chunks(uint32_t chunk) {
  const uint64_t length = arguments_.length;
  const uint64_t per_row = ceil_div(length, chunk);
  const uint64_t rows =
      length == 0 ? 0 : static_cast<uint64_t>(geometry_.reduced_elements()) / length;
  TORCH_CHECK_NOT_IMPLEMENTED(per_row * rows <= UINT32_MAX, "ocl: a reduction of ", length * rows,
                              " elements to one");
  arguments_.chunk = chunk;
  arguments_.chunks_per_row = static_cast<uint32_t>(std::max<uint64_t>(1, per_row));
  arguments_.chunks = static_cast<uint32_t>(per_row * rows);
}

void Plan::choose_splits(int64_t parts_per_split, int64_t elements_per_split) {
  const int64_t wanted = ceil_div(wanted_items(), parts_per_split);
  const int64_t worthwhile = elements_per_split / table_.item_elements;
  const int64_t splits =
      std::min<int64_t>({wanted, worthwhile, static_cast<int64_t>(arguments_.chunks)});
  arguments_.splits = static_cast<uint32_t>(std::max<int64_t>(1, splits));
}

void Plan::allocate_partials() {
  const uint64_t states = uint64_t{arguments_.splits} * arguments_.outputs;
  const uint64_t acc = static_cast<uint64_t>(operands_.acc_size);
  uint64_t bytes[3] = {acc, 0, 0};
  if (op_.state == State::arg) {
    bytes[0] = static_cast<uint64_t>(operands_.load_size);
    bytes[1] = 8;
  } else if (op_.state == State::moments) {
    bytes[0] = 8;  // in single precision the mean is a pair
    bytes[1] = acc;
    bytes[2] = 8;
  }
  uint64_t total = 0;
  for (int i = 0; i < 3; ++i) {
    arguments_.partial_start[i] = total;
    total += (bytes[i] * states + 63) / 64 * 64;
  }
  // Freed when this object goes: the allocator hands the memory out again in the queue's order.
  partials_ = allocator()->allocate(total);
}

void Plan::enqueue(Kernel& kernel, const NDRange& range) {
  launch(kernel, queue_, of_work(range), Pointer{operands_.in}, Pointer{operands_.out},
         Pointer{operands_.has_second ? operands_.second : nullptr}, Pointer{partials_.get()},
         arguments_, scalar(scalars_.s0), scalar(scalars_.s1));
}

bool Plan::aligned_input(int width, const Dimension* walked) const {
  const auto bytes = static_cast<uint64_t>(width * operands_.in_size);
  if (device_.is_cpu() || width == 1) return false;
  const auto steps_by_vectors = [&](const Dimension& dimension) {
    return &dimension == walked || static_cast<uint64_t>(dimension.in) % bytes == 0;
  };
  const auto kept = geometry_.kept.begin(), reduced = geometry_.reduced.begin();
  return reinterpret_cast<uintptr_t>(operands_.in) % bytes == 0 &&
         std::all_of(kept, kept + geometry_.kept_count, steps_by_vectors) &&
         std::all_of(reduced, reduced + geometry_.reduced_count, steps_by_vectors);
}

bool Plan::aligned_columns(int width) const {
  const auto bytes = static_cast<uint64_t>(width * operands_.out_size);
  if (geometry_.kept[0].size % width != 0 || operands_.has_second) return false;
  for (int i = 0; i < geometry_.kept_count; ++i) {
    const int64_t stride = geometry_.kept[i].out[0];
    if ((i > 0 || stride != operands_.out_size) && static_cast<uint64_t>(stride) % bytes != 0)
      return false;
  }
  return reinterpret_cast<uintptr_t>(operands_.out) % bytes == 0 &&
         aligned_input(width, &geometry_.kept[0]);
}

size_t Plan::row_group() const {
  if (device_.is_cpu()) return 1;
  const int64_t held = op_.state == State::moments && contiguous_rows_ ? held_elements() : 0;
  return gpu_group(device_, geometry_.reduced_elements(), arguments_.outputs, contiguous_rows_,
                   held);
}

/// Whether a row has enough chunks of long_row_chunk to keep a GPU busy. A large group has
/// little of 4096 elements each.
bool Plan::long_rows(size_t group) const {
  return group == table_.large_group &&
         geometry_.reduced_elements() / table_.long_row_chunk >= groups_of_units(device_);
}

/// Makes the chunks of a single row as many for each split: `most` or fewer, each a multiple of
/// `unit` elements.
void Plan::even_out_chunks(uint64_t most, uint64_t unit) {
  if (arguments_.splits == 1 || arguments_.chunks != arguments_.chunks_per_row) return;
  const uint64_t of_each = ceil_div(arguments_.chunks, arguments_.splits);
  const uint64_t chunks = std::min(of_each, most) * arguments_.splits;
  const uint64_t length = ceil_div(arguments_.length, chunks);
  choose_chunks(static_cast<uint32_t>(ceil_div(length, unit) * unit));
  arguments_.splits = std::min(arguments_.splits, arguments_.chunks);
}

void Plan::choose_row_splits(size_t group) {
  choose_chunks(long_rows(group) ? table_.long_row_chunk : kRowChunk);
  choose_splits(int64_t{arguments_.outputs} * static_cast<int64_t>(group),
                geometry_.reduced_elements());
}

/// A work-item holds so many elements of a row: as many as the table says, or fewer where there are
/// fewer registers.
int64_t Plan::held_elements() const {
  const auto bytes = static_cast<size_t>(std::max<int64_t>(operands_.in_size, 4));
  const auto group = static_cast<int64_t>(table_.large_group);
  int64_t held = table_.register_elements;
  while (held > 0 && held_occupancy(device_, held, bytes, group) == 0) held /= 2;
  return held;
}

int64_t Plan::hold_rows() {
  const size_t group = row_group();
  if (group == 1 || op_.state != State::moments || !contiguous_rows_ ||
      geometry_.reduced_count != 1)
    return 0;
  choose_row_splits(group);
  const int64_t elements = geometry_.reduced_elements();
  const bool fits = arguments_.splits == 1 && elements % width() == 0 &&
                    elements <= held_elements() * static_cast<int64_t>(group);
  return fits ? ceil_div(elements, static_cast<int64_t>(group) * width()) : 0;
}

/// `held`: vectors of a row in each work-item's registers, or 0.
void Plan::run_rows(int64_t held) {
  const int64_t elements = geometry_.reduced_elements();
  const bool cpu = device_.is_cpu();
  const size_t group = row_group();
  choose_row_splits(group);
  if (op_.state == State::arg && !cpu) {
    // Nothing is added up, so that no chunk is too long; and where one ends the lanes' places are
    // compared, which costs as much as many of its elements.
    even_out_chunks(1, group * static_cast<size_t>(operands_.max_width));
  }
  if (cpu && arguments_.splits == 1) {
    const int64_t worthwhile = table_.item_elements / std::max<int64_t>(1, elements);
    const int64_t wanted = arguments_.outputs / (wanted_items() * 4);
    arguments_.outputs_per_item = static_cast<uint32_t>(std::max<int64_t>({1, worthwhile, wanted}));
  }
  const bool partial = arguments_.splits > 1;
  if (partial) allocate_partials();

  DefineList defines(op_, operands_, operands_.max_width);
  defines.add("CONTIGUOUS", contiguous_rows_);
  defines.add("GROUP", static_cast<int64_t>(group));
  if (held > 0) defines.add("ROW_VECTORS", held);
  if (contiguous_rows_ && aligned_input(operands_.max_width, &geometry_.reduced[0]))
    defines.add("ALIGNED_VECTORS", 1);
  const uint32_t per_item = arguments_.outputs_per_item;
  const size_t groups = size_t{ceil_div(arguments_.outputs, per_item)} * arguments_.splits;
  const size_t local = group > 1 ? group : cpu ? 1 : group_of_rows(device_);
  enqueue(rows_family.get(device_, defines.view()), NDRange::linear(groups * group, local));
  if (partial) run_partials();
}

void Plan::run_columns(int width, uint32_t most_vectors) {
  gpu_items_ = device_row(device_).resident_column_items;
  const uint32_t columns = arguments_.size[arguments_.reduced_dims];
  const auto lanes = static_cast<uint32_t>(width);
  const uint32_t vectors = std::min(most_vectors, columns / lanes);
  const uint32_t tile = lanes * vectors;
  arguments_.columns = columns;
  arguments_.tiles = ceil_div(columns, tile);
  arguments_.tile_vectors = vectors;
  const int64_t items = int64_t{arguments_.tiles} * (arguments_.outputs / columns);
  choose_chunks(table_.column_chunk);
  choose_splits(items, geometry_.reduced_elements() * tile);
  if (!device_.is_cpu()) even_out_chunks(arguments_.chunks, 1);
  const bool partial = arguments_.splits > 1;
  if (partial) allocate_partials();

  DefineList defines(op_, operands_, width);
  defines.add("VECTORS", most_vectors);
  if (aligned_columns(width)) defines.add("ALIGNED_VECTORS", 1);
  enqueue(columns_family.get(device_, defines.view()),
          NDRange::linear(static_cast<size_t>(items) * arguments_.splits,
                          device_.is_cpu() ? 1 : group_of_rows(device_)));
  if (partial) run_partials();
}

void Plan::run_partials() {
  DefineList defines(op_, operands_, 1);
  size_t group = 1, side_by_side = 1, local = group_of_lanes(device_);
  if (!device_.is_cpu() && arguments_.splits >= table_.shared_splits) {
    const bool several = arguments_.outputs >= table_.partials_outputs;
    side_by_side = several ? table_.partials_outputs : 1;
    group = several ? table_.partials_group_of_each : table_.partials_group;
    local = group * side_by_side;
    defines.add("OUTPUTS", static_cast<int64_t>(side_by_side));
  }
  defines.add("GROUP", static_cast<int64_t>(group));
  const size_t groups = ceil_div(arguments_.outputs, side_by_side);
  const NDRange range = NDRange::linear(groups * side_by_side * group, local);
  launch(partials_family.get(device_, defines.view()), queue_, of_work(range),
         Pointer{operands_.out}, Pointer{operands_.has_second ? operands_.second : nullptr},
         Pointer{partials_.get()}, arguments_, scalar(scalars_.s0), scalar(scalars_.s1));
}

std::string Plan::describe() const {
  return std::string("reduce ") + op_.functor + " " + std::to_string(geometry_.outputs()) + " of " +
         std::to_string(geometry_.reduced_elements()) + " " + operands_.in_tag + "->" +
         operands_.out_tag;
}

}  // namespace ocl::reduce
