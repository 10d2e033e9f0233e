#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/sort/sort.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/sort/runs.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "runtime/allocator.h"
#include "runtime/stream.h"

namespace ocl::sort {

namespace {

using c10::ScalarType;

// Positions within a row and counts are uint32, with some room for rounding up.
constexpr int64_t kMaxElements = (int64_t{1} << 32) - (int64_t{1} << 20);

const KernelFamily encode_family{"sort/ends.cl", "sort_encode"};
const KernelFamily take_family{"sort/ends.cl", "sort_take"};
const KernelFamily pick_family{"sort/ends.cl", "sort_pick"};
const KernelFamily mode_family{"sort/mode.cl", "sort_mode"};
const KernelFamily scan_family{"sort/scan.cl", "sort_scan"};
const KernelFamily scan_tiles_family{"sort/scan.cl", "sort_scan_tiles"};
const KernelFamily isin_family{"sort/isin.cl", "sort_isin"};

enum Which : uint32_t { kPosition, kMedian, kNanMedian };

Kernel& get(const KernelFamily& family, Device& device, const KeyType& key) {
  return family.get(device, {{"KEY", key.tag},
                             {"ORDER", static_cast<int>(key.kind)},
                             {"WIDTH", device.is_cpu() ? key.vector() : 1}});
}

/// Fills in sizes and strides of the input and, if there are two more, of the outputs. False: there
/// are more dimensions than the kernels take.
bool set_layout(RowArguments& arguments, std::initializer_list<const at::Tensor*> tensors,
                int64_t dim) {
  const at::Tensor& self = **tensors.begin();
  arguments.dims = 0;
  size_t operand = 0;
  for (const at::Tensor* tensor : tensors) {
    arguments.along[operand++] = tensor->dim() == 0 ? 0 : tensor->stride(dim) * tensor->itemsize();
  }
  for (int64_t d = self.dim() - 1; d >= 0; --d) {
    const int64_t size = self.size(d);
    if (d == dim || size == 1) continue;
    bool merges = arguments.dims > 0;
    std::array<int64_t, 3> strides{};
    operand = 0;
    for (const at::Tensor* tensor : tensors) {
      const int64_t stride = tensor->stride(d) * tensor->itemsize();
      strides[operand] = stride;
      const uint32_t inner = arguments.dims - 1;
      merges = merges && stride == arguments.stride[operand][inner] * arguments.size[inner];
      ++operand;
    }
    if (merges) {
      arguments.size[arguments.dims - 1] *= static_cast<uint32_t>(size);
      continue;
    }
    if (arguments.dims == kMaxDims) return false;
    for (size_t k = 0; k < operand; ++k) arguments.stride[k][arguments.dims] = strides[k];
    arguments.size[arguments.dims++] = static_cast<uint32_t>(size);
  }
  return true;
}

void set_chunk(RowArguments& arguments, const Device& device, uint64_t total) {
  // A GPU wants neighbours in neighbouring work-items.
  arguments.chunk = 1;
  if (!device.is_cpu()) return;
  const auto least = static_cast<uint64_t>(device_row(device).item_elements / 2);
  arguments.chunk = static_cast<uint32_t>(std::max(least, total / wanted_items(device)));
}

NDRange chunks(const RowArguments& arguments, const Device& device, uint64_t total) {
  return NDRange::linear(ceil_div(total, arguments.chunk),
                         device.is_cpu() ? 1 : group_of_rows(device));
}

constexpr const SortImplementation* kImplementations[] = {
    &sort_select,  &sort_insertion,  &sort_radix_rows, &sort_radix_parts,
    &sort_bitonic, &sort_radix_wide, &sort_radix_tiles};

/// Prefix sums of `arrays` arrays of counts, each of `length`.
struct CountScan {
  Queue& queue;
  void* counts;
  uint32_t length, arrays;
};

void run_scan(const CountScan& scan, const KernelFamily& family, size_t wanted) {
  Kernel& kernel = family.get(scan.queue.device(), {});
  const size_t group = std::min(wanted, kernel.max_work_group_size());
  launch(kernel, scan.queue, NDRange::linear(scan.arrays * group, group), Pointer{scan.counts},
         scan.length, LocalMemory{group * sizeof(uint32_t)});
}

constexpr Implementation<CountScan> scan_serial{
    "serial",
    [](const CountScan& scan) {
      return scan.queue.device().is_cpu() ? nullptr : "only for CPU devices";
    },
    [](CountScan& scan) { run_scan(scan, scan_family, 1); }};

// The kernel takes groups of any size: one wave for a short array, all that a group has for a long
// one, since each round of it waits at a barrier.
constexpr Implementation<CountScan> scan_tiles{
    "tiles", [](const CountScan&) -> const char* { return nullptr; },
    [](CountScan& scan) {
      const size_t wanted = scan.length <= 1024 ? 64 : scan.length <= 16384 ? 256 : 1024;
      run_scan(scan, scan_tiles_family, wanted);
    }};

constexpr const Implementation<CountScan>* kScans[] = {&scan_serial, &scan_tiles};

Engine engine{"sort", kImplementations, kScans, runs_implementations()};

std::string describe_scan(const CountScan& scan) {
  return "sort counts " + std::to_string(scan.arrays) + "x" + std::to_string(scan.length);
}

std::string describe(const Plan& plan) {
  std::string text = "sort " + std::to_string(plan.rows) + "x" + std::to_string(plan.n);
  if (plan.wanted < plan.n) text += " first " + std::to_string(plan.wanted);
  return text + " " + plan.key.tag;
}

Plan make_plan(const char* op, const at::Tensor& self, int64_t dim) {
  const int64_t n = self.dim() == 0 ? 1 : self.size(dim);
  TORCH_CHECK_NOT_IMPLEMENTED(self.numel() <= kMaxElements, "ocl: ", op, " of ", self.numel(),
                              " elements");
  const int64_t rows = n == 0 ? 0 : self.numel() / n;
  Queue& queue = current_queue(self.device().index());
  return {queue.device(),
          queue,
          key_type(op, self.scalar_type()),
          static_cast<uint32_t>(rows),
          static_cast<uint32_t>(n),
          static_cast<uint32_t>(n),
          {},
          {}};
}

}  // namespace

void sort_keys(Plan& plan) { run_first(engine, kImplementations, plan, describe); }

void count_runs(Runs& runs) {
  run_first(engine, runs_implementations(), runs,
            [](const Runs& r) { return "sort runs " + std::to_string(r.size()); });
}

KeyType key_type(const char* op, ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Float:
      return {"u32", KeyType::kReal, 32, 4, 0x7f800000};
    case ScalarType::Double:
      return {"u64", KeyType::kReal, 64, 8, 0x7ff0000000000000};
    case ScalarType::Half:
      return {"u16", KeyType::kReal, 16, 2, 0x7c00};
    case ScalarType::BFloat16:
      return {"u16", KeyType::kReal, 16, 2, 0x7f80};
    case ScalarType::Bool:
      return {"u8", KeyType::kBool, 1, 1, 0};
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(c10::isIntegralType(dtype, /*includeBool=*/false), '"', op,
                                  "\" not implemented for '", dtype, "'");
      const uint32_t size = static_cast<uint32_t>(c10::elementSize(dtype));
      return {bits_tag(size), c10::isSignedType(dtype) ? KeyType::kSigned : KeyType::kUnsigned,
              static_cast<uint8_t>(8 * size), size, 0};
  }
}

