"""Fused optimisers and gradient scaling against CPU torch's own fused kernels."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
# More tensors than a launch takes, one longer than a chunk, empty ones, tails of every kind.
SHAPES = [(20011,), (3, 5), (0,), (), (1,), (16,), (17, 4), (0, 3)] + [(i + 1,) for i in range(50)]


def tensors(dtype, seed, positive=False, shapes=SHAPES):
    g = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=g) for shape in shapes]
    return [(t.abs() if positive else t).to(dtype) for t in made]


def on_device(value):
    if isinstance(value, list):
        return [on_device(v) for v in value]
    return value.to("ocl") if isinstance(value, torch.Tensor) else value


def run_both(function, lists, **options):
    """Runs an in-place list op on both; every list must end the same.

    In half types CPU torch's vectors go wrong (SGD, Adagrad): it computes in double there.
    """
    device_lists = on_device(lists)
    device_options = {k: on_device(v) for k, v in options.items()}
    function(*device_lists, **device_options)
    if lists[0][0].dtype in (torch.float16, torch.bfloat16):
        lists = [[t.double() if t.dtype != torch.float32 else t for t in ts] for ts in lists]
    function(*lists, **options)
    for number, (mine, wanted) in enumerate(zip(device_lists, lists, strict=True)):
        for a, e in zip(mine, wanted, strict=True):
            assert_close(a.cpu(), e.to(a.dtype), msg=lambda m, n=number: f"list {n}: {m}")


def steps(count, value=3.0):
    return [torch.tensor(value + i % 2) for i in range(count)]


def adam_lists(dtype, amsgrad, shapes=SHAPES):
    return [
        tensors(dtype, 1, shapes=shapes),
        tensors(dtype, 2, shapes=shapes),
        tensors(dtype, 3, shapes=shapes),
        tensors(dtype, 4, True, shapes=shapes),
        tensors(dtype, 5, True, shapes=shapes) if amsgrad else [],
        steps(len(shapes)),
    ]


ADAM = dict(lr=1e-2, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, maximize=False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("function", [torch._fused_adam_, torch._fused_adamw_])
def test_adam(device, function, amsgrad, dtype):
    options = {**ADAM, "amsgrad": amsgrad, "weight_decay": 0.1}
    run_both(function, adam_lists(dtype, amsgrad), **options)
    options = {**options, "maximize": True, "weight_decay": 0.0}
    run_both(function, adam_lists(dtype, amsgrad), **options)


@pytest.mark.parametrize("function", [torch._fused_adam_, torch._fused_adamw_])
def test_first_adam_step_keeps_its_digits(device, function):
    """1 - 0.999 has lost half of a float's digits."""
    lists = adam_lists(torch.float32, False)
    lists[3] = [torch.zeros_like(t) for t in lists[3]]
    lists[5] = [torch.tensor(1.0) for _ in SHAPES]
    run_both(function, lists, amsgrad=False, **{**ADAM, "beta2": 0.9999})


def sgd_lists(dtype, momentum):
    return [tensors(dtype, 1), tensors(dtype, 2), tensors(dtype, 3) if momentum else []]


SGD = dict(
    weight_decay=0.0,
    momentum=0.0,
    lr=0.1,
    dampening=0.0,
    nesterov=False,
    maximize=False,
    is_first_step=False,
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"weight_decay": 0.1, "maximize": True},
        {"momentum": 0.9},
        {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1},
        {"momentum": 0.9, "nesterov": True},
        {"momentum": 0.9, "is_first_step": True},
    ],
)
def test_sgd(device, changes, dtype):
    run_both(torch._fused_sgd_, sgd_lists(dtype, "momentum" in changes), **{**SGD, **changes})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("changes", [{}, {"weight_decay": 0.1, "maximize": True}])
def test_adagrad(device, changes, dtype):
    lists = [tensors(dtype, 1), tensors(dtype, 2), tensors(dtype, 3, True), steps(len(SHAPES))]
    options = dict(lr=0.1, lr_decay=0.01, weight_decay=0.0, eps=1e-10, maximize=False)
    run_both(torch._fused_adagrad_, lists, **{**options, **changes})


