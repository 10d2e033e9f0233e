#include "opencl/device.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "opencl/amx.h"
#include "opencl/device_assert.h"
#include "opencl/driver_text.h"
#include "opencl/environment.h"
#include "opencl/log.h"
#include "opencl/platform.h"
#include "opencl/program.h"
#include "opencl/quirks.h"

namespace ocl {
namespace {

// Queries of vendor extensions that CL/cl_ext.h of some headers lacks.
constexpr cl_device_info kSubGroupSizesIntel = 0x4108;
constexpr cl_device_info kComputeCapabilityMajorNv = 0x4000;
constexpr cl_device_info kComputeCapabilityMinorNv = 0x4001;
constexpr cl_device_info kWarpSizeNv = 0x4003;
constexpr cl_device_info kWavefrontWidthAmd = 0x4043;
constexpr cl_device_info kIpVersionIntel = 0x4250;
// A name of cl_khr_command_buffer.
constexpr cl_device_info kCommandBufferCapabilities = 0x12A9;
constexpr cl_device_info kCommandBufferQueueProperties = 0x12AA;  // that queues must have
constexpr uint64_t kSimultaneousCapability = 1 << 2;
constexpr uint64_t kSimultaneousFlag = 1 << 0;

/// The bytes of an answer; empty if the driver does not know the question.
std::vector<char> query(cl_device_id id, cl_device_info what) {
  size_t size = 0;
  if (api().clGetDeviceInfo(id, what, 0, nullptr, &size) != CL_SUCCESS) return {};
  std::vector<char> bytes(size);
  if (api().clGetDeviceInfo(id, what, size, bytes.data(), nullptr) != CL_SUCCESS) return {};
  return bytes;
}

std::string text(cl_device_id id, cl_device_info what) {
  const std::vector<char> bytes = query(id, what);
  return driver_text(std::string(bytes.begin(), bytes.end()));
}

template <class T>
T number(cl_device_id id, cl_device_info what, T otherwise) {
  T value = otherwise;
  return api().clGetDeviceInfo(id, what, sizeof value, &value, nullptr) == CL_SUCCESS ? value
                                                                                      : otherwise;
}

/// A number that there is no doing without: a device whose driver fails to give it is left out, and
/// asked again.
template <class T>
T required(cl_device_id id, cl_device_info what) {
  T value{};
  OCL_CALL(nullptr, clGetDeviceInfo, id, what, sizeof value, &value, nullptr);
  return value;
}

/// A number to divide by, or a count: drivers that answer 0 exist.
template <class T>
T positive(cl_device_id id, cl_device_info what, T otherwise) {
  const T value = number<T>(id, what, otherwise);
  return value > 0 ? value : otherwise;
}

template <class T>
std::vector<T> numbers(cl_device_id id, cl_device_info what) {
  const std::vector<char> bytes = query(id, what);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::copy_n(bytes.begin(), values.size() * sizeof(T), reinterpret_cast<char*>(values.data()));
  return values;
}

bool has_word(std::string_view list, std::string_view word) {
  for (size_t at = list.find(word); at != std::string_view::npos; at = list.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || list[at - 1] == ' ') && (end == list.size() || list[end] == ' ')) return true;
  }
  return false;
}

bool has_feature(const std::vector<cl_name_version>& features, std::string_view name) {
  return std::any_of(features.begin(), features.end(),
                     [&](const cl_name_version& feature) { return name == feature.name; });
}

// CL_DEVICE_OPENCL_C_VERSION is all that 1.x and 2.x devices have; 3.0 devices may say 1.2 there
// and list more in CL_DEVICE_OPENCL_C_ALL_VERSIONS.
void probe_language(cl_device_id id, DeviceProperties& p) {
  int major = 1, minor = 2;
  std::sscanf(text(id, CL_DEVICE_OPENCL_C_VERSION).c_str(), "OpenCL C %d.%d", &major, &minor);
  for (const auto& version : numbers<cl_name_version>(id, CL_DEVICE_OPENCL_C_ALL_VERSIONS)) {
    const int other_major = static_cast<int>(CL_VERSION_MAJOR(version.version));
    const int other_minor = static_cast<int>(CL_VERSION_MINOR(version.version));
    if (std::pair(other_major, other_minor) > std::pair(major, minor)) {
      major = other_major;
      minor = other_minor;
    }
  }
  p.opencl_c_major = major;
  p.opencl_c_minor = minor;
}

