#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>
#include <string>

#include "engine/device_table.h"
#include "engine/norm/norm.h"
#include "engine/norm/plan.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "runtime/allocator.h"
#include "runtime/stream.h"

namespace ocl::norm {

using c10::ScalarType;

/// A batch norm: statistics and perhaps what they make of the input, that of given statistics, or
/// the gradients.
struct ChannelPlan {
  enum Kind { statistics, given, gradients };
  ChannelPlan(Kind kind, const at::Tensor& x, const ChannelVectors& vectors, const at::Tensor& stat,
              double eps, const at::Tensor& out);

  const Kind kind;
  const at::Tensor& x;
  const ChannelVectors& vectors;
  const double eps;
  const at::Tensor& out;  // undefined: not wanted
  // Statistics have these.
  const at::Tensor *mean = nullptr, *rstd = nullptr;
  double momentum = 0;
  bool variance = false;
  // Gradients have these.
  const at::Tensor *grad = nullptr, *dweight = nullptr, *dbias = nullptr;
  bool train = false;
  // The elements' coefficients, if they are known.
  const at::Tensor* coefficients = nullptr;

  Device& device;
  Queue& queue;
  const ScalarType acc;
  const char *in_tag, *stat_tag, *acc_tag;
  const int64_t channels, count, inner;
  ChannelArguments arguments{};

