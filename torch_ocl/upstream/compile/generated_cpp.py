"""C++ that Inductor generates: what it includes, is linked with, and calls the device."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from torch_ocl.upstream.compile.replacement import replace


def install() -> None:
    """Applies all of them, once."""
    _builds()
    _projects()
    _headers()
    _names()
    _captures()


def _builds() -> None:
    """Generated C++ is compiled with more than torch's own: include folders, libraries."""
    from torch._inductor import cpp_builder

    upstream = cpp_builder.get_cpp_torch_device_options
    package = Path(__file__).parents[2]

    @functools.wraps(upstream)
    def get_cpp_torch_device_options(device_type: str, *args: Any, **kwargs: Any) -> Any:
        options = upstream(device_type, *args, **kwargs)
        if device_type == "ocl":
            _, include_dirs, _, _, libraries_dirs, libraries, _ = options
            include_dirs.append(str(package / "include"))
            libraries_dirs.append(str(package))
            libraries.append("torch_ocl")
        return options

    replace("get_cpp_torch_device_options", upstream, get_cpp_torch_device_options)


def _projects() -> None:
    """The CMake projects of packages of C++ alone: where their libraries are found."""
    from torch._inductor import cpp_builder

    upstream = cpp_builder.CppBuilder.save_compile_cmd_to_cmake

    @functools.wraps(upstream)
    def save_compile_cmd_to_cmake(self: Any, cmake_path: str, device_type: str) -> None:
        upstream(self, cmake_path, device_type)
        if device_type == "ocl":
            # Libraries are listed by their names later on.
            with Path(cmake_path).open("a", encoding="utf-8") as file:
                file.write("find_package(TorchOCL REQUIRED)\n")
                file.write("add_library(torch_ocl ALIAS TorchOCL::torch_ocl)\n")

    cpp_builder.CppBuilder.save_compile_cmd_to_cmake = save_compile_cmd_to_cmake


def _headers() -> None:
    """The header that generated C++ begins with, which is compiled once for all."""
    from torch._inductor import codecache

    upstream = codecache._get_cpp_wrapper_header

    @functools.wraps(upstream)
    def _get_cpp_wrapper_header(device: str, aot_mode: bool = False) -> str:
        if device.split(":")[0] != "ocl":
            return upstream(device, aot_mode)
        return f"torch_ocl/aoti/{'model' if aot_mode else 'wrapper'}.h"

    replace("_get_cpp_wrapper_header", upstream, _get_cpp_wrapper_header)


def _names() -> None:
    """C++ has a name for the device's type, and a number for a model's checks of its inputs."""
    from torch._inductor.codegen import cpp_utils

    # Since 2.15 the device's overrides name its type (inductor/device.py).
    if hasattr(cpp_utils, "DEVICE_TO_ATEN"):
        cpp_utils.DEVICE_TO_ATEN.setdefault("ocl", "at::kPrivateUse1")
    cpp_utils.DEVICE_TO_INT.setdefault("ocl", 20)


def _captures() -> None:
    """The C++ wrapper can't leave parts of a graph to CUDA graphs, so it turns them off. A graph on
    ocl is captured as a whole."""
    from torch._inductor import compile_fx, config, utils
    from torch._inductor.virtualized import V

    upstream = compile_fx.get_cpp_wrapper_config

    @functools.wraps(upstream)
    def get_cpp_wrapper_config(*args: Any, **kwargs: Any) -> dict[str, object]:
        if utils.get_gpu_type() != "ocl":
            return upstream(*args, **kwargs)
        with config.patch(graph_partition=False):
            found = upstream(*args, **kwargs)
        return found | {"triton.cudagraphs": config.triton.cudagraphs and not V.aot_compilation}

    replace("get_cpp_wrapper_config", upstream, get_cpp_wrapper_config)
