#include "runtime/op_costs.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "opencl/profile.h"
#include "runtime/stream.h"

namespace ocl {
namespace {

using Inputs = c10::ArrayRef<const c10::IValue>;

/// Multiplications and additions: so many, and so many for each element of the first result.
struct Flops {
  double all = 0, per_result = 0;
};

double count(const c10::IValue& tensor) { return static_cast<double>(tensor.toTensor().numel()); }
double size(const c10::IValue& tensor, int64_t dim) {
  return static_cast<double>(tensor.toTensor().size(dim));
}

template <int kRight>
Flops of_product(Inputs in) {
  return {0, 2 * size(in[kRight - 1], -1)};
}

// Each weight meets each position of the smaller image: the result's, or, transposed, the input's.
template <int kInput, int kWeight, int kTransposed>
Flops of_convolution(Inputs in) {
  const double weights = count(in[kWeight]) / size(in[kWeight], 0);
  if (in[kTransposed].toBool()) return {2 * count(in[kInput]) * weights, 0};
  return {0, 2 * weights};
}

Flops of_convolution_backward(Inputs in) {
  // grad_output, input, weight, stride, padding, dilation, transposed, output_padding, groups, mask
  const bool transposed = in[6].toBool();
  const double weights = count(in[2]) / size(in[2], 0);
  const double once = 2 * count(in[transposed ? 1 : 0]) * weights;
  const auto mask = in[9].toBoolList();
  return {once * (static_cast<double>(mask[0]) + static_cast<double>(mask[1])), 0};
}

/// The products of queries and keys, and of their results and values.
double of_attention(const c10::IValue& query, const c10::IValue& key, const c10::IValue& value) {
  const double scores = count(query) / size(query, -1) * size(key, -2);
  return 2 * scores * (size(query, -1) + size(value, -1));
}
Flops of_attention_forward(Inputs in) { return {of_attention(in[0], in[1], in[2]), 0}; }
// The scores anew, the gradients of both products' operands: five products for two.
Flops of_attention_backward(Inputs in) { return {2.5 * of_attention(in[1], in[2], in[3]), 0}; }

using Formula = Flops (*)(Inputs);

/// Null where there is none.
Formula formula_of(std::string_view name) {
  static const std::unordered_map<std::string_view, Formula> formulas{
      {"aten::_scaled_dot_product_fused_attention_overrideable", of_attention_forward},
      {"aten::_scaled_dot_product_fused_attention_overrideable_backward", of_attention_backward},
      {"aten::addbmm", of_product<2>},
      {"aten::addmm", of_product<2>},
      {"aten::_addmm_activation", of_product<2>},
      {"aten::addmv", of_product<2>},
      {"aten::baddbmm", of_product<2>},
      {"aten::bmm", of_product<1>},
      {"aten::convolution_backward_overrideable", of_convolution_backward},
      {"aten::convolution_overrideable", of_convolution<0, 1, 6>},
      {"aten::dot", of_product<1>},
      {"aten::linear", of_product<1>},
      {"aten::mm", of_product<1>},
      {"aten::mv", of_product<1>},
  };
  const auto entry = formulas.find(name);
  return entry == formulas.end() ? nullptr : entry->second;
}

/// Ops that write their first operand without reading it.
bool only_writes(std::string_view name) {
  static const std::unordered_set<std::string_view> names{
      "aten::bernoulli_", "aten::cauchy_",    "aten::copy_",       "aten::exponential_",
      "aten::fill_",      "aten::geometric_", "aten::log_normal_", "aten::normal_",
      "aten::random_",    "aten::uniform_",   "aten::zero_"};
  return names.contains(name);
}

/// Ops that read of their first operand as much as they return.
bool reads_by_index(std::string_view name) {
  static const std::unordered_set<std::string_view> names{
      "aten::embedding", "aten::gather", "aten::index", "aten::index_select", "aten::take"};
  return names.contains(name);
}

/// Elements that are repeated by a stride of 0 lie in memory once.
double bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kDeviceType ||
      tensor.layout() != at::kStrided || !tensor.has_storage()) {
    return 0;
  }
  auto bytes = static_cast<double>(tensor.element_size());
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.stride(dim) != 0) bytes *= static_cast<double>(tensor.size(dim));
  }
  return bytes;
}

template <class Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isList() || value.isTuple()) {
    const auto visit_all = [&](const auto& values) {
      for (const c10::IValue& element : values) each_tensor(element, visit);
    };
    if (value.isList()) {
      visit_all(value.toListRef());
    } else {
      visit_all(value.toTupleRef().elements());
    }
  }
}

