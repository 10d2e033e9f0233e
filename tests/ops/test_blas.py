"""Products of matrices and vectors against CPU torch: dtypes, layouts, batches, scalars, errors."""

import pytest
import torch
from torch.testing import assert_close

from tests.ops.products import (
    COMPLEX,
    DEVICE,
    DTYPES,
    FEW,
    LOW_PRECISION,
    REAL,
    SHAPES,
    check,
    layouts,
    make,
    on_device,
)
from tests.refusals import raise_the_same


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_mm(shape, dtype):
    m, n, k = shape
    a, b = make(m, k, dtype=dtype), make(k, n, dtype=dtype)
    actual = check(torch.mm, a, b)
    assert actual.is_contiguous()
    assert_close(actual.cpu(), torch.mm(a, b))


@pytest.mark.parametrize("dtype", FEW, ids=str)
@pytest.mark.parametrize("shape", [(17, 40, 70), (3, 90, 33), (90, 1, 33)], ids=str)
def test_mm_layouts(shape, dtype):
    m, n, k = shape
    for _, a in layouts(m, k, dtype):
        for _, b in layouts(k, n, dtype):
            check(torch.mm, a, b)


@pytest.mark.parametrize("dtype", FEW + [torch.bool], ids=str)
@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)], ids=str)
def test_empty(shape, dtype):
    m, n, k = shape
    a, b = torch.ones(m, k).to(dtype), torch.ones(k, n).to(dtype)
    check(torch.mm, a, b)
    check(torch.bmm, a.expand(2, m, k), b.expand(2, k, n))
    if dtype != torch.bool:
        check(torch.mv, a, torch.ones(k).to(dtype))
        check(torch.addmm, torch.ones(n).to(dtype), a, b, beta=2)
        check(torch.addmm, torch.ones(n).to(dtype), a, b, beta=0)
        check(torch.addmv, torch.ones(m).to(dtype), a, torch.ones(k).to(dtype), beta=3)
        check(torch.dot, a.new_ones(0), a.new_ones(0))
    check(torch.bmm, a.expand(0, m, k), b.expand(0, k, n))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("addend", [(), (37,), (20, 1), (1, 37), (20, 37)], ids=str)
def test_addmm(addend, dtype):
    a, b, c = make(20, 33, dtype=dtype), make(33, 37, dtype=dtype), make(*addend, dtype=dtype)
    for alpha, beta in [(1, 1), (2, 3), (1, 0), (0, 2)]:
        check(torch.addmm, c, a, b, alpha=alpha, beta=beta)
    if dtype.is_floating_point:
        check(torch.addmm, c, a, b, alpha=0.5, beta=-1.5)
    if dtype.is_complex:
        check(torch.addmm, c, a, b, alpha=0.5 + 1j, beta=2 - 1j)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.uint8], ids=str)
def test_integers_wrap_and_scalars_truncate(dtype):
    a, b, c = (make(*s, dtype=dtype, low=-100, high=100) for s in [(9, 200), (200, 40), (40,)])
    check(torch.mm, a, b)
    check(torch.addmm, c, a, b, alpha=1.7, beta=2.9)
    if dtype != torch.uint8:
        check(torch.addmm, c, a, b, alpha=-3, beta=-2)
    for tensors in [(c, a, b), [on_device(t) for t in (c, a, b)]]:
        if dtype == torch.int8:
            with pytest.raises(RuntimeError, match="without overflow"):
                torch.addmm(*tensors, alpha=1000)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.complex64], ids=str)
def test_beta_zero_ignores_nan_and_alpha_zero_the_product(dtype):
    a, b = make(20, 30, dtype=dtype), make(30, 40, dtype=dtype)
    nan = torch.full((20, 40), float("nan"), dtype=dtype)
    check(torch.addmm, nan, a, b, beta=0)
    check(torch.addmm, nan, a, b, beta=-0.0)
    check(torch.baddbmm, nan[None], a[None], b[None], beta=0)
    check(torch.addmv, nan[:, 0], a, b[:, 0], beta=0)
    check(torch.addmm, a[:, :1], torch.full_like(a, float("nan")), b, alpha=0)
    assert torch.addmm(nan.to(DEVICE), a.to(DEVICE), b.to(DEVICE), beta=1).cpu().isnan().all()


