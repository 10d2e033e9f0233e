// The devices of this machine: how many there are, in which order, and what happens after a fork.
#pragma once

#include <array>
#include <atomic>
#include <string>
#include <vector>

namespace ocl {

class Device;

namespace detail {
inline constinit std::atomic<bool> forked{false};
[[noreturn]] void throw_forked();
// The first devices, once they are made, for a short way to them.
inline constexpr int kRemembered = 16;
inline constinit std::array<std::atomic<Device*>, kRemembered> made{};
Device& make_device(int index);
}  // namespace detail

/// Number of usable devices, in the order GPUs, accelerators, CPUs, or as TORCH_OCL_DEVICES says
/// (comma-separated selectors, each an index into the default order, a type
/// `gpu`/`cpu`/`accelerator`, or a part of the vendor's, platform's or device's name,
/// case-insensitive; order is kept, duplicates dropped; empty means unset). Enumerates on the first
/// call. Never throws: 0 if OpenCL is not available, and then unavailable_reason() says why. In a
/// forked child of an initialised process: those that the parent had found. They can't be used.
int device_count() noexcept;
/// Why there is no device that can be used, with what to install; empty otherwise.
std::string unavailable_reason();
/// Devices and platforms that are not used, each with the reason. Enumerates on the first call.
/// Empty in a forked child of an initialised process.
std::vector<std::string> left_out_devices();

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
