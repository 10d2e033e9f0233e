// The devices of this machine: enumeration, probed properties, and what a device owns (context,
// address space, programs).
//
// Offers: DeviceProperties, Quirks, Device, device_count(), device(), process_was_forked().
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "opencl/address_space.h"
#include "opencl/api.h"
#include "opencl/error.h"

namespace ocl {

enum class DeviceClass : uint8_t { gpu, accelerator, cpu };

/// What was probed on the device, never guessed from its vendor. Sizes in bytes.
struct DeviceProperties {
  std::string name, vendor, driver_version, platform, version, extensions;
  DeviceClass device_class = DeviceClass::gpu;
  /// Kernels are chosen as for this class: device_class, unless TORCH_OCL_TUNE_AS says otherwise.
  DeviceClass tuning_class = DeviceClass::gpu;
  int opencl_c_major = 1, opencl_c_minor = 2;
  uint32_t compute_units = 1;
  uint32_t max_clock_mhz = 0;
  size_t max_work_group_size = 1;
  uint64_t global_memory = 0, max_allocation = 0, local_memory = 0, global_cache = 0;
  /// Bytes of the outermost cache: of CPUs, whose drivers name an inner one, as the system says.
  uint64_t last_level_cache = 0;
  uint32_t cache_line = 64;
  size_t max_parameter_size = 1024;
  uint32_t base_address_align = 128;
  uint32_t vector_width_float = 1, vector_width_double = 0, vector_width_half = 0;
  uint32_t max_sub_group_size = 0;  // 0: no subgroups
  /// The sizes of sub-group that a kernel may ask for (cl_intel_required_subgroup_size), powers of
  /// two, added up.
  uint32_t required_sub_group_sizes = 0;
  bool host_unified_memory = false;
  bool has_fp64 = false;
  bool has_fp16 = false;
  bool has_subgroups = false;
  bool has_int64_atomics = false;
  bool has_work_group_reduce =
      false;  // work_group_reduce_add and friends (OpenCL C 2.0 or feature)
  bool has_generic_address_space = false;
  /// Kernels may be given addresses of this process's memory instead of buffers: fine-grained
  /// system SVM on a CPU, whose segments are the process's own pages (OpenCL 3.0, 5.6).
  bool has_system_svm = false;
  /// 32-bit values that a work-item can keep in registers; an estimate from the vendor's
  /// extensions, since OpenCL has no question for it.
  uint32_t registers_per_item = 128;
  /// The sub-groups of Intel's matrix instructions (cl_intel_subgroup_matrix_multiply_accumulate);
  /// 0: there are none.
  uint32_t subgroup_matrix_size = 0;
  bool has_tensor_cores = false;   // NVIDIA's cp.async, ldmatrix and mma.sync for 16-bit floats
  bool has_warpgroup_mma = false;  // NVIDIA's wgmma
  /// Programs assembled from PTX may have kAssembledLocalMemory (see retarget.h): follows from the
  /// compute capability, OpenCL has no question for it.
  bool has_assembled_local_memory = false;
  bool has_bf16_dot = false;      // x86's AVX512-BF16, and a driver that compiles assembly
  bool has_int8_dot = false;      // likewise, of AVX512-VNNI
  bool limits_registers = false;  // -cl-nv-maxrregcount (cl_nv_compiler_options)
  bool correctly_rounded_divide_sqrt = false;  // -cl-fp32-correctly-rounded-divide-sqrt is offered
  bool little_endian = true;
  bool has_compiler = true;  // compiles and links OpenCL C at run time
};

/// Bytes that a work-group may have with compute capability 9.0 (CUDA C++ Programming Guide,
/// technical specifications per compute capability).
inline constexpr uint64_t kAssembledLocalMemory = 227 << 10;

/// Driver quirks that change what the backend does; filled in by quirks.cpp alone.
struct Quirks {
  bool slow_vload_half = false;  // vload_half is scalar and slow: use native half or bit arithmetic
  bool slow_int64_to_real = false;    // vectors of 64-bit integers are converted one by one
  bool wrong_vector_pow = false;      // pow() of vectors of double is wrong beside a zero
  bool builtin_prefetch = false;      // the compiler's __builtin_prefetch is an instruction
  bool build_option_std = true;       // -cl-std=CLx.y is understood
  bool explicit_vectors = true;       // explicit vector types beat the driver's own vectoriser
  bool compiles_at_launch = false;    // a program's binary is complete only after its first launch
  bool keeps_compiler = false;        // a program built from source keeps the compiler's memory
  bool helps_in_event_waits = false;  // a thread that waits computes, but only in clWaitForEvents
};

class ProgramCache;
class AssertBuffer;

class Device {
 public:
  Device(int index, cl_platform_id platform, cl_device_id id, DeviceProperties properties);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int index() const { return index_; }
  cl_device_id id() const { return id_; }
  cl_platform_id platform() const { return platform_; }
  cl_context context() const { return context_; }
  const DeviceProperties& properties() const { return properties_; }
  const Quirks& quirks() const { return quirks_; }
  AddressSpace& addresses() { return addresses_; }
  ProgramCache& programs() { return *programs_; }
  /// Where kernels report out-of-range indices; see device_assert.h.
  AssertBuffer& asserts() { return *asserts_; }

