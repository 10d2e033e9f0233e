// Every workaround for a driver: the symptom, the driver and version it was seen on, what is done.

#include "opencl/quirks.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "opencl/amx.h"
#include "opencl/device.h"

namespace ocl {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_pocl(const DeviceProperties& p) { return has(p.platform, "Portable Computing Language"); }

bool is_rusticl(std::string_view platform) { return has(platform, "rusticl"); }

/// The number at the start of a version; 0 if there is none.
int major_version(const std::string& version) { return std::atoi(version.c_str()); }

bool is_intel_cpu(const DeviceProperties& p) {
  return p.device_class == DeviceClass::cpu && has(p.platform, "Intel");
}

}  // namespace

bool is_tested_driver(const DeviceProperties& p) {
  return is_intel_cpu(p) || is_pocl(p) || has(p.platform, "NVIDIA CUDA") ||
         has(p.platform, "Oclgrind");
}

Refusal refusal_of(const DeviceProperties& p) {
  if (!p.has_compiler) return {"it has no compiler for OpenCL C, or is not available"};
  // Intel's FPGA emulator (platform "Intel(R) FPGA Emulation Platform for OpenCL(TM)") comes with
  // oneAPI to debug FPGA kernels: it runs on the CPU, slower than the CPU runtime beside it, and
  // would come before it in the order of devices.
  if (has(p.platform, "FPGA Emulation") || has(p.name, "FPGA Emulation")) {
    return {"it emulates an FPGA on the CPU"};
  }
  // Mesa 22.3.6 (Debian 12) computes wrong matrix products in silence, and refuses most kernels
  // that take structs (CL_INVALID_ARG_SIZE). Reproduction: 512x256 by 256x512, 41% of the elements
  // are off by up to 4.5. Mesa 25.0.7 is right.
  if (is_rusticl(p.platform) && major_version(p.driver_version) <= 22) {
    return {"Mesa " + p.driver_version +
                "'s rusticl computes wrong results; Mesa 25.0.7 is known to be right",
            true};
  }
  return {};
}

std::string cause_of_no_devices(std::string_view platform) {
  if (is_rusticl(platform)) {
    return " unless the environment variable RUSTICL_ENABLE names Mesa's driver of the GPU: "
           "radeonsi (AMD), iris (Intel), panfrost (Arm), llvmpipe (the CPU), ...";
  }
  if (has(platform, "Clover")) return "; Mesa has replaced it by rusticl";
  const bool amd = has(platform, "AMD"), intel = has(platform, "Intel");
  if (amd || intel) {
    return std::string(": is there a GPU, and may this user open /dev/dri/renderD*") +
           (amd ? " and /dev/kfd" : "") + " (groups render and video)?";
  }
  if (has(platform, "NVIDIA")) {
    return ": is there a GPU, are the kernel's module and this driver of the same version, and are "
           "/dev/nvidia* there (a container must be given the GPU)?";
  }
  return {};
}

void correct_properties(DeviceProperties& p) {
  // PoCL 5.0 (Debian's build, in Ubuntu 24.04) claims work-group functions and sub-groups, but a
  // kernel that calls work_group_reduce_add or sub_group_reduce_add can't be loaded ("undefined
  // symbol: __pocl_work_group_alloca"), and PoCL then aborts the process.
  if (is_pocl(p)) {
    p.has_work_group_reduce = false;
    p.has_subgroups = false;
    p.max_sub_group_size = p.required_sub_group_sizes = p.subgroup_matrix_size = 0;
  }
  // Drivers that compile x86's assembly within OpenCL C, and run it: Intel's CPU runtime 2026.2
  // and PoCL 3.1 do. In PoCL 5.0 (Debian's build, in Ubuntu 24.04) LLVM 16 aborts the process over
  // it ("cast<Ty>() argument of incompatible type!"). Others may refuse it, or, as Oclgrind
  // interprets kernels, give up.
  const bool compiles_assembly =
      is_intel_cpu(p) || (is_pocl(p) && p.driver_version.starts_with("3."));
  p.has_avx512 &= compiles_assembly;
  p.has_bf16_dot &= compiles_assembly;
  p.has_int8_dot &= compiles_assembly;
  p.has_amx = p.has_amx && compiles_assembly && system_allows_amx();
  // PoCL 3.1 lists OpenCL C 3.0 among its versions, but names 1.2 as its OpenCL C version, and
  // -cl-std=CL3.0 gains nothing: it has neither sub-groups nor work-group functions. 1.2 is its
  // well-trodden path.
  if (is_pocl(p) && !p.has_subgroups && !p.has_work_group_reduce) {
    p.opencl_c_major = 1;
    p.opencl_c_minor = 2;
  }
}

std::string compiler_settings() {
  // Binaries made under other settings of Intel's and PoCL's compilers are other programs: a test
  // that builds without vectors would leave slow ones behind for everyone.
  std::string settings;
  for (const char* name :
       {"CL_CONFIG_CPU_VECTORIZER_MODE", "CL_CONFIG_CPU_TARGET_ARCH", "POCL_WORK_GROUP_METHOD"}) {
    if (const char* value = std::getenv(name)) {
      settings.append(name).append("=").append(value).append("\n");
    }
  }
  return settings;
}

