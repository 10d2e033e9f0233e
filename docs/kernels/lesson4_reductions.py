"""Lesson 4: a sum, three ways.

python docs/kernels/lesson4_reductions.py [--elements 16777216]
"""

import argparse
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--elements", type=int, default=2**24)
N = parser.parse_args().elements

SOURCE = """
// begin: one
kernel void one_item(global const float* x, global float* out, ulong n) {
  float sum = 0;
  for (ulong i = 0; i < n; i++) sum += x[i];
  *out = sum;
}
// end: one

// begin: tree
kernel void tree(global const float* x, global float* out, ulong n, local float* sums) {
  uint item = get_local_id(0);
  ulong i = get_global_id(0);
  sums[item] = i < n ? x[i] : 0;
  for (uint half_ = get_local_size(0) / 2; half_ > 0; half_ /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < half_) sums[item] += sums[item + half_];
  }
  if (item == 0) out[get_group_id(0)] = sums[0];
}
// end: tree

// begin: strided
kernel void strided(global const float4* x, global float* out, ulong n, local float* sums) {
  float4 many = 0;
  for (ulong i = get_global_id(0); i < n / 4; i += get_global_size(0)) many += x[i];
  float sum = many.x + many.y + many.z + many.w;
  if (get_global_id(0) == 0)
    for (ulong i = n / 4 * 4; i < n; i++) sum += ((global const float*)x)[i];

  uint item = get_local_id(0);
  sums[item] = sum;
  for (uint half_ = get_local_size(0) / 2; half_ > 0; half_ /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < half_) sums[item] += sums[item + half_];
  }
  if (item == 0) out[get_group_id(0)] = sums[0];
}
// end: strided
"""
one_item, tree, strided = (
    torch.ocl.compile_kernel(SOURCE, name) for name in ("one_item", "tree", "strided")
)
GROUP = 256
LOCAL = torch.ocl.local_memory(4 * GROUP)


def sum_by_one(x):
    out = torch.empty((), device=x.device)
    one_item(x, out, x.numel(), global_size=1)
    return out


# begin: passes
def sum_by_trees(x):
    while x.numel() > 1:
        groups = -(-x.numel() // GROUP)
        partial = torch.empty(groups, device=x.device)
        tree(x, partial, x.numel(), LOCAL, global_size=groups * GROUP, local_size=GROUP)
        x = partial
    return x[0]


# end: passes


# begin: few
GROUPS = 8 * torch.ocl.get_device_properties().max_compute_units


def sum_by_few(x):
    partial = torch.empty(GROUPS, device=x.device)
    strided(x, partial, x.numel(), LOCAL, global_size=GROUPS * GROUP, local_size=GROUP)
    return sum_by_trees(partial)


# end: few


def seconds(call):
    """The fastest of several runs, of which the first is not counted."""
    best = float("inf")
    for run in range(4):
        torch.ocl.synchronize()
        start = time.perf_counter()
        call()
        torch.ocl.synchronize()
        if run > 0:
            best = min(best, time.perf_counter() - start)
    return best


x = torch.rand(N, device="ocl")
exact = x.cpu().double().sum().item()
print(f"{torch.ocl.get_device_name()}, {N} elements")
for name, call in (
    ("one work-item", sum_by_one),
    ("trees", sum_by_trees),
    ("few work-items, then trees", sum_by_few),
    ("torch.sum", torch.sum),
):
    error = abs(call(x).item() - exact) / exact
    rate = x.nbytes / seconds(lambda call=call: call(x))
    print(f"{name:28}{rate / 1e9:8.2f} GB/s, relative error {error:.1e}")
    assert error < (1 if call is sum_by_one else 1e-5)
for size in (1, 255, 257, 1003):
    y = torch.rand(size, device="ocl")
    for call in (sum_by_trees, sum_by_few):
        torch.testing.assert_close(call(y), y.sum())
