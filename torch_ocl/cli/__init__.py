"""The commands of `python -m torch_ocl`: its report, its cache, and a device's measured peaks."""