void configure_compiler(const DeviceProperties& p) {
  // PoCL 6.0 (Debian 13, LLVM 19) aborts the process while it compiles loops over work-items
  // ("Instruction Combining did not reach a fixpoint", github.com/pocl/pocl/issues/1608):
  // reproduction: a batch norm's training pass. Its other way to form work-groups does not.
  if (is_pocl(p) && major_version(p.driver_version) == 6) {
    setenv("POCL_WORK_GROUP_METHOD", "cbs", /*overwrite=*/0);
  }
}

Quirks quirks_of(const DeviceProperties& p) {
  Quirks quirks;
  if (is_pocl(p)) {
    // PoCL 3.1 (x86): vload_half and vstore_half call a scalar conversion per element, which is
    // slower than converting the bits with integer arithmetic in vectors.
    quirks.slow_vload_half = true;
    // PoCL 3.1 (LLVM 15): loops over work-items with scalar calls of libm aren't vectorised,
    // explicit float8/float16 code calls SLEEF's vector functions.
    quirks.explicit_vectors = true;
    // PoCL 3.1 (x86 with AVX-512): pow() of a double8 takes other lanes for the subnormal ones.
    // Reproduction: of (-1, -0.0, 2, ...) to the power of 2, -1 becomes 0.25.
    quirks.wrong_vector_pow = true;
    // PoCL 3.1 (LLVM 15): floor(), ceil() and trunc() of a NaN that is known at compile time are
    // any number, and rint() of a vector in part: they take the undefined result of a conversion to
    // integers. Reproduction: a kernel that stores floor(NAN).
    quirks.wrong_known_rounding = true;
    // PoCL 3.1 compiles a kernel for a local size when it first runs, in its worker thread: a
    // binary taken before that has run lacks the machine code, and costs 100-300 ms at the first
    // launch in every process. Reproduction: without the flag, empty POCL_CACHE_DIR
    // between two processes and time the second one's first launch.
    quirks.compiles_at_launch = true;
    // PoCL 3.1 rarely fails to build a program, without a word of the compiler, when another
    // process builds the same one at that moment: they share folders of its cache. Reproduction:
    // an empty POCL_CACHE_DIR, and eight processes that build 120 programs in step: one of 960.
    quirks.fails_beside_others = true;
  }
  // NVIDIA 580: a message is of "<kernel>:9:5", the ninth line of the text, whatever #line says.
  // Reproduction: an error below a line of #line 1 "file".
  quirks.ignores_line_directives = has(p.platform, "NVIDIA CUDA");
  // Intel's CPU runtime 2026.2: a program built from source holds 2.2 MiB for as long as it lives,
  // one made from that program's binary 0.4 MiB, and making it takes 1-2 ms. Reproduction: the
  // resident memory after 300 programs, with an empty TORCH_OCL_CACHE_DIR and with that folder
  // again.
  quirks.keeps_compiler = is_intel_cpu(p);
  // Intel's CPU runtime 2026.2 on an AVX-512 machine converts vectors of 64-bit integers to float
  // or double lane by lane as soon as the kernel has a branch: a sum of float32 and int64 took
  // twice as long.
  quirks.slow_int64_to_real = is_intel_cpu(p);
  // OpenCL's prefetch() is a function call there, which costs more than it gains; the compilers'
  // own builtin is one instruction. Oclgrind's interpreter does not know it, and others may not.
  quirks.builtin_prefetch = p.device_class == DeviceClass::cpu && (is_intel_cpu(p) || is_pocl(p));
  // Intel's CPU runtime 2026.2 starts a worker thread less than there are cores: the thread that
  // waits is to be the last. In clFinish and in blocking copies it isn't once the queue has been
  // flushed, as recording an event does, and a core idles until the end. Reproduction: on two
  // cores, 1000 short kernels, clEnqueueMarkerWithWaitList, clFlush, and clFinish take twice as
  // long as with clWaitForEvents for a second marker instead.
  quirks.helps_in_event_waits = is_intel_cpu(p);
  // For a replay of 100 small kernels the host takes 181 microseconds with a command buffer and 87
  // with launches on Intel's CPU runtime 2026.2, and 61 and 53 on PoCL 3.1. Reproduction:
  // python -m benchmarks.studies.graphs with TORCH_OCL_COMMAND_BUFFERS=1, and with 0.
  quirks.slow_command_buffers = is_intel_cpu(p) || is_pocl(p);
  // Intel's compiler for GPUs (ocloc 24.35 and 26.27) copies a kernel's struct argument to private
  // memory, for each work-item, where an index that is known at run time alone reads it: 820 bytes
  // of a work-item of a foreach function. Reproduction: make silicon ARGS=arc-b, without the quirk.
  quirks.copies_indexed_arguments = p.tuning_class == DeviceClass::gpu && has(p.platform, "Intel");
  // Mesa's zink (25.0.7 and 26.2.6, over lavapipe and NVIDIA's Vulkan) compiles a kernel with
  // reqd_work_group_size before the sizes of its local arguments are known, and takes them to be 0:
  // what is written there is lost, or overwrites other memory. Kernels without it keep the size
  // that their first launch had. Convolution and attention were wrong in silence. Reproduction:
  // tests/silicon/mesa/local_argument.c.
  quirks.fixed_groups_lack_local_arguments = is_rusticl(p.platform) && p.name.starts_with("zink");
  return quirks;
}

}  // namespace ocl
