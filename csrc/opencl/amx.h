// x86's AMX: registers of tiles, and the system's leave to use them.
#pragma once

namespace ocl {

/// Whether this processor multiplies tiles of bfloat16 and of int8.
bool processor_has_amx();
/// Asks the system to let this process use them, as it must be asked. False where it refuses: in an
/// old kernel, a sandbox, or where a thread's signal stack is too small for the registers.
bool system_allows_amx();

}  // namespace ocl