@pytest.mark.parametrize("found", [0.0, 1.0])
def test_grad_scale_and_found_inf(device, found):
    extra = {"grad_scale": torch.tensor(8.0), "found_inf": torch.tensor(found)}
    run_both(torch._fused_adamw_, adam_lists(torch.float32, False), amsgrad=False, **ADAM, **extra)
    run_both(torch._fused_sgd_, sgd_lists(torch.float32, True), **{**SGD, "momentum": 0.5}, **extra)
    lists = [tensors(torch.float32, n, n == 3) for n in (1, 2, 3)] + [steps(len(SHAPES))]
    options = dict(lr=0.1, lr_decay=0.01, weight_decay=0.0, eps=1e-10, maximize=False)
    run_both(torch._fused_adagrad_, lists, **options, **extra)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("where", ["cpu", "ocl"])
def test_learning_rate_tensor(device, where, dtype):
    lr = torch.tensor(0.02, dtype=dtype)
    for function, lists, options in (
        (torch._fused_adam_, adam_lists(torch.float32, False), {**ADAM, "amsgrad": False}),
        (torch._fused_sgd_, sgd_lists(torch.float32, False), SGD),
    ):
        mine = on_device(lists)
        function(*mine, **{**options, "lr": lr.to(where)})
        function(*lists, **{**options, "lr": lr})
        assert_close([t.cpu() for t in mine[0]], lists[0])


def test_strides(device):
    """Tensors that lie alike are used as they are, others by way of copies."""
    g = torch.Generator().manual_seed(0)
    made = [torch.randn(6, 10, generator=g) for _ in range(5)]
    wanted = [m.clone() for m in made]
    wanted[3].abs_()
    torch._fused_adam_(*[[w] for w in wanted[:4]], [], [torch.tensor(2.0)], amsgrad=False, **ADAM)
    layouts = [
        lambda t: t.t().contiguous().t(),
        lambda t: torch.stack([t, t], -1)[..., 0],
        lambda t: t,
    ]
    for pick in ([0, 0, 0, 0], [0, 1, 2, 0], [1, 1, 1, 1], [2, 0, 0, 1]):
        lists = []
        for number, source in zip(pick, made, strict=False):
            source = source.abs() if len(lists) == 3 else source
            lists.append(layouts[number](source.to("ocl")))
        before = [t.data_ptr() for t in lists]
        torch._fused_adam_(
            *[[t] for t in lists], [], [torch.tensor(2.0).to("ocl")], amsgrad=False, **ADAM
        )
        assert before == [t.data_ptr() for t in lists]
        assert_close([t.cpu() for t in lists], wanted[:4])


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_expanded_gradients(device, name):
    """They are read only, but where they are unscaled."""
    steps = []
    for fused in (False, True):
        p = nn.Parameter(torch.arange(20.0).view(5, 4).to("ocl"))
        p.grad = torch.arange(4.0, device="ocl").expand(5, 4)
        getattr(torch.optim, name)([p], lr=0.1, fused=fused).step()
        steps.append(p.detach().cpu())
    assert_close(steps[1], steps[0])


def test_many_buffers(device):
    """More allocations of their own than a kernel has buffers."""
    shapes = [(5 << 20,)] * 4
    run_both(
        torch._fused_sgd_, [tensors(torch.float32, n, shapes=shapes) for n in (1, 2)] + [[]], **SGD
    )
    shapes = [(1 << 20,)] * 3
    run_both(torch._fused_adam_, adam_lists(torch.float32, True, shapes), amsgrad=True, **ADAM)


def test_bad_lists(device):
    a, b = [torch.zeros(3, device=device)], [torch.zeros(4, device=device)]
    for grads in (b, [], [torch.zeros(3, device=device, dtype=torch.half)], [torch.zeros(3)]):
        with pytest.raises(RuntimeError):
            torch._fused_sgd_(a, grads, [], **SGD)
    with pytest.raises(RuntimeError):
        torch._fused_sgd_(a, a, [], **{**SGD, "momentum": 0.9})
    with pytest.raises(RuntimeError):
        torch._fused_adam_(a, a, a, a, [], [], amsgrad=False, **ADAM)
    with pytest.raises(NotImplementedError):
        c = [torch.zeros(3, device=device, dtype=torch.int32)]
        torch._fused_sgd_(c, c, [], **SGD)


# ---- torch.optim ------------------------------------------------------------------------------