c10::DataPtr allocate(size_t bytes) { return allocator()->allocate(bytes); }

c10::DataPtr Plan::allocate_keys() const { return allocate(size_t{rows} * n * key.size); }

c10::DataPtr Plan::allocate_index() const { return allocate(size_t{rows} * n * sizeof(uint32_t)); }

void scan_counts(Queue& queue, void* counts, uint32_t length, uint32_t arrays) {
  CountScan scan{queue, counts, length, arrays};
  run_first(engine, kScans, scan, describe_scan);
}

Rows::Rows(const char* op, const at::Tensor& self, int64_t dim, bool descending)
    : self_(self), dim_(dim), descending_(descending), plan_(make_plan(op, self, dim)) {
  if (self.numel() == 0) return;
  plan_.keys = plan_.allocate_keys();
  RowArguments arguments{};
  if (!set_layout(arguments, {&self_}, dim_)) {
    self_ = self_.contiguous();
    set_layout(arguments, {&self_}, dim_);
  }
  const uint64_t total = uint64_t{plan_.rows} * plan_.n;
  arguments.infinity = plan_.key.infinity;
  arguments.flip = descending ? plan_.key.mask() : 0;
  arguments.rows = plan_.rows;
  arguments.n = plan_.n;
  set_chunk(arguments, plan_.device, total);
  launch(get(encode_family, plan_.device, plan_.key), plan_.queue,
         chunks(arguments, plan_.device, total), Pointer{self_.const_data_ptr()},
         Pointer{plan_.keys.get()}, arguments);
}

