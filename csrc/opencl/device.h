// A device has its probed properties, and owns a context, an address space and programs.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "opencl/address_space.h"
#include "opencl/api.h"
#include "opencl/error.h"
#include "opencl/quirks.h"

namespace ocl {

enum class DeviceClass : uint8_t { gpu, accelerator, cpu };

/// These properties were probed on the device, never guessed from its vendor. Sizes are in bytes.
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
  /// The outermost cache has so many bytes. A CPU's driver names an inner one, so the system is
  /// asked.
  uint64_t last_level_cache = 0;
  uint32_t cache_line = 64;
  size_t max_parameter_size = 1024;
  uint32_t base_address_align = 128;
  uint32_t vector_width_float = 1, vector_width_double = 0, vector_width_half = 0;
  uint32_t max_sub_group_size = 0;  // 0 if there are no sub-groups
  /// A kernel may ask for these sizes of sub-group (cl_intel_required_subgroup_size), which are
  /// powers of two, added up.
  uint32_t required_sub_group_sizes = 0;
  bool host_unified_memory = false;
  bool has_fp64 = false;
  bool has_fp16 = false;
  bool has_subgroups = false;
  bool has_int64_atomics = false;
  /// There are work_group_reduce_add() and its kin, by OpenCL C 2.0 or as a feature.
  bool has_work_group_reduce = false;
  bool has_generic_address_space = false;
  /// Kernels may be given addresses of this process's memory instead of buffers: fine-grained
  /// system SVM on a CPU, whose segments are the process's own pages (OpenCL 3.0, 5.6).
  bool has_system_svm = false;
  /// It is NVIDIA's, such as 90 for 9.0, and 0 where no driver says it.
  uint32_t compute_capability = 0;
  /// It numbers an architecture of Intel's GPUs, such as 1255 for 12.55, and is 0 where no driver
  /// says it.
  uint32_t intel_architecture = 0;
  /// Intel's matrix instructions (cl_intel_subgroup_matrix_multiply_accumulate) have sub-groups of
  /// this size, which is 0 where there are none.
  uint32_t subgroup_matrix_size = 0;
  bool has_tensor_cores = false;   // NVIDIA's cp.async, ldmatrix and mma.sync for 16-bit floats
  bool has_warpgroup_mma = false;  // NVIDIA's wgmma
  /// wgmma multiplies bfloat16 more than ten times as fast as other units do single precision. All
  /// of Hopper does so but the H20, where most units for bfloat16 are off.
  bool has_fast_bfloat16 = false;
  /// Programs assembled from PTX may have kAssembledLocalMemory (see retarget.h). It follows from
  /// the compute capability, since OpenCL has no question for it.
  bool has_assembled_local_memory = false;
  bool has_avx512 = false;    // x86's AVX-512, and a driver that compiles assembly
  bool has_bf16_dot = false;  // x86's AVX512-BF16, and a driver that compiles assembly
  bool has_int8_dot = false;  // x86's AVX512-VNNI, and such a driver
  /// x86's AMX for bfloat16 and int8, such a driver, and a system that lets this process use it.
  bool has_amx = false;
  /// There are command buffers (cl_khr_command_buffer) of a version whose functions are known. They
  /// can be enqueued while they execute, on a plain queue, with these flags.
  bool has_command_buffers = false;
  uint64_t command_buffer_flags = 0;
  bool limits_registers = false;               // takes -cl-nv-maxrregcount (cl_nv_compiler_options)
  bool correctly_rounded_divide_sqrt = false;  // -cl-fp32-correctly-rounded-divide-sqrt is offered
  bool little_endian = true;
  bool has_compiler = true;  // compiles and links OpenCL C at run time
  /// Intel's own driver can give a work-item twice the registers: where a program's options say so
  /// (-cl-intel-256-GRF-per-thread), and by itself (-cl-intel-enable-auto-large-GRF-mode).
  bool offers_large_registers = false, chooses_large_registers = false;
};

/// A work-group may have so many bytes with compute capability 9.0 (CUDA C++ Programming Guide,
/// technical specifications per compute capability).
inline constexpr uint64_t kAssembledLocalMemory = 227 << 10;

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

  /// Kernels were enqueued on one of the device's queues.
  void count_launches(uint64_t number = 1) {
    launches_.fetch_add(number, std::memory_order_relaxed);
  }
  /// So many were enqueued since the start or reset_launches().
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

/// Asks the driver for everything in DeviceProperties. Throws Error if the device does not answer
/// the questions that every device must.
DeviceProperties probe_device(cl_platform_id platform, cl_device_id id);
}  // namespace ocl
