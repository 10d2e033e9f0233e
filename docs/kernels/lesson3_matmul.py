"""Lesson 3: a matrix product in four steps, each with its speed.

python docs/kernels/lesson3_matmul.py [--size 1024]
"""

import argparse
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=1024, help="a multiple of 128")
N = parser.parse_args().size

NAIVE = """
// begin: naive
kernel void naive(global const float* a, global const float* b, global float* c, int n) {
  int column = get_global_id(0), row = get_global_id(1);
  float sum = 0;
  for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
  c[row * n + column] = sum;
}
// end: naive
"""

TILED = """
// begin: tiled
kernel void tiled(global const float* a, global const float* b, global float* c, int n) {
  local float a_tile[TILE][TILE], b_tile[TILE][TILE];
  int x = get_local_id(0), y = get_local_id(1);
  int column = get_global_id(0), row = get_global_id(1);
  float sum = 0;
  for (int k = 0; k < n; k += TILE) {
    a_tile[y][x] = a[row * n + k + x];
    b_tile[y][x] = b[(k + y) * n + column];
    barrier(CLK_LOCAL_MEM_FENCE);  // the tiles are complete
    for (int i = 0; i < TILE; i++) sum += a_tile[y][i] * b_tile[i][x];
    barrier(CLK_LOCAL_MEM_FENCE);  // nobody reads them any more
  }
  c[row * n + column] = sum;
}
// end: tiled
"""

REGISTERS = """
// begin: registers
kernel void registers(global const float* a, global const float* b, global float* c, int n) {
  local float a_tile[TILE][TILE], b_tile[TILE][TILE];
  int x = get_local_id(0), y = get_local_id(1) * ROWS;
  int column = get_global_id(0), row = get_global_id(1) * ROWS;
  float sums[ROWS] = {0};
  for (int k = 0; k < n; k += TILE) {
    for (int r = 0; r < ROWS; r++) {
      a_tile[y + r][x] = a[(row + r) * n + k + x];
      b_tile[y + r][x] = b[(k + y + r) * n + column];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < TILE; i++) {
      float value = b_tile[i][x];  // read once, used for all rows
      #pragma unroll
      for (int r = 0; r < ROWS; r++) sums[r] += a_tile[y + r][i] * value;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int r = 0; r < ROWS; r++) c[(row + r) * n + column] = sums[r];
}
// end: registers
"""

VECTORS = """
// begin: vectors
kernel void vectors(global const float* a, global const float8* b, global float8* c, int n) {
  int column = get_global_id(0), row = get_global_id(1) * ROWS, width = n / 8;
  float8 sums[ROWS];
  for (int r = 0; r < ROWS; r++) sums[r] = 0;
  for (int k = 0; k < n; k++) {
    float8 value = b[k * width + column];  // eight floats in one load
    #pragma unroll
    for (int r = 0; r < ROWS; r++) sums[r] += a[(row + r) * n + k] * value;
  }
  for (int r = 0; r < ROWS; r++) c[(row + r) * width + column] = sums[r];
}
// end: vectors
"""

# begin: peak
PEAK = """
kernel void peak(global V* data, int steps) {
  V factor = data[0], chains[12];
  for (int i = 0; i < 12; i++) chains[i] = data[i];
  for (int step = 0; step < steps; step++) {
    #pragma unroll
    for (int i = 0; i < 12; i++) chains[i] = fma(chains[i], factor, factor);
  }
  V sum = 0;
  for (int i = 0; i < 12; i++) sum += chains[i];
  data[12 + get_global_id(0)] = sum;
}
"""


def seconds(call):
    """The fastest of several runs, of which the first is not counted."""
    best = float("inf")
    for run in range(6):
        torch.ocl.synchronize()
        start = time.perf_counter()
        call()
        torch.ocl.synchronize()
        if run > 0:
            best = min(best, time.perf_counter() - start)
    return best


def peak_flops():
    """Floating point operations per second, in a loop that does nothing else."""
    device = torch.ocl.get_device_properties()
    # The work-item of a CPU has whole vectors, that of a GPU is a lane of one.
    width, group = (16, 1) if device.type == "cpu" else (2, 256)
    items, steps = device.max_compute_units * 64 * group, 20000
    kernel = torch.ocl.compile_kernel(PEAK, options=f"-DV=float{width}")
    data = torch.rand((12 + items) * width, device="ocl")
    taken = seconds(lambda: kernel(data, steps, global_size=items, local_size=group))
    return items * steps * 12 * width * 2 / taken


def bandwidth():
    """Bytes per second that a copy reads and writes."""
    x = torch.ones(2**26, device="ocl")
    y = torch.empty_like(x)
    return 2 * x.nbytes / seconds(lambda: y.copy_(x))


# end: peak

# begin: launch
a = torch.rand(N, N, device="ocl")
b = torch.rand(N, N, device="ocl")
c = torch.empty(N, N, device="ocl")
TILE, ROWS = 32, 4


def compiled(source):
    return torch.ocl.compile_kernel(source, options=(f"-DTILE={TILE}", f"-DROWS={ROWS}"))


naive, tiled = compiled(NAIVE), compiled(TILED)
registers, vectors = compiled(REGISTERS), compiled(VECTORS)
calls = {
    "naive": lambda: naive(a, b, c, N, global_size=(N, N)),
    "local-memory tiles": lambda: tiled(a, b, c, N, global_size=(N, N), local_size=(TILE, TILE)),
    "register tiles": lambda: registers(
        a, b, c, N, global_size=(N, N // ROWS), local_size=(TILE, TILE // ROWS)
    ),
    "vector loads": lambda: vectors(
        a, b, c, N, global_size=(N // 8, N // ROWS), local_size=(16, 4)
    ),
    "torch.mm": lambda: torch.mm(a, b, out=c),
}
# end: launch

if TILE * TILE > torch.ocl.get_device_properties().max_work_group_size:
    del calls["local-memory tiles"]  # it needs a work-item for each element of a tile

# begin: table
work, moved = 2 * N**3, 3 * 4 * N**2
roof = min(peak_flops(), work / moved * bandwidth())
want = a.cpu() @ b.cpu()
print(f"{torch.ocl.get_device_name()}, {N} x {N}, roof {roof / 1e9:.0f} GFLOP/s")
for name, call in calls.items():
    c.fill_(float("nan"))  # or the kernel before would have left the right result
    flops = work / seconds(call)
    torch.testing.assert_close(c.cpu(), want, rtol=1e-4, atol=1e-3)
    print(f"{name:20}{flops / 1e9:9.1f} GFLOP/s {flops / roof:6.1%} of the roof")
# end: table