void probe_features(cl_device_id id, DeviceProperties& p) {
  const std::string_view extensions = p.extensions;
  p.has_fp64 = number<cl_device_fp_config>(id, CL_DEVICE_DOUBLE_FP_CONFIG, 0) != 0 &&
               (has_word(extensions, "cl_khr_fp64") || p.opencl_c_major >= 3);
  p.has_fp16 = has_word(extensions, "cl_khr_fp16");
  p.has_int64_atomics = has_word(extensions, "cl_khr_int64_base_atomics");
  const bool c2 = p.opencl_c_major == 2;
  const auto features = numbers<cl_name_version>(id, CL_DEVICE_OPENCL_C_FEATURES);
  p.has_work_group_reduce =
      c2 || has_feature(features, "__opencl_c_work_group_collective_functions");
  p.has_generic_address_space = c2 || has_feature(features, "__opencl_c_generic_address_space");
  p.has_subgroups = (c2 && has_word(extensions, "cl_khr_subgroups")) ||
                    has_feature(features, "__opencl_c_subgroups");
  if (p.has_subgroups) {
    p.max_sub_group_size = 1;
    const bool required = has_word(extensions, "cl_intel_required_subgroup_size");
    for (const size_t size : numbers<size_t>(id, kSubGroupSizesIntel)) {
      p.max_sub_group_size = std::max(p.max_sub_group_size, static_cast<uint32_t>(size));
      if (required && std::has_single_bit(size)) {
        p.required_sub_group_sizes |= static_cast<uint32_t>(size);
      }
    }
    // They take sub-groups of the least size there is, 8 or 16, and their operands' layout follows.
    const uint32_t least = p.required_sub_group_sizes & -p.required_sub_group_sizes;
    if (has_word(extensions, "cl_intel_subgroup_matrix_multiply_accumulate") &&
        (least == 8 || least == 16)) {
      p.subgroup_matrix_size = least;
    }
    if (p.max_sub_group_size == 1) p.max_sub_group_size = positive<cl_uint>(id, kWarpSizeNv, 1);
    if (p.max_sub_group_size == 1)
      p.max_sub_group_size = positive<cl_uint>(id, kWavefrontWidthAmd, 1);
  }
}

// Up to 0.9.7 a buffer must be made with a flag to be enqueued while it executes, which some
// devices can't do. From 0.9.8 on all can, and there is no flag. Versions after 1.0 aren't known.
void probe_command_buffers(cl_device_id id, DeviceProperties& p) {
  for (const auto& extension : numbers<cl_name_version>(id, CL_DEVICE_EXTENSIONS_WITH_VERSION)) {
    if (std::string_view(extension.name) != "cl_khr_command_buffer") continue;
    if (extension.version < CL_MAKE_VERSION(0, 9, 0)) continue;
    if (extension.version >= CL_MAKE_VERSION(1, 1, 0)) continue;
    if (number<cl_command_queue_properties>(id, kCommandBufferQueueProperties, ~0ULL) != 0)
      continue;
    if (extension.version < CL_MAKE_VERSION(0, 9, 8)) {
      const auto capabilities = number<cl_bitfield>(id, kCommandBufferCapabilities, 0);
      if ((capabilities & kSimultaneousCapability) == 0) continue;
      p.command_buffer_flags = kSimultaneousFlag;
    }
    p.has_command_buffers = true;
  }
}

constexpr uint32_t kXeHpg = 1255, kXeHpc = 1260, kXe2 = 2000;

/// A hundred times the major number, and the minor one. Newer drivers have 10 bits of the first, 8
/// of the second and 14 of a revision; older ones have a byte of each.
uint32_t intel_architecture(cl_uint version) {
  const uint32_t major = version >> 22;
  return major != 0 ? major * 100 + (version >> 14 & 0xff)
                    : (version >> 16) * 100 + (version >> 8 & 0xff);
}

void probe_vendor(cl_device_id id, DeviceProperties& p) {
  const std::string_view extensions = p.extensions;
  if (p.device_class == DeviceClass::cpu) {
    p.has_system_svm = (number<cl_device_svm_capabilities>(id, CL_DEVICE_SVM_CAPABILITIES, 0) &
                        CL_DEVICE_SVM_FINE_GRAIN_SYSTEM) != 0;
#if defined(__x86_64__)
    // The device is this processor.
    p.has_avx512 = __builtin_cpu_supports("avx512f");
    p.has_bf16_dot = __builtin_cpu_supports("avx512bf16");
    p.has_int8_dot = __builtin_cpu_supports("avx512vnni");
    p.has_amx = p.has_int8_dot && processor_has_amx();
#endif
  } else if (has_word(extensions, "cl_nv_device_attribute_query")) {
    const cl_uint major = number<cl_uint>(id, kComputeCapabilityMajorNv, 0);
    const cl_uint minor = number<cl_uint>(id, kComputeCapabilityMinorNv, 0);
    p.compute_capability = 10 * major + minor;
    p.has_tensor_cores = major >= 8;
    p.limits_registers = has_word(extensions, "cl_nv_compiler_options");
    // Neither earlier nor later capabilities have these instructions.
    p.has_warpgroup_mma = major == 9 && minor == 0;
    p.has_assembled_local_memory = p.has_warpgroup_mma;
    p.has_fast_bfloat16 = p.has_warpgroup_mma && !has_word(p.name, "H20");
  } else if (has_word(extensions, "cl_intel_subgroups")) {
    p.intel_architecture = intel_architecture(number<cl_uint>(id, kIpVersionIntel, 0));
    const bool own = p.platform.find("Intel") != std::string::npos;
    p.offers_large_registers = own && p.intel_architecture >= kXeHpg;
    p.chooses_large_registers = own && p.intel_architecture >= kXeHpc &&
                                (p.intel_architecture == kXeHpc || p.intel_architecture >= kXe2);
  }
}

