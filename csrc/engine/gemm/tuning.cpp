// The tuner of matrix products: it varies parameters and tries them on other operands.
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/dtype.h"
#include "engine/gemm/plan.h"
#include "engine/tuner/results.h"
#include "engine/tuner/scratch.h"
#include "engine/tuner/tuner.h"
#include "opencl/log.h"

namespace ocl::gemm {

namespace {

constexpr const char* kDefault = "Default";
// Products up to so many terms are tried on kernels that are made for small ones only.
constexpr uint64_t kSmallProduct = uint64_t{1} << 24;

/// A size and those like it: rounded up to three significant bits. The steps of 12 to 25% are
/// multiples of the tiles in use, so a class does not mix full tiles with those that just overflow.
uint32_t size_class(uint32_t n) {
  if (n <= 8) return n;
  const int shift = static_cast<int>(std::bit_width(n - 1)) - 3;
  return (((n - 1) >> shift) + 1) << shift;
}

/// How a matrix lies: n row after row, t column after column, s neither.
char layout_of(const Strides& s) { return s.column == 1 ? 'n' : s.row == 1 ? 't' : 's'; }

/// Whether its rows or columns can be read 16 bytes at a time.
bool is_aligned(const char* data, size_t size, const Strides& s) {
  const uint64_t others = s.column == 1 ? s.row | s.batch : s.column | s.batch;
  return (reinterpret_cast<uintptr_t>(data) | others * size) % 16 == 0;
}

/// The class of products that share a choice.
struct Key {
  const char *a_tag, *b_tag, *out_tag;  // literals
  uint32_t m, n, k, batch;
  char a_layout, b_layout, out_layout;
  bool a_aligned, b_aligned;
  bool a_shared, b_shared;  // by all of the batch
  bool addend;
  int16_t activation, tf32;  // of this size, so that nothing is padding
  int32_t device;

