#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/attention/attention.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "engine/attention/plan.h"
#include "opencl/ceil_div.h"
#include "opencl/platform.h"

namespace ocl::attention {

Strides strides_of(const at::Tensor& tensor) {
  const auto stride = [&](int dim) { return static_cast<uint64_t>(tensor.stride(dim)); };
  // A dimension of one element is contiguous whatever its stride says.
  return {stride(0), stride(1), stride(2), tensor.size(3) == 1 ? 1 : stride(3)};
}

Plan::Plan(const Problem& given, const at::Tensor& given_out, const at::Tensor& given_logsumexp,
           const Gradients* given_gradients)
    : problem(given),
      out(given_out),
      logsumexp(given_logsumexp),
      gradients(given_gradients),
      device(ocl::device(given.query.device().index())),
      queue(current_queue(given.query.device().index())) {
  const at::Tensor &query = problem.query, &key = problem.key;
  compute_type = compute_dtype(query.scalar_type());
  compute_size = c10::elementSize(compute_type);
  in = tag(query.scalar_type());
  compute = tag(compute_type);
  mask = tag(problem.mask.defined() ? problem.mask.scalar_type() : c10::ScalarType::Char);
  dropout = problem.dropout > 0;
  batch = static_cast<uint32_t>(query.size(0));
  key_heads = static_cast<uint32_t>(key.size(1));

  Arguments& a = arguments;
  a.query = strides_of(query);
  a.key = strides_of(key);
  a.value = strides_of(problem.value);
  if (problem.mask.defined()) a.mask = strides_of(problem.mask);
  a.out = strides_of(out);
  if (gradients != nullptr) {
    a.grad = strides_of(gradients->out);
    a.grad_query = strides_of(gradients->query);
    a.grad_key = strides_of(gradients->key);
    a.grad_value = strides_of(gradients->value);
  }
  a.seed = problem.seed;
  a.counter = problem.offset;
  a.heads = static_cast<uint32_t>(query.size(1));
  a.group = a.heads / std::max(1U, key_heads);
  a.queries = static_cast<uint32_t>(query.size(2));
  a.keys = static_cast<uint32_t>(key.size(2));
  a.depth = static_cast<uint32_t>(query.size(3));
  a.columns = static_cast<uint32_t>(problem.value.size(3));
  a.causal = problem.causal;
  a.splits = 1;
}

Kernel& Plan::kernel(const KernelFamily& family, std::span<const Define> defines) const {
  const Modification* m = problem.modification;
  if (m == nullptr) return family.get(device, defines);
  c10::SmallVector<Define, 24> all(defines.begin(), defines.end());
  all.emplace_back("MODIFIED", 1);
  return m->kernels.family(family).get(device, std::span<const Define>(all.data(), all.size()));
}

namespace {

/// Sets modification.clh's MODIFICATION_PARAMETERS.
void set_modification(Kernel& kernel, cl_uint& index, const Modification& m) {
  const auto set = [&](const at::Tensor& tensor) {
    // An absent tensor is not read, but the kernel needs a buffer.
    const at::Tensor& present = tensor.defined() ? tensor : m.blocks;
    detail::set_argument(kernel, index, Pointer{present.const_data_ptr()});
  };
  for (const at::Tensor* tensor : {&m.blocks, &m.maxima, &m.lse_slopes}) set(*tensor);
  const Strides strides = strides_of(m.blocks);
  const auto u32 = [](int64_t number) { return static_cast<uint32_t>(number); };
  constexpr int64_t kTile = 128;  // tiles' sides divide it, and begin at multiples of themselves
  const auto whole = static_cast<uint32_t>(m.query_block % kTile == 0 && m.key_block % kTile == 0);
  kernel.set_value(index++, kernel_arguments::Modification{
                                strides.batch, strides.head, strides.row, strides.column,
                                u32(m.blocks.size(2)), u32(m.blocks.size(3)), u32(m.query_block),
                                u32(m.key_block), whole, u32(m.copies)});
  for (const at::Tensor& tensor : m.captured) set(tensor);
  for (const at::Tensor& tensor : m.gradients) {
    set(tensor);
    kernel.set_value(index++, static_cast<cl_ulong>(tensor.nbytes()) / u32(m.copies));
  }
  for (const int64_t number : m.numbers) kernel.set_value(index++, cl_long{number});
}

}  // namespace

void Plan::launch(Kernel& kernel, const NDRange& range, std::span<const at::Tensor> operands,
                  std::initializer_list<ScalarArgument> scalars, size_t local,
                  bool may_be_modified) const {
  cl_uint index = 0;
  for (const at::Tensor& operand : operands) {
    // An absent tensor is not read, but the kernel needs a buffer.
    const at::Tensor& present = operand.defined() ? operand : operands[0];
    detail::set_argument(kernel, index, Pointer{present.const_data_ptr()});
  }
  kernel.set_value(index++, arguments);
  // A modification sees scores in natural units.
  const Modification* m = problem.modification;
  const ScalarArgument factor = scalar(m == nullptr ? problem.scale * M_LOG2E : problem.scale);
  kernel.set_bytes(index++, factor.bytes, factor.size);
  for (const ScalarArgument& value : scalars) kernel.set_bytes(index++, value.bytes, value.size);
  const Keep keep(problem.dropout, compute_type);
  kernel.set_bytes(index++, keep.threshold.bytes, keep.threshold.size);
  kernel.set_bytes(index++, keep.scale.bytes, keep.scale.size);
  if (m != nullptr && may_be_modified) set_modification(kernel, index, *m);
  if (local > 0) kernel.set_local(index, local);
  kernel.enqueue(queue, range);
}

uint32_t row_vectors(int64_t columns, uint32_t width, int most) {
  auto vectors = static_cast<uint32_t>(ceil_div(columns, width));
  vectors = std::max(1U, vectors);
  while (vectors > 1 && tile_vectors(vectors, most) == 1) ++vectors;
  return vectors;
}

uint32_t tile_vectors(uint32_t vectors, int most) {
  if (most < 4) return vectors % 2 == 0 ? 2 : 1;
  if (vectors <= 5) return vectors;
  return vectors % 4 == 0 ? 4 : vectors % 3 == 0 ? 3 : vectors % 5 == 0 ? 5 : 1;
}

const char* refuses(const Problem& problem) {
  const at::Tensor &query = problem.query, &key = problem.key, &value = problem.value;
  constexpr int64_t kLongest = int64_t{1} << 30;
  if (query.size(3) > 256 || value.size(3) > 256) return "heads past 256 columns";
  if (query.size(2) > kLongest || key.size(2) > kLongest) return "a sequence past 2^30";
  if (query.size(0) * query.size(1) > kLongest) return "heads past 2^30";
  return nullptr;
}

std::array<at::Tensor, 11> backward_operands(const Plan& plan) {
  const Problem& problem = plan.problem;
  const Gradients& gradients = *plan.gradients;
  return {problem.query,   problem.key,
          problem.value,   problem.mask,
          plan.out,        plan.logsumexp,
          gradients.out,   at::empty(plan.logsumexp.sizes(), plan.logsumexp.options()),
          gradients.query, gradients.key,
          gradients.value};
}

namespace {

// In order of preference; before them the one that the user forces, of either kind of device.
constexpr const Implementation<Plan>* kOnCpu[] = {&decode, &amx, &lanes};
constexpr const Implementation<Plan>* kOnGpu[] = {&tensor_core, &wave_matrix, &local, &lanes};
constexpr const Implementation<Plan>* kAll[] = {&decode,      &amx,         &lanes,
                                                &tensor_core, &wave_matrix, &local};

Engine engine{"attention", kAll};

std::string describe(const Plan& plan) {
  const at::Tensor &query = plan.problem.query, &value = plan.problem.value;
  std::string line = plan.gradients == nullptr ? "attention" : "attention backward";
  for (const int64_t size : {query.size(0), query.size(1), query.size(2), plan.problem.key.size(2),
                             query.size(3), value.size(3)}) {
    line += (line.back() >= 'a' ? " " : "x") + std::to_string(size);
  }
  return line + " " + plan.in;
}

/// One query of several heads that share a key, as several queries of one head.
void fold_group(Arguments& a) {
  for (Strides* strides : {&a.query, &a.mask, &a.out}) {
    strides->row = strides->head;
    strides->head *= a.group;
  }
  a.heads /= a.group;
  a.queries = a.group;
  a.group = 1;
  if (a.causal) a.keys = std::min(a.keys, 1U);
  a.causal = 0;
}

void run(Plan& plan) {
  if (plan.device.is_cpu()) {
    run_first(engine, kAll, kOnCpu, plan, describe);
  } else {
    run_first(engine, kAll, kOnGpu, plan, describe);
  }
}

}  // namespace

void forward(const Problem& problem, const at::Tensor& out, const at::Tensor& logsumexp) {
  Plan plan(problem, out, logsumexp);
  Arguments& a = plan.arguments;
  if (a.queries == 0 || plan.batch == 0 || a.heads == 0) return;
  const bool folds = !plan.device.is_cpu() && a.queries == 1 && a.group > 1;
  if (folds && problem.modification == nullptr) fold_group(a);
  run(plan);
}

void backward(const Problem& problem, const at::Tensor& grad, const at::Tensor& out,
              const at::Tensor& logsumexp, const at::Tensor& grad_query, const at::Tensor& grad_key,
              const at::Tensor& grad_value) {
  const Gradients gradients{grad, grad_query, grad_key, grad_value};
  Plan plan(problem, out, logsumexp, &gradients);
  if (plan.batch == 0 || plan.arguments.heads == 0) return;
  run(plan);
}

}  // namespace ocl::attention
