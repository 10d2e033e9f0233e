"""Prints the rates of ResNet-50's convolutions by cuDNN and, on the same GPU, by ocl: TFLOP/s of
the result, the input's gradient and the weight's, channels last, and ocl's share. The best of three
rows of calls without a wait in between. Or the errors of both against float64.

    TORCH_OCL_DEVICES=nvidia python -m benchmarks.studies.convolutions --dtype bfloat16 --batch 128
    TORCH_OCL_DEVICES=nvidia python -m benchmarks.studies.convolutions --errors --batch 8
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


def operands(device, shape, batch, dtype):
    """Input, weight and the result's gradient, the same ones each time, and the padding."""
    channels, size, results, window, stride = shape
    padding = window // 2
    out = (size + 2 * padding - window) // stride + 1
    random = torch.Generator().manual_seed(0)

    def tensor(*sizes):
        values = torch.randn(sizes, generator=random).to(dtype)
        return values.to(device).contiguous(memory_format=torch.channels_last)

    x = tensor(batch, channels, size, size)
    weight = tensor(results, channels, window, window)
    return x, weight, tensor(batch, results, out, out), padding


def calls(device, shape, batch, dtype):
    """The result, the input's gradient and the weight's, each as a call."""
    x, weight, grad, padding = operands(device, shape, batch, dtype)
    stride = shape[-1]

    def backward(*mask):
        return torch.ops.aten.convolution_backward(
            grad, x, weight, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, mask
        )

    return (
        lambda: torch.nn.functional.conv2d(x, weight, None, stride, padding),
        lambda: backward(True, False, False)[0],
        lambda: backward(False, True, False)[1],
    )


def times(device, synchronize, shape, batch, dtype):
    """Seconds of the three."""
    return [seconds_of(call, synchronize) for call in calls(device, shape, batch, dtype)]


def errors(device, exact, shape, batch, dtype):
    """The largest error of each and the root mean square, as shares of the largest result."""
    found = []
    for call, want in zip(calls(device, shape, batch, dtype), exact, strict=True):
        error = (call().cpu().double() - want).abs() / want.abs().max()
        found.append((error.max().item(), error.square().mean().sqrt().item()))
    return found


def print_errors(theirs, batch, dtype):
    print("channels, size, results, window, stride: largest and mean square errors, ocl / theirs")
    for shape in SHAPES:
        x, weight, grad, _ = (
            t if isinstance(t, int) else t.to(theirs).double()
            for t in operands("cpu", shape, batch, dtype)
        )
        exact = [t.cpu() for t in exact_results(x, weight, grad, shape)]
        pairs = zip(
            errors("ocl", exact, shape, batch, dtype),
            errors(theirs, exact, shape, batch, dtype),
            strict=True,
        )
        cells = [f"{o[0]:.1e} {o[1]:.1e} / {t[0]:.1e} {t[1]:.1e}" for o, t in pairs]
        print(shape, " | ".join(cells), flush=True)


def exact_results(x, weight, grad, shape):
    """The three of tensors in float64, which the operands were rounded before."""
    window, stride = shape[-2:]
    leaves = [t.detach().requires_grad_() for t in (x, weight)]
    result = torch.nn.functional.conv2d(*leaves, None, stride, window // 2)
    return [result.detach(), *torch.autograd.grad(result, leaves, grad)]


def print_rates(theirs, batch, dtype):
    shares = [[], [], []]
    print(f"channels, size, results, window, stride: TFLOP/s of ocl / {theirs}, and ocl's share")
    synchronize = torch.cuda.synchronize if theirs == "cuda" else lambda: None
    for shape in SHAPES:
        channels, size, results, window, stride = shape
        out = (size + 2 * (window // 2) - window) // stride + 1
        work = 2 * batch * out * out * results * channels * window**2
        their_times = times(theirs, synchronize, shape, batch, dtype)
        our_times = times("ocl", torch.ocl.synchronize, shape, batch, dtype)
        cells = []
        for kind, (t, o) in enumerate(zip(their_times, our_times, strict=True)):
            shares[kind].append(math.log(t / o))
            cells.append(f"{work / o / 1e12:4.0f} / {work / t / 1e12:4.0f} {t / o:5.2f}")
        print(shape, " | ".join(cells), flush=True)
    for name, logs in zip(("result", "input", "weight"), shares, strict=True):
        print(f"{name}: geometric mean {math.exp(sum(logs) / len(logs)):.2f}")
    every = [log for logs in shares for log in logs]
    print(f"all: {math.exp(sum(every) / len(every)):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--errors", action="store_true", help="against float64, instead of rates")
    parser.add_argument("--against", default="cuda", choices=("cuda", "cpu"))
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    (print_errors if options.errors else print_rates)(options.against, options.batch, dtype)


if __name__ == "__main__":
    main()
