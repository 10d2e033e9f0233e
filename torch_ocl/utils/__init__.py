"""Helpers for code beside programs: building extensions (torch_ocl.utils.cpp_extension)."""
