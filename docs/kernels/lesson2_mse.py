"""Lesson 2: mean squared error and its gradient."""

# begin: source
import torch

SOURCE = """
kernel void squared_error(global const float* x, global const float* target,
                          global float* out, ulong n) {
  size_t i = get_global_id(0);
  if (i >= n) return;
  float difference = x[i] - target[i];
  out[i] = difference * difference;
}

kernel void mse_backward(global const float* grad, global const float* x,
                         global const float* target, global float* grad_x, float factor, ulong n) {
  size_t i = get_global_id(0);
  if (i >= n) return;
  grad_x[i] = factor * grad[0] * (x[i] - target[i]);
}
"""
squared_error = torch.ocl.compile_kernel(SOURCE, "squared_error")
mse_backward = torch.ocl.compile_kernel(SOURCE, "mse_backward")
# end: source


# begin: sizes
GROUP = 64


def sizes(n):
    """One work-item for each element, in whole work-groups."""
    return {"global_size": -(-n // GROUP) * GROUP, "local_size": GROUP}


# end: sizes


# begin: function
class MeanSquaredError(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, target):
        if x.shape != target.shape:  # the kernel would read past the end of the smaller one
            raise ValueError(f"shapes differ: {tuple(x.shape)} and {tuple(target.shape)}")
        x, target = x.contiguous(), target.contiguous()
        ctx.save_for_backward(x, target)
        out = torch.empty_like(x)
        squared_error(x, target, out, x.numel(), **sizes(x.numel()))
        return out.mean()

    @staticmethod
    def backward(ctx, grad):
        x, target = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        factor = 2 / x.numel()
        mse_backward(grad, x, target, grad_x, factor, x.numel(), **sizes(x.numel()))
        return grad_x, None


# end: function

# begin: check
x = torch.randn(1000, 3, device="ocl", requires_grad=True)
target = torch.randn(1000, 3, device="ocl")

loss = MeanSquaredError.apply(x, target)
(grad,) = torch.autograd.grad(loss, x)

want = torch.nn.functional.mse_loss(x, target)
(want_grad,) = torch.autograd.grad(want, x)
torch.testing.assert_close(loss, want)
torch.testing.assert_close(grad, want_grad)
# end: check

# begin: train
torch.manual_seed(0)
model = torch.nn.Linear(3, 1).to("ocl")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(500, 3, device="ocl")
targets = inputs @ torch.tensor([[1.0], [-2.0], [0.5]], device="ocl")
for step in range(50):
    optimizer.zero_grad()
    loss = MeanSquaredError.apply(model(inputs), targets)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.2g}, weights {[round(w, 2) for w in model.weight[0].tolist()]}")
# end: train
assert loss.item() < 1e-3