  std::string operation() const {
    return std::string("gemm_") + a_tag + "_" + b_tag + "_" + out_tag + (tf32 != 0 ? "_tf32" : "");
  }
  std::string problem() const {
    std::string key = {a_layout, b_layout, out_layout};
    const auto add = [&](const char* name, uint32_t size) {
      key += std::string("_") + name + std::to_string(size);
    };
    add("m", m);
    add("n", n);
    add("k", k);
    add("b", batch);
    if (!a_aligned) key += "_unaligned_a";
    if (!b_aligned) key += "_unaligned_b";
    if (a_shared) key += "_shared_a";
    if (b_shared) key += "_shared_b";
    if (addend) key += "_add";
    if (activation != 0) key += activation == 1 ? "_relu" : "_gelu";
    return key;
  }
};

Key key_of(const Plan& plan) {
  const Arguments& p = plan.problem;
  const bool several = p.batch > 1;
  return {plan.a_tag,
          plan.b_tag,
          plan.out_tag,
          size_class(p.m),
          size_class(p.n),
          size_class(p.k),
          size_class(p.batch),
          layout_of(p.a),
          layout_of(p.b),
          layout_of(p.out),
          is_aligned(plan.a, plan.a_size, p.a),
          is_aligned(plan.b, plan.b_size, p.b),
          several && p.a.batch == 0,
          several && p.b.batch == 0,
          (p.flags & kAddend) != 0,
          static_cast<int16_t>(plan.activation),
          plan.tf32,
          plan.device.index()};
}

/// The implementation to run; null: the one that would run without a tuner.
struct Choice {
  const Implementation* implementation = nullptr;
  Parameters parameters{};
};

/// The choice that a file of results names; none if this device has no such one (any more).
std::optional<Choice> choice_named(const Plan& plan, std::string_view name) {
  if (name == kDefault) return Choice{};
  const auto next_part = [&] {
    const size_t end = name.find(':');
    const std::string_view part = name.substr(0, end);
    name = end == std::string_view::npos ? std::string_view() : name.substr(end + 1);
    return part;
  };
  const std::string_view implementation = next_part();
  for (const Implementation* candidate : implementations(plan.device)) {
    if (implementation != candidate->name) continue;
    Plan varied = plan;
    for (int stage = 0; !name.empty(); ++stage) {
      const std::string_view part = next_part();
      if (part == "-") continue;
      if (candidate->vary == nullptr) return std::nullopt;
      bool known = false;
      for (const Variation& variation : candidate->vary(varied, stage)) {
        if (known || variation.name != part) continue;
        varied.parameters = variation.parameters;
        known = true;
      }
      // A later stage's offers depend on sizes, which differ within a class.
      if (!known && stage == 0) return std::nullopt;
    }
    return Choice{candidate, varied.parameters};
  }
  return std::nullopt;
}

/// The number of elements from the first to the last of an operand.
size_t extent(const Strides& s, uint64_t rows, uint64_t columns, uint64_t batch) {
  return (rows - 1) * s.row + (columns - 1) * s.column + (batch - 1) * s.batch + 1;
}

/// Whether a kernel that may be very slow is worth a trial.
bool worth_trying(const Plan& plan, const Implementation& implementation) {
  const bool slow =
      &implementation == &direct || (&implementation == &packed && !plan.device.is_cpu());
  const Arguments& p = plan.problem;
  return !slow || uint64_t{p.m} * p.n * p.k * p.batch <= kSmallProduct;
}

/// 1 as the scalar of the type computed with.
ScalarArgument one(const Plan& plan) {
  ScalarArgument result{};
  result.size = plan.alpha.size;
  const std::string_view tag = plan.compute_tag;
  const auto put = [&](auto value) { std::memcpy(result.bytes, &value, sizeof value); };
  if (tag == "f32" || tag == "c64") put(1.0F);
  if (tag == "f64" || tag == "c128") put(1.0);
  if (tag == "u32") put(uint32_t{1});
  if (tag == "u64") put(uint64_t{1});
  return result;
}

c10::ScalarType dtype_of(std::string_view tag) {
  using c10::ScalarType;
  for (const ScalarType dtype :
       {ScalarType::Float, ScalarType::Double, ScalarType::Half, ScalarType::BFloat16,
        ScalarType::Byte, ScalarType::Char, ScalarType::Short, ScalarType::Int, ScalarType::Long,
        ScalarType::ComplexFloat, ScalarType::ComplexDouble}) {
    if (tag == ocl::tag(dtype)) return dtype;
  }
  TORCH_INTERNAL_ASSERT(false, "a product of ", std::string(tag));
}

/// The plan's product of other matrices of the same layout, whose sums are (nearly) exact: neither
/// the values of this call nor its out have a part in the search.
class ImplementationCandidates : public tuner::Candidates {
 public:
  explicit ImplementationCandidates(const Plan& plan) : plan_(plan) {
    const Arguments& p = plan.problem;
    const auto matrix = [&](tuner::Scratch& scratch, const char* tag, const void* like,
                            const Strides& s, uint64_t rows, uint64_t columns, uint32_t seed) {
      scratch = tuner::Scratch(dtype_of(tag), extent(s, rows, columns, p.batch), like);
      scratch.fill(plan.queue, seed);
      return scratch.data();
    };
    plan_.a = matrix(a_, plan.a_tag, plan.a, p.a, p.m, p.k, 1);
    plan_.b = matrix(b_, plan.b_tag, plan.b, p.b, p.k, p.n, 2);
    matrix(expected_, plan.out_tag, plan.out, p.out, p.m, p.n, kOutSeed);
    plan_.out = matrix(actual_, plan.out_tag, plan.out, p.out, p.m, p.n, kOutSeed);
    plan_.c = plan_.out;
    // It might write operands that it has read. What is chosen is the same without it.
    plan_.epilogue = nullptr;
    plan_.alpha = plan_.beta = one(plan);
    if (p.flags & kAddend) {
      plan_.c = matrix(c_, plan.out_tag, plan.c, p.c, p.m, p.n, 4);
    }
    for (const Implementation* implementation : implementations(plan.device)) {
      if (implementation->refuse(plan_) != nullptr) continue;
      if (list_.empty()) {
        list_.push_back({implementation, plan.parameters, kDefault});
      } else if (engine.reason_to_leave_out(implementation->name) == nullptr &&
                 worth_trying(plan_, *implementation)) {
        list_.push_back({implementation, plan.parameters, implementation->name});
      }
    }
  }

  /// At first the implementations, then what each stage makes of the best.
  size_t more(size_t best) override {
    const size_t before = list_.size();
    if (std::exchange(begun_, true) == false && before > 1) return before;
    const Candidate parent = list_[best];
    Plan varied = plan_;
    varied.parameters = parent.parameters;
    for (; stage_ < kStages && list_.size() == before; ++stage_) {
      if (parent.implementation->vary == nullptr) break;
      const std::string name = best == 0 ? parent.implementation->name : parent.name;
      for (Variation& variation : parent.implementation->vary(varied, stage_)) {
        Plan plan = plan_;
        plan.parameters = variation.parameters;
        if (parent.implementation->refuse(plan) != nullptr) continue;
        list_.push_back({parent.implementation, variation.parameters,
                         padded(name, stage_) + ":" + variation.name});
      }
    }
    return list_.size();
  }

