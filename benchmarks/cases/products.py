"""Cases of matrix products."""

import torch

from benchmarks.harness.case import LOOSE, READ, add, tensors


def product(name, make_operands, m, n, k, target=1.0, dtype=torch.float32, batch=1):
    def make(device):
        a, b = make_operands(device)
        return lambda: a @ b

    size = torch.empty(0, dtype=dtype).element_size()
    add(
        name,
        "gemm",
        make,
        dtype=str(dtype).removeprefix("torch."),
        flops=2.0 * batch * m * n * k,
        bytes=size * batch * (m * k + k * n + m * n),
        target=target,
        tolerance=LOOSE if dtype == torch.float32 else {"rtol": 5e-2, "atol": 5e-1},
    )


for n, target in ((256, 1.2), (512, 1.2), (1024, 1.0), (2048, 1.0), (5000, 1.0)):
    product(f"mm {n}", lambda d, n=n: tensors(d, (n, n), (n, n)), n, n, n, target)
# CPU torch has no kernel for products of float16, and takes minutes for large ones.
for n, dtype in (
    *((1024, torch.float16), (1024, torch.bfloat16)),
    *((2048, torch.bfloat16), (4096, torch.bfloat16)),
):
    product(
        f"mm {n} {str(dtype)[6:]}",
        lambda d, n=n, dtype=dtype: tensors(d, (n, n), (n, n), dtype=dtype),
        *[n] * 3,
        dtype=dtype,
    )
product("mm 1000x1003x997", lambda d: tensors(d, (1000, 997), (997, 1003)), 1000, 1003, 997, 1.2)
product("mm 4096x4096x16", lambda d: tensors(d, (4096, 16), (16, 4096)), 4096, 4096, 16, 1.2)
product("mm 1x4096x4096", lambda d: tensors(d, (1, 4096), (4096, 4096)), 1, 4096, 4096, 1.2)
product(
    "mm (512x2048).T @ (2048x512).T",
    lambda d: [t.t() for t in tensors(d, (512, 2048), (2048, 512))],
    2048,
    2048,
    512,
)
product(
    "mm 1024 A.T",
    lambda d: [(x := tensors(d, (1024, 1024), (1024, 1024)))[0].t(), x[1]],
    *[1024] * 3,
)
product(
    "mm 1024 B.T",
    lambda d: [(x := tensors(d, (1024, 1024), (1024, 1024)))[0], x[1].t()],
    *[1024] * 3,
)
product(
    "mm (12544x64).T @ 12544x256",
    lambda d: [(x := tensors(d, (12544, 64), (12544, 256)))[0].t(), x[1]],
    64,
    256,
    12544,
)
product(
    "bmm 32x128x64x128",
    lambda d: tensors(d, (32, 128, 64), (32, 64, 128)),
    128,
    128,
    64,
    1.2,
    batch=32,
)


def make_addmm(device, activation=False):
    bias, a, b = tensors(device, (512,), (512, 784), (784, 512))
    if activation:
        return lambda: torch.relu(torch.addmm(bias, a, b))
    return lambda: torch.addmm(bias, a, b)


add("addmm with bias", "gemm", make_addmm, flops=2.0 * 512 * 784 * 512, target=1.2, tolerance=LOOSE)
add(
    "addmm and ReLU",
    "gemm",
    lambda d: make_addmm(d, True),
    flops=2.0 * 512 * 784 * 512,
    target=1.2,
    tolerance=LOOSE,
)


def make_linear(device, rows, packed):
    inputs, weight = tensors(device, (rows, 2048), (2048, 2048))
    layer = torch.nn.utils.skip_init(torch.nn.Linear, 2048, 2048, device=device)
    layer = layer.requires_grad_(False)
    layer.weight.copy_(weight)
    layer.bias.zero_()
    if packed and device == "ocl":
        layer = torch.ocl.pack_weights(layer)
    return lambda: layer(inputs)


for rows in (16, 64, 256):
    for label, packed in (("linear", False), ("packed linear", True)):
        add(
            f"{label} {rows}x2048x2048",
            "gemm",
            lambda d, rows=rows, packed=packed: make_linear(d, rows, packed),
            flops=2.0 * rows * 2048**2,
            bytes=4.0 * (2 * rows * 2048 + 2048**2),
            target=1.2 if rows < 256 else 1.0,
            tolerance=LOOSE,
        )


product(
    "mm 1024 float64",
    lambda d: tensors(d, (1024, 1024), (1024, 1024), dtype=torch.float64),
    *[1024] * 3,
    dtype=torch.float64,
)


def complex_operands(device):
    parts = tensors(device, (512, 512, 2), (512, 512, 2))
    return [torch.view_as_complex(t) for t in parts]


# A product of complex numbers is four of reals.
add(
    "mm 512 complex64",
    "gemm",
    lambda d: (x := complex_operands(d)) and (lambda: x[0] @ x[1]),
    flops=8.0 * 512**3,
    target=1.2,
    tolerance=LOOSE,
)


def make_int_mm(device):
    a, b = (t.mul(40).to(torch.int8) for t in tensors(device, (1024, 1024), (1024, 1024)))
    return lambda: torch._int_mm(a, b)


add("_int_mm 1024", "gemm", make_int_mm, dtype="int8")


def make_integer_mm(device):
    a, b = (t.mul(1000).to(torch.int64) for t in tensors(device, (512, 512), (512, 512)))
    return lambda: a @ b


add("mm 512 int64", "gemm", make_integer_mm, dtype="int64", target=1.2)


def make_baddbmm(device):
    c, a, b = tensors(device, (32, 128, 128), (32, 128, 64), (32, 64, 128))
    return lambda: torch.baddbmm(c, a, b, beta=0.5)


add(
    "baddbmm 32x128x64x128",
    "gemm",
    make_baddbmm,
    flops=2.0 * 32 * 128 * 64 * 128,
    target=1.2,
    tolerance=LOOSE,
)


def make_addmv(device):
    c, a, x = tensors(device, (4096,), (4096, 4096), (4096,))
    return lambda: torch.addmv(c, a, x)


add("addmv 4096x4096", "gemm", make_addmv, bytes=4.0 * 4096**2, moves=READ, tolerance=LOOSE)


def make_dot(device):
    x, y = tensors(device, (2**24,), (2**24,))
    return lambda: torch.dot(x, y)


# CPU torch adds up in single precision, and is off by 1e-5 of the terms.
add("dot 16M", "gemm", make_dot, bytes=8.0 * 2**24, moves=READ, tolerance={"rtol": 1e-2, "atol": 1})
