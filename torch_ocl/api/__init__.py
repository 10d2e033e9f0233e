"""What torch.ocl has: the device module is ocl.py, its parts are beside it."""
