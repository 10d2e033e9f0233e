"""One OpInfo and dtype under torch.compile on the device, against the op run eagerly.

The reference is the op matrix's: CPU torch, compared as comparison.py has it. What equals the
device's eager result passes too. Where a sample fails, CPU torch's own inductor tries it as well.
"""

import torch
from torch.testing._internal import common_methods_invocations

from tests.coverage import gauge
from tests.coverage.checks import _call, _on_device, _wide, samples
from tests.coverage.comparison import (
    CPU_ERRORS_ALLOWED,
    LOW,
    RANDOM_OPS,
    as_accurate,
    compare,
    converted,
    plain,
    tensors,
)
from torch_ocl.inductor.call import runtime

#: How a case ends, from best to worst; see results.py.
ENDS = ("pass", "breaks", "eager", "upstream", "gap", "wrong")

#: Counted while a case runs.
_made = {"kernels": 0}


def settings():
    """Inductor's, for many small graphs: nothing is kept, and no other process compiles."""
    import torch._functorch.config
    import torch._inductor.config

    torch._inductor.config.compile_threads = 1
    torch._inductor.config.force_disable_caches = True
    torch._functorch.config.enable_autograd_cache = False
    # The seed of random ops is set around the compiled function, not in it: Dynamo can't.
    common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    upstream = runtime.Program.add

    def add(program, **attributes):
        _made["kernels"] += 1
        upstream(program, **attributes)

    runtime.Program.add = add


def chosen(op, dtype, limit):
    """At most `limit` samples, those with some elements first."""
    torch.manual_seed(0)
    found = samples(op, dtype, 400)
    with_elements = [sample for sample in found if _has_elements(sample)] or found
    step = max(1, len(with_elements) // limit)
    return with_elements[::step][:limit]


def _has_elements(sample):
    leaves = torch.utils._pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    dense = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return not dense or (dense[0].dim() > 0 and all(leaf.numel() > 0 for leaf in dense))


def check(op, dtype, limit):
    """(how it ended, why, kernels that were generated) of an op: the worst of its samples."""
    _made["kernels"] = 0
    worst = ("pass", "")
    for sample in chosen(op, dtype, limit):
        end = _check_sample(op, dtype, sample)
        worst = max(worst, end, key=lambda e: ENDS.index(e[0]))
    return (*worst, _made["kernels"])


def _check_sample(op, dtype, sample):
    expected = _eagerly(op, sample)
    try:
        eager = _eagerly(op, _on_device(sample, op))
        compare(eager, expected, op, dtype, "eager", _wide(op, sample, dtype), sample)
    except Exception as error:  # noqa: BLE001 - the op matrix is where such an error is looked at
        return "eager", said(error)
    # Ops on the host are counted of the compiled call alone.
    torch.ocl.reset_fallback_counts()
    torch.ocl.reset_host_staged_counts()
    try:
        actual, broken = _compiled(op, _on_device(sample, op))
        torch.ocl.synchronize()
    except Exception as error:  # noqa: BLE001 - whatever is raised is the result
        return _blame("gap", said(error), op, sample)
    if torch.ocl.fallback_counts():
        return "gap", "ran on the CPU: " + ", ".join(sorted(torch.ocl.fallback_counts()))
    try:
        _compare(actual, expected, eager, op, dtype, sample)
    except Exception as error:  # noqa: BLE001 - the comparison may stumble over the wrong type
        return _blame("wrong", said(error), op, sample)
    return ("breaks", broken) if broken else ("pass", "")


def _compare(actual, expected, eager, op, dtype, sample):
    """Compiled results are CPU torch's, or exact ones, or the device's eager ones; strides are the
    last one's."""
    try:
        compare(actual, expected, op, dtype, "compiled", _wide(op, sample, dtype), sample)
    except AssertionError:
        if not _more_accurate(actual, expected, op, dtype, sample):
            _equal(actual, eager, op)
    for a, e in zip(tensors(actual), tensors(eager), strict=True):
        if isinstance(e, torch.Tensor) and e.layout is torch.strided and e.numel():
            assert _steps(a) == _steps(e), f"strides {a.stride()} instead of {e.stride()}"


def _more_accurate(actual, expected, op, dtype, sample):
    """Whether results of a half type are what double precision gives, rounded: a generated kernel
    keeps in float what eager ops round one after the other."""
    if dtype not in LOW:
        return False
    torch.manual_seed(0)
    wide = _call(op.op, converted(sample, dtype, torch.float64))
    groups = [gauge.invariants(op, tensors(value)) for value in (actual, expected, wide)]
    times = CPU_ERRORS_ALLOWED.get(op.name, {}).get(dtype, 0)
    return all(
        as_accurate(plain(a), plain(e), plain(w), times) for a, e, w in zip(*groups, strict=True)
    )


def _steps(tensor):
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    return [stride for stride, size in pairs if size > 1]


def _equal(actual, eager, op):
    pairs = (gauge.invariants(op, tensors(value)) for value in (actual, eager))
    for number, (a, e) in enumerate(zip(*pairs, strict=True)):
        if op.name not in RANDOM_OPS:
            torch.testing.assert_close(
                a, e, equal_nan=True, msg=lambda text, n=number: f"result {n}: {text}"
            )


def _eagerly(op, sample):
    torch.manual_seed(0)
    return _call(op.op, sample)


def _compiled(op, sample):
    """(the compiled op's result, why its graph breaks or nothing)."""
    function = op.op

    def call(x, args, kwargs):
        return function(x, *args, **kwargs)

    def run(fullgraph):
        torch._dynamo.reset()
        torch.manual_seed(0)
        compiled = torch.compile(call, dynamic=False, fullgraph=fullgraph)
        return compiled(sample.input, sample.args, sample.kwargs)

    refusals = (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError)
    try:
        return run(True), ""
    except refusals as error:
        broken = said(error)
    return run(False), broken


def _blame(end, why, op, sample):
    """Where CPU torch's own inductor fails as well, it is upstream's."""
    try:
        actual, _ = _compiled(op, sample)
    except Exception as error:  # noqa: BLE001
        return "upstream", f"{why} (CPU: {said(error)})"
    try:
        _equal(actual, _eagerly(op, sample), op)
    except Exception as error:  # noqa: BLE001
        return "upstream", f"{why} (CPU: wrong: {said(error)})"
    return end, why


def said(error):
    """An error's type and what it says, on one line."""
    inner = getattr(error, "inner_exception", None) or error
    lines = [line.strip() for line in str(inner).splitlines() if line.strip()]
    return f"{type(inner).__name__}: {' '.join(lines[:6])}"