  bool needs_sums() const {
    if (coefficients != nullptr) return false;
    return kind == statistics ||
           (kind == gradients && (train || dweight->defined() || dbias->defined()));
  }
  c10::DataPtr allocate(int64_t arrays) const {
    return allocator()->allocate(static_cast<size_t>(arrays * channels) * c10::elementSize(acc));
  }
};

ChannelPlan::ChannelPlan(Kind kind, const at::Tensor& x, const ChannelVectors& vectors,
                         const at::Tensor& stat, double eps, const at::Tensor& out)
    : kind(kind),
      x(x),
      vectors(vectors),
      eps(eps),
      out(out),
      device(ocl::device(x.device().index())),
      queue(current_queue(x.device().index())),
      acc(compute_dtype(x.scalar_type())),
      in_tag(tag(x.scalar_type())),
      stat_tag(tag(stat.scalar_type())),
      acc_tag(tag(acc)),
      channels(x.size(1)),
      count(x.numel() / std::max<int64_t>(channels, 1)),
      inner(std::max<int64_t>(count / std::max<int64_t>(x.size(0), 1), 1)) {
  TORCH_CHECK_NOT_IMPLEMENTED(channels <= UINT32_MAX && count <= UINT32_MAX,
                              "ocl: batch norm of more than 2^32 channels or positions");
  arguments.channels = static_cast<uint32_t>(channels);
  arguments.inner = static_cast<uint32_t>(inner);
  arguments.count = static_cast<uint32_t>(count);
}

namespace {

constexpr int64_t kMostParts = 256;
// How many times kLastLoaded positions a work-item of channels_last takes. That many for the sums
// bound what shifted sums lose in rounding, since kLastLoaded of each work-item give the shift.
constexpr int64_t kLastLeastSumSteps = 2, kLastMostSumSteps = 64, kLastMostElementSteps = 8;

const KernelFamily statistics_family{"norm/channels.cl", "channel_statistics"};
const KernelFamily given_family{"norm/channels.cl", "channel_given"};
const KernelFamily gradients_family{"norm/channels.cl", "channel_gradients"};

/// The kernels of an implementation, those for the sums and those for the elements.
struct Families {
  KernelFamily moments, gradient_sums, normalize, gradient;
};
const Families plane_families{{"norm/planes.cl", "plane_moments"},
                              {"norm/planes.cl", "plane_gradient_sums"},
                              {"norm/planes.cl", "plane_normalize"},
                              {"norm/planes.cl", "plane_gradient"}};
const Families column_families{{"norm/columns.cl", "column_moments"},
                               {"norm/columns.cl", "column_gradient_sums"},
                               {"norm/columns.cl", "column_normalize"},
                               {"norm/columns.cl", "column_gradient"}};
const Families channels_last_families{{"norm/channels_last.cl", "channels_last_moments"},
                                      {"norm/channels_last.cl", "channels_last_gradient_sums"},
                                      {"norm/channels_last.cl", "channels_last_normalize"},
                                      {"norm/channels_last.cl", "channels_last_gradient"}};

/// How an implementation cuts its work: `part` positions of a channel, or elements, for each
/// work-item or work-group of a range.
struct Cut {
  int64_t part;
  NDRange range;
};

/// An implementation's compile parameters and cuts.
struct Setup {
  const Families& families;
  std::initializer_list<Define> defines;
  Cut sums, elements;
};

Kernel& kernel_of(const ChannelPlan& plan, const KernelFamily& family,
                  std::initializer_list<Define> more) {
  std::array<Define, 8> defines{
      {{"IN", plan.in_tag}, {"STAT", plan.stat_tag}, {"ACC", plan.acc_tag}}};
  std::copy(more.begin(), more.end(), defines.begin() + 3);
  return family.get(plan.device, std::span<const Define>(defines.data(), 3 + more.size()));
}

/// Work-items that share the parts of a channel: as many as fit a group.
size_t part_items(const Device& device) {
  const ChannelRow& table = device_row(device).channels;
  const size_t most =
      device.properties().max_work_group_size / static_cast<size_t>(table.group_channels);
  return std::bit_floor(std::clamp<size_t>(most, 1, static_cast<size_t>(table.part_items)));
}

/// A kernel of channels.cl. `shares_parts`: work-items of a GPU share those of a channel.
Kernel& channel_kernel(const ChannelPlan& plan, const KernelFamily& family, bool shares_parts) {
  const bool shares = shares_parts && !plan.device.is_cpu();
  return family.get(plan.device,
                    {{"IN", plan.in_tag},
                     {"PARAM", plan.stat_tag},
                     {"STAT", plan.stat_tag},
                     {"ACC", plan.acc_tag},
                     {"WEIGHT", plan.vectors.weight.defined()},
                     {"BIAS", plan.kind != ChannelPlan::gradients && plan.vectors.bias.defined()},
                     {"VARIANCE", plan.variance},
                     {"CHANNELS", shares ? device_row(plan.device).channels.group_channels : 1},
                     {"PART_ITEMS", shares ? part_items(plan.device) : 1}});
}

NDRange channel_range(const ChannelPlan& plan, bool shares_parts) {
  const auto channels = static_cast<size_t>(plan.channels);
  if (plan.device.is_cpu()) return NDRange::linear(channels, 1);
  if (!shares_parts) return NDRange::linear(channels, group_of_rows(plan.device));
  const auto side_by_side = static_cast<size_t>(device_row(plan.device).channels.group_channels);
  const size_t items = part_items(plan.device);
  return NDRange::grid(channels, items, side_by_side, items);
}

uint32_t flag(bool set, uint32_t value) { return set ? value : 0; }

void run_elements(ChannelPlan& plan, const Setup& setup, const void* coefficients) {
  if (!plan.out.defined()) return;
  plan.arguments.part = static_cast<uint32_t>(setup.elements.part);
  if (plan.kind != ChannelPlan::gradients) {
    launch(kernel_of(plan, setup.families.normalize, setup.defines), plan.queue,
           setup.elements.range, Pointer{plan.x.const_data_ptr()},
           Pointer{plan.out.const_data_ptr()}, Pointer{coefficients}, plan.arguments);
  } else {
    launch(kernel_of(plan, setup.families.gradient, setup.defines), plan.queue,
           setup.elements.range, Pointer{plan.grad->const_data_ptr()},
           Pointer{plan.x.const_data_ptr()}, Pointer{plan.out.const_data_ptr()},
           Pointer{coefficients}, plan.arguments);
  }
}

/// Sums where there are any, then coefficients per channel, then elements if they are wanted.
void run_steps(ChannelPlan& plan, const Setup& setup) {
  if (plan.coefficients != nullptr) {
    return run_elements(plan, setup, plan.coefficients->const_data_ptr());
  }
  const ChannelVectors& vectors = plan.vectors;
  ChannelArguments& arguments = plan.arguments;
  Queue& queue = plan.queue;
  const ScalarArgument eps = scalar_argument(plan.acc, plan.eps);
  const bool forward = plan.kind != ChannelPlan::gradients;
  c10::DataPtr partial;
  if (plan.needs_sums()) {
    arguments.part = static_cast<uint32_t>(setup.sums.part);
    arguments.parts = static_cast<uint32_t>(ceil_div(plan.count, setup.sums.part));
    partial = plan.allocate(int64_t{2} * arguments.parts + 1);
    Kernel& kernel = kernel_of(
        plan, forward ? setup.families.moments : setup.families.gradient_sums, setup.defines);
    if (forward) {
      launch(kernel, queue, setup.sums.range, Pointer{plan.x.const_data_ptr()},
             Pointer{partial.get()}, arguments);
    } else {
      launch(kernel, queue, setup.sums.range, Pointer{plan.grad->const_data_ptr()},
             Pointer{plan.x.const_data_ptr()}, Pointer{vectors.mean.const_data_ptr()},
             Pointer{partial.get()}, arguments);
    }
  }
  const c10::DataPtr coefficients = plan.allocate(4);
  switch (plan.kind) {
    case ChannelPlan::statistics:
      arguments.flags =
          flag(vectors.mean.defined(), kRunningMean) | flag(vectors.var.defined(), kRunningVar);
      launch(channel_kernel(plan, statistics_family, true), queue, channel_range(plan, true),
             Pointer{partial.get()}, Pointer{plan.mean->const_data_ptr()},
             Pointer{plan.rstd->const_data_ptr()}, Pointer{address_of(vectors.mean)},
             Pointer{address_of(vectors.var)}, Pointer{address_of(vectors.weight)},
             Pointer{address_of(vectors.bias)}, Pointer{coefficients.get()},
             scalar_argument(plan.acc, plan.momentum), eps, arguments);
      break;
    case ChannelPlan::given:
      launch(channel_kernel(plan, given_family, false), queue, channel_range(plan, false),
             Pointer{vectors.mean.const_data_ptr()}, Pointer{vectors.var.const_data_ptr()},
             Pointer{address_of(vectors.weight)}, Pointer{address_of(vectors.bias)},
             Pointer{coefficients.get()}, eps, arguments);
      break;
    case ChannelPlan::gradients:
      arguments.flags = flag(plan.train, kTrain) | flag(plan.dweight->defined(), kGradWeight) |
                        flag(plan.dbias->defined(), kGradBias);
      launch(channel_kernel(plan, gradients_family, true), queue, channel_range(plan, true),
             Pointer{partial.get()}, Pointer{vectors.mean.const_data_ptr()},
             Pointer{vectors.var.const_data_ptr()}, Pointer{address_of(vectors.weight)},
             Pointer{address_of(*plan.dweight)}, Pointer{address_of(*plan.dbias)},
             Pointer{coefficients.get()}, eps, arguments);
      break;
  }
  run_elements(plan, setup, coefficients.get());
}

/// Whether the channels of a position are next to each other.
bool channels_adjacent(const ChannelPlan& plan) {
  return plan.inner == 1 || !plan.x.is_contiguous();
}

/// Positions of a part, so that there is work for all compute units: `owners` work-items or
/// work-groups share no channels, and `least` positions are worth one.
int64_t part_of(const ChannelPlan& plan, int64_t owners, int64_t least) {
  const int64_t wanted = parts_of_work(plan.device);
  const int64_t parts = std::clamp<int64_t>(
      std::min(ceil_div(wanted, owners), ceil_div(plan.count, least)), 1, kMostParts);
  return std::max<int64_t>(1, ceil_div(plan.count, parts));
}

const char* refuse_channels_last(const ChannelPlan& plan) {
  if (plan.device.is_cpu()) return "only for GPU devices";
  return channels_adjacent(plan) ? nullptr : "the channels aren't adjacent";
}

/// The widest vectors that are aligned in all tensors and make up `length`.
uint32_t aligned_width(const ChannelPlan& plan, int64_t length, const at::Tensor& vector) {
  const at::Tensor none;
  const auto& grad = plan.grad ? *plan.grad : none;
  auto width = static_cast<uint32_t>(16 / plan.x.element_size());
  while (width > 1 &&
         (length % width != 0 || !begin_aligned(width, {&plan.x, &plan.out, &grad, &vector}))) {
    width /= 2;
  }
  return width;
}

void run_channels_last(ChannelPlan& plan) {
  const bool loads_means = plan.kind == ChannelPlan::gradients;
  const uint32_t width =
      aligned_width(plan, plan.channels, loads_means ? plan.vectors.mean : at::Tensor());
  const int64_t vectors = plan.channels / width;
  const auto group = static_cast<int64_t>(std::bit_floor(std::min<size_t>(
      group_of_elements(plan.device), plan.device.properties().max_work_group_size)));
  const ChannelRow& table = device_row(plan.device).channels;
  const int64_t side_by_side = std::min<int64_t>(
      {table.vectors, group, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(vectors)))});
  const int64_t rows = group / side_by_side, tiles = ceil_div(vectors, side_by_side);
  const int64_t units = plan.device.properties().compute_units, step = rows * kLastLoaded;
  const auto part = [&](int64_t groups_per_unit, int64_t least_steps, int64_t most_steps) {
    const int64_t parts = std::max<int64_t>(1, units * groups_per_unit / tiles);
    const int64_t steps = ceil_div(ceil_div(plan.count, parts), step);
    return step * std::clamp(steps, least_steps, most_steps);
  };
  const auto cut = [&](int64_t part) {
    const auto parts = static_cast<size_t>(ceil_div(plan.count, part));
    return Cut{part, NDRange::grid(static_cast<size_t>(vectors), parts * rows,
                                   static_cast<size_t>(side_by_side), static_cast<size_t>(rows))};
  };
  run_steps(plan,
            {channels_last_families,
             {{"WIDTH", width}, {"VECTORS", side_by_side}, {"ROWS", rows}, {"ALIGNED_VECTORS", 1}},
             cut(part(table.sum_groups_per_unit, kLastLeastSumSteps, kLastMostSumSteps)),
             cut(part(table.element_groups_per_unit, 1, kLastMostElementSteps))});
}

