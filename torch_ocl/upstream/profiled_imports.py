"""Names of modules that are loaded while a profile takes stacks.

The profiler keeps addresses within a function's code, and reads its name there once the profile has
ended (`CodeLocation` in torch/csrc/autograd/profiler_python.cpp). The code of a module's body is
freed before: what the profiler reads is mostly no string, and a UnicodeDecodeError comes. So that
code is kept here. record_function loads a module of torch by itself, and parts of this package are
loaded as they are used.
"""

import functools
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from types import CodeType
from typing import Any

import torch

#: For good: a module is loaded once.
_kept: list[CodeType | None] = []


def install() -> None:
    """Has the first profile with stacks change what loads modules."""
    profile = torch.autograd.profiler.profile
    upstream = profile._start_trace

    @functools.wraps(upstream)
    def _start_trace(self: Any) -> None:
        if self.with_stack:
            profile._start_trace = upstream
            _change(SourceFileLoader)
            _change(SourcelessFileLoader)
        upstream(self)

    profile._start_trace = _start_trace


def _change(loader: Any) -> None:
    upstream = loader.get_code

    @functools.wraps(upstream)
    def get_code(self: Any, name: str) -> CodeType | None:
        code = upstream(self, name)
        if torch.autograd.profiler._is_profiler_enabled:
            _kept.append(code)
        return code

    loader.get_code = get_code