def test_nan_and_infinity_pass_through():
    a, b = torch.ones(20, 30), torch.ones(30, 40)
    a[3, 4], a[5, 6], b[7, 8] = float("nan"), float("inf"), -float("inf")
    check(lambda x, y: torch.nan_to_num(torch.mm(x, y), 1e3, 1e4, -1e4), a, b)


@pytest.mark.parametrize("use_gelu", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_addmm_activation(dtype, use_gelu):
    a, b, c = make(20, 33, dtype=dtype), make(33, 37, dtype=dtype), make(37, dtype=dtype)
    check(torch._addmm_activation, c, a, b, use_gelu=use_gelu)
    check(torch._addmm_activation, c, a, b, beta=0.5, alpha=0.1, use_gelu=use_gelu)
    a[2, 3] = float("nan")
    check(torch._addmm_activation, c, a, b, use_gelu=use_gelu)


def test_addmm_activation_of_integers():
    a, b, c = (make(*s, dtype=torch.int32) for s in [(9, 5), (5, 7), (7,)])
    check(torch._addmm_activation, c, a, b)
    with pytest.raises(NotImplementedError):
        torch._addmm_activation(c.to(DEVICE), a.to(DEVICE), b.to(DEVICE), use_gelu=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(3, 4, 5, 6), (2, 33, 45, 70), (5, 1, 40, 30)], ids=str)
def test_bmm(shape, dtype):
    batch, m, n, k = shape
    a, b = make(batch, m, k, dtype=dtype), make(batch, k, n, dtype=dtype)
    check(torch.bmm, a, b)
    check(torch.baddbmm, make(batch, m, n, dtype=dtype), a, b, alpha=2, beta=3)
    check(torch.baddbmm, make(n, dtype=dtype), a, b)
    if dtype not in LOW_PRECISION:  # it rounds after each batch, here as on the CPU
        check(torch.addbmm, make(m, n, dtype=dtype), a, b, alpha=2, beta=3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_bmm_layouts(dtype):
    b = make(3, 40, 50, dtype=dtype)
    for _, a in layouts(21, 40, dtype, batch=(3,)):
        check(torch.bmm, a, b)
        check(torch.bmm, b.mT, a.mT)
    shared = make(21, 40, dtype=dtype)
    check(torch.bmm, shared.expand(3, 21, 40), b)
    check(torch.bmm, b.mT, shared.mT.expand(3, 40, 21))
    inner_batch = make(21, 3, 40, dtype=dtype).transpose(0, 1)
    check(torch.bmm, inner_batch, b)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_vectors(dtype):
    for m, k in [(1, 1), (5, 7), (70, 300), (3, 5000), (5000, 3)]:
        x, y = make(k, dtype=dtype, low=-2, high=2), make(m, dtype=dtype, low=-2, high=2)
        for _, a in layouts(m, k, dtype):
            check(torch.mv, a, x)
            check(torch.addmv, y, a, x, alpha=2, beta=3)
        check(torch.mv, make(m, k, dtype=dtype), make(3 * k, dtype=dtype)[::3])
        check(torch.outer, y, x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [1, 5, 100, 40001])
def test_dot(n, dtype):
    x = make(n, dtype=dtype, low=-1, high=1)
    y = make(2 * n, dtype=dtype, low=-1, high=1)[::2]
    check(torch.dot, x, x)
    check(torch.vdot, x, y)
    check(torch.dot, x, y)


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_lazy_conjugates(dtype):
    a, b, c = make(20, 30, dtype=dtype), make(30, 40, dtype=dtype), make(20, 40, dtype=dtype)
    check(torch.mm, a.conj(), b)
    check(torch.mm, a, b.conj())
    check(torch.mm, b.mH, a.mH)
    check(torch.addmm, c.conj(), a.conj(), b, alpha=1j, beta=2j)
    check(torch.bmm, a.conj()[None], b[None])
    check(torch.mv, a.conj(), b[:, 0].conj())
    check(torch.mv, a.mH, c[:, 0])
    check(torch.dot, b[:, 0].conj(), b[:, 1])
    check(torch.vdot, b[:, 0].conj(), b[:, 1].conj())
    check(torch.mm, a.imag, b.real)
    check(torch.mm, a.conj().imag, b.real)
    out, expected = torch.empty_like(c), torch.mm(a, b)
    actual = on_device(out)
    torch.mm(on_device(a), on_device(b), out=actual)
    assert_close(actual.cpu(), expected)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.int64, torch.complex64], ids=str
)
def test_out(dtype):
    a, b, c = make(20, 30, dtype=dtype), make(30, 40, dtype=dtype), make(20, 40, dtype=dtype)
    x, y, z = on_device(a), on_device(b), on_device(c)
    for make_out in [
        lambda device: torch.empty(0, dtype=dtype, device=device),
        lambda device: torch.empty(20, 40, dtype=dtype, device=device),
        lambda device: torch.empty(40, 20, dtype=dtype, device=device).t(),
        lambda device: torch.empty(40, 80, dtype=dtype, device=device)[::2, ::2],
    ]:
        expected, actual = make_out("cpu"), make_out(DEVICE)
        torch.mm(a, b, out=expected)
        torch.mm(x, y, out=actual)
        assert actual.stride() == expected.stride()
        assert_close(actual.cpu(), expected)
        torch.addmm(c, a, b, out=expected, beta=2)
        torch.addmm(z, x, y, out=actual, beta=2)
        assert_close(actual.cpu(), expected)
    check(lambda s, m1, m2: s.clone().addmm_(m1, m2, beta=2, alpha=3), c, a, b)
    check(lambda s, m1, m2: s.t().clone().t().addmm_(m1, m2), c, a, b)
    check(lambda s, m1, m2: s.clone()[None].baddbmm_(m1[None], m2[None], beta=2), c, a, b)
    check(lambda s, m, v: s[:, 0].clone().addmv_(m, v, beta=2), c, a, b[:, 0])
    check(lambda s, m1, m2: s.clone().addbmm_(m1[None], m2[None], beta=2), c, a, b)
    with pytest.raises(RuntimeError, match="dtype"):
        torch.mm(x, y, out=torch.empty(20, 40, dtype=torch.float64, device=DEVICE))


