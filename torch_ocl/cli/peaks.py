"""The current device's peaks, measured: bytes and floating point operations per second.

The kernels are kernels/probe/*.cl."""

import time
from dataclasses import dataclass, field
from functools import partial

import torch

from torch_ocl.cli.probe import Kernel, embedded_source, uint

#: Parts of its bytes that something reads and writes: a copy, and what writes next to nothing.
COPY, READ = (1, 1), (1, 0)
MIB = 2**20
REPEATS = 10
ENOUGH = 5e-3  # seconds of a launch that its overhead does not matter in
MOST_STEPS = 10**6
PRODUCT = 8192  # rows and columns of matrices whose product keeps matrix units busy
#: Chains of fma: they hide the latency of two units, within the registers of a CPU core.
CHAINS = 12
AT_ONCE = 4  # vectors that are read in a step where nothing is written
#: dtype -> the OpenCL C type and its size in bytes.
REALS = {"float32": ("float", 4), "float64": ("double", 8), "float16": ("half", 2)}


@dataclass
class Peaks:
    """Peaks of one device: `copy` counts what is read and what is written, `read` what is read.
    `flops` are those of multiplications and additions; `products` those of large matrix products in
    units of their own, "tf32" among the dtypes."""

    copy: float
    read: float
    flops: dict[str, float] = field(default_factory=dict)
    products: dict[str, float] = field(default_factory=dict)

    @property
    def bandwidth(self):
        return max(self.copy, self.read)

    def flops_of(self, dtype):
        """Half and bfloat16 may be computed in float, whichever is faster."""
        if dtype == "float64":
            return self.flops.get(dtype)
        known = [self.flops[d] for d in {dtype, "float32"} if d in self.flops]
        if dtype == "float32":
            from torch_ocl import _C

            dtype = _C.allowed_float32_precision("matmul")
        return max([*known, self.products.get(dtype, 0.0)], default=None) or None

    def roofline(self, case, seconds, moving=None):
        """The share of the roofline that `seconds` for the case reach: its least time by memory or
        by arithmetic, whichever is longer, over the measured time. None if the case says neither.
        Above 1 the data were in caches, or it computed in what has no peak here. `moving`: seconds
        that a kernel which only moves the case's bytes took beside it."""
        least = max(moving or case.bytes / self.bandwidth, self.arithmetic(case))
        return least / seconds if least else None

    def arithmetic(self, case):
        """Seconds that the case's arithmetic takes at least, 0 where nothing is known of it."""
        return case.flops / (self.flops_of(case.dtype) or float("inf"))

    def may_be_bound_by_memory(self, case):
        """Whether moving the case's bytes is a part of its time that matters."""
        return 2 * case.bytes / self.bandwidth > self.arithmetic(case)

    def or_more(self, other):
        """The larger of two measurements' figures: less was only a disturbance."""
        flops, products = (
            {dtype: max(f, theirs.get(dtype, f)) for dtype, f in mine.items()}
            for mine, theirs in ((self.flops, other.flops), (self.products, other.products))
        )
        return Peaks(max(self.copy, other.copy), max(self.read, other.read), flops, products)

    def describe(self):
        rates = [f"copy {self.copy / 1e9:.0f} GB/s", f"read {self.read / 1e9:.0f} GB/s"]
        rates += [f"{dtype} fma {f / 1e9:.3g} GFLOP/s" for dtype, f in self.flops.items()]
        rates += [f"{dtype} products {f / 1e9:.3g} GFLOP/s" for dtype, f in self.products.items()]
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
    """Work-items, work-items per group, and floats that a work-item of the device has at a time."""
    properties = torch.ocl.get_device_properties(torch.ocl.current_device())
    if properties.type == "cpu":
        return properties.max_compute_units * 64, 1, 16
    return properties.max_compute_units * 8 * 256, 256, 4


