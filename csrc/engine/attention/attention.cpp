#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/attention/attention.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "engine/attention/plan.h"
#include "opencl/log.h"
#include "opencl/platform.h"

namespace ocl {

AttentionArguments::Strides attention_strides(const at::Tensor& tensor) {
  const auto stride = [&](int dim) { return static_cast<uint64_t>(tensor.stride(dim)); };
  // A dimension of one element is contiguous whatever its stride says.
  return {stride(0), stride(1), stride(2), tensor.size(3) == 1 ? 1 : stride(3)};
}

AttentionPlan::AttentionPlan(const AttentionProblem& given)
    : problem(given),
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

  AttentionArguments& a = arguments;
  a.query = attention_strides(query);
  a.key = attention_strides(key);
  a.value = attention_strides(problem.value);
  if (problem.mask.defined()) a.mask = attention_strides(problem.mask);
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

void AttentionPlan::launch(Kernel& kernel, const NDRange& range,
                           std::span<const at::Tensor> operands,
                           std::initializer_list<ScalarArgument> scalars, size_t local) {
  cl_uint index = 0;
  for (const at::Tensor& operand : operands) {
    // What is not there is not read either, but the kernel needs a buffer.
    const at::Tensor& present = operand.defined() ? operand : operands[0];
    const Location location = device.addresses().find(present.const_data_ptr());
    arguments.offset[index] = location.offset;
    kernel.set_buffer(index++, location.mem);
  }
  kernel.set_value(index++, arguments);
  const ScalarArgument factor = scalar(problem.scale * M_LOG2E);
  kernel.set_bytes(index++, factor.bytes, factor.size);
  for (const ScalarArgument& value : scalars) kernel.set_bytes(index++, value.bytes, value.size);
  const Keep keep(problem.dropout, compute_type);
  kernel.set_bytes(index++, keep.threshold.bytes, keep.threshold.size);
  kernel.set_bytes(index++, keep.scale.bytes, keep.scale.size);
  if (local > 0) kernel.set_local(index, local);
  kernel.enqueue(queue, range);
}

uint32_t row_vectors(int64_t columns, uint32_t width, int most) {
  auto vectors = static_cast<uint32_t>((columns + width - 1) / width);
  vectors = std::max(1U, vectors);
  while (vectors > 1 && tile_vectors(vectors, most) == 1) ++vectors;
  return vectors;
}

uint32_t tile_vectors(uint32_t vectors, int most) {
  if (most < 4) return vectors % 2 == 0 ? 2 : 1;
  if (vectors <= 5) return vectors;
  return vectors % 4 == 0 ? 4 : vectors % 3 == 0 ? 3 : vectors % 5 == 0 ? 5 : 1;
}

const char* attention_refuses(const AttentionProblem& problem) {
  const at::Tensor &query = problem.query, &key = problem.key, &value = problem.value;
  constexpr int64_t kLongest = int64_t{1} << 30;
  if (query.size(3) > 256 || value.size(3) > 256) return "heads past 256 columns";
  if (query.size(2) > kLongest || key.size(2) > kLongest) return "a sequence past 2^30";
  if (query.size(0) * query.size(1) > kLongest) return "heads past 2^30";
  return nullptr;
}

namespace {

bool tensor_core_takes(const AttentionPlan& plan, std::span<const at::Tensor> others) {
  const char* reason = tensor_core_refuses(plan, others);
  if (__builtin_expect(verbose(Verbose::dispatch), 0)) {
    trace(std::string("attention: tensor_core ") + (reason ? "refuses: " : "runs") +
          (reason ? reason : ""));
  }
  return reason == nullptr;
}

void gpu_backward(AttentionPlan& plan, const at::Tensor& grad, const at::Tensor& out,
                  const at::Tensor& logsumexp, const at::Tensor& grad_query,
                  const at::Tensor& grad_key, const at::Tensor& grad_value) {
  const AttentionProblem& problem = plan.problem;
  const at::Tensor delta = at::empty(logsumexp.sizes(), logsumexp.options());
  const std::array<at::Tensor, 11> operands{problem.query, problem.key, problem.value, problem.mask,
                                            out,           logsumexp,   grad,          delta,
                                            grad_query,    grad_key,    grad_value};
  const std::array others{out, grad, grad_query, grad_key, grad_value};
  const bool takes = plan.arguments.queries > 0 && tensor_core_takes(plan, others);
  (takes ? attention_tensor_core_backward : attention_local_backward)(plan, operands);
}

}  // namespace

void attention(const AttentionProblem& problem, const at::Tensor& out,
               const at::Tensor& logsumexp) {
  AttentionPlan plan(problem);
  if (plan.arguments.queries == 0 || plan.batch == 0 || plan.arguments.heads == 0) return;
  if (!plan.device.is_cpu()) {
    prepare_groups(plan, out);
    const bool halves = c10::isReducedFloatingType(problem.query.scalar_type());
    const bool takes = halves && tensor_core_takes(plan, std::array{out});
    (takes ? attention_tensor_core : attention_local)(plan, out, logsumexp);
  } else if (takes_decode(plan)) {
    attention_decode(plan, out, logsumexp);
  } else {
    attention_lanes(plan, out, logsumexp);
  }
}

void attention_backward(const AttentionProblem& problem, const at::Tensor& grad,
                        const at::Tensor& out, const at::Tensor& logsumexp,
                        const at::Tensor& grad_query, const at::Tensor& grad_key,
                        const at::Tensor& grad_value) {
  AttentionPlan plan(problem);
  if (plan.batch == 0 || plan.arguments.heads == 0) return;
  AttentionArguments& a = plan.arguments;
  a.out = attention_strides(out);
  a.grad = attention_strides(grad);
  a.grad_query = attention_strides(grad_query);
  a.grad_key = attention_strides(grad_key);
  a.grad_value = attention_strides(grad_value);
  const auto run = plan.device.is_cpu() ? attention_lanes_backward : gpu_backward;
  run(plan, grad, out, logsumexp, grad_query, grad_key, grad_value);
}

}  // namespace ocl
