#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/multi_tensor/multi_tensor.h"

#include <c10/core/Allocator.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <vector>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"
#include "runtime/host_allocator.h"
#include "runtime/stream.h"

namespace ocl::multi_tensor {

namespace {

using namespace kernel_types;
#include "multi_tensor/arguments.clh"

// The most buffers, with the list as an argument and in a table: a kernel of 1024 bytes of
// parameters.
constexpr size_t kBuffers = 8, kTableBuffers = 32;
constexpr size_t kMaxOperands = 8;
constexpr uint64_t kOffsetBits = 56;
constexpr size_t kVectorsPerItem = 4;  // of a GPU, whose kernel goes around so often

/// The kernel's launch parameters for one dtype and number of operands and tensors.
struct Plan {
  Plan(Device& device, at::ScalarType dtype, size_t operands, size_t tensors)
      : operands(operands), entries(kListWords / (operands + 2)) {
    const bool cpu = device.is_cpu();
    width = vector_lanes(device, c10::elementSize(compute_dtype(dtype)));
    group = cpu ? 1 : group_of_elements(device);
    chunk = cpu ? 2 * static_cast<size_t>(device_row(device).item_elements)
                : width * group * kVectorsPerItem;
    table = tensors > entries || device.quirks().copies_indexed_arguments;
    buffers = table ? kTableBuffers : kBuffers;
  }
  size_t operands, entries, width, group, chunk, buffers;
  bool table;
};

/// The entries of one launch.
class Batch {
 public:
  Batch(const Plan& plan, Device& device) : plan_(plan), device_(device) {}

  bool empty() const { return size_.empty(); }

  /// False if there is no room for the entry, or none for its buffers. A null tensor stands for the
  /// number whose bits are given.
  bool add(std::span<const at::Tensor* const> tensors, uint64_t bits, uint64_t size) {
    const uint64_t chunks = ceil_div(size, plan_.chunk);
    if (chunks_ + chunks > UINT32_MAX) return false;
    const size_t buffers_before = buffer_count_, places_before = place_.size();
    for (const at::Tensor* tensor : tensors) {
      if (tensor == nullptr) {
        place_.push_back(bits);
        continue;
      }
      const Location location = device_.addresses().find(tensor->const_data_ptr());
      const size_t number = buffer_number(location.mem);
      if (number == plan_.buffers) {
        buffer_count_ = buffers_before;
        place_.resize(places_before);
        return false;
      }
      place_.push_back(uint64_t{number} << kOffsetBits | location.offset);
    }
    size_.push_back(size);
    first_.push_back(chunks_);
    chunks_ += chunks;
    return true;
  }

  /// Enqueues, and is empty again.
  void launch(Kernel& kernel, Queue& queue, const SetArguments& set_arguments) {
    cl_uint index = 0;
    for (size_t b = 0; b < plan_.buffers; ++b) {
      kernel.set_buffer(index++, buffer_[b < buffer_count_ ? b : 0]);
    }
    at::DataPtr table;
    if (plan_.table) {
      table = upload(queue);
      detail::set_argument(kernel, index, Pointer{table.get()});
      kernel.set_value(index++, static_cast<uint32_t>(size_.size()));
      kernel.set_value(index++, static_cast<uint32_t>(chunks_));
    } else {
      TensorList list{static_cast<uint32_t>(size_.size()), static_cast<uint32_t>(chunks_), {}};
      write_words(list.words);
      kernel.set_value(index++, list);
    }
    set_arguments(kernel, index);
    const int64_t elements = std::reduce(size_.begin(), size_.end(), int64_t{0});
    kernel.enqueue(queue, NDRange::linear(chunks_ * plan_.group, plan_.group).of_work(elements));
    place_.clear();
    size_.clear();
    first_.clear();
    buffer_count_ = 0;
    chunks_ = 0;
  }

 private:
  size_t buffer_number(cl_mem mem) {
    for (size_t b = 0; b < buffer_count_; ++b) {
      if (buffer_[b] == mem) return b;
    }
    if (buffer_count_ == plan_.buffers) return plan_.buffers;
    buffer_[buffer_count_] = mem;
    return buffer_count_++;
  }

  /// The words of kernels/multi_tensor/arguments.clh.
  void write_words(uint64_t* words) const {
    for (const auto* part : {&place_, &size_, &first_}) {
      words = std::copy(part->begin(), part->end(), words);
    }
  }

  /// The list in device memory. Without a wait: through pinned memory, which is kept until the
  /// copy is done.
  at::DataPtr upload(Queue& queue) const {
    const size_t bytes = sizeof(uint64_t) * (place_.size() + size_.size() + first_.size());
    const at::DataPtr pinned = pinned_allocator()->allocate(bytes);
    write_words(static_cast<uint64_t*>(pinned.get()));
    at::DataPtr table = c10::GetAllocator(kDeviceType)->allocate(bytes);
    if (queue.defer_write(table.get(), pinned.get(), bytes)) return table;
    queue.write(table.get(), pinned.get(), bytes, /*blocking=*/false);
    record_host_use(pinned.get(), queue);
    return table;
  }

