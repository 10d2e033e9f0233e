"""Ops whose kernels take a text in front of them: products, convolutions, attention."""
