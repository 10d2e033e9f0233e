"""Every public op of PyTorch's own tests that takes a number, compiled with one that changes.

`pytest -m slow tests/compile/test_scalar_sweep.py -k NAME` takes the groups with NAME in theirs.
"""

import pytest
import torch

from tests.compile import scalars

#: Ops of one graph: a graph of each would take longer.
TOGETHER = 6

#: By op and argument: what raises on the CPU's Inductor, too, where the number is a symbol.
GAPS = {
    ("nn.functional.adaptive_avg_pool2d", 1): "truth value of Relational",
}

NAMES = scalars.ops()
GROUPS = [NAMES[i : i + TOGETHER] for i in range(0, len(NAMES), TOGETHER)]


@pytest.fixture(autouse=True)
def _caches_of_this_test(tmp_path, monkeypatch):
    """Empty caches that are on, whatever the settings of a run."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with torch._inductor.config.patch(fx_graph_cache=True, force_disable_caches=False):
        yield
    torch._dynamo.reset()


def differences(cases, dynamic):
    """The cases that differ or raise, each with how."""
    try:
        scalars.check(cases, dynamic=dynamic)
    except Exception as error:  # noqa: BLE001 - the report is the test's message
        if len(cases) == 1:
            return {str(cases[0]): str(error)[:300]}
        found = [differences([case], dynamic) for case in cases]
        return {k: v for one in found for k, v in one.items()} or {"together": str(error)[:300]}
    return {}


def check(names, dynamic):
    cases = [case for name in names for case in scalars.cases(name)]
    cases = [case for case in cases if (case.of, case.name) not in GAPS]
    assert not cases or not differences(cases, dynamic)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("names", GROUPS, ids=" ".join)
def test_numbers_that_change(names, dynamic):
    check(names, dynamic)


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_a_few(dynamic):
    check(["add", "addcmul", "cumsum"], dynamic)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "argument"), GAPS)
def test_what_upstream_refuses(name, argument):
    """Fails once upstream takes the number: then it is no gap any more."""
    found = [case for case in scalars.cases(name) if case.name == argument]
    case = max(found, key=lambda case: type(case.values[0]) is float)
    for device in ("cpu", "ocl"):
        with pytest.raises(Exception, match=GAPS[name, argument]):
            scalars.check([case], device)
