// Faults of drivers, and what is done about them.
#pragma once

#include <string>
#include <string_view>

namespace ocl {

struct DeviceProperties;

/// Driver quirks that change what the backend does.
struct Quirks {
  bool slow_vload_half = false;  // vload_half is scalar and slow: use native half or bit arithmetic
  bool slow_int64_to_real = false;    // vectors of 64-bit integers are converted one by one
  bool wrong_vector_pow = false;      // pow() of vectors of double is wrong beside a zero
  bool wrong_known_rounding = false;  // floor() and its kin of a NaN that the compiler knows
  bool builtin_prefetch = false;      // the compiler's __builtin_prefetch is an instruction
  bool build_option_std = true;       // -cl-std=CLx.y is understood
  bool explicit_vectors = true;       // explicit vector types beat the driver's own vectoriser
  bool fails_beside_others = false;   // a build may fail while another process builds the same
  bool compiles_at_launch = false;    // a program's binary is complete only after its first launch
  bool keeps_compiler = false;        // a program built from source keeps the compiler's memory
  bool helps_in_event_waits = false;  // a thread that waits computes, but only in clWaitForEvents
  bool slow_command_buffers = false;  // they take longer than the launches that they stand for
  bool copies_indexed_arguments = false;  // each work-item copies a struct that it indexes
  // A build's messages name lines of the whole text, whatever #line says.
  bool ignores_line_directives = false;
  // A kernel of a fixed work-group size gets no local memory for its arguments, and others what
  // their first launch had.
  bool fixed_groups_lack_local_arguments = false;
};

/// Takes back what a driver claims and does not deliver.
void correct_properties(DeviceProperties& properties);

/// The quirks of a device with these properties.
Quirks quirks_of(const DeviceProperties& properties);
/// Sets what a driver's compiler needs to work, before it is first used.
void configure_compiler(const DeviceProperties& properties);
/// The environment's settings of drivers' compilers, a line each: binaries depend on them.
std::string compiler_settings();
/// Whether tests of this package run with this driver regularly. Others are tried at a device's
/// first use.
bool is_tested_driver(const DeviceProperties& properties);
/// Why a device must not be used at all, empty for others.
struct Refusal {
  std::string reason;
  bool warn = false;  // who has it expects it among the devices
};
Refusal refusal_of(const DeviceProperties& properties);
/// Why a driver that is installed may offer no devices: what follows "offers no devices" in a
/// sentence.
std::string cause_of_no_devices(std::string_view platform);

}  // namespace ocl