using FeatureFlag = bool DeviceProperties::*;

/// The features that TORCH_OCL_WITHOUT names; warns of words that name none.
std::vector<FeatureFlag> unwanted_features() {
  static constexpr std::pair<std::string_view, FeatureFlag> kFeatures[] = {
      {"fp64", &DeviceProperties::has_fp64},
      {"fp16", &DeviceProperties::has_fp16},
      {"subgroups", &DeviceProperties::has_subgroups},
      {"int64_atomics", &DeviceProperties::has_int64_atomics},
      {"work_group_reduce", &DeviceProperties::has_work_group_reduce},
      {"tensor_cores", &DeviceProperties::has_tensor_cores},
      {"warpgroup_mma", &DeviceProperties::has_warpgroup_mma},
      {"fast_bfloat16", &DeviceProperties::has_fast_bfloat16},
      {"assembled_local_memory", &DeviceProperties::has_assembled_local_memory},
      {"avx512", &DeviceProperties::has_avx512},
      {"bf16_dot", &DeviceProperties::has_bf16_dot},
      {"int8_dot", &DeviceProperties::has_int8_dot},
      {"amx", &DeviceProperties::has_amx},
      {"system_svm", &DeviceProperties::has_system_svm},
      {"unified_memory", &DeviceProperties::host_unified_memory},
      {"command_buffers", &DeviceProperties::has_command_buffers}};
  std::vector<FeatureFlag> unwanted;
  const char* text = std::getenv("TORCH_OCL_WITHOUT");
  for (const std::string_view word : split_list(text == nullptr ? "" : text)) {
    std::string known;
    const size_t before = unwanted.size();
    for (const auto& [name, flag] : kFeatures) {
      if (word == name) unwanted.push_back(flag);
      known += " " + std::string(name);
    }
    if (unwanted.size() == before) {
      warn("TORCH_OCL_WITHOUT: no feature \"" + std::string(word) + "\" (there are" + known + ")");
    }
  }
  return unwanted;
}

/// Leaves them out, so that what a lesser device would do can be tested on any.
void mask_features(DeviceProperties& p) {
  static const std::vector<FeatureFlag> unwanted = unwanted_features();
  for (const FeatureFlag flag : unwanted) p.*flag = false;
  p.has_warpgroup_mma = p.has_warpgroup_mma && p.has_tensor_cores;
  p.has_fast_bfloat16 = p.has_fast_bfloat16 && p.has_warpgroup_mma;
  if (!p.has_subgroups)
    p.max_sub_group_size = p.required_sub_group_sizes = p.subgroup_matrix_size = 0;
}

uint64_t last_level_cache(const DeviceProperties& p) {
  if (p.device_class != DeviceClass::cpu) return p.global_cache;
  // sysconf() counts all of the machine, where a core sees the cache of its own cluster.
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  uint64_t kibibytes = 0;
  constexpr uint64_t kUsual = 32 * 1024;  // a virtual machine may not say
  if (!(file >> kibibytes)) kibibytes = kUsual;
  return std::max(p.global_cache, kibibytes * 1024);
}

/// TORCH_OCL_TUNE_AS (cpu or gpu) has kernels chosen as for that class of device, so that the
/// variants for GPUs can be tested where there is none.
DeviceClass tuning_class(DeviceClass device_class) {
  const char* text = std::getenv("TORCH_OCL_TUNE_AS");
  if (text == nullptr || *text == '\0') return device_class;
  const std::string_view name = text;
  if (name == "cpu") return DeviceClass::cpu;
  if (name == "gpu") return DeviceClass::gpu;
  static std::once_flag warned;
  std::call_once(warned, [&] {
    warn("TORCH_OCL_TUNE_AS is \"" + std::string(name) + "\": cpu and gpu are known, ignored");
  });
  return device_class;
}

}  // namespace

