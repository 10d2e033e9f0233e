"""Lesson 1: a first kernel, relu and its gradient."""

# begin: source
import torch

SOURCE = """
kernel void relu(global const float* x, global float* y) {
  size_t i = get_global_id(0);
  y[i] = fmax(x[i], 0.0f);
}

kernel void relu_backward(global const float* grad, global const float* x,
                          global float* grad_x) {
  size_t i = get_global_id(0);
  grad_x[i] = x[i] > 0 ? grad[i] : 0;
}
"""
relu_kernel = torch.ocl.compile_kernel(SOURCE, "relu")
relu_backward_kernel = torch.ocl.compile_kernel(SOURCE, "relu_backward")
# end: source

# begin: call
x = torch.linspace(-2, 2, 9, device="ocl")
y = torch.empty_like(x)
relu_kernel(x, y, global_size=x.numel())
print(y)
# end: call
assert torch.equal(y, torch.relu(x))


# begin: function
class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        relu_kernel(x, y, global_size=x.numel())
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        relu_backward_kernel(grad.contiguous(), x, grad_x, global_size=x.numel())
        return grad_x


# end: function

# begin: train
x = torch.linspace(-2, 2, 9, device="ocl", requires_grad=True)
Relu.apply(x).sum().backward()
print(x.grad)
# end: train
assert torch.equal(x.grad, (x > 0).float())
nan = torch.full((4,), torch.nan, device="ocl")
print("relu(nan):", Relu.apply(nan)[0].item(), "here,", torch.relu(nan)[0].item(), "in torch")
