"""The module of `import torch.ocl.profiler` and `from torch.ocl.profiler import profile`.

torch.ocl.profiler itself is the class, a context manager.
"""

from torch_ocl.api.profiling import profiler

__all__ = ["profile", "profiler"]

profile = profiler
