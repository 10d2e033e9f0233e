"""Functions that upstream has for every device, called with tensors of this one: an error will do,
the end of the process won't."""

import os
import random
import re

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from tests.fresh import run_script

ATTEMPTS = 3
COMPOSITE = [
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
]
#: Functions that end or hang any process, or change its own state.
LEFT_OUT = re.compile(r"::(_make_dep_token|_test_|_print|sleep|set_data)")

CHILD = """
import sys, warnings
import torch
from tests.python import test_schemas

warnings.simplefilter("ignore")
for name in sys.argv[2:]:
    print(name, flush=True)
    for attempt in range(test_schemas.ATTEMPTS):
        try:
            test_schemas.call(name, attempt, sys.argv[1])
            torch.ocl.synchronize()
        except Exception:
            pass
"""


def walked():
    """Composite functions, less those that the op matrix calls."""
    from torch.testing._internal.common_methods_invocations import op_db

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    known = {op.aten_name for op in op_db} | {op.name.split(".")[-1] for op in op_db}
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        base, _, overload = name.removeprefix("aten::").partition(".")
        tested = base.rstrip("_") in known or overload.endswith("out") or base.endswith("_copy")
        if not name.startswith("aten::") or tested or LEFT_OUT.search(name):
            continue
        if any(has(name, key) for key in COMPOSITE) and not has(name, "PrivateUse1"):
            yield name


def call(name, attempt, device):
    """With tensors of one kind, and numbers that are drawn."""
    draw = random.Random(f"{name}{attempt}")
    base, _, overload = name.removeprefix("aten::").partition(".")
    op = getattr(getattr(torch.ops.aten, base), overload or "default")
    shape = [(4, 4), (2, 3, 4, 4), (4,)][attempt]
    tensor = torch.arange(int(torch.Size(shape).numel())).view(shape) % 3
    tensor = tensor.to(device, torch.float32 if attempt < 2 else torch.int64)
    by_name = {"dtype": torch.float32, "layout": torch.strided, "device": torch.device(device)}
    by_name["memory_format"] = torch.contiguous_format

    def make(kind, name):
        if kind.startswith("Optional["):
            return make(kind[9:-1], name) if draw.random() < 0.7 else None
        if kind.startswith("List["):
            return [make(kind[5:-1], name) for _ in range(draw.choice((1, 2, 2, 3)))]
        if name in by_name:
            return by_name[name]
        choices = {
            "Tensor": [tensor],
            "number": [1, 0.5, 2],
            "int": [0, 1, 1, 2, 3],
            "float": [0.5, 1.0],
            "bool": [True, False],
            "str": ["mean", "sum", "none", "constant", "same"],
            "Device": [torch.device(device)],
        }
        return (
            draw.choice(choices[kind]).clone() if kind == "Tensor" else draw.choice(choices[kind])
        )

    positional, named = [], {}
    for argument in op._schema.arguments:
        value = make(str(argument.type), argument.name)
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    op(*positional, **named)


@pytest.mark.slow
def test_no_composite_function_ends_the_process():
    names, ended = list(walked()), []
    while names:
        child = run_script(CHILD, "ocl", *names)
        if child.returncode == 0:
            break
        assert child.returncode < 0, child.stderr
        name = child.stdout.split()[-1]
        # CPU torch, too, follows null pointers of undefined tensors.
        if run_script(CHILD, "cpu", name).returncode == 0:
            ended.append(name)
        names = names[names.index(name) + 1 :]
    assert not ended


def on(device, *tensors):
    return [t.to(device) for t in tensors]


IMAGES = torch.arange(96.0).view(2, 3, 4, 4) / 96
GRID = torch.linspace(-1.2, 1.2, 64).view(2, 4, 4, 2)
LARGE = torch.tensor([[1e6, -1e6], [3, float("nan")]])

