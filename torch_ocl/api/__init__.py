"""The parts of torch.ocl: the device module is ocl.py, its parts are beside it."""
