// cat: several tensors in one launch, or large ones copied one by one.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/cat.h"

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TensorShape.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <utility>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "engine/pointwise/pointwise.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

using namespace kernel_types;
#include "shape/arguments.clh"

const pointwise::Op copy_bits_op{"copy", 0, pointwise::flag::bits};
const KernelFamily cat_family{"shape/cat.cl", "cat"};

constexpr size_t kBuffers = 8;
// Parts of more bytes on average are copied by the pointwise engine's vectors. A launch for each
// is less than a tenth of that time.
constexpr int64_t kLargePart = 1 << 18, kLargePartOfGpu = 1 << 22;
constexpr uint32_t kShortRow = 16;  // a CPU's work-item goes along longer ones

/// A tensor of the list, with those behind it that continue it.
struct Part {
  const at::Tensor* tensor;
  int64_t start, length;  // along the dimension of the result
};
using Parts = c10::SmallVector<Part, kCatParts>;

/// Whether b begins where a ends, and both are contiguous and one tensor along `dim`: parts of one
/// that was taken to pieces, as norms of a list are.
bool is_continued(const at::Tensor& a, const at::Tensor& b, int64_t dim) {
  if (!a.is_alias_of(b)) return false;
  const auto is_one = [](int64_t size) { return size == 1; };
  return a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() &&
         a.is_neg() == b.is_neg() && a.is_contiguous() && b.is_contiguous() &&
         b.storage_offset() == a.storage_offset() + a.numel() &&
         std::all_of(a.sizes().begin(), a.sizes().begin() + dim, is_one);
}

/// The parts with elements.
Parts parts_of(const at::MaterializedITensorListRef& list, int64_t dim) {
  Parts parts;
  int64_t start = 0;
  const at::Tensor* last = nullptr;
  for (const at::Tensor& tensor : list) {
    if (tensor.numel() == 0) continue;
    const int64_t length = tensor.size(dim);
    if (last != nullptr && is_continued(*last, tensor, dim)) {
      parts.back().length += length;
    } else {
      parts.push_back({&tensor, start, length});
    }
    start += length;
    last = &tensor;
  }
  return parts;
}

bool is_real(at::ScalarType dtype) {
  return c10::isIntegralType(dtype, /*includeBool=*/true) || dtype == at::kFloat ||
         dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16;
}

/// The work of one call, a launch for each kCatParts parts.
class Cat {
 public:
  Cat(const at::Tensor& out, int64_t dim, const Parts& parts)
      : out_(out), dim_(dim), parts_(parts), queue_(current_queue(out.device().index())) {}

  /// False, and nothing is done, where the kernel doesn't take these tensors.
  bool run();

 private:
  bool takes_dtypes();
  bool collapse();
  bool collapses(int64_t inner, int64_t outer) const;
  void lead_with_long_row();
  void add(CatArguments& arguments, const Part& part, size_t buffer) const;
  void launch_some(size_t& next);

  const at::Tensor& out_;
  const int64_t dim_;
  const Parts& parts_;
  Queue& queue_;
  bool mixed_ = false;
  uint32_t chunk_ = 0, group_ = 0;
  CatArguments arguments_{};
  // By the kernel's dimensions: the tensors' dimension that strides are read of, the outermost.
  std::array<int64_t, kCatDims> from_{};
  int64_t factor_ = 1;  // elements for each step along dim_, where inner dimensions joined it
};

bool Cat::takes_dtypes() {
  const at::ScalarType dtype = out_.scalar_type();
  for (const Part& part : parts_) {
    const at::Tensor& tensor = *part.tensor;
    if (tensor.is_conj() != out_.is_conj() || tensor.is_neg() != out_.is_neg()) return false;
    if (tensor.scalar_type() == dtype) continue;
    if (!is_real(dtype) || !is_real(tensor.scalar_type())) return false;
    mixed_ = true;
  }
  return true;
}