#: Functions that read elements on the host upstream and are computed on the device here.
COMPUTED = {
    "grid": lambda d: torch._grid_sampler_2d_cpu_fallback(*on(d, IMAGES, GRID), 0, 0, False),
    "grid_backward": lambda d: torch.ops.aten._grid_sampler_2d_cpu_fallback_backward(
        *on(d, IMAGES, IMAGES, GRID), 0, 1, True
    ),
    "range": lambda d: torch.ops.aten.range.out_(1, 5, out=torch.empty(0, device=d)),
    "reshape": lambda d: torch._reshape_from_tensor(*on(d, IMAGES, torch.tensor([6, 16]))),
    "saturate": lambda d: torch._saturate_weight_to_fp16(LARGE.clone().to(d)),
}


@pytest.mark.filterwarnings("ignore:FOUND weight out of range")
@pytest.mark.parametrize("name", COMPUTED)
def test_host_functions_that_the_device_has(name):
    want, got = (COMPUTED[name](device) for device in ("cpu", "ocl"))
    assert_close(torch.utils._pytree.tree_map(torch.Tensor.cpu, got), want, equal_nan=True)


def test_gradient_of_the_fallback_grid_sampler():
    found = []
    for device in ("cpu", "ocl"):
        leaves = [t.requires_grad_() for t in on(device, IMAGES.clone(), GRID.clone())]
        torch._grid_sampler_2d_cpu_fallback(*leaves, 0, 0, False).square().sum().backward()
        found.append([leaf.grad.cpu() for leaf in leaves])
    assert_close(found[1], found[0])


aten = torch.ops.aten
MATRIX, BYTES, STATE = (
    torch.rand(4, 4),
    torch.ones(4, 4, dtype=torch.int8),
    torch.ones(2, 30).long(),
)
CELL = [MATRIX, MATRIX, MATRIX, MATRIX[0], MATRIX[0], MATRIX, MATRIX, MATRIX[0], MATRIX[0]]

#: Those that it lacks.
LACKING = {
    "_nnpack_spatial_convolution": lambda: (*on("ocl", IMAGES, IMAGES), None, [0, 0]),
    "_rowwise_prune": lambda: (*on("ocl", MATRIX, torch.ones(4).bool()), torch.int64),
    "_sobol_engine_draw": lambda: (*on("ocl", STATE[:, 0]), 3, *on("ocl", STATE), 2, 0, None),
    "_sobol_engine_ff_": lambda: (*on("ocl", STATE[:, 0]), 3, *on("ocl", STATE), 2, 0),
    "_sobol_engine_initialize_state_": lambda: (*on("ocl", STATE), 2),
    "_sobol_engine_scramble_": lambda: (*on("ocl", STATE, STATE), 2),
    "choose_qparams_optimized": lambda: (*on("ocl", torch.rand(200)), 200, 200, 0.1, 8),
    "fbgemm_linear_fp16_weight": lambda: on("ocl", MATRIX, MATRIX, MATRIX[0]),
    "fbgemm_linear_int8_weight": lambda: (
        *on("ocl", MATRIX, BYTES, MATRIX, MATRIX[0]),
        1.0,
        0,
        *on("ocl", MATRIX[0]),
    ),
    "fbgemm_linear_quantize_weight": lambda: on("ocl", MATRIX),
    "fbgemm_pack_gemm_matrix_fp16": lambda: on("ocl", MATRIX),
    "fbgemm_pack_quantized_matrix": lambda: on("ocl", BYTES),
    "mkldnn_convolution": lambda: (*on("ocl", IMAGES, IMAGES), None, [0, 0], [1, 1], [1, 1], 1),
    "quantized_rnn_relu_cell": lambda: (*on("ocl", MATRIX, *CELL), 1, 1, 0, 0),
}


@pytest.mark.parametrize("name", LACKING)
def test_host_functions_that_the_device_lacks(name):
    with pytest.raises(NotImplementedError, match=f"aten::{name}.*ocl"):
        getattr(aten, name)(*LACKING[name]())


