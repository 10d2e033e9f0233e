#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/multi_tensor.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <bit>

#include "engine/argument_struct.h"
#include "engine/dtype.h"
#include "runtime/stream.h"

namespace ocl::multi_tensor {

namespace {

constexpr size_t kBuffers = 8;
// Of a kernel's 1024 bytes of parameters; the rest is for the buffers and what an op adds.
constexpr size_t kListBytes = 800;
constexpr size_t kMaxOperands = 8;
constexpr size_t kMaxEntries = 64;
constexpr uint64_t kOffsetBits = 56;
constexpr size_t kGpuGroup = 256;

/// The kernel's launch parameters for one dtype and number of operands.
struct Plan {
  Plan(Device& device, at::ScalarType dtype, size_t operands)
      : operands(operands), entries((kListBytes - 8) / (8 * operands + 12)) {
    const size_t element = c10::elementSize(compute_dtype(dtype));
    const bool cpu = device.is_cpu();
    width = (cpu ? 64 : 16) / element;
    group = cpu ? 1 : kGpuGroup;
    chunk = cpu ? 8192 : width * group * 4;
  }
  size_t operands, entries, width, group, chunk;
};

/// The entries of one launch.
class Batch {
 public:
  explicit Batch(const Plan& plan) : plan_(plan) {}

  bool empty() const { return count_ == 0; }

  /// False if there is no room for the entry, or none for its buffers. A null tensor stands for the
  /// number whose bits are given.
  bool add(Device& device, std::span<const at::Tensor* const> tensors, uint64_t bits,
           uint64_t size) {
    if (count_ == plan_.entries) return false;
    const uint64_t chunks = (size + plan_.chunk - 1) / plan_.chunk;
    if (chunks_ + chunks > UINT32_MAX) return false;
    const size_t buffers_before = buffer_count_;
    for (size_t k = 0; k < tensors.size(); ++k) {
      if (tensors[k] == nullptr) {
        place_[count_][k] = bits;
        continue;
      }
      const Location location = device.addresses().find(tensors[k]->const_data_ptr());
      const size_t number = buffer_number(location.mem);
      if (number == kBuffers) {
        buffer_count_ = buffers_before;
        return false;
      }
      place_[count_][k] = uint64_t{number} << kOffsetBits | location.offset;
    }
    size_[count_] = size;
    first_[count_] = static_cast<uint32_t>(chunks_);
    chunks_ += chunks;
    ++count_;
    return true;
  }

  /// Enqueues, and is empty again.
  void launch(Kernel& kernel, Queue& queue, const SetArguments& set_arguments) {
    ArgumentStruct list;
    for (size_t i = 0; i < plan_.entries; ++i) {
      for (size_t k = 0; k < plan_.operands; ++k) list.put64(i < count_ ? place_[i][k] : 0);
    }
    for (size_t i = 0; i < plan_.entries; ++i) list.put64(i < count_ ? size_[i] : 0);
    for (size_t i = 0; i < plan_.entries; ++i) list.put32(i < count_ ? first_[i] : 0);
    list.put32(static_cast<uint32_t>(count_));
    list.put32(static_cast<uint32_t>(chunks_));
    list.finish();
    cl_uint index = 0;
    for (size_t b = 0; b < kBuffers; ++b) {
      kernel.set_buffer(index++, buffer_[b < buffer_count_ ? b : 0]);
    }
    kernel.set_bytes(index++, list.data(), list.size());
    set_arguments(kernel, index);
    const size_t local = plan_.group;
    kernel.enqueue(queue, NDRange::linear(chunks_ * plan_.group, local));
    count_ = buffer_count_ = 0;
    chunks_ = 0;
  }

 private:
  size_t buffer_number(cl_mem mem) {
    for (size_t b = 0; b < buffer_count_; ++b) {
      if (buffer_[b] == mem) return b;
    }
    if (buffer_count_ == kBuffers) return kBuffers;
    buffer_[buffer_count_] = mem;
    return buffer_count_++;
  }

  const Plan& plan_;
  size_t count_ = 0, buffer_count_ = 0;
  uint64_t chunks_ = 0;
  std::array<cl_mem, kBuffers> buffer_{};
  std::array<std::array<uint64_t, kMaxOperands>, kMaxEntries> place_;
  std::array<uint64_t, kMaxEntries> size_;
  std::array<uint32_t, kMaxEntries> first_;
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

void run(const KernelFamily& family, std::span<const Operand> operands,
         std::span<const Define> defines, SetArguments set_arguments) {
  const at::TensorList& first = operands[0].tensors;
  if (first.empty()) return;
  const at::ScalarType dtype = first[0].scalar_type(), compute = compute_dtype(dtype);
  Queue& queue = current_queue(first[0].device().index());
  Device& device = queue.device();
  const Plan plan(device, dtype, operands.size());
  TORCH_INTERNAL_ASSERT(operands.size() <= kMaxOperands && plan.entries <= kMaxEntries);

  c10::SmallVector<Define, 20> all{{"E", tag(dtype)},           {"C", tag(compute)},
                                   {"OPERANDS", plan.operands}, {"TENSORS", plan.entries},
                                   {"WIDTH", plan.width},       {"GROUP", plan.group},
                                   {"CHUNK", plan.chunk}};
  all.append(defines.begin(), defines.end());
  Kernel& kernel = family.get(device, std::span<const Define>(all.data(), all.size()));

  Batch batch(plan);
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
    if (!batch.add(device, tensors, bits, size)) {
      batch.launch(kernel, queue, set_arguments);
      TORCH_INTERNAL_ASSERT(batch.add(device, tensors, bits, size));
    }
    if (direct) continue;
    batch.launch(kernel, queue, set_arguments);
    for (size_t k = 0; k < operands.size(); ++k) {
      if (operands[k].access != Operand::written) continue;
      const at::Tensor& target = operands[k].tensors[i];
      if (!dense[k].is_same(target)) target.copy_(dense[k]);
    }
  }
  if (!batch.empty()) batch.launch(kernel, queue, set_arguments);
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