/// Whether dimension `outer` follows `inner`, the next below it, without a gap in all tensors.
bool Cat::collapses(int64_t inner, int64_t outer) const {
  if (inner == dim_) return false;  // its lengths differ
  if (out_.stride(outer) != out_.stride(inner) * out_.size(inner)) return false;
  return std::all_of(parts_.begin(), parts_.end(), [&](const Part& part) {
    const at::Tensor& tensor = *part.tensor;
    return (outer == dim_ && part.length == 1) ||
           tensor.stride(outer) == tensor.stride(inner) * tensor.size(inner);
  });
}

/// Sorts the dimensions as they lie in the result and joins neighbours.
bool Cat::collapse() {
  c10::SmallVector<int64_t, 8> order;
  for (int64_t d = out_.dim() - 1; d >= 0; --d) {
    if (d == dim_ || out_.size(d) != 1) order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return out_.stride(a) < out_.stride(b); });
  for (size_t i = 0; i < order.size();) {
    const size_t first = i;
    int64_t size = order[i] == dim_ ? 1 : out_.size(order[i]);
    bool grows = order[i] == dim_;
    while (!grows && i + 1 < order.size() && collapses(order[i], order[i + 1])) {
      ++i;
      if (order[i] == dim_) {
        grows = true;
        factor_ = size;
      } else {
        size *= out_.size(order[i]);
      }
    }
    if (arguments_.dims == kCatDims) return false;
    const uint32_t d = arguments_.dims++;
    if (grows) arguments_.dim = d;
    from_[d] = order[first];
    arguments_.size[d] = static_cast<uint32_t>(size);
    ++i;
  }
  return true;
}

void Cat::lead_with_long_row() {
  uint32_t shortest = UINT32_MAX;
  for (const Part& part : parts_) {
    shortest = std::min(shortest, static_cast<uint32_t>(part.length * factor_));
  }
  uint32_t lead = 0;
  for (uint32_t d = 0; d < arguments_.dims; ++d) {
    const uint32_t size = d == arguments_.dim ? shortest : arguments_.size[d];
    if (size < kShortRow) continue;
    lead = d;
    break;
  }
  std::rotate(from_.begin(), from_.begin() + lead, from_.begin() + lead + 1);
  std::rotate(arguments_.size, arguments_.size + lead, arguments_.size + lead + 1);
  if (arguments_.dim == lead) {
    arguments_.dim = 0;
  } else if (arguments_.dim < lead) {
    ++arguments_.dim;
  }
}

void Cat::add(CatArguments& arguments, const Part& part, size_t buffer) const {
  const at::Tensor& tensor = *part.tensor;
  const int64_t size = tensor.element_size();
  const AddressSpace& addresses = queue_.device().addresses();
  CatPart& entry = arguments.part[arguments.parts++];
  entry.in = queue_.device().properties().has_system_svm
                 ? addresses.find_host(tensor.const_data_ptr())
                 : uint64_t{buffer} << 56 | addresses.find(tensor.const_data_ptr()).offset;
  entry.out = part.start * out_.stride(dim_) * static_cast<int64_t>(out_.element_size());
  entry.length = static_cast<uint32_t>(part.length * factor_);
  entry.first = arguments.chunks;
  entry.dtype = static_cast<uint32_t>(tensor.scalar_type());
  int64_t elements = entry.length;
  for (uint32_t d = 0; d < arguments.dims; ++d) {
    entry.stride[d] = static_cast<int32_t>(tensor.stride(from_[d]) * size);
    if (d != arguments.dim) elements *= arguments.size[d];
  }
  arguments.chunks += static_cast<uint32_t>(ceil_div(elements, int64_t{chunk_}));
}