const char* refuse_columns(const ChannelPlan& plan) {
  return channels_adjacent(plan) ? nullptr : "the channels aren't adjacent";
}

void run_columns(ChannelPlan& plan) {
  const bool cpu = plan.device.is_cpu();
  const uint32_t width = vector_width(plan.device, plan.acc, plan.channels);
  const int64_t tiles = ceil_div(plan.channels, width);
  const ChannelRow& table = device_row(plan.device).channels;
  const int64_t part = part_of(plan, tiles, cpu ? table.positions / width : table.column_positions);
  const int64_t share =
      cpu ? std::max<int64_t>(1, elements_per_item(plan.device) / plan.channels) : 1;
  const size_t local = cpu ? 1 : group_of_rows(plan.device);
  const auto range = [&](int64_t items) {
    return NDRange::linear(static_cast<size_t>(items), local);
  };
  run_steps(plan, {column_families,
                   {{"WIDTH", width}},
                   {part, range(tiles * ceil_div(plan.count, part))},
                   {share, range(ceil_div(plan.count, share) * (cpu ? 1 : tiles))}});
}

const char* refuse_planes(const ChannelPlan& plan) {
  return plan.x.is_contiguous() ? nullptr : "the channels are last";
}

void run_planes(ChannelPlan& plan) {
  const bool cpu = plan.device.is_cpu();
  const uint32_t width = cpu ? vector_width(plan.device, plan.acc, plan.inner)
                             : aligned_width(plan, plan.inner, at::Tensor());
  const uint32_t group = cpu ? 1 : static_cast<uint32_t>(group_of_rows(plan.device));
  const int64_t least = device_row(plan.device).channels.positions;
  const int64_t part = ceil_div(part_of(plan, plan.channels, least), width) * width;
  const int64_t share = cpu ? elements_per_item(plan.device) : width;
  const auto range = [&](int64_t items) {
    return NDRange::linear(static_cast<size_t>(items), group);
  };
  run_steps(plan,
            {plane_families,
             {{"WIDTH", width}, {"GROUP", group}, {cpu ? "ANY_ALIGNMENT" : "ALIGNED_VECTORS", 1}},
             {part, range(plan.channels * ceil_div(plan.count, part) * group)},
             {share, range(ceil_div(plan.count * plan.channels, share))}});
}

