"""What a device can do at most, measured: bytes and floating point operations per second.

Offers: Peaks, measure_peaks(), measure_bandwidth(). The kernels are kernels/probe/*.cl."""

import time
from dataclasses import dataclass, field

import torch

from benchmarks.launch import Kernel, embedded_source, uint

MIB = 2**20
REPEATS = 10
ENOUGH = 5e-3  # seconds of a launch that its overhead does not matter in
MOST_STEPS = 10**6
CHAINS = 12  # of kernels/probe/fma.cl
#: dtype -> the OpenCL C type and its size in bytes.
REALS = {"float32": ("float", 4), "float64": ("double", 8), "float16": ("half", 2)}


@dataclass
class Peaks:
    """Of one device: `copy` counts what is read and what is written, `read` what is read."""

    copy: float
    read: float
    flops: dict[str, float] = field(default_factory=dict)

    @property
    def bandwidth(self):
        return max(self.copy, self.read)

    def flops_of(self, dtype):
        """Half and bfloat16 may be computed in float, whichever is faster."""
        known = [self.flops[d] for d in {dtype, "float32"} if d in self.flops]
        if dtype == "float64":
            return self.flops.get(dtype)
        return max(known, default=None)

    def roofline(self, case, seconds, bandwidth=None):
        """The share of the roofline that `seconds` for the case reach: its least time by memory or
        by arithmetic, whichever is longer, over the measured time. None if the case says neither.
        Above 1 the data were in caches, or it computed in what has no peak here. `bandwidth`: the
        memory's at that time, where it varies."""
        least = case.bytes / (bandwidth or self.bandwidth)
        peak = self.flops_of(case.dtype)
        if case.flops and peak:
            least = max(least, case.flops / peak)
        return least / seconds if least else None

    def or_more(self, other):
        """The larger of two measurements' figures: less was only a disturbance."""
        flops = {dtype: max(f, other.flops.get(dtype, f)) for dtype, f in self.flops.items()}
        return Peaks(max(self.copy, other.copy), max(self.read, other.read), flops)

    def describe(self):
        rates = [f"copy {self.copy / 1e9:.0f} GB/s", f"read {self.read / 1e9:.0f} GB/s"]
        rates += [f"{dtype} fma {f / 1e9:.3g} GFLOP/s" for dtype, f in self.flops.items()]
        return ", ".join(rates)


def least_seconds(launch):
    launch()
    best = float("inf")
    for _ in range(REPEATS):
        torch.ocl.synchronize()
        start = time.perf_counter()
        launch()
        torch.ocl.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def launch_sizes():
    """Work-items, work-items per group, and floats that a work-item of device 0 moves at a time."""
    properties = torch.ocl.get_device_properties(0)
    if properties.type == "cpu":
        return properties.max_compute_units * 64, 1, 16
    return properties.max_compute_units * 8 * 256, 256, 4


def measure_bandwidth(mib=256):
    """Bytes per second that device 0 copies (read and written) and reads, of `mib` MiB."""
    items, local, width = launch_sizes()
    count = max(1, mib * MIB // (4 * width * items))
    size = items * count * width  # floats
    source = embedded_source("probe/bandwidth.cl")
    given, taken = (torch.zeros(size, device="ocl") for _ in range(2))

    def seconds(name):
        kernel = Kernel(source, name, T=f"float{width}")
        return least_seconds(lambda: kernel([items], [local], given, taken, uint(count)))

    return 8 * size / seconds("probe_copy"), 4 * size / seconds("probe_read")


def measure_peaks(mib=256):
    """Probes device 0 with buffers of `mib` MiB."""
    properties = torch.ocl.get_device_properties(0)
    on_cpu = properties.type == "cpu"
    items, local, _ = launch_sizes()
    taken = torch.zeros(items * 16, device="ocl")
    peaks = Peaks(*measure_bandwidth(mib))
    has = {"float32": True, "float64": properties.has_fp64, "float16": properties.has_fp16}
    for dtype, (real, bytes_) in REALS.items():
        if not has[dtype]:
            continue
        lanes = min(64 // bytes_, 16) if on_cpu else 2
        vector = f"{real}{lanes}"
        kernel = Kernel(embedded_source("probe/fma.cl"), "probe_fma", T=vector, REAL=real)
        steps, best = 16, 0.0
        while best < ENOUGH and steps < MOST_STEPS:  # some devices only emulate half
            steps *= 4
            best = least_seconds(lambda k=kernel, s=steps: k([items], [local], taken, uint(s)))
        peaks.flops[dtype] = 2.0 * items * lanes * CHAINS * steps / best
    return peaks