/// Launches for the parts from `next` on that fit, and moves it behind them.
void Cat::launch_some(size_t& next) {
  Device& device = queue_.device();
  const bool svm = device.properties().has_system_svm;
  CatArguments arguments = arguments_;
  std::array<cl_mem, kBuffers> buffers{};
  size_t count = 0;
  int64_t elements = 0;
  for (; next < parts_.size() && arguments.parts < kCatParts; ++next) {
    const Part& part = parts_[next];
    size_t number = 0;
    if (!svm) {
      const cl_mem mem = device.addresses().find(part.tensor->const_data_ptr()).mem;
      number = std::find(buffers.begin(), buffers.begin() + count, mem) - buffers.begin();
      if (number == kBuffers) break;
      if (number == count) buffers[count++] = mem;
    }
    add(arguments, part, number);
    elements += part.length * (out_.numel() / out_.size(dim_));
  }
  const at::ScalarType dtype = out_.scalar_type();
  const size_t size = c10::elementSize(dtype);
  const char* out_tag = mixed_ ? tag(dtype) : size == 16 ? "u128" : bits_tag(size);
  const size_t width = group_ > 1 || size == 16 ? 1 : std::min<size_t>(16, 64 / size);
  Kernel& kernel = cat_family.get(device, {{"OUT", out_tag},
                                           {"MIXED", mixed_},
                                           {"GROUP", group_},
                                           {"CHUNK", chunk_},
                                           {"WIDTH", width}});
  cl_uint index = 0;
  detail::set_argument(kernel, index, SvmPointer{out_.data_ptr()});
  for (size_t b = 0; !svm && b < kBuffers; ++b) {
    kernel.set_buffer(index++, buffers[b < count ? b : 0]);
  }
  kernel.set_value(index++, arguments);
  kernel.enqueue(queue_,
                 NDRange::linear(size_t{arguments.chunks} * group_, group_).of_work(elements));
}

bool Cat::run() {
  const Device& device = queue_.device();
  const bool cpu = device.is_cpu();
  const auto count = static_cast<int64_t>(parts_.size());
  if (out_.numel() * static_cast<int64_t>(out_.element_size()) / count >
      (cpu ? kLargePart : kLargePartOfGpu)) {
    return false;
  }
  const auto far = [](const at::Tensor& tensor) {
    const int64_t size = tensor.element_size();
    for (int64_t d = 0; d < tensor.dim(); ++d) {
      if (std::abs(tensor.stride(d)) * size > std::numeric_limits<int32_t>::max()) return true;
    }
    return tensor.numel() > std::numeric_limits<int32_t>::max();
  };
  if (far(out_) || std::any_of(parts_.begin(), parts_.end(),
                               [&](const Part& part) { return far(*part.tensor); })) {
    return false;
  }
  if (!takes_dtypes() || !collapse()) return false;
  if (cpu) lead_with_long_row();
  const auto size = static_cast<int64_t>(out_.element_size());
  for (uint32_t d = 0; d < arguments_.dims; ++d) {
    arguments_.stride[d] = static_cast<int32_t>(out_.stride(from_[d]) * size);
  }
  group_ = cpu ? 1 : static_cast<uint32_t>(group_of_elements(device));
  chunk_ = cpu ? 2 * static_cast<uint32_t>(device_row(device).item_elements) : 4 * group_;
  for (size_t next = 0; next < parts_.size();) launch_some(next);
  return true;
}

void copy_into(const at::Tensor& out, const at::Tensor& in) {
  if (out.scalar_type() != in.scalar_type() || out.is_complex()) {
    // copy_ knows the conversions, and lazy conjugates.
    out.copy_(in);
    return;
  }
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)
                  .resize_outputs(false)
                  .add_output(out)
                  .add_const_input(in)
                  .build();
  pointwise::run(iter, copy_bits_op);
}

}  // namespace

void structured_cat_out::impl(const at::ITensorListRef& tensors, int64_t dim, int64_t, bool, bool,
                              bool, at::MemoryFormat, const at::Tensor& out) {
  if (out.numel() == 0) return;
  const auto list = tensors.materialize();
  const Parts parts = parts_of(list, dim);
  if (parts.size() > 1 && Cat(out, dim, parts).run()) return;
  for (const Part& part : parts) {
    at::Tensor whole = *part.tensor;
    if (part.length > whole.size(dim)) {
      c10::DimVector sizes(whole.sizes());
      sizes[dim] = part.length;
      whole = whole.as_strided(sizes, c10::contiguous_strides(sizes), whole.storage_offset());
    }
    copy_into(out.narrow(dim, part.start, part.length), whole);
  }
}

}  // namespace ocl::native
