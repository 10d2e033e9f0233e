"""The cost of a small op beside its kernel: python -m benchmarks.studies.small_ops

Least times of many runs, on the OpenCL device and on CPU torch by turns. The memory of a result is
the difference between empty tensors of ten elements and of none, which ask the allocator for
nothing; taking it and giving it back are both in it.
"""

import time

import torch

CALLS = 1000
ROUNDS = 300


def adds(device):
    a, b = torch.ones(10, device=device), torch.ones(10, device=device)
    return lambda: torch.add(a, b)


def empties(device, elements):
    return lambda: torch.empty(elements, device=device)


def microseconds(op, synchronize):
    """The time of one of many calls, whose results are dropped at once."""
    begin = time.perf_counter()
    for _ in range(CALLS):
        op()
    synchronize()
    return (time.perf_counter() - begin) / CALLS * 1e6


def main():
    sides = {"ocl": torch.ocl.synchronize, "cpu": lambda: None}
    cases = {}
    for device in sides:
        cases["add of ten elements", device] = adds(device)
        cases["empty tensor of ten elements", device] = empties(device, 10)
        cases["empty tensor of none", device] = empties(device, 0)
    least = dict.fromkeys(cases, float("inf"))
    for _ in range(ROUNDS):
        for case, op in cases.items():
            least[case] = min(least[case], microseconds(op, sides[case[1]]))
    print(f"{torch.ocl.get_device_name(0)}, microseconds")
    print(f"{'':30}{'ocl':>8}{'CPU torch':>12}")
    for name in dict.fromkeys(name for name, _ in cases):
        print(f"{name:30}{least[name, 'ocl']:8.3f}{least[name, 'cpu']:12.3f}")
    memory = [
        least["empty tensor of ten elements", device] - least["empty tensor of none", device]
        for device in sides
    ]
    print(f"{'memory taken and given back':30}{memory[0]:8.3f}{memory[1]:12.3f}")


if __name__ == "__main__":
    main()