  std::string name(size_t index) const override { return list_[index].name; }

  void run(size_t index) override {
    plan_.parameters = list_[index].parameters;
    list_[index].implementation->run(plan_);
  }

  bool agrees(size_t index) override {
    const tuner::Scratch& out = index == 0 ? expected_ : actual_;
    // Once more before each run: what a kernel forgets to store must not be there already.
    out.fill(plan_.queue, kOutSeed);
    plan_.out = out.data();
    run(index);
    plan_.out = actual_.data();
    if (index == 0) return true;
    const double scale = std::sqrt(static_cast<double>(plan_.problem.k)) + 1;
    return tuner::same_results(plan_.queue, actual_, expected_, scale);
  }

  Choice choice(size_t index) const {
    return index == 0 ? Choice{} : Choice{list_[index].implementation, list_[index].parameters};
  }

 private:
  static constexpr int kStages = 3;
  static constexpr uint32_t kOutSeed = 3;
  struct Candidate {
    const Implementation* implementation;
    Parameters parameters;
    std::string name;
  };

  /// With a "-" for every stage before `stage` that has no part in the name.
  static std::string padded(std::string name, int stage) {
    for (auto parts = std::count(name.begin(), name.end(), ':'); parts < stage; ++parts)
      name += ":-";
    return name;
  }

  Plan plan_;
  tuner::Scratch a_, b_, c_, expected_, actual_;
  std::vector<Candidate> list_;
  bool begun_ = false;
  int stage_ = 0;
};

/// The choice for the plan's class, from the results or by a search. None while another thread
/// searches: it may find this one too, and it should not be disturbed by as much again.
std::optional<Choice> find_choice(const Plan& plan, const Key& key) {
  static std::mutex searching;
  const std::string operation = key.operation(), problem = key.problem();
  const auto known = [&]() -> std::optional<Choice> {
    const std::optional<std::string> name = tuner::find(plan.device, operation, problem);
    if (!name) return std::nullopt;
    const std::optional<Choice> choice = choice_named(plan, *name);
    static std::atomic<bool> warned{false};
    if (!choice && !warned.exchange(true)) {
      warn("a tuning result for " + operation + " " + problem + " is ignored: there is no " +
           *name);
    }
    return choice;
  };
  if (const std::optional<Choice> choice = known()) return choice;
  const tuner::Settings settings = tuner::settings();
  if (!settings.tuning) return Choice{};
  const std::unique_lock<std::mutex> lock(searching, std::try_to_lock);
  if (!lock.owns_lock()) return std::nullopt;
  if (const std::optional<Choice> choice = known()) return choice;
  try {
    ImplementationCandidates candidates(plan);
    const tuner::Found found = tuner::search(plan.queue, candidates, settings);
    const std::string name = candidates.name(found.best);
    tuner::store(plan.device, {operation, problem, name, found.milliseconds});
    if (verbose(Verbose::tune)) trace("tune: " + operation + " " + problem + ": " + name);
    return candidates.choice(found.best);
  } catch (const std::exception& error) {
    // No memory for other operands, say. If it is the product itself, its own run tells.
    if (verbose(Verbose::tune)) trace("tune: " + operation + " " + problem + ": " + error.what());
    return Choice{};
  }
}

}  // namespace

bool run_tuned(const Plan& plan) {
  const uint32_t epoch = tuner::epoch();
  if (epoch == 0 || plan.problem.k == 0) return false;
  static thread_local tuner::TunedTable<Key, Choice> table;
  const Key key = key_of(plan);
  const Choice* choice = table.find(key, epoch);
  if (choice == nullptr) {
    const std::optional<Choice> found = find_choice(plan, key);
    if (!found) return false;
    choice = &table.insert(key, *found);
  }
  if (choice->implementation == nullptr) return false;
  Plan tuned = plan;
  tuned.parameters = choice->parameters;
  if (choice->implementation->refuse(tuned) != nullptr) return false;
  if (engine.reason_to_leave_out(choice->implementation->name) != nullptr) return false;
  if (__builtin_expect(dispatch_is_traced(), 0)) {
    trace_dispatch(engine, std::string("gemm, tuned: ") + choice->implementation->name + " runs");
  }
  choice->implementation->run(tuned);
  return true;
}

}  // namespace ocl::gemm