def mover(read, written, out=None):
    """A call that reads the tensors `read` of the device, four at most, and writes `written`, two
    at most, and does nothing else; and how many bytes it leaves out of all. The tensors' sizes are
    about multiples of the least one's. Where nothing is written, `out` has place for a vector per
    work-item."""
    items, local, width = launch_sizes()
    vector = 4 * width
    least = min(t.nbytes for t in [*read, *written])
    items = min(items, -(-least // (vector * local)) * local)
    parts = [[round(t.nbytes / least) for t in ts] for ts in (read, written)]
    if not written:
        parts[0] = [n * AT_ONCE for n in parts[0]]
        least //= AT_ONCE
    count = max(1, least // (vector * items))
    tensors, definitions = [], {"T": f"float{width}"}
    for name, most, ts, ns in zip("RW", (4, 2), (read, written), parts, strict=True):
        definitions |= {f"{name}{i}": ns[i] if i < len(ns) else 0 for i in range(most)}
        unused = out if out is not None and name == "W" else (*read, *written)[0]
        tensors += [*ts, *[unused] * (most - len(ts))]
    kernel = Kernel(embedded_source("probe/bandwidth.cl"), "probe_move", **definitions)
    moved = vector * items * count * sum(map(sum, parts))
    call = partial(kernel, [items], [local], *tensors, uint(count))
    return call, sum(t.nbytes for t in [*read, *written]) - moved


def moving(bytes_, reads, writes, mib=512):
    """A call that moves `mib` MiB of the device, more than caches hold, `reads` arrays in and
    `writes` arrays out, and how often it would have to be called to move `bytes_`."""
    items, local, width = launch_sizes()
    step = width * items * AT_ONCE
    size = max(1, mib * MIB // (4 * step * (reads + writes))) * step  # floats of an array
    # Not zeros: some processors write those faster.
    arrays = [torch.rand(size, device="ocl") for _ in range(max(2, reads + writes))]
    call, left = mover(arrays[:reads], arrays[reads : reads + writes], arrays[-1])
    assert not left
    return call, bytes_ / (4 * size * (reads + writes))


def measure_bandwidth(mib=256):
    """Bytes per second that the device copies, read and written together, and reads, of 2 * `mib`
    MiB."""
    calls = (moving(1, *moves, 2 * mib) for moves in (COPY, READ))
    return tuple(1 / (times * least_seconds(call)) for call, times in calls)


def products_per_second(size=PRODUCT):
    """Operations per second of the device's matrix units, by dtype: what torch.mm makes of them."""
    rates = {}
    tf32 = ["tf32"] * torch.ocl.is_tf32_supported()
    for name in ("float16", "bfloat16", *tf32):
        dtype = torch.float32 if name == "tf32" else getattr(torch, name)
        a, b = torch.rand(2, size, size, device="ocl").to(dtype)
        before = torch.backends.ocl.matmul.fp32_precision
        torch.backends.ocl.matmul.fp32_precision = "tf32" if name == "tf32" else before
        try:
            rates[name] = 2.0 * size**3 / least_seconds(partial(torch.mm, a, b))
        finally:
            torch.backends.ocl.matmul.fp32_precision = before
    return rates


def flops_per_second():
    """Multiplications and additions per second of the device, by dtype."""
    properties = torch.ocl.get_device_properties(torch.ocl.current_device())
    on_cpu = properties.type == "cpu"
    items, local, _ = launch_sizes()
    taken = torch.zeros(items * 16, device="ocl")
    has = {"float32": True, "float64": properties.has_fp64, "float16": properties.has_fp16}
    rates = {}
    for dtype, (real, bytes_) in REALS.items():
        if not has[dtype]:
            continue
        lanes = min(64 // bytes_, 16) if on_cpu else 2
        vector = f"{real}{lanes}"
        kernel = Kernel(
            embedded_source("probe/fma.cl"), "probe_fma", T=vector, REAL=real, CHAINS=CHAINS
        )
        steps, best = 16, 0.0
        while best < ENOUGH and steps < MOST_STEPS:  # some devices only emulate half
            steps *= 4
            best = least_seconds(lambda k=kernel, s=steps: k([items], [local], taken, uint(s)))
        rates[dtype] = 2.0 * items * lanes * CHAINS * steps / best
    return rates


def measure_peaks(mib=256):
    """Probes the device with buffers of `mib` MiB."""
    properties = torch.ocl.get_device_properties(torch.ocl.current_device())
    peaks = Peaks(*measure_bandwidth(mib), flops_per_second())
    if properties.has_tensor_cores or properties.subgroup_matrix_size:
        peaks.products = products_per_second()
    return peaks
