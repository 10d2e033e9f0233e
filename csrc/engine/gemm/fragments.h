// The instructions by which sub-groups multiply (kernels/gemm/fragments.clh): which of AMD's a
// device has, and whether they do what is documented.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/gemm/plan.h"

namespace ocl::gemm {

/// FRAGMENTS of the kernels.
enum Fragments : int { kBroadcast, kIntel, kWmmaGfx11, kWmmaGfx12, kMfmaGfx908, kMfmaGfx9, kDot2 };

/// By what a wave multiplies operands of a type.
struct WaveUnit {
  Fragments fragments;
  int size;                // work-items of a wave
  bool as_floats = false;  // operands are made float on their way
  bool chains = false;     // sums can be operands of the next product (attention)
  /// On a CPU, functions do what the instructions are specified to do.
  bool emulated = false;
};

/// Bytes of local memory that a work-item of an emulated unit takes for its registers, at most.
inline constexpr size_t kEmulatedBytes = 64;

/// The unit that a device has for operands of a tag: if nothing, the reason.
struct WaveAnswer {
  const WaveUnit* unit = nullptr;
  const char* reason = nullptr;
};

/// AMD's processor, by its hexadecimal number (0x90a is gfx90a), where the driver is AMD's own,
/// whose compiler knows the instructions of waves by name; 0 elsewhere. TORCH_OCL_AMD_TARGET names
/// one for tests. Warm: a load.
uint32_t amd_target(const Device& device);

/// At the first call for a device and a tag, a small program is built, and its numbers are checked
/// on the device. Where they are wrong, or it does not build, the device goes without, and a line
/// says so. Warm: two loads.
WaveAnswer wave_unit(Queue& queue, const char* tag);

}  // namespace ocl::gemm