void Rows::sort() {
  if (self_.numel() != 0) sort_keys(plan_);
}

void Rows::sort_first(int64_t k) {
  plan_.wanted = static_cast<uint32_t>(k);
  sort();
}

template <class Launch>
void Rows::write(const at::Tensor& self, const at::Tensor& values, const at::Tensor& indices,
                 const Launch& launch) const {
  if (values.numel() == 0) return;
  RowArguments arguments{};
  if (!set_layout(arguments, {&self, &values, &indices}, dim_)) {
    const at::Tensor dense_values = at::empty(values.sizes(), values.options());
    const at::Tensor dense_indices = at::empty(indices.sizes(), indices.options());
    write(self.contiguous(), dense_values, dense_indices, launch);
    values.copy_(dense_values);
    indices.copy_(dense_indices);
    return;
  }
  arguments.infinity = plan_.key.infinity;
  arguments.flip = descending_ ? plan_.key.mask() : 0;
  arguments.rows = plan_.rows;
  arguments.n = plan_.n;
  launch(arguments, Pointer{self.const_data_ptr()}, Pointer{values.mutable_data_ptr()},
         Pointer{indices.mutable_data_ptr()});
}

void Rows::take(const at::Tensor& values, const at::Tensor& indices) const {
  write(self_, values, indices,
        [&](RowArguments& arguments, Pointer in, Pointer value, Pointer index) {
          arguments.k = values.dim() == 0 ? 1 : static_cast<uint32_t>(values.size(dim_));
          const uint64_t total = uint64_t{plan_.rows} * arguments.k;
          set_chunk(arguments, plan_.device, total);
          launch(get(take_family, plan_.device, plan_.key), plan_.queue,
                 chunks(arguments, plan_.device, total), in, Pointer{plan_.keys.get()},
                 Pointer{plan_.index.get()}, value, index, arguments);
        });
}

void Rows::pick(uint32_t which, int64_t k, const at::Tensor& values,
                const at::Tensor& indices) const {
  write(self_, values, indices,
        [&](RowArguments& arguments, Pointer in, Pointer value, Pointer index) {
          arguments.k = static_cast<uint32_t>(k);
          launch(get(pick_family, plan_.device, plan_.key), plan_.queue,
                 NDRange::linear(plan_.rows, group_of_lanes(plan_.device)), in,
                 Pointer{plan_.keys.get()}, Pointer{plan_.index.get()}, value, index, arguments,
                 which);
        });
}

void Rows::pick(int64_t k, const at::Tensor& values, const at::Tensor& indices) const {
  pick(kPosition, k, values, indices);
}

void Rows::median(const at::Tensor& values, const at::Tensor& indices) const {
  pick(kMedian, 0, values, indices);
}

void Rows::nanmedian(const at::Tensor& values, const at::Tensor& indices) const {
  pick(kNanMedian, 0, values, indices);
}

void Rows::mode(const at::Tensor& values, const at::Tensor& indices) const {
  write(self_, values, indices,
        [&](RowArguments& arguments, Pointer in, Pointer value, Pointer index) {
          Kernel& kernel = get(mode_family, plan_.device, plan_.key);
          const size_t wanted = plan_.device.is_cpu() ? 1 : group_of_lanes(plan_.device);
          const size_t group = std::min(wanted, kernel.max_work_group_size());
          const LocalMemory scratch{group * sizeof(uint32_t)};
          launch(kernel, plan_.queue, NDRange::linear(plan_.rows * group, group), in,
                 Pointer{plan_.keys.get()}, Pointer{plan_.index.get()}, value, index, arguments,
                 scratch, scratch);
        });
}

void is_in(const Rows& sorted, const at::Tensor& elements, bool invert, const at::Tensor& out) {
  if (elements.numel() == 0) return;
  Queue& queue = current_queue(elements.device().index());
  TORCH_CHECK_NOT_IMPLEMENTED(elements.numel() <= kMaxElements, "ocl: isin of ", elements.numel(),
                              " elements");
  launch(get(isin_family, queue.device(), sorted.key()), queue,
         NDRange::linear(elements.numel(), group_of_rows(queue.device())),
         Pointer{elements.const_data_ptr()}, Pointer{sorted.keys()},
         Pointer{out.mutable_data_ptr()}, sorted.key().infinity,
         static_cast<uint32_t>(elements.numel()), sorted.n(), static_cast<uint32_t>(invert));
}

}  // namespace ocl::sort
