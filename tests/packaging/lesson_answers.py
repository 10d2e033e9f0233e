"""Answers to the lessons' exercises (docs/kernels)."""

import functools

import torch


@functools.cache
def kernel(source, name, options=()):
    return torch.ocl.compile_kernel(source, name, options=options)


RELU = """
kernel void relu(global const float* x, global float* y) {
  size_t i = get_global_id(0);
  y[i] = x[i] > 0 || isnan(x[i]) ? x[i] : 0.0f;
}
kernel void relu_backward(global const float* grad, global const float* x, global float* grad_x) {
  size_t i = get_global_id(0);
  grad_x[i] = x[i] <= 0 ? 0 : grad[i];
}
"""


class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel(RELU, "relu")(x, y, global_size=x.numel())
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        kernel(RELU, "relu_backward")(grad.contiguous(), x, grad_x, global_size=x.numel())
        return grad_x


relu = Relu.apply

MSE = """
kernel void squared_error(global const float* x, global const float* y, global float* out) {
  size_t i = get_global_id(0);
  out[i] = (x[i] - y[i]) * (x[i] - y[i]);
}
kernel void gradient(global const float* grad, global const float* x, global const float* y,
                     global float* out, float factor) {
  size_t i = get_global_id(0);
  out[i] = factor * grad[0] * (x[i] - y[i]);
}
"""


class MeanSquaredError(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, target):
        x, target = x.contiguous(), target.contiguous()
        ctx.save_for_backward(x, target)
        out = torch.empty_like(x)
        kernel(MSE, "squared_error")(x, target, out, global_size=x.numel())
        return out.mean()

    @staticmethod
    def backward(ctx, grad):
        x, target = ctx.saved_tensors
        gradient = torch.empty_like(x)
        factor = 2 / x.numel()
        kernel(MSE, "gradient")(grad, x, target, gradient, factor, global_size=x.numel())
        return gradient, -gradient if ctx.needs_input_grad[1] else None


mean_squared_error = MeanSquaredError.apply

# Panels of two vectors, so that a step of k reads what lies together.
PRODUCT = """
#define PASTE(a, b) a##b
#define VECTOR(width) PASTE(float, width)
typedef VECTOR(WIDTH) V;
kernel void pack(global const V* b, global V* panels, int n) {
  int column = get_global_id(0), k = get_global_id(1), width = n / WIDTH;
  panels[(column / 2 * n + k) * 2 + column % 2] = b[k * width + column];
}
kernel void product(global const float* a, global const V* panels, global V* c, int n) {
  int panel = get_global_id(0), row = get_global_id(1) * ROWS, width = n / WIDTH;
  global const V* b = panels + panel * n * 2;
  V left[ROWS], right[ROWS];
  #pragma unroll
  for (int r = 0; r < ROWS; r++) left[r] = right[r] = 0;
  for (int k = 0; k < n; k++) {
    V b0 = b[2 * k], b1 = b[2 * k + 1];
    #pragma unroll
    for (int r = 0; r < ROWS; r++) {
      V value = a[(row + r) * n + k];
      left[r] = fma(value, b0, left[r]);
      right[r] = fma(value, b1, right[r]);
    }
  }
  #pragma unroll
  for (int r = 0; r < ROWS; r++) {
    c[(row + r) * width + 2 * panel] = left[r];
    c[(row + r) * width + 2 * panel + 1] = right[r];
  }
}
"""


def product(a, b):
    """With AVX-512 16 of 32 registers are sums, with AVX2 8 of 16."""
    width, rows = (16, 8) if torch.ocl.get_device_properties(0).has_avx512 else (8, 4)
    n, options = a.shape[0], (f"-DROWS={rows}", f"-DWIDTH={width}")
    panels, c = torch.empty_like(b), torch.empty_like(a)
    kernel(PRODUCT, "pack", options)(b, panels, n, global_size=(n // width, n))
    sizes = {"global_size": (n // (2 * width), n // rows), "local_size": (1, 8)}
    kernel(PRODUCT, "product", options)(a, panels, c, n, **sizes)
    return c


MAXIMUM = """
float larger(float a, float b) { return isnan(a) || a > b ? a : b; }
kernel void maximum(global const float* x, global float* out, ulong n, local float* kept) {
  float most = -INFINITY;
  for (ulong i = get_global_id(0); i < n; i += get_global_size(0)) most = larger(most, x[i]);
  uint item = get_local_id(0);
  kept[item] = most;
  for (uint part = get_local_size(0) / 2; part > 0; part /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < part) kept[item] = larger(kept[item], kept[item + part]);
  }
  if (item == 0) out[get_group_id(0)] = kept[0];
}
"""


def maximum(x, group=64, groups=16):
    out = torch.empty(groups, device=x.device)
    call, kept = kernel(MAXIMUM, "maximum"), torch.ocl.local_memory(4 * group)
    call(x, out, x.numel(), kept, global_size=groups * group, local_size=group)
    result = torch.empty(1, device=x.device)
    call(out, result, groups, kept, global_size=group, local_size=group)
    return result[0]


SHIFT = """
kernel void shift(global const float* x, global float* y) {
  size_t i = get_global_id(0);
  y[i] = i == 0 ? 0 : x[i - 1];
}
"""


def shift(x):
    y = torch.empty_like(x)
    kernel(SHIFT, "shift")(x, y, global_size=x.numel())
    return y


XLOG1PY = """
kernel void xlog1py(global const float* x, global const float* y, global float* out) {
  size_t i = get_global_id(0);
  out[i] = isnan(y[i]) ? y[i] : x[i] == 0 ? 0 : x[i] * log1p(y[i]);
}
"""


class Xlog1py(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        x, y = (t.contiguous() for t in torch.broadcast_tensors(x, y))
        out = torch.empty_like(x)
        kernel(XLOG1PY, "xlog1py")(x, y, out, global_size=x.numel())
        return out

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        grad_x = (grad * torch.log1p(y)).sum_to_size(x.shape)
        return grad_x, (grad * x / (1 + y)).sum_to_size(y.shape)


xlog1py = Xlog1py.apply
