"""Lesson 6: from a kernel to an op."""

# begin: kernel
import torch

xlogy_kernel = torch.ocl.compile_kernel("""
kernel void xlogy(global const float* x, global const float* y, global float* out) {
  size_t i = get_global_id(0);
  out[i] = y[i] != y[i] ? y[i] : x[i] == 0 ? 0 : x[i] * log(y[i]);
}
""")
# end: kernel


# begin: op
@torch.library.custom_op("lesson::xlogy", mutates_args=(), device_types="ocl")
def xlogy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, y = (t.contiguous() for t in torch.broadcast_tensors(x, y))
    out = torch.empty_like(x)
    xlogy_kernel(x, y, out, global_size=x.numel())
    return out


@xlogy.register_fake
def _(x, y):
    return x.new_empty(torch.broadcast_shapes(x.shape, y.shape))


def setup_context(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def backward(ctx, grad):
    x, y = ctx.saved_tensors
    grad_x = grad * xlogy(torch.ones_like(x), y)
    grad_y = grad * x / y
    return grad_x.sum_to_size(x.shape), grad_y.sum_to_size(y.shape)


xlogy.register_autograd(backward, setup_context=setup_context)
# end: op

# begin: compile
x = torch.rand(4, 5, device="ocl", requires_grad=True)
y = torch.rand(5, device="ocl", requires_grad=True)

compiled = torch.compile(lambda x, y: 2 * xlogy(x, y), backend="aot_eager", fullgraph=True)
grads = torch.autograd.grad(compiled(x, y).sum(), (x, y))
want = torch.autograd.grad(2 * torch.xlogy(x, y).sum(), (x, y))
torch.testing.assert_close(grads, want)
# end: compile

# begin: check
tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
print(torch.library.opcheck(xlogy, (x, y), test_utils=tests))
# end: check

# begin: table
half = torch.rand(5, device="ocl", dtype=torch.float16)
integers = torch.arange(5, device="ocl")
print(torch.xlogy(half, integers).dtype)  # types are promoted
print(torch.xlogy(x.t(), half[:4]).shape)  # strides are followed
print(torch.xlogy(2.0, half).shape)  # numbers are taken
torch.xlogy(x.detach(), y.detach(), out=torch.empty(4, 5, device="ocl"))  # out= is written
# end: table
try:
    xlogy(half, integers)
except TypeError as error:
    print("ours:", error)