def test_host_functions_run_there_on_request():
    script = """
import torch
packed = torch.fbgemm_pack_gemm_matrix_fp16(torch.ones(4, 4, device="ocl"))
state = torch.zeros(2, 30, dtype=torch.int64, device="ocl")
torch._sobol_engine_initialize_state_(state, 2)
assert state.cpu()[0, 0] != 0
"""
    result = run_script(script, environment={**os.environ, "TORCH_OCL_FALLBACK": "1"})
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", ["gru", "lstm", "rnn_relu", "rnn_tanh"])
def test_batch_sizes_are_on_the_host(name):
    gates = {"gru": 3, "lstm": 4}.get(name, 1)
    hidden = torch.rand(1, 2, 4, device="ocl")
    weights = [torch.rand(4 * gates, 4), torch.rand(4 * gates, 4), *torch.rand(2, 4 * gates)]
    sizes = torch.tensor([2, 2])

    def run(sizes):
        hx = [hidden, hidden] if name == "lstm" else hidden
        options = (True, 1, 0.0, False, False)
        return getattr(aten, name).data(MATRIX.to("ocl"), sizes, hx, on("ocl", *weights), *options)

    assert run(sizes)[0].shape == (4, 4)
    with pytest.raises(RuntimeError, match="batch_sizes must be on the CPU"):
        run(sizes.to("ocl"))


def test_nested_sizes_are_on_the_host():
    sizes, strides, offsets = torch.tensor([[2, 3]]), torch.tensor([[3, 1]]), torch.tensor([0])
    buffer = torch.rand(6, device="ocl")
    view = torch._nested_view_from_buffer(buffer, sizes, strides, offsets)
    assert_close(view.unbind()[0].cpu(), buffer.cpu().view(2, 3))
    for moved in range(3):
        shape = [t.to("ocl") if i == moved else t for i, t in enumerate((sizes, strides, offsets))]
        with pytest.raises(RuntimeError, match="must be on the CPU"):
            torch._nested_view_from_buffer(buffer, *shape)
    with pytest.raises(RuntimeError, match="must be on the CPU"):
        torch._nested_from_padded(torch.rand(1, 2, 3, device="ocl"), sizes.to("ocl"))


REFUSED = {
    "shuffle": lambda d: torch.native_channel_shuffle(IMAGES.to(d), 0),
    "shuffle_rest": lambda d: torch.native_channel_shuffle(IMAGES.to(d), 2),
    "shuffle_shape": lambda d: torch.native_channel_shuffle(MATRIX.to(d), 2),
    "convolution_stride": lambda d: F.conv2d(*on(d, IMAGES, IMAGES), stride=0),
    "segments": lambda d: aten._segment_reduce_backward(
        *on(d, MATRIX, MATRIX, torch.tensor(1.0)), "sum", offsets=torch.tensor([0, 1]).to(d)
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_arguments(name):
    for device in ("cpu", "ocl"):
        with pytest.raises((RuntimeError, IndexError)):
            REFUSED[name](device)


def test_overrideable_convolution_without_upstreams_checks():
    shape = ([1, 1], [0, 0], [1, 1], False, [0, 0])
    with pytest.raises(RuntimeError, match="groups"):
        aten.convolution_overrideable(*on("ocl", IMAGES, IMAGES), None, *shape, 0)
    with pytest.raises(RuntimeError, match="stride"):
        aten.convolution_overrideable(*on("ocl", IMAGES, IMAGES), None, [0, 0], *shape[1:], 1)
    out, ones = torch.rand(2, 2, 1, 1), [True, True, True]
    with pytest.raises(RuntimeError, match="groups"):
        aten.convolution_backward_overrideable(*on("ocl", out, IMAGES, IMAGES), *shape, 0, ones)
    with pytest.raises(RuntimeError, match="divisible"):
        aten.convolution_backward_overrideable(*on("ocl", out, IMAGES, IMAGES), *shape, 3, ones)