  /// Whether kernels are chosen as for a CPU. What concerns memory asks device_class instead.
  bool is_cpu() const { return properties_.tuning_class == DeviceClass::cpu; }
  /// "name (platform)", for messages.
  std::string description() const;

  /// A kernel was enqueued on one of the device's queues.
  void count_launch() { launches_.fetch_add(1, std::memory_order_relaxed); }
  /// How many were since the start or reset_launches().
  uint64_t launches() const { return launches_.load(std::memory_order_relaxed); }
  void reset_launches() { launches_.store(0, std::memory_order_relaxed); }

 private:
  int index_;
  cl_platform_id platform_;
  cl_device_id id_;
  cl_context context_ = nullptr;
  DeviceProperties properties_;
  Quirks quirks_;
  AddressSpace addresses_;
  std::unique_ptr<ProgramCache> programs_;
  std::unique_ptr<AssertBuffer> asserts_;
  // Apart from what every launch reads: threads that launch at a time write it by turns.
  alignas(64) std::atomic<uint64_t> launches_{0};
};

namespace detail {
inline constinit std::atomic<bool> forked{false};
[[noreturn]] void throw_forked();
// The first devices, once they are made, for a short way to them.
inline constexpr int kRemembered = 16;
inline constinit std::array<std::atomic<Device*>, kRemembered> made{};
Device& make_device(int index);
}  // namespace detail

/// Asks the driver for everything in DeviceProperties. Throws Error if the device does not answer
/// the questions that every device must.
DeviceProperties probe_device(cl_platform_id platform, cl_device_id id);
/// Takes back what a driver claims and does not deliver; in quirks.cpp too.
void correct_properties(DeviceProperties& properties);

/// Fills in the quirks of a device from its properties; all of them live in quirks.cpp.
Quirks quirks_of(const DeviceProperties& properties);
/// Sets what a driver's compiler needs to work, before it is first used; in quirks.cpp too.
void configure_compiler(const DeviceProperties& properties);
/// The environment's settings of drivers' compilers, a line each: binaries depend on them.
std::string compiler_settings();
/// Why a device must not be used at all, empty for others; also in quirks.cpp.
struct Refusal {
  std::string reason;
  bool warn = false;  // who has it expects it among the devices
};
Refusal refusal_of(const DeviceProperties& properties);
/// Why a driver that is installed may offer no devices: what follows "offers no devices" in a
/// sentence; also in quirks.cpp.
std::string cause_of_no_devices(std::string_view platform);

/// Number of usable devices, in the order GPUs, accelerators, CPUs, or as TORCH_OCL_DEVICES says
/// (comma-separated selectors, each an index into the default order, a type
/// `gpu`/`cpu`/`accelerator`, or a part of the vendor's, platform's or device's name,
/// case-insensitive; order is kept, duplicates dropped; empty means unset). Enumerates on the first
/// call. Never throws: 0 if OpenCL is not available, and then unavailable_reason() says why. In a
/// forked child of an initialised process: 0.
int device_count() noexcept;
/// Why device_count() is 0, with what to install; empty otherwise.
std::string unavailable_reason();

/// The device with that index. Throws std::runtime_error: with unavailable_reason() if there is
/// none, with the index and the list of devices if it is out of range, with advice on
/// multiprocessing's spawn start method in a forked child of a process that had used OpenCL.
inline Device& device(int index) {
  Device* made = nullptr;
  if (index >= 0 && index < detail::kRemembered) {
    made = detail::made[index].load(std::memory_order_acquire);
  }
  const bool usable = made != nullptr && !detail::forked.load(std::memory_order_relaxed);
  return __builtin_expect(usable, 1) ? *made : detail::make_device(index);
}

/// True once a device has been enumerated in this process.
bool is_initialized() noexcept;
/// True in a child forked from a process that had initialised OpenCL: nothing works there (driver
/// threads are gone), and a clear error beats a hang.
inline bool process_was_forked() noexcept { return detail::forked.load(std::memory_order_relaxed); }
/// Throws std::runtime_error, with advice on the spawn start method, in such a child.
inline void check_not_forked() {
  if (__builtin_expect(process_was_forked(), 0)) detail::throw_forked();
}

}  // namespace ocl
