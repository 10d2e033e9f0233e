// Convolutions of bfloat16 by x86's AMX (kernels/conv/amx.cl).
#include <algorithm>
#include <array>

#include "engine/conv/description.h"
#include "engine/conv/source.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"
#include "runtime/allocator.h"

namespace ocl::conv {

namespace {

using namespace kernel_types;
#include "conv/amx_arguments.clh"

// AMX's tiles: columns of the result, channels of a step, positions of a run.
constexpr int64_t kColumns = 32, kStep = 32, kRun = 16;
/// Fewer channels leave most of a tile idle.
constexpr int64_t kLeastChannels = 16;
constexpr int64_t kBytes = 2;  // of an element

/// Zeros in front of the source along an axis, from the convolution's padding.
int64_t zeros_before(const Description& description, size_t axis) {
  const Window& w = description.window;
  return description.transposed() ? w.dilation[axis] * (w.kernel[axis] - 1) - w.pad[axis]
                                  : w.pad[axis];
}

const char* refuse(const Description& description) {
  const Operand &in = description.source(), &out = description.result();
  if (!description.device.properties().has_amx || !description.device.is_cpu()) {
    return "there is no AMX";
  }
  if (description.pass == Pass::weight_gradient) return "it doesn't serve gradients of weights";
  for (const Operand* one : {&in, &out, &description.weight}) {
    if (one->dtype != c10::ScalarType::BFloat16) return "not all is bfloat16";
  }
  const Window& w = description.window;
  if (w.groups != 1) return "there are groups";
  if (w.kernel[0] != 1 || w.pad[0] != 0 || in.size[2] != 1) return "there is a depth";
  if (w.dilation[2] != 1) return "windows have gaps along lines";
  if (description.transposed() && (w.stride[1] != 1 || w.stride[2] != 1)) {
    return "a gradient with a stride";
  }
  if (zeros_before(description, 1) < 0 || zeros_before(description, 2) < 0) {
    return "the padding exceeds the windows";
  }
  if (std::min(in.size[1], out.size[1]) < kLeastChannels) return "channels are few";
  return nullptr;
}

/// Makes one line of an image's where that fills runs better: without a stride the next line is one
/// behind the padding. Where there is padding its positions are left out of the results, one by
/// one, which costs more in planes.
void join_lines(ConvAmxArguments& p) {
  const int64_t all = (int64_t{p.out_height} - 1) * p.padded_width + p.out_width;
  const int64_t runs = ceil_div(all, kRun);
  const int64_t apart = p.out_height * ceil_div(int64_t{p.out_width}, kRun);
  const bool gaps = p.padded_width != p.out_width || p.out_row != p.out_column * p.out_width;
  if (runs * (!gaps ? 4 : p.out_channel == 1 ? 5 : 6) > apart * 4) return;
  p.folded = gaps;
  p.lines = 1;
  p.positions = static_cast<uint32_t>(all);
}

ConvAmxArguments arguments_of(const Description& description) {
  const Operand &in = description.source(), &out = description.result(),
                &weight = description.weight;
  const Window& w = description.window;
  const bool transposed = description.transposed();
  const auto number = [](int64_t value) { return static_cast<uint32_t>(value); };
  ConvAmxArguments p{};
  p.in_image = in.stride[0], p.in_channel = in.stride[1];
  p.in_row = in.stride[3], p.in_column = in.stride[4];
  p.out_image = out.stride[0], p.out_channel = out.stride[1];
  p.out_row = out.stride[3], p.out_column = out.stride[4];
  p.weight_column = weight.stride[transposed ? 1 : 0];
  p.weight_channel = weight.stride[transposed ? 0 : 1];
  p.weight_row = transposed ? -weight.stride[3] : weight.stride[3];
  p.weight_across = transposed ? -weight.stride[4] : weight.stride[4];
  p.top = static_cast<int32_t>(zeros_before(description, 1));
  p.left = static_cast<int32_t>(zeros_before(description, 2));
  p.channels = number(in.size[1]);
  p.steps = number(ceil_div(in.size[1], kStep));
  p.height = number(in.size[3]);
  p.width = number(in.size[4]);
  p.columns = number(out.size[1]);
  p.out_height = number(out.size[3]);
  p.out_width = number(out.size[4]);
  p.stride_row = number(w.stride[1]);
  p.stride_column = number(w.stride[2]);
  p.dilation_row = number(w.dilation[1]);
  p.kernel_rows = number(w.kernel[1]);
  p.kernel_columns = number(w.kernel[2]);
  // Windows touch so much.
  p.padded_height = number((out.size[3] - 1) * w.stride[1] + w.dilation[1] * (w.kernel[1] - 1) + 1);
  p.padded_width = number((out.size[4] - 1) * w.stride[2] + w.kernel[2]);
  p.lines = p.out_height;
  p.positions = p.out_width;
  if (w.stride[1] == 1 && w.stride[2] == 1) join_lines(p);
  p.has_bias = description.bias_data() != nullptr;
  return p;
}

/// The weight's element that windows begin with, which is their last one where they are reversed.
const char* first_of_window(const Description& description) {
  const Operand& weight = description.weight;
  if (!description.transposed()) return weight.data;
  const Window& w = description.window;
  return advance(weight.data, weight.dtype,
                 (w.kernel[1] - 1) * weight.stride[3] + (w.kernel[2] - 1) * weight.stride[4]);
}

/// Whether runs of positions can be read where the source lies: channels last, no zeros around it,
/// nothing between its elements, and no run longer than a line.
bool reads_in_place(const Operand& in, const ConvAmxArguments& p) {
  return p.top == 0 && p.left == 0 && p.channels == p.steps * kStep && p.in_channel == 1 &&
         p.padded_height == p.height && p.padded_width == p.width && p.positions >= kRun &&
         p.in_column == p.channels && p.in_row == p.in_column * p.width &&
         (in.size[0] == 1 || p.in_image == p.in_row * p.height);
}

void run(Description& description) {
  static const KernelFamily copy_family{"conv/amx.cl", "conv_amx_copy"};
  static const KernelFamily weight_family{"conv/amx.cl", "conv_amx_weight"};
  static const KernelFamily product_family{"conv/amx.cl", "conv_amx"};
  Device& device = description.device;
  Queue& queue = description.queue;
  const Operand &in = description.source(), &out = description.result();
  ConvAmxArguments p = arguments_of(description);
  const int64_t panels = ceil_div(p.columns, kColumns);
  const int64_t taps = int64_t{p.kernel_rows} * p.kernel_columns;
  const int64_t position_bytes = int64_t{p.steps} * kStep * kBytes;
  const int64_t image_bytes = int64_t{p.padded_height} * p.padded_width * position_bytes;
  const bool in_place = reads_in_place(in, p);
  const int64_t step = in_place ? in.size[0] : images_at_a_time(device, in.size[0], image_bytes);
  const int64_t weight_bytes = panels * taps * position_bytes * kColumns;
  // A run may be longer than a line.
  const int64_t past = kRun * int64_t{p.stride_column} * position_bytes;
  const c10::DataPtr memory = allocator()->allocate(
      static_cast<size_t>(weight_bytes + (in_place ? 0 : step * image_bytes + past)));
  const char* const panels_at = static_cast<const char*>(memory.get());
  const char* const copy_at = panels_at + weight_bytes;
  const auto items = [](int64_t x, int64_t y) {
    return NDRange::volume({static_cast<size_t>(x), static_cast<size_t>(y), 1}, {1, 1, 1});
  };
  launch(weight_family.get(device, {{"ONLY", 2}}), queue, items(panels, p.steps),
         Pointer{first_of_window(description)}, Pointer{panels_at}, p);
  for (int64_t image = 0; image < in.size[0]; image += step) {
    const int64_t images = std::min(step, in.size[0] - image);
    p.images = static_cast<uint32_t>(images);
    p.runs = static_cast<uint64_t>(images * p.lines * ceil_div(int64_t{p.positions}, kRun));
    if (!in_place) {
      launch(copy_family.get(device, {{"ONLY", 1}}), queue, items(p.padded_height, images),
             Pointer{advance(in.data, in.dtype, image * in.stride[0])}, Pointer{copy_at}, p);
    }
    const char* const result = advance(out.data, out.dtype, image * out.stride[0]);
    const void* const bias = description.bias_data();
    launch(product_family.get(device, {{"ONLY", 3}}), queue,
           items(panels, ceil_div(static_cast<int64_t>(p.runs), 2 * kAmxTiles)),
           Pointer{in_place ? in.data : copy_at}, Pointer{panels_at},
           Pointer{bias != nullptr ? bias : result}, Pointer{result}, p);
  }
}

}  // namespace

const Implementation amx{"amx", refuse, run};

}  // namespace ocl::conv
