"""Prints the rates of ResNet-50's convolutions by cuDNN and, on the same GPU, by ocl: TFLOP/s of
the result, the input's gradient and the weight's, channels last, and ocl's share. The best of three
rows of calls without a wait in between.

    TORCH_OCL_DEVICES=nvidia python -m benchmarks.convolutions --dtype bfloat16 --batch 128
"""

import argparse
import math
import time

import torch

# Input channels, size, output channels, window, stride.
SHAPES = (
    (3, 224, 64, 7, 2),
    (64, 56, 64, 1, 1),
    (64, 56, 64, 3, 1),
    (64, 56, 256, 1, 1),
    (256, 56, 64, 1, 1),
    (256, 56, 128, 1, 1),
    (128, 56, 128, 3, 2),
    (128, 28, 512, 1, 1),
    (256, 56, 512, 1, 2),
    (512, 28, 128, 1, 1),
    (128, 28, 128, 3, 1),
    (512, 28, 256, 1, 1),
    (256, 28, 256, 3, 2),
    (256, 14, 1024, 1, 1),
    (512, 28, 1024, 1, 2),
    (1024, 14, 256, 1, 1),
    (256, 14, 256, 3, 1),
    (1024, 14, 512, 1, 1),
    (512, 14, 512, 3, 2),
    (512, 7, 2048, 1, 1),
    (1024, 14, 2048, 1, 2),
    (2048, 7, 512, 1, 1),
    (512, 7, 512, 3, 1),
)
ROWS, CALLS = 3, 10


def seconds_of(call, synchronize):
    call()
    synchronize()
    best = math.inf
    for _ in range(ROWS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        synchronize()
        best = min(best, (time.perf_counter() - start) / CALLS)
    return best


def times(device, synchronize, shape, batch, dtype):
    """Seconds of the result, the input's gradient and the weight's."""
    channels, size, results, window, stride = shape
    padding = window // 2
    out = (size + 2 * padding - window) // stride + 1

    def random(*sizes):
        tensor = torch.randn(sizes, device=device, dtype=dtype)
        return tensor.contiguous(memory_format=torch.channels_last)

    x = random(batch, channels, size, size)
    weight = random(results, channels, window, window)
    grad = random(batch, results, out, out)

    def backward(*mask):
        torch.ops.aten.convolution_backward(
            grad, x, weight, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, mask
        )

    calls = (
        lambda: torch.nn.functional.conv2d(x, weight, None, stride, padding),
        lambda: backward(True, False, False),
        lambda: backward(False, True, False),
    )
    work = 2 * batch * out * out * results * channels * window**2
    return [seconds_of(call, synchronize) for call in calls], work


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--batch", type=int, default=128)
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    torch.backends.cudnn.benchmark = True
    shares = [[], [], []]
    print("channels, size, results, window, stride: TFLOP/s of ocl / cuDNN, and ocl's share")
    for shape in SHAPES:
        theirs, work = times("cuda", torch.cuda.synchronize, shape, options.batch, dtype)
        ours, _ = times("ocl", torch.ocl.synchronize, shape, options.batch, dtype)
        cells = []
        for kind, (t, o) in enumerate(zip(theirs, ours, strict=True)):
            shares[kind].append(math.log(t / o))
            cells.append(f"{work / o / 1e12:4.0f} / {work / t / 1e12:4.0f} {t / o:5.2f}")
        print(shape, " | ".join(cells), flush=True)
    for name, logs in zip(("result", "input", "weight"), shares, strict=True):
        print(f"{name}: geometric mean {math.exp(sum(logs) / len(logs)):.2f}")
    every = [log for logs in shares for log in logs]
    print(f"all: {math.exp(sum(every) / len(every)):.2f}")


if __name__ == "__main__":
    main()