def test_operands_that_overlap_out_give_the_product():
    a, b = make(30, 30, dtype=torch.float32), make(30, 30, dtype=torch.float32)
    x = on_device(a)
    torch.mm(x, on_device(b), out=x)
    assert_close(x.cpu(), a @ b)
    x = on_device(a)
    x.addmm_(x, x)
    assert_close(x.cpu(), a + a @ a)
    x = on_device(a)
    torch.addmm(x.t(), on_device(a), on_device(b), out=x)
    assert_close(x.cpu(), a.t() + a @ b)


def test_int_mm():
    a, b = (
        make(20, 32, dtype=torch.int8, low=-128, high=127),
        make(32, 24, dtype=torch.int8, low=-128, high=127),
    )
    check(torch._int_mm, a, b)
    unsigned = a.abs().to(torch.uint8)
    try:
        torch._int_mm(unsigned, b)
    except RuntimeError:
        pass  # CPU torch takes it from 2.12 on: nothing to compare with
    else:
        check(torch._int_mm, unsigned, b)
    with pytest.raises(RuntimeError, match="int8 or uint8"):
        torch._int_mm(a.float().to(DEVICE), b.to(DEVICE))


BAD = {
    "mm_inner": lambda d: torch.mm(torch.ones(2, 3, device=d), torch.ones(4, 5, device=d)),
    "mm_dims": lambda d: torch.mm(torch.ones(2, 3, 4, device=d), torch.ones(4, 5, device=d)),
    "mm_dtypes": lambda d: torch.mm(
        torch.ones(2, 3, device=d), torch.ones(3, 5, device=d, dtype=torch.half)
    ),
    "addmm_dtypes": lambda d: torch.addmm(
        torch.ones(5, device=d, dtype=torch.half),
        torch.ones(2, 3, device=d),
        torch.ones(3, 5, device=d),
    ),
    "addmm_addend": lambda d: torch.addmm(
        torch.ones(4, device=d), torch.ones(2, 3, device=d), torch.ones(3, 5, device=d)
    ),
    "addmm_alpha": lambda d: torch.addmm(
        torch.ones(5, device=d), torch.ones(2, 3, device=d), torch.ones(3, 5, device=d), alpha=1j
    ),
    "bmm_batch": lambda d: torch.bmm(torch.ones(2, 3, 4, device=d), torch.ones(3, 4, 5, device=d)),
    "bmm_dtypes": lambda d: torch.bmm(
        torch.ones(2, 3, 4, device=d), torch.ones(2, 4, 5, device=d, dtype=torch.half)
    ),
    "baddbmm_dtypes": lambda d: torch.baddbmm(
        torch.ones(1, device=d, dtype=torch.half),
        torch.ones(2, 3, 4, device=d),
        torch.ones(2, 4, 5, device=d),
    ),
    "mv": lambda d: torch.mv(torch.ones(2, 3, device=d), torch.ones(4, device=d)),
    "dot_size": lambda d: torch.dot(torch.ones(3, device=d), torch.ones(4, device=d)),
    "dot_dims": lambda d: torch.dot(torch.ones(3, 1, device=d), torch.ones(3, device=d)),
    "dot_dtypes": lambda d: torch.dot(
        torch.ones(3, device=d), torch.ones(3, device=d, dtype=torch.half)
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_are_those_of_the_cpu(name):
    with pytest.raises(Exception) as expected:
        BAD[name]("cpu")
    with pytest.raises(type(expected.value)) as actual:
        BAD[name](DEVICE)
    assert str(actual.value).splitlines()[0] == str(expected.value).splitlines()[0]


@pytest.mark.parametrize("function", [torch.mm, torch.mv, torch.dot], ids=lambda f: f.__name__)
def test_bool_has_no_product(function):
    dims = {torch.mm: (2, 2), torch.mv: (2, 1), torch.dot: (1, 1)}[function]
    args = [torch.ones((3,) * d, dtype=torch.bool, device=DEVICE) for d in dims]
    with pytest.raises(NotImplementedError, match="Bool"):
        function(*args)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", [(33,), (6, 33), (4, 5, 33), (2, 3, 4, 33)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_linear(shape, bias, dtype):
    x, w = make(*shape, dtype=dtype), make(40, 33, dtype=dtype)
    args = (x, w, make(40, dtype=dtype)) if bias else (x, w)
    check(torch.nn.functional.linear, *args)


MATMUL_SHAPES = [
    ((7,), (7,)),
    ((5, 7), (7,)),
    ((7,), (7, 4)),
    ((5, 7), (7, 4)),
    ((40, 64), (64, 40)),
    ((1, 64), (64, 100)),
    ((3, 5, 7), (7,)),
    ((3, 5, 7), (7, 4)),
    ((7,), (3, 7, 4)),
    ((2, 1, 5, 7), (3, 7, 4)),
    ((2, 4, 33, 20), (2, 4, 20, 33)),
]


@pytest.mark.parametrize("shapes", MATMUL_SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_matmul_and_its_gradients(shapes, dtype):
    check_gradients(torch.matmul, *[make(*s, dtype=dtype) for s in shapes])


def check_gradients(function, *args):
    cpu = [a.clone().requires_grad_() for a in args]
    ocl = [a.to(DEVICE).requires_grad_() for a in args]
    expected, actual = function(*cpu), function(*ocl)
    assert_close(actual.detach().cpu(), expected.detach())
    weight = make(*expected.shape, dtype=expected.dtype)
    expected.backward(weight)
    actual.backward(weight.to(DEVICE))
    for x, y in zip(ocl, cpu, strict=True):
        assert_close(x.grad.cpu(), y.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradients(dtype):
    x, w, b = make(20, 33, dtype=dtype), make(40, 33, dtype=dtype), make(40, dtype=dtype)
    check_gradients(torch.nn.functional.linear, x, w, b)
    check_gradients(torch.addmm, b, x, w.t().contiguous())
    check_gradients(torch.bmm, x.view(4, 5, 33), w.view(4, 10, 33).mT.contiguous())
    check_gradients(torch.mv, w, x[0].clone())
    check_gradients(torch.dot, x[0].clone(), x[1].clone())


def test_composites():
    a, b, c = (make(*s, dtype=torch.float32) for s in [(6, 30), (30, 20), (20, 9)])
    check(lambda *m: torch.linalg.multi_dot(m), a, b, c)
    check(torch.inner, a, b.t())
    check(lambda x, y: torch.einsum("ij,jk->ki", x, y), a, b)
    check(lambda x, y: torch.tensordot(x, y, 1), a, b)
    check(lambda x: torch.linalg.matrix_power(x, 5), make(12, 12, dtype=torch.float64))


def test_long_sums_keep_their_precision():
    for m, n, k in [(16, 40, 200_000), (1, 1, 1_000_000), (3, 3, 500_000)]:
        a, b = torch.rand(m, k), torch.rand(k, n)
        exact = a.double() @ b.double()
        actual = (a.to(DEVICE) @ b.to(DEVICE)).cpu().double()
        assert ((actual - exact) / exact).abs().max() < 1e-5


def test_many_batches():
    """More than a GPU's grid has in its second and third dimension."""
    a, b = make(70_000, 3, 4, dtype=torch.float32), make(70_000, 4, 10, dtype=torch.float32)
    check(torch.bmm, a, b)
    check(torch.bmm, b.mT, a.mT)
    check(torch.mm, a.view(-1, 4), b[0])


@pytest.mark.parametrize("n", [2, 64])
@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_infinite_complex_sums(n, dtype):
    """No factor of 1 + 0i makes NaN of them: 0 times infinity."""
    a, b = torch.ones(n, n, dtype=dtype), torch.full((n, n), 1 + 1j, dtype=dtype)
    a[0, 0] = complex(torch.inf, 0)
    here, there = a.to("ocl"), b.to("ocl")
    infinite = complex(torch.inf, torch.inf)
    assert torch.dot(here[0], there[0]).item() == torch.dot(a[0], b[0]).item() == infinite
    assert torch.bmm(here[None], there[None])[0, 0, 0].item() == infinite
    assert (here @ there)[0, 0].item() == (here @ there[0])[0].item() == infinite
    summed = torch.addmm(here, here, there)
    if n > 2:  # of tiny matrices CPU torch's own sums are NaN
        assert_close(summed.cpu(), torch.addmm(a, a, b))


@pytest.mark.parametrize(
    "dtype", [torch.uint16, torch.uint32, torch.uint64, torch.complex32, torch.int64], ids=str
)
def test_addends_of_no_products(dtype):
    """Every dtype that can be scaled, also those without a product."""
    c = torch.arange(4).view(2, 2).to(dtype)
    a, b = torch.zeros(2, 0).to(dtype), torch.zeros(0, 2).to(dtype)
    for options in ({}, {"beta": 2}, {"beta": 0}):
        for call in (
            lambda c, a, b, o=options: torch.addmm(c, a, b, **o),
            lambda c, a, b, o=options: torch.addmm(c[0], a, b, **o),
            lambda c, a, b, o=options: torch.baddbmm(c[None], a[None], b[None], **o),
            lambda c, a, b, o=options: torch.addmv(c[:, 0], a, b[:, 0], **o),
        ):
            actual = call(c.to(DEVICE), a.to(DEVICE), b.to(DEVICE))
            assert actual.dtype == dtype and actual.tolist() == call(c, a, b).tolist()


def test_addends_of_nothing_fit_it():
    raise_the_same(
        [
            lambda d: torch.addmm(
                torch.ones(0, device=d), torch.ones(0, 2, device=d), torch.ones(2, 10, device=d)
            )
        ]
    )
    factors = [torch.ones(shape, device=DEVICE) for shape in ((0, 2), (2, 10))]
    assert torch.addmm(torch.ones(10, device=DEVICE), *factors).shape == (0, 10)


def test_vdot_of_conjugates():
    """Results are left unresolved where CPU torch leaves them."""
    x, y = torch.randn(2, 7, dtype=torch.complex64)
    for conjugate in ((False, False), (True, False), (False, True), (True, True)):
        pairs = [[v.to(d) for v in (x, y)] for d in ("cpu", "ocl")]
        want, got = (
            torch.vdot(*(v.conj() if c else v for v, c in zip(pair, conjugate, strict=True)))
            for pair in pairs
        )
        assert got.is_conj() == want.is_conj()
        torch.testing.assert_close(got.cpu(), want)
