"""What `python -m torch_ocl` does: its report, its cache, and a device's measured peaks."""