  const Plan& plan_;
  Device& device_;
  size_t buffer_count_ = 0;
  uint64_t chunks_ = 0;
  std::array<cl_mem, kTableBuffers> buffer_{};
  // The first is by tensor and operand, the others by tensor.
  c10::SmallVector<uint64_t, 128> place_, size_, first_;
};

/// Whether element i in memory is the same element of all tensors of the entry.
bool alike(std::span<const Operand> operands, size_t i) {
  const at::Tensor& first = operands[0].tensors[i];
  if (!first.is_non_overlapping_and_dense()) return false;
  return std::all_of(operands.begin() + 1, operands.end(), [&](const Operand& operand) {
    return operand.access == Operand::single || operand.access == Operand::number ||
           operand.tensors[i].strides() == first.strides();
  });
}

/// Element i of a list that may be one for all.
template <class List>
auto& element(const List& list, size_t i) {
  return list[list.size() == 1 ? 0 : i];
}

uint64_t bits_of(at::ScalarType compute, const c10::Scalar& number) {
  if (compute == at::kDouble) return std::bit_cast<uint64_t>(number.toDouble());
  return std::bit_cast<uint32_t>(static_cast<float>(number.toDouble()));
}

}  // namespace

size_t chunk(Device& device, at::ScalarType dtype) { return Plan(device, dtype, 1, 1).chunk; }

void run(const KernelFamily& family, std::span<const Operand> operands,
         std::span<const Define> defines, SetArguments set_arguments) {
  const at::TensorList& first = operands[0].tensors;
  if (first.empty()) return;
  const at::ScalarType dtype = first[0].scalar_type(), compute = compute_dtype(dtype);
  Queue& queue = current_queue(first[0].device().index());
  Device& device = queue.device();
  const Plan plan(device, dtype, operands.size(), first.size());
  TORCH_INTERNAL_ASSERT(operands.size() <= kMaxOperands);

  c10::SmallVector<Define, 20> all{{"E", tag(dtype)},           {"C", tag(compute)},
                                   {"OPERANDS", plan.operands}, {"TABLE", plan.table},
                                   {"WIDTH", plan.width},       {"GROUP", plan.group},
                                   {"CHUNK", plan.chunk}};
  all.append(defines.begin(), defines.end());
  Kernel& kernel = family.get(device, std::span<const Define>(all.data(), all.size()));

  Batch batch(plan, device);
  struct Copy {
    at::Tensor dense;
    const at::Tensor* target;  // null where the operand is only read
  };
  std::vector<Copy> copies;
  auto launch = [&] {
    batch.launch(kernel, queue, set_arguments);
    for (const Copy& copy : copies) {
      if (copy.target && !copy.dense.is_same(*copy.target)) copy.target->copy_(copy.dense);
    }
    copies.clear();
  };
  for (size_t i = 0; i < first.size(); ++i) {
    const int64_t size = first[i].numel();
    if (size == 0) continue;
    std::array<const at::Tensor*, kMaxOperands> entry;
    std::array<at::Tensor, kMaxOperands> dense;
    const bool direct = alike(operands, i);
    uint64_t bits = 0;
    for (size_t k = 0; k < operands.size(); ++k) {
      const Operand& operand = operands[k];
      if (operand.access == Operand::number) {
        entry[k] = nullptr;
        bits = bits_of(compute, element(operand.numbers, i));
        continue;
      }
      entry[k] = &element(operand.tensors, i);
      if (direct || operand.access == Operand::single) continue;
      dense[k] = entry[k]->contiguous();
      entry[k] = &dense[k];
    }
    const std::span<const at::Tensor* const> tensors(entry.data(), operands.size());
    if (!batch.add(tensors, bits, size)) {
      launch();
      TORCH_INTERNAL_ASSERT(batch.add(tensors, bits, size));
    }
    for (size_t k = 0; k < operands.size(); ++k) {
      if (!dense[k].defined()) continue;
      const bool written = operands[k].access == Operand::written;
      copies.push_back({std::move(dense[k]), written ? &operands[k].tensors[i] : nullptr});
    }
  }
  if (!batch.empty()) launch();
}

void check(const char* op, std::span<const Operand> operands) {
  const at::TensorList& first = operands[0].tensors;
  for (const Operand& operand : operands) {
    TORCH_CHECK(operand.tensors.size() == first.size(), op, ": lists of ", first.size(), " and ",
                operand.tensors.size(), " tensors");
    for (size_t i = 0; i < first.size(); ++i) {
      const at::Tensor& tensor = operand.tensors[i];
      TORCH_CHECK(tensor.device() == first[0].device(), op,
                  ": Expected all tensors to be on the same device, but found ", first[0].device(),
                  " and ", tensor.device());
      if (operand.access == Operand::single) {
        TORCH_CHECK(tensor.scalar_type() == at::kFloat && tensor.numel() == 1, op,
                    ": expected a step count of one float, got ", tensor.sizes(), " of ",
                    tensor.scalar_type());
        continue;
      }
      TORCH_CHECK(tensor.scalar_type() == first[0].scalar_type(), op, ": expected scalar type ",
                  first[0].scalar_type(), " but found ", tensor.scalar_type());
      TORCH_CHECK(tensor.sizes() == first[i].sizes(), op, ": tensors of sizes ", first[i].sizes(),
                  " and ", tensor.sizes(), " in one entry");
    }
  }
  if (first.empty()) return;
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(first[0].scalar_type()), "\"", op,
                              "\" not implemented for '", first[0].scalar_type(), "'");
}

}  // namespace ocl::multi_tensor
