// The device table's rows. Tiles for GPUs are chosen by a cost model among those of device_tiles.h.
//
// Numbers of a GPU are those of its maker's guides, which the comments name. What a guide doesn't
// say is NVIDIA's, measured. Launches cost 5 us of a unit's multiply-adds, at the clock of the
// sources below, unless said otherwise. A transform's smallest transaction (fft.sector) is a line
// of the caches, where a guide says what that is.
#pragma once

#include "engine/device_table.h"

namespace ocl::rows {

/// By the bytes of a vector. With 32 registers 12 x 2 sums fit beside the operands, with 16
/// registers 6 x 2 do.
constexpr DeviceRow cpu(const char* name, const char* source, int register_bytes, int packed_rows) {
  return {.device_class = name,
          .source = source,
          .register_bytes = register_bytes,
          .packed_rows = packed_rows,
          .packed_block_bytes = 256 << 10,
          .skinny_rows = 4,
          .skinny_local = 16,
          .element_group = 64,
          .lane_group = 16,
          .reduce = {.column_chunk = 128, .item_elements = 8192},
          .scan = {.column_elements = 4096},
          .channels = {.positions = 4096}};
}
constexpr DeviceRow kCpus[] = {
    cpu("CPU, 64-byte vectors", "measured on an AMD EPYC", 64, 12),
    cpu("CPU, 32-byte vectors", "derived from that of 64 bytes: 16 registers", 32, 6),
    cpu("CPU, 16-byte vectors", "derived from that of 64 bytes: 16 registers", 16, 6),
};

constexpr DeviceRow gpu(const char* name, const char* source, double launch_cost) {
  return {.device_class = name,
          .source = source,
          .register_bytes = 16,
          .packed_rows = 4,
          .packed_block_bytes = 64 << 10,
          .skinny_rows = 1,
          .skinny_local = 128,
          .launch_cost = launch_cost};
}
constexpr DeviceRow kNvidia = [] {
  DeviceRow row = gpu("NVIDIA", "measured on an NVIDIA H200: launches cost 5 to 8 us", 0.9e6);
  row.skinny_local = 64;
  return row;
}();
/// "CUDA C++ Programming Guide", throughput of arithmetic instructions: two results in double
/// precision a clock where there are 64 to 128 in single precision.
constexpr DeviceRow kGeForce = [] {
  DeviceRow row = kNvidia;
  row.device_class = "NVIDIA, slow float64";
  row.source = "NVIDIA's, and the rate of its guide";
  row.hardware.fp64_rate = 1.0 / 64;
  return row;
}();
constexpr DeviceRow kOtherGpu = [] {
  DeviceRow row = gpu("other GPU", "NVIDIA's, for want of measurements", 0.9e6);
  row.hardware.item_registers = 128;
  return row;
}();
/// A CPU that plays a GPU is to run what most GPUs do, whatever the registers.
constexpr DeviceRow kPlayedGpu = gpu("other GPU", "NVIDIA's, for want of measurements", 0.9e6);

// AMD. "AMD GPU specifications" of ROCm has each processor's registers, local memory and waves.
// LLVM's "User Guide for AMDGPU Backend", Target Properties, has how many registers a work-item can
// name. Rates are of AMD's whitepapers of each architecture, and cache lines are as rocminfo shows
// them (tests/silicon). Four waves on each of a unit's four SIMDs hide what memory takes, which is
// more than 12 in all. clang 21 loads early for all of them.

/// 256 KiB of registers and 64 KiB of local memory to a unit, waves of 64.
constexpr DeviceRow kGcn = [] {
  DeviceRow row = gpu("AMD GCN", "AMD's guides; launches: 64 lanes at 1.4 GHz for 5 us", 0.45e6);
  row.hardware.wave_items = 64;
  row.hardware.wanted_items = 13 * 64;
  row.hardware.loads_early = 1;
  row.hardware.fp64_rate = 1.0 / 16;
  row.fft.sector = 64;
  return row;
}();
/// In double precision the MI50 has half the rate, and the Radeon VII a quarter.
constexpr DeviceRow kVega20 = [] {
  DeviceRow row = kGcn;
  row.device_class = "AMD GCN 5.1";
  row.hardware.fp64_rate = 1.0 / 4;
  return row;
}();
/// 512 KiB of registers to a unit: "AMD Instinct MI200 Instruction Set Architecture" has 512 of a
/// lane, of which instructions name 256.
constexpr DeviceRow kCdna = [] {
  DeviceRow row = gpu("AMD CDNA", "AMD's guides; launches: 64 lanes at 1.7 GHz for 5 us", 0.55e6);
  row.hardware.wave_items = 64;
  row.hardware.wanted_items = 13 * 64;
  row.hardware.loads_early = 1;
  row.unit_registers = 128 << 10;
  row.hardware.fp64_rate = 1;
  row.fft.sector = 64;
  return row;
}();
/// OpenCL's compute unit is a workgroup processor: two of AMD's units, with twice the work-items at
/// once, which share 128 KiB of local memory ("RDNA 2 Instruction Set Architecture", local data
/// share). One of its four SIMDs has 128 KiB of registers. Waves have 32.
constexpr DeviceRow kRdna = [] {
  DeviceRow row =
      gpu("AMD RDNA 1/2", "AMD's guides; launches: 128 lanes at 2.3 GHz for 5 us", 1.5e6);
  row.hardware.wanted_items = 13 * 32;
  row.hardware.loads_early = 1;
  row.unit_registers = 128 << 10;
  row.hardware.unit_local_memory = 128 << 10;
  row.resident_items = 2048;
  row.resident_column_items = 1536;
  row.hardware.fp64_rate = 1.0 / 16;
  return row;
}();
/// A SIMD has 192 KiB of registers ("RDNA 3 Instruction Set Architecture", vector registers). Two
/// instructions at a time are counted as one, which compilers seldom pair.
constexpr DeviceRow kRdna3 = [] {
  DeviceRow row = kRdna;
  row.device_class = "AMD RDNA 3/4";
  row.source = "AMD's guides; launches: 128 lanes at 2.5 GHz for 5 us";
  row.launch_cost = 1.6e6;
  row.unit_registers = 192 << 10;
  return row;
}();

// Intel. OpenCL's compute unit is a vector engine. Its threads have 128 registers each, or half as
// many threads have 256 ("oneAPI GPU Optimization Guide", Small Register Mode vs. Large Register
// Mode). Local memory is a sub-slice's, of which an engine has its part. Intel's GPU Occupancy
// Calculator (oneAPI samples) has threads, engines and local memory. A work-item of a thread of n
// has an n-th of the thread's registers. Intel's compiler loads early, as ocloc shows.

/// "The Compute Architecture of Intel Processor Graphics Gen9": 7 threads of 128 registers of 32
/// bytes, 8 engines and 64 KiB to a sub-slice, lines of 64 bytes, 1/4 of the rate in double
/// precision. 7 threads of 16 work-items are some 128, of which sums over columns leave a quarter.
/// One group of that size fills an engine. Sub-groups of 16 leave a work-item 64 registers, and of
/// 8 twice as many.
constexpr DeviceRow kGen9 = [] {
  DeviceRow row =
      gpu("Intel Gen9", "Intel's guides; launches: 8 lanes at 1.1 GHz for 10 us", 0.1e6);
  row.hardware.wave_items = 16;
  row.hardware.item_registers = 64;
  row.hardware.large_registers = 128;
  row.hardware.loads_early = 1;
  row.unit_registers = 7 * 128 * 8;
  row.hardware.unit_local_memory = 8 << 10;
  row.groups_per_unit = 1;
  row.resident_items = 128;
  row.resident_column_items = 96;
  row.hardware.fp64_rate = 1.0 / 4;
  row.fft.sector = 64;
  return row;
}();
/// "Intel Processor Graphics Xe-LP API Developer and Optimization Guide": 16 engines to a dual
/// sub-slice of 128 KiB, and no double precision.
constexpr DeviceRow kXeLp = [] {
  DeviceRow row = kGen9;
  row.device_class = "Intel Xe-LP";
  row.hardware.fp64_rate = 1.0 / 64;
  return row;
}();
/// "Introduction to the Xe-HPG Architecture": 8 threads of an engine, and 16 engines to a core of
/// 128 KiB.
constexpr DeviceRow kXeHpg = [] {
  DeviceRow row = kXeLp;
  row.device_class = "Intel Arc A (Xe-HPG)";
  row.source = "Intel's guides; launches: 8 lanes at 2.4 GHz for 5 us";
  row.unit_registers = 8 * 128 * 8;
  return row;
}();
/// Registers of 64 bytes, 16 lanes, 8 engines to a core of 128 KiB. Double precision is as slow as
/// on Arc A, for want of a published rate.
constexpr DeviceRow kXe2 = [] {
  DeviceRow row = kXeHpg;
  row.device_class = "Intel Xe2";
  row.source = "Intel's guides; launches: 16 lanes at 2.5 GHz for 5 us";
  row.launch_cost = 0.2e6;
  row.unit_registers = 8 * 128 * 16;
  row.hardware.unit_local_memory = 16 << 10;
  row.hardware.item_registers = 128;
  row.hardware.large_registers = 256;
  return row;
}();
/// Its compiler takes sub-groups of 32, which halves a work-item's registers of 64 bytes (the
/// page of tests/silicon). Intel's data sheet has double precision at the rate of single.
constexpr DeviceRow kXeHpc = [] {
  DeviceRow row = kXe2;
  row.device_class = "Intel Data Center GPU Max";
  row.source = "Intel's guides; launches: 16 lanes at 1.6 GHz for 5 us";
  row.launch_cost = 0.13e6;
  row.hardware.wave_items = 32;
  row.hardware.item_registers = 64;
  row.hardware.large_registers = 128;
  row.hardware.fp64_rate = 1;
  return row;
}();

// Arm. "Arm Mali Bifrost and Valhall OpenCL Developer Guide" has registers and warps: a thread has
// up to 64, and with more than 32 half as many threads run. Adjacent threads are in its 9.6. "Arm
// Mali GPU Datasheet" has lanes and threads. Cache lines, local memory and that there is no double
// precision are what clinfo shows (tests/silicon). Groups of 64 are several waves.

/// Mali-G52: 24 lanes, 768 threads, warps of 8.
constexpr DeviceRow kBifrost = [] {
  DeviceRow row = gpu("Arm Mali Bifrost", "Arm's guides; launches: 24 lanes at 0.85 GHz", 0.1e6);
  row.hardware.wave_items = 8;
  row.skinny_local = row.row_group = row.element_group = row.depthwise_group = 64;
  row.hardware.item_registers = 64;
  row.hardware.loads_early = 1;
  row.unit_registers = 768 * 32;
  row.hardware.unit_local_memory = 32 << 10;
  row.hardware.fp64_rate = 1.0 / 64;
  row.fft.sector = 64;
  return row;
}();
/// Mali-G610 and G720: 64 lanes, 2048 threads, warps of 16.
constexpr DeviceRow kValhall = [] {
  DeviceRow row = kBifrost;
  row.device_class = "Arm Mali Valhall";
  row.source = "Arm's guides; launches: 64 lanes at 0.85 GHz for 5 us";
  row.launch_cost = 0.27e6;
  row.hardware.wave_items = 16;
  row.unit_registers = 2048 * 32;
  return row;
}();

/// "Qualcomm Snapdragon Mobile Platform OpenCL General Programming and Optimization" has waves
/// and local memory. clinfo shows cache lines, and no double precision. Registers aren't published.
/// Mesa's compiler names 48 of 16 bytes, of which a work-item takes half, so that two waves run.
constexpr DeviceRow kAdreno = [] {
  DeviceRow row =
      gpu("Qualcomm Adreno", "Qualcomm's guide; launches: 128 lanes at 0.7 GHz", 0.45e6);
  row.hardware.wave_items = 64;
  row.skinny_local = row.row_group = 64;
  row.element_group = row.depthwise_group = 128;
  row.hardware.item_registers = 96;
  row.hardware.loads_early = 1;
  row.unit_registers = 32768;
  row.hardware.unit_local_memory = 32 << 10;
  row.hardware.fp64_rate = 1.0 / 64;
  row.fft.sector = 64;
  return row;
}();

}  // namespace ocl::rows