def losses(device, make, count=8, scaler=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 33), nn.Tanh(), nn.Linear(33, 3)).to(device)
    x = torch.randn(19, 12, generator=torch.Generator().manual_seed(1)).to(device)
    y = torch.randn(19, 3, generator=torch.Generator().manual_seed(2)).to(device)
    optimiser = make(model.parameters())
    result = []
    for _ in range(count):
        optimiser.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        if scaler is None:
            loss.backward()
            optimiser.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
        result.append(loss.item())
    return result


MAKERS = {
    "adam": lambda **o: lambda p: torch.optim.Adam(p, lr=0.01, **o),
    "adam amsgrad": lambda **o: lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, **o),
    "adamw tensor lr": lambda **o: lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), **o),
    "sgd": lambda **o: lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, **o),
    "adagrad": lambda **o: lambda p: torch.optim.Adagrad(p, lr=0.05, **o),
}


@pytest.mark.parametrize("name", MAKERS)
def test_optimisers_with_fused(device, name):
    make = MAKERS[name](fused=True)
    assert_close(losses("ocl", make), losses("cpu", make), rtol=1e-4, atol=1e-5)


# ---- Gradient scaling -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bad", [None, float("inf"), float("-inf"), float("nan")])
def test_unscale(device, bad, dtype):
    grads = tensors(dtype, 1)
    if bad is not None:
        grads[0][20010] = bad
        grads[3].fill_(bad)
    mine, found = on_device(grads), torch.zeros((), device=device)
    wanted_found = torch.zeros(())
    torch._amp_foreach_non_finite_check_and_unscale_(mine, found, torch.tensor(0.25).to(device))
    torch._amp_foreach_non_finite_check_and_unscale_(grads, wanted_found, torch.tensor(0.25))
    assert found.item() == wanted_found.item() == (bad is not None)
    assert_close([t.cpu() for t in mine], grads, equal_nan=True)


def test_unscale_mixed_dtypes(device):
    grads = [torch.ones(5), torch.ones(4).half(), torch.ones(3, 2).t()]
    mine, found = on_device(grads), torch.zeros((), device=device)
    torch._amp_foreach_non_finite_check_and_unscale_(mine, found, torch.tensor(0.5).to(device))
    assert found.item() == 0 and all((t == 0.5).all() for t in mine)
    with pytest.raises(RuntimeError):
        torch._amp_foreach_non_finite_check_and_unscale_(mine, found, torch.ones(2, device=device))


def test_update_scale(device):
    for scale, tracker, found in [
        (4.0, 0, 0.0),
        (4.0, 1, 0.0),
        (4.0, 1, 1.0),
        (3e38, 1, 0.0),
        (4.0, 0, 1.0),
    ]:
        values = [torch.tensor(scale), torch.tensor(tracker, dtype=torch.int32)]
        mine = [v.to(device) for v in values]
        for place, pair in (("cpu", values), (device, mine)):
            flag = torch.tensor(found).to(place)
            torch._amp_update_scale_(*pair, flag, 2.0, 0.5, 2)
        assert_close([m.cpu() for m in mine], values)


@pytest.mark.parametrize("fused", [True, False])
def test_grad_scaler(device, fused):
    make = MAKERS["adam"](fused=fused)
    mine = torch.amp.GradScaler("ocl", init_scale=2.0**10, growth_interval=3)
    host = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    assert_close(losses("ocl", make, 8, mine), losses("cpu", make, 8, host), rtol=1e-4, atol=1e-5)
    assert mine.get_scale() == host.get_scale() == 2.0**12


def test_grad_scaler_skips(device):
    """A step with an infinite gradient changes nothing but the scale."""
    w = torch.ones(5, device=device, requires_grad=True)
    optimiser = torch.optim.AdamW([w], lr=0.1, fused=True)
    scaler = torch.amp.GradScaler("ocl", init_scale=1e30)
    (scaler.scale(w.sum()) * 1e30).backward()
    scaler.step(optimiser)
    scaler.update()
    assert (w == 1).all().item() and scaler.get_scale() == pytest.approx(5e29)
    optimiser.zero_grad()
    scaler.scale(w.sum() * 1e-3).backward()
    scaler.step(optimiser)
    scaler.update()
    assert (w < 1).all().item() and scaler.get_scale() == pytest.approx(5e29)
    assert optimiser.state[w]["step"].item() == 1
