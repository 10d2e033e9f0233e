"""torch.ocl.compile_kernel: kernels within autograd, custom ops and torch.compile."""

import gc
import weakref

import pytest
import torch

from tests.python.user_kernels import SCALE

compiled = torch.ocl.compile_kernel


RELU = """
kernel void relu(global const float* x, global float* y) {
  size_t i = get_global_id(0);
  y[i] = fmax(x[i], 0.0f);
}
kernel void relu_backward(global const float* g, global const float* x, global float* gx) {
  size_t i = get_global_id(0);
  gx[i] = x[i] > 0 ? g[i] : 0;
}
"""
relu_kernel = compiled(RELU, "relu")
relu_backward_kernel = compiled(RELU, "relu_backward")


class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        relu_kernel(x, y, global_size=x.numel())
        return y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        gx = torch.empty_like(x)
        relu_backward_kernel(g.contiguous(), x, gx, global_size=x.numel())
        return gx


@torch.library.custom_op("torch_ocl_test::relu", mutates_args=())
def relu_op(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    relu_kernel(x, y, global_size=x.numel())
    return y


@torch.library.custom_op("torch_ocl_test::relu_backward", mutates_args=())
def relu_backward_op(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    gx = torch.empty_like(x)
    relu_backward_kernel(g, x, gx, global_size=x.numel())
    return gx


@relu_op.register_fake
def _(x):
    return torch.empty_like(x)


@relu_backward_op.register_fake
def _(g, x):
    return torch.empty_like(x)


relu_op.register_autograd(
    lambda ctx, g: relu_backward_op(g.contiguous(), ctx.saved_tensors[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def gradients(function, x):
    x = x.detach().clone().requires_grad_()
    y = function(x)
    (y * y).sum().backward()
    return y.detach().cpu(), x.grad.cpu()


@pytest.mark.parametrize("function", [Relu.apply, relu_op], ids=["Function", "custom_op"])
@pytest.mark.parametrize("backend", [None, "eager", "aot_eager"])
def test_autograd_and_compile(function, backend):
    def program(x):
        return function(x * 2) + 1

    torch._dynamo.reset()
    run = program if backend is None else torch.compile(program, backend=backend)
    x = torch.linspace(-2, 3, 30)
    want = gradients(lambda x: torch.relu(x * 2) + 1, x)
    for _ in range(2):
        for got, expected in zip(gradients(run, x.to("ocl")), want, strict=True):
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_custom_op_compiles_without_breaks(backend):
    torch._dynamo.reset()
    run = torch.compile(lambda x: relu_op(x) * 2, backend=backend, fullgraph=True)
    x = torch.linspace(-2, 3, 30)
    got, want = gradients(run, x.to("ocl")), gradients(lambda x: torch.relu(x) * 2, x)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_bare_kernel_breaks_the_graph(backend):
    torch._dynamo.reset()

    def program(x):
        y = torch.empty_like(x)
        relu_kernel(x + 1, y, global_size=x.numel())
        return y * 2

    x = torch.linspace(-2, 3, 30, device="ocl")
    run = torch.compile(program, backend=backend)
    for _ in range(2):
        torch.testing.assert_close(run(x).cpu(), torch.relu(x.cpu() + 1) * 2)


def test_the_custom_op_passes_upstreams_checks():
    x = torch.linspace(-2, 3, 30, device="ocl", requires_grad=True)
    # The fourth of them knows upstream's own devices only.
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(relu_op, (x,), test_utils=tests)


def test_fake_tensors_are_refused_with_advice():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        x = torch.empty(4, device="ocl")
        with pytest.raises(TypeError, match="custom_op"):
            relu_kernel(x, x, global_size=4)


def test_transforms_are_refused_by_name():
    with pytest.raises(TypeError, match="kernel 'relu', parameter 'x': .*vmap.*custom_op"):
        torch.vmap(lambda x: relu_kernel(x, x, global_size=4))(torch.ones(2, 4, device="ocl"))


def test_what_the_caller_holds_is_not_kept():
    class Held:
        pass

    def compile_beside():
        held = Held()
        return compiled(SCALE, "scale"), weakref.ref(held)

    kernel, held = compile_beside()
    gc.collect()
    assert held() is None and kernel.name == "scale"
