"""A kernel as a user of torch.ocl.compile_kernel writes it."""

#: y[i] = factor * x[i] for i below n.
SCALE = """
kernel void scale(global const float* x, global float* y, float factor, uint n) {
  size_t i = get_global_id(0);
  if (i < n) y[i] = factor * x[i];
}
"""