// Never destroyed: threads may be within an op while the process exits.
struct Watch {
  std::mutex mutex;
  bool active = false;
  std::vector<OpCost> costs;
  std::atomic<uint64_t> ids{0};
};
Watch& watch() {
  static auto* instance = new Watch;
  return *instance;
}

struct Op final : at::ObserverContext {
  OpCost cost;
  Flops flops;
  double indexed = 0;                 // bytes of an operand that is read by index
  std::vector<const void*> operands;  // tensors
  uint64_t outer = 0;
  uint64_t commands_of_outer = 0;
};

/// How often an op moves each of its arguments.
using Moves = std::vector<int>;

/// Asked of the schema once per op: that copies it.
const Moves& moves_of(const at::RecordFunction& function) {
  static thread_local std::unordered_map<std::string, Moves> known;
  const std::string_view name = function.name();
  const auto [entry, is_new] =
      known.try_emplace(std::string(name) + "." + function.overload_name());
  if (!is_new) return entry->second;
  const auto schema = function.operator_schema();
  const size_t arguments = schema ? schema->arguments().size() : 0;
  for (size_t i = 0; i < arguments; ++i) {
    const c10::Argument& argument = schema->arguments()[i];
    const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    const bool read = !argument.is_out() && !(i == 0 && only_writes(name));
    entry->second.push_back(static_cast<int>(read) + static_cast<int>(written));
  }
  return entry->second;
}

void add_inputs(Op& op, const at::RecordFunction& function) {
  const std::string_view name = function.name();
  const Moves& moves = moves_of(function);
  const Inputs inputs = function.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      const double bytes = bytes_of(tensor);
      if (bytes == 0) return;
      if (op.cost.dtype.empty()) op.cost.dtype = c10::getDtypeNames(tensor.scalar_type()).first;
      op.operands.push_back(tensor.unsafeGetTensorImpl());
      if (i == 0 && reads_by_index(name)) {
        op.indexed = bytes;
        return;
      }
      op.cost.bytes += bytes * (i < moves.size() ? moves[i] : 1);
    });
  }
  if (const Formula formula = formula_of(name)) op.flops = formula(inputs);
}

void add_outputs(Op& op, const at::RecordFunction& function) {
  double results = 0, first = 0;
  for (const c10::IValue& output : function.outputs()) {
    each_tensor(output, [&](const at::Tensor& tensor) {
      if (first == 0 && tensor.defined()) first = static_cast<double>(tensor.numel());
      const double bytes = bytes_of(tensor);
      // A result that is an operand as well was counted there.
      if (bytes == 0 ||
          std::ranges::find(op.operands, tensor.unsafeGetTensorImpl()) != op.operands.end()) {
        return;
      }
      results += bytes;
    });
  }
  op.cost.bytes += results + std::min(op.indexed, results);
  op.cost.flops = op.flops.all + op.flops.per_result * first;
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  auto op = std::make_unique<Op>();
  op->cost.id = ++watch().ids;
  op->cost.name = function.name();
  // An op that gets what it doesn't expect raises by itself.
  try {
    add_inputs(*op, function);
  } catch (const std::exception&) {
    op->flops = {};
  }
  op->outer = std::exchange(profile::tags.op, op->cost.id);
  op->commands_of_outer = std::exchange(profile::tags.commands, 0);
  return op;
}

void end(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* op = static_cast<Op*>(context);
  if (op == nullptr) return;
  const bool launched = profile::tags.commands != 0;
  profile::tags.op = op->outer;
  profile::tags.commands = op->commands_of_outer;
  if (!launched) return;
  add_outputs(*op, function);
  std::lock_guard lock(watch().mutex);
  if (watch().active) watch().costs.push_back(std::move(op->cost));
}

}  // namespace

OpCosts::OpCosts() {
  std::lock_guard lock(watch().mutex);
  if (watch().active) throw std::runtime_error("another torch.ocl.profiler is active already");
  watch().active = true;
  watch().costs.clear();
  handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&begin, &end)
                                      .needsInputs(true)
                                      .needsOutputs(true)
                                      .scopes({at::RecordScope::FUNCTION}));
}

OpCosts::~OpCosts() {
  at::removeCallback(handle_);
  std::lock_guard lock(watch().mutex);
  watch().active = false;
  watch().costs.clear();
}

std::vector<OpCost> OpCosts::take() {
  std::lock_guard lock(watch().mutex);
  return std::move(watch().costs);
}

}  // namespace ocl