DeviceProperties probe_device(cl_platform_id platform, cl_device_id id) {
  DeviceProperties p;
  const auto type = required<cl_device_type>(id, CL_DEVICE_TYPE);
  p.device_class = (type & CL_DEVICE_TYPE_GPU)   ? DeviceClass::gpu
                   : (type & CL_DEVICE_TYPE_CPU) ? DeviceClass::cpu
                                                 : DeviceClass::accelerator;
  size_t size = 0;
  OCL_CALL(nullptr, clGetPlatformInfo, platform, CL_PLATFORM_NAME, 0, nullptr, &size);
  p.platform.resize(size);
  OCL_CALL(nullptr, clGetPlatformInfo, platform, CL_PLATFORM_NAME, size, p.platform.data(),
           nullptr);
  p.platform = driver_text(p.platform);
  p.name = text(id, CL_DEVICE_NAME);
  p.vendor = text(id, CL_DEVICE_VENDOR);
  p.driver_version = text(id, CL_DRIVER_VERSION);
  p.version = text(id, CL_DEVICE_VERSION);
  p.extensions = text(id, CL_DEVICE_EXTENSIONS);
  p.compute_units = positive<cl_uint>(id, CL_DEVICE_MAX_COMPUTE_UNITS, 1);
  p.max_clock_mhz = number<cl_uint>(id, CL_DEVICE_MAX_CLOCK_FREQUENCY, 0);
  p.max_work_group_size = positive<size_t>(id, CL_DEVICE_MAX_WORK_GROUP_SIZE, 1);
  p.global_memory = required<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_SIZE);
  p.max_allocation = required<cl_ulong>(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  p.local_memory = required<cl_ulong>(id, CL_DEVICE_LOCAL_MEM_SIZE);
  p.global_cache = number<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, 0);
  p.cache_line = positive<cl_uint>(id, CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE, 64);
  p.max_parameter_size = positive<size_t>(id, CL_DEVICE_MAX_PARAMETER_SIZE, 1024);
  p.base_address_align = positive<cl_uint>(id, CL_DEVICE_MEM_BASE_ADDR_ALIGN, 1024) / 8;
  p.vector_width_float = positive<cl_uint>(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, 1);
  p.vector_width_double = number<cl_uint>(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE, 0);
  p.vector_width_half = number<cl_uint>(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF, 0);
  p.host_unified_memory = number<cl_bool>(id, CL_DEVICE_HOST_UNIFIED_MEMORY, CL_FALSE) != CL_FALSE;
  p.little_endian = number<cl_bool>(id, CL_DEVICE_ENDIAN_LITTLE, CL_TRUE) != CL_FALSE;
  p.has_compiler = number<cl_bool>(id, CL_DEVICE_AVAILABLE, CL_TRUE) != CL_FALSE &&
                   number<cl_bool>(id, CL_DEVICE_COMPILER_AVAILABLE, CL_TRUE) != CL_FALSE &&
                   number<cl_bool>(id, CL_DEVICE_LINKER_AVAILABLE, CL_TRUE) != CL_FALSE;
  p.correctly_rounded_divide_sqrt =
      (number<cl_device_fp_config>(id, CL_DEVICE_SINGLE_FP_CONFIG, 0) &
       CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
  probe_language(id, p);
  probe_features(id, p);
  probe_command_buffers(id, p);
  probe_vendor(id, p);
  correct_properties(p);
  p.last_level_cache = last_level_cache(p);
  mask_features(p);
  p.tuning_class = tuning_class(p.device_class);
  return p;
}

Device::Device(int index, cl_platform_id platform, cl_device_id id, DeviceProperties properties)
    : index_(index),
      platform_(platform),
      id_(id),
      properties_(std::move(properties)),
      quirks_(quirks_of(properties_)) {
  configure_compiler(properties_);
  const cl_context_properties request[] = {CL_CONTEXT_PLATFORM,
                                           reinterpret_cast<cl_context_properties>(platform_), 0};
  programs_ = std::make_unique<ProgramCache>(*this);
  programs_->prepare();
  cl_int code = CL_SUCCESS;
  context_ = api().clCreateContext(request, 1, &id_, nullptr, nullptr, &code);
  check(code, "clCreateContext", this);
  try {
    asserts_ = std::make_unique<AssertBuffer>(*this);
  } catch (...) {
    programs_.reset();
    api().clReleaseContext(context_);
    throw;
  }
}

Device::~Device() {
  asserts_.reset();
  programs_.reset();
  if (!process_was_forked()) api().clReleaseContext(context_);
}

std::string Device::description() const {
  return properties_.name + " (" + properties_.platform + ")";
}

}  // namespace ocl
