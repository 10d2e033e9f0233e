"""The families of kernels that sample.py runs."""

import torch

FAMILIES = {}


def family(function):
    """Registers a function that returns what its kernels wrote."""
    FAMILIES[function.__name__] = function
    return function


def operands():
    """A matrix and a row of odd sizes, so that tails are hit."""
    return torch.randn(7, 37).to("ocl"), torch.randn(37).to("ocl")
