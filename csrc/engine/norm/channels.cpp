#include <c10/util/Exception.h>

#include "engine/norm/launch.h"
#include "engine/norm/norm.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "runtime/allocator.h"

namespace ocl {

namespace {

using c10::ScalarType;

// On a CPU: positions of a channel, or positions with all channels, per work-item at least.
constexpr int64_t kPositionsPerPart = 4096;
constexpr int64_t kGpuPositionsPerPart = 2048;
constexpr int64_t kMostParts = 256;
constexpr uint32_t kGpuGroup = 128;

const KernelFamily plane_moments_family{"norm/planes.cl", "plane_moments"};
const KernelFamily plane_products_family{"norm/planes.cl", "plane_products"};
const KernelFamily plane_normalize_family{"norm/planes.cl", "plane_normalize"};
const KernelFamily plane_gradient_family{"norm/planes.cl", "plane_gradient"};
const KernelFamily column_moments_family{"norm/columns.cl", "column_moments"};
const KernelFamily column_products_family{"norm/columns.cl", "column_products"};
const KernelFamily column_normalize_family{"norm/columns.cl", "column_normalize"};
const KernelFamily column_gradient_family{"norm/columns.cl", "column_gradient"};
const KernelFamily statistics_family{"norm/channels.cl", "channel_statistics"};
const KernelFamily given_family{"norm/channels.cl", "channel_given"};
const KernelFamily gradients_family{"norm/channels.cl", "channel_gradients"};

/// ChannelArgs of kernels/norm/channels.clh, and its flags.
struct ChannelArguments {
  uint64_t offset[8];
  uint32_t channels, inner, count, part, parts, flags;
};
constexpr uint32_t kRunningMean = 1, kRunningVar = 2, kTrain = 4, kGradWeight = 8, kGradBias = 16;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Problem {
  Problem(const at::Tensor& x, const char* stat_tag)
      : device(ocl::device(x.device().index())),
        queue(current_queue(x.device().index())),
        acc(compute_dtype(x.scalar_type())),
        in_tag(tag(x.scalar_type())),
        stat_tag(stat_tag),
        acc_tag(tag(acc)),
        channels(x.size(1)),
        count(x.numel() / std::max<int64_t>(channels, 1)) {
    TORCH_CHECK_NOT_IMPLEMENTED(channels <= UINT32_MAX && count <= UINT32_MAX,
                                "ocl: batch norm of more than 2^32 channels or positions");
    const int64_t inner = count / std::max<int64_t>(x.size(0), 1);
    // Both formats at once (one channel, one position): planes have the longer stretches then.
    columns = inner == 1 || !x.is_contiguous();
    arguments.channels = static_cast<uint32_t>(channels);
    arguments.inner = static_cast<uint32_t>(std::max<int64_t>(inner, 1));
    arguments.count = static_cast<uint32_t>(count);
    width = norm_width(device, acc, columns ? channels : inner);
    group = device.is_cpu() || columns ? 1 : kGpuGroup;
  }

  Kernel& kernel(const KernelFamily& family) {
    return family.get(
        device,
        {{"IN", in_tag}, {"STAT", stat_tag}, {"ACC", acc_tag}, {"WIDTH", width}, {"GROUP", group}});
  }
  /// Of channels.cl.
  Kernel& channel_kernel(const KernelFamily& family, bool weight, bool bias, bool variance) {
    return family.get(device, {{"IN", in_tag},
                               {"PARAM", stat_tag},
                               {"STAT", stat_tag},
                               {"ACC", acc_tag},
                               {"WEIGHT", weight},
                               {"BIAS", bias},
                               {"VARIANCE", variance}});
  }
  NDRange channel_range() const {
    return NDRange::linear(arguments.channels, device.is_cpu() ? 1 : kNormGpuLocal);
  }

  c10::DataPtr allocate(int64_t arrays) const {
    return allocator()->allocate(static_cast<size_t>(arrays * channels) * c10::elementSize(acc));
  }

  /// Cuts channels into parts so that there is work for all compute units; the range of the sums.
  NDRange cut_channels() {
    const int64_t owners = columns ? divide_up(channels, width) : channels;
    const int64_t wanted = int64_t{device.properties().compute_units} * 4;
    const int64_t least = device.is_cpu() ? kPositionsPerPart / (columns ? width : 1)
                          : columns       ? 64
                                          : kGpuPositionsPerPart;
    const int64_t parts = std::clamp<int64_t>(
        std::min(divide_up(wanted, owners), divide_up(count, least)), 1, kMostParts);
    arguments.part = static_cast<uint32_t>(divide_up(count, parts));
    arguments.parts = static_cast<uint32_t>(divide_up(count, arguments.part));
    return NDRange::linear(static_cast<size_t>(owners * arguments.parts) * group, local());
  }
  size_t local() const { return group > 1 ? group : device.is_cpu() ? 1 : kNormGpuLocal; }

  /// Sets the share of a work-item of an element-wise kernel; its range.
  NDRange cut_elements() {
    const int64_t elements = count * channels;
    int64_t share = 1, items = elements;
    if (columns) {
      share = device.is_cpu() ? std::max<int64_t>(1, kNormElementsPerItem / channels) : 1;
      items = divide_up(count, share) * (device.is_cpu() ? 1 : divide_up(channels, width));
    } else if (device.is_cpu()) {
      share = kNormElementsPerItem;
      items = divide_up(elements, share);
    }
    arguments.part = static_cast<uint32_t>(share);
    return NDRange::linear(static_cast<size_t>(items), local());
  }

  void normalize(const at::Tensor& x, const at::Tensor& y, const void* coefficients) {
    const NDRange range = cut_elements();
    NormLaunch(device, arguments)
        .add(x)
        .add(y)
        .add(coefficients)
        .enqueue(queue, kernel(columns ? column_normalize_family : plane_normalize_family), range);
  }

  Device& device;
  Queue& queue;
  const ScalarType acc;
  const char *in_tag, *stat_tag, *acc_tag;
  const int64_t channels, count;
  bool columns;
  uint32_t width, group;
  ChannelArguments arguments{};
};

}  // namespace

void channel_statistics(const at::Tensor& x, const ChannelVectors& running, double momentum,
                        double eps, bool variance, const at::Tensor& mean, const at::Tensor& rstd,
                        const at::Tensor& y) {
  if (x.numel() == 0) return;
  Problem problem(x, tag(mean.scalar_type()));
  const NDRange range = problem.cut_channels();
  const c10::DataPtr partial = problem.allocate(int64_t{2} * problem.arguments.parts);
  const c10::DataPtr coefficients = problem.allocate(3);
  NormLaunch(problem.device, problem.arguments)
      .add(x)
      .add(partial.get())
      .enqueue(problem.queue,
               problem.kernel(problem.columns ? column_moments_family : plane_moments_family),
               range);
  problem.arguments.flags =
      (running.mean.defined() ? kRunningMean : 0) | (running.var.defined() ? kRunningVar : 0);
  NormLaunch(problem.device, problem.arguments)
      .add(partial.get())
      .add(mean)
      .add(rstd)
      .add(running.mean)
      .add(running.var)
      .add(running.weight)
      .add(running.bias)
      .add(coefficients.get())
      .enqueue(problem.queue,
               problem.channel_kernel(statistics_family, running.weight.defined(),
                                      running.bias.defined(), variance),
               problem.channel_range(),
               {scalar_argument(problem.acc, momentum), scalar_argument(problem.acc, eps)});
  if (y.defined()) problem.normalize(x, y, coefficients.get());
}

void channel_normalize(const at::Tensor& x, const ChannelVectors& given, double eps,
                       const at::Tensor& y) {
  if (x.numel() == 0) return;
  Problem problem(x, tag(given.mean.scalar_type()));
  const c10::DataPtr coefficients = problem.allocate(3);
  NormLaunch(problem.device, problem.arguments)
      .add(given.mean)
      .add(given.var)
      .add(given.weight)
      .add(given.bias)
      .add(coefficients.get())
      .enqueue(
          problem.queue,
          problem.channel_kernel(given_family, given.weight.defined(), given.bias.defined(), false),
          problem.channel_range(), {scalar_argument(problem.acc, eps)});
  problem.normalize(x, y, coefficients.get());
}

void channel_backward(const at::Tensor& grad, const at::Tensor& x, const ChannelVectors& saved,
                      bool train, double eps, const at::Tensor& dx, const at::Tensor& dweight,
                      const at::Tensor& dbias) {
  Problem problem(x, tag(saved.mean.scalar_type()));
  c10::DataPtr partial;
  if (dweight.defined() || dbias.defined() || train) {
    const NDRange range = problem.cut_channels();
    partial = problem.allocate(int64_t{2} * problem.arguments.parts);
    NormLaunch(problem.device, problem.arguments)
        .add(grad)
        .add(x)
        .add(saved.mean)
        .add(partial.get())
        .enqueue(problem.queue,
                 problem.kernel(problem.columns ? column_products_family : plane_products_family),
                 range);
  } else {
    problem.arguments.parts = 0;
  }
  const c10::DataPtr coefficients = problem.allocate(4);
  problem.arguments.flags = (train ? kTrain : 0) | (dweight.defined() ? kGradWeight : 0) |
                            (dbias.defined() ? kGradBias : 0);
  // With no partial sums, any buffer stands for them.
  NormLaunch(problem.device, problem.arguments)
      .add(partial ? partial.get() : coefficients.get())
      .add(saved.mean)
      .add(saved.var)
      .add(saved.weight)
      .add(dweight)
      .add(dbias)
      .add(coefficients.get())
      .enqueue(problem.queue,
               problem.channel_kernel(gradients_family, saved.weight.defined(), false, false),
               problem.channel_range(), {scalar_argument(problem.acc, eps)});
  if (!dx.defined()) return;
  const NDRange range = problem.cut_elements();
  NormLaunch(problem.device, problem.arguments)
      .add(grad)
      .add(x)
      .add(dx)
      .add(coefficients.get())
      .enqueue(problem.queue,
               problem.kernel(problem.columns ? column_gradient_family : plane_gradient_family),
               range);
}

}  // namespace ocl
