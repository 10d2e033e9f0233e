// A transform's geometry, and the launch of one of its steps.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/fft/launcher.h"
#include "engine/fft/tables.h"
#include "engine/geometry.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"
#include "runtime/allocator.h"
#include "runtime/stream.h"

namespace ocl::fft {

namespace {

using c10::ScalarType;

const KernelFamily lines_family{"fft/lines.cl", "fft_lines"};

}  // namespace

Launcher::Launcher(const at::Tensor& in, const at::Tensor& out, int64_t dim)
    : queue_(current_queue(in.device().index())),
      device_(queue_.device()),
      real_(c10::toRealValueType(in.scalar_type())),
      real_size_(static_cast<int64_t>(c10::elementSize(real_))),
      complex_size_(2 * real_size_),
      signal_in_(in.size(dim)),
      signal_out_(out.size(dim)),
      in_{in.const_data_ptr(), in.stride(dim) * in.element_size(), 0, in_strides_.data()},
      out_{out.mutable_data_ptr(), out.stride(dim) * out.element_size(), 0, out_strides_.data()} {
  if (device_.is_cpu()) {
    const auto bytes = std::clamp<uint32_t>(device_.properties().vector_width_float * 4, 16, 64);
    width_ = bytes / static_cast<uint32_t>(real_size_);
  }
}

bool Launcher::set_batch(const at::Tensor& in, const at::Tensor& out, int64_t dim) {
  reduce::Geometry geometry;
  for (int64_t d = 0; d < in.dim(); ++d) {
    if (d == dim) continue;
    geometry.add(
        false,
        {in.size(d), in.stride(d) * in.element_size(), {out.stride(d) * out.element_size(), 0}});
  }
  geometry.order();
  if (geometry.kept_count > kMaxDims) return false;
  const int64_t signals = geometry.outputs();
  TORCH_CHECK_NOT_IMPLEMENTED(signals <= INT32_MAX && std::max(signal_in_, signal_out_) <= 1 << 30,
                              "ocl: an FFT of ", signals, " signals of ",
                              std::max(signal_in_, signal_out_), " elements");
  signals_ = static_cast<uint32_t>(signals);
  dims_ = static_cast<uint32_t>(geometry.kept_count);
  for (uint32_t d = 0; d < dims_; ++d) {
    sizes_[d] = static_cast<uint32_t>(geometry.kept[d].size);
    in_strides_[d] = geometry.kept[d].in;
    out_strides_[d] = geometry.kept[d].out[0];
  }
  return true;
}

uint32_t Launcher::gpu_capacity() const {
  constexpr uint64_t kArrays = 2048;  // the kernel's own arrays, and a little more
  const uint64_t local = std::min<uint64_t>(device_.properties().local_memory, 48 << 10);
  return static_cast<uint32_t>((local - std::min(local, kArrays)) / (4 * real_size_));
}

c10::DataPtr Launcher::workspace(uint64_t elements) const {
  return allocator()->allocate(elements * complex_size_);
}

Place Launcher::in_workspace(const c10::DataPtr& memory, uint32_t n) const {
  return {memory.get(), complex_size_, static_cast<int64_t>(n) * complex_size_};
}

void Launcher::choose_lanes(uint32_t rows) {
  uint32_t& lanes = arguments_.lanes;
  if (width_ > 1) {
    lanes = arguments_.pitch = width_;
  } else {
    const bool along = (arguments_.flags & kAlongIn) && (arguments_.flags & kAlongOut);
    lanes = std::max(table_.elements / rows, along ? 1 : table_.side_by_side);
    lanes = std::min<uint32_t>({lanes, kMaxLanes, arguments_.lines});
    // An odd pitch spreads the rows over the memory's banks.
    while (lanes > 1 && rows * (lanes | 1) > gpu_capacity()) --lanes;
    arguments_.pitch = lanes | 1;
  }
  arguments_.tiles = ceil_div(arguments_.lines, lanes);
}

void Launcher::step(const Place& in, const Place& out, const Ends& ends, uint32_t before,
                    uint32_t length, uint32_t after, bool in_registers) {
  Arguments& a = arguments_;
  const uint32_t spread = before * after;
  TORCH_CHECK_NOT_IMPLEMENTED(uint64_t{signals_} * spread <= INT32_MAX, "ocl: an FFT of ", signals_,
                              " signals, in ", spread, " lines each");
  a.lines = signals_ * spread;
  a.before = before;
  a.length = length;
  a.after = after;
  a.in_element = in.element;
  a.out_element = out.element;
  const bool in_tensor = in.strides != nullptr, out_tensor = out.strides != nullptr;
  a.dims = in_tensor || out_tensor ? dims_ : 1;
  int64_t in_signal = in.signal, out_signal = out.signal;
  for (uint32_t d = 0; d < a.dims; ++d) {
    a.size[d] = in_tensor || out_tensor ? sizes_[d] : signals_;
    a.in_stride[d] = in_tensor ? in.strides[d] : in_signal;
    a.out_stride[d] = out_tensor ? out.strides[d] : out_signal;
    in_signal *= a.size[d];
    out_signal *= a.size[d];
  }
  a.load = ends.load;
  a.store = ends.store;
  a.limit = ends.limit;
  a.flags = ends.flags;
  a.load_rows = ends.load_rows > 0 ? ends.load_rows : length;
  a.store_rows = ends.store_rows > 0 ? ends.store_rows : length;
  const uint32_t rows = std::max({length, a.load_rows, a.store_rows});
  // Which neighbours in memory a GPU's work-items take.
  const auto along = [&](const int64_t* strides, int64_t element) {
    return a.dims == 0 || std::abs(element) <= std::abs(strides[0]);
  };
  if (spread == 1 && along(a.in_stride, in.element)) a.flags |= kAlongIn;
  if (before == 1 && (after > 1 || along(a.out_stride, out.element))) a.flags |= kAlongOut;
  if (in_registers) return step_in_registers(in, out, ends);

  Schedule passes;
  at::Tensor twiddles, cross;
  if (ends.load != kLoadUnpacked) {
    passes = schedule(length);
    twiddles = table(queue_, real_, TableKind::passes, length);
    if (before > 1) cross = table(queue_, real_, TableKind::cross, length, before);
  }
  a.passes = static_cast<uint32_t>(passes.passes);
  a.radices = 0;
  for (int p = 0; p < passes.passes; ++p) a.radices |= uint64_t{passes.radix[p]} << 8 * p;
  choose_lanes(rows);

  const auto pointer = [](const at::Tensor& tensor) {
    return Pointer{tensor.defined() ? tensor.const_data_ptr() : nullptr};
  };
  const auto enqueue = [&](const NDRange& range, const auto& scratch) {
    Kernel& kernel = lines_family.get(device_, {{"R", tag(real_)}, {"WIDTH", width_}});
    const auto go = [&](const auto& scale) {
      launch(kernel, queue_, range, Pointer{in.address}, Pointer{out.address}, pointer(twiddles),
             pointer(cross), pointer(chirp_), pointer(ends.factors), scratch, scale, a);
    };
    if (real_ == ScalarType::Double) {
      go(ends.scale);
    } else {
      go(static_cast<float>(ends.scale));
    }
  };
  const uint64_t elements = 2 * uint64_t{rows} * a.pitch;
  if (width_ > 1) {
    const uint32_t groups = std::min(a.tiles, static_cast<uint32_t>(items_of_cores(device_)));
    const c10::DataPtr scratch = workspace(groups * elements);
    enqueue(NDRange::linear(groups, 1), Pointer{scratch.get()});
  } else {
    const size_t group = group_of_rows(device_);
    enqueue(NDRange::linear(size_t{a.tiles} * group, group), LocalMemory{elements * complex_size_});
  }
}

}  // namespace ocl::fft
