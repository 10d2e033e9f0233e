#include "runtime/generator.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include <array>
#include <cstring>
#include <mutex>

#include "opencl/graph.h"
#include "opencl/platform.h"
#include "opencl/queue.h"
#include "runtime/generator_seed.h"
#include "runtime/graph.h"
#include "runtime/stream.h"
#include "runtime/stream_table.h"

namespace ocl {
namespace {

/// The generator whose state the calling thread asks for, while a capture may be given up by it.
thread_local const c10::GeneratorImpl* asked = nullptr;

class PhiloxGenerator final : public c10::GeneratorImpl {
 public:
  PhiloxGenerator(c10::DeviceIndex index, uint64_t seed)
      : c10::GeneratorImpl(c10::Device(kDeviceType, index),
                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        seed_(seed) {}

  static c10::DeviceType device_type() { return kDeviceType; }

  // A replay draws from where the generator is then.
  void set_current_seed(uint64_t seed) override {
    if (C10_UNLIKELY(is_captured())) {
      TORCH_CHECK(
          seed == seed_,
          "While a graph is captured, a generator can be given the seed that it has, and no "
          "other: replays would not repeat that");
      return;
    }
    seed_ = seed;
    offset_ = 0;
  }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }

  void set_offset(uint64_t offset) override {
    check_not_captured();
    TORCH_CHECK(offset % 4 == 0, "the Philox offset must be a multiple of 4, got ", offset);
    offset_ = offset;
  }
  // A capture doesn't advance it, unlike the ops that are captured.
  uint64_t get_offset() const override {
    (void)is_captured();
    return offset_;
  }

  // The layout of CUDA generators: 8 bytes of seed, 8 of offset.
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    (void)is_captured();
    at::TensorBase state = at::detail::empty_cpu({kStateBytes}, at::kByte);
    auto* bytes = static_cast<uint8_t*>(state.mutable_data_ptr());
    std::memcpy(bytes, &seed_, sizeof seed_);
    std::memcpy(bytes + sizeof seed_, &offset_, sizeof offset_);
    return state.getIntrusivePtr();
  }
  void set_state(const c10::TensorImpl& state) override {
    at::detail::check_rng_state(state);
    const int64_t size = state.numel();
    // As CUDA's generator, a state without the offset starts at 0.
    TORCH_CHECK(size == kStateBytes || size == kStateBytes - 8,
                "RNG state is wrong size: expected ", kStateBytes, " bytes, got ", size);
    const auto* bytes = static_cast<const uint8_t*>(state.data());
    check_not_captured();
    uint64_t seed = 0, offset = 0;
    std::memcpy(&seed, bytes, sizeof seed);
    if (size == kStateBytes) std::memcpy(&offset, bytes + sizeof seed, sizeof offset);
    set_current_seed(seed);
    set_offset(offset);
  }

  PhiloxState reserve(uint64_t increment) {
    const PhiloxState state{seed_, offset_};
    offset_ += (increment + 3) / 4 * 4;
    return state;
  }

 private:
  static constexpr int64_t kStateBytes = 16;

  void check_not_captured() const {
    TORCH_CHECK(!is_captured(),
                "A generator's state can't be set while a graph is captured: replays would not "
                "repeat that");
  }
  /// Has a capture given up that may be.
  bool is_captured() const {
    if (!Queue::captures()) return false;
    const auto restore = c10::make_scope_exit([before = asked] { asked = before; });
    asked = this;
    return stays_captured(current_queue(device().index()), "the state of a generator");
  }
  PhiloxGenerator* clone_impl() const override {
    auto* copy = new PhiloxGenerator(device().index(), seed_);
    copy->offset_ = offset_;
    return copy;
  }

  uint64_t seed_;
  uint64_t offset_ = 0;
};

// The default generators, and the seed that those not made yet will start with: torch.manual_seed
// must work without initialising OpenCL.
struct Defaults {
  std::mutex mutex;
  std::array<at::Generator, kMaxDevices> generators;
  std::optional<uint64_t> seed;
};

Defaults& defaults() {
  static auto* instance = new Defaults();  // leaked: Python may seed while statics are destroyed
  return *instance;
}

PhiloxGenerator* checked(const at::Generator& generator) {
  TORCH_CHECK(generator.device().type() == kDeviceType, "Expected a '", kDeviceType,
              "' device type for generator but found '", generator.device().type(), "'");
  return generator.get<PhiloxGenerator>();
}

c10::DeviceIndex existing(c10::DeviceIndex index) {
  if (index < 0) index = current_device();
  device(index);
  return index;
}

}  // namespace

PhiloxState reserve_philox(const std::optional<at::Generator>& generator, c10::DeviceIndex device,
                           uint64_t increment) {
  const at::Generator& source =
      generator && generator->defined() ? *generator : default_generator(device);
  PhiloxGenerator* philox = checked(source);
  if (C10_UNLIKELY(Queue::captures())) {
    if (const auto state = reserve_philox_for_graph(source, device, increment)) return *state;
  }
  std::lock_guard lock(philox->mutex_);
  return philox->reserve(increment);
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  const c10::DeviceIndex index = device < 0 ? current_device() : device;
  // A state needs no driver: torch.random.fork_rng saves it in programs that never use the device.
  if (is_initialized() || index >= kMaxDevices) existing(index);
  Defaults& all = defaults();
  std::lock_guard lock(all.mutex);
  at::Generator& generator = all.generators[index];
  if (!generator.defined()) {
    generator = at::make_generator<PhiloxGenerator>(
        index, all.seed ? *all.seed : c10::detail::getNonDeterministicRandom());
  }
  return generator;
}

bool is_asked(const at::Generator& generator) {
  return asked == generator.unsafeGetGeneratorImpl();
}

at::Generator make_generator(c10::DeviceIndex device) {
  return at::make_generator<PhiloxGenerator>(existing(device), c10::default_rng_seed_val);
}

void seed_all_generators(uint64_t seed) {
  Defaults& all = defaults();
  std::lock_guard lock(all.mutex);
  all.seed = seed;
  for (at::Generator& generator : all.generators) {
    if (!generator.defined()) continue;
    std::lock_guard generator_lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}

}  // namespace ocl
