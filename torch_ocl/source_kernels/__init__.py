"""Kernels that users write: torch.ocl.compile_kernel() and what it needs."""