constexpr Implementation<ChannelPlan> kChannelsLast{"channels_last", refuse_channels_last,
                                                    run_channels_last},
    kColumns{"columns", refuse_columns, run_columns}, kPlanes{"planes", refuse_planes, run_planes};
constexpr const Implementation<ChannelPlan>* kOfChannels[] = {&kChannelsLast, &kColumns, &kPlanes};

std::string describe(const ChannelPlan& plan) {
  const char* const kinds[] = {"statistics", "given statistics", "gradients"};
  return std::string("norm of channels, ") + kinds[plan.kind] + " " +
         std::to_string(plan.x.size(0)) + "x" + std::to_string(plan.channels) + "x" +
         std::to_string(plan.inner) + " " + plan.in_tag;
}

}  // namespace

constinit const std::span<const Implementation<ChannelPlan>* const> of_channels = kOfChannels;

void channel_statistics(const at::Tensor& x, const ChannelVectors& running, double momentum,
                        double eps, bool variance, const at::Tensor& mean, const at::Tensor& rstd,
                        const at::Tensor& y) {
  if (x.numel() == 0) return;
  ChannelPlan plan(ChannelPlan::statistics, x, running, mean, eps, y);
  plan.mean = &mean;
  plan.rstd = &rstd;
  plan.momentum = momentum;
  plan.variance = variance;
  run_first(engine, of_channels, plan, describe);
}

void channel_normalize(const at::Tensor& x, const ChannelVectors& given, double eps,
                       const at::Tensor& y) {
  if (x.numel() == 0) return;
  ChannelPlan plan(ChannelPlan::given, x, given, given.mean, eps, y);
  run_first(engine, of_channels, plan, describe);
}

void channel_apply(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& coefficients,
                   const at::Tensor& y) {
  if (x.numel() == 0) return;
  const ChannelVectors none;
  ChannelPlan plan(grad.defined() ? ChannelPlan::gradients : ChannelPlan::given, x, none,
                   coefficients, 0, y);
  plan.grad = &grad;
  plan.coefficients = &coefficients;
  run_first(engine, of_channels, plan, describe);
}

void channel_backward(const at::Tensor& grad, const at::Tensor& x, const ChannelVectors& saved,
                      bool train, double eps, const at::Tensor& dx, const at::Tensor& dweight,
                      const at::Tensor& dbias) {
  ChannelPlan plan(ChannelPlan::gradients, x, saved, saved.mean, eps, dx);
  plan.grad = &grad;
  plan.train = train;
  plan.dweight = &dweight;
  plan.dbias = &dbias;
  run_first(engine, of_channels, plan, describe);
}

}  // namespace ocl::norm
