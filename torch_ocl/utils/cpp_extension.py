"""Builds C++ extensions: ops of one's own on `ocl`, with OpenCL kernels of one's own.

`OclExtension` is for a setup.py, `load` compiles while a program runs, and `cmake_prefix_path` is
for CMake's find_package(TorchOCL). docs/user/cpp-extensions.md shows all three.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils import cpp_extension as _torch_extension
from torch.utils.cpp_extension import BuildExtension

from torch_ocl.utils import embed_kernels
from torch_ocl.utils.opencl_headers import opencl_include

__all__ = [
    "BuildExtension",
    "OclExtension",
    "cmake_prefix_path",
    "include_paths",
    "library_paths",
    "load",
]

_PACKAGE = Path(__file__).resolve().parents[1]
_LIBRARY = "torch_ocl"
_STANDARD = "-std=c++20"

#: The folder that CMAKE_PREFIX_PATH must contain for find_package(TorchOCL).
cmake_prefix_path: str = str(_PACKAGE / "share" / "cmake")


def include_paths() -> list[str]:
    """The folders to include <torch_ocl/extension.h> and <CL/cl.h> from; torch's own come from
    torch.utils.cpp_extension.include_paths(). RuntimeError if a header is missing."""
    include = _PACKAGE / "include"
    if not (include / "torch_ocl" / "extension.h").exists():
        raise RuntimeError(f"torch_ocl's headers are not in {include}: install torch_ocl again")
    opencl = opencl_include()
    if opencl is None:
        raise RuntimeError(
            "CL/cl.h is missing: it is in opencl-c-headers on Debian and Ubuntu, and in "
            "nvidia-cuda-opencl from pip on x86-64"
        )
    return [str(include), opencl]


def library_paths() -> list[str]:
    """The folder of libtorch_ocl.so."""
    return [str(_PACKAGE)]


def OclExtension(
    name: str,
    sources: Sequence[str],
    kernels: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Any:
    """A setuptools.Extension that links to torch and torch_ocl, for use with BuildExtension.

    `kernels` is a folder. Its kernel files (*.cl, *.clh), at any depth, are embedded in the
    extension under their paths below it. Those are the names that KernelFamily and #include use, so
    the files belong into a subfolder with the extension's name. They may include the files of
    torch_ocl's own kernels/ too.

    `options` are those of torch.utils.cpp_extension.CppExtension. Raises ValueError if the folder
    has no kernel files.
    """
    sources = list(sources)
    depends = list(options.pop("depends", None) or [])
    if kernels is not None:
        # In the build folder, named by a relative path: setuptools wants no other.
        sources.append(_embed(kernels, Path("build") / "torch_ocl_kernels", name))
        depends += [str(path) for path in embed_kernels.kernel_files(Path(kernels))]
    options["extra_compile_args"] = _with_standard(options.get("extra_compile_args"))
    for key, values in (
        ("include_dirs", include_paths()),
        ("library_dirs", library_paths()),
        ("libraries", [_LIBRARY]),
    ):
        options[key] = [*(options.get(key) or []), *values]
    return _torch_extension.CppExtension(name, sources, depends=depends, **options)


def load(
    name: str,
    sources: str | Sequence[str],
    kernels: str | os.PathLike[str] | None = None,
    *,
    extra_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | os.PathLike[str] | None = None,
    is_python_module: bool = True,
    verbose: bool = False,
) -> ModuleType | str:
    """Compiles an extension if something changed, and loads it into this process.

    `kernels` is a folder of kernel files, as for OclExtension. The other arguments are those of
    torch.utils.cpp_extension.load: without `is_python_module` the library's ops are in torch.ops,
    and its path is returned. The default build_directory is `<name>` in torch's own, for each
    version of torch. Raises ValueError if the folder has no kernel files, RuntimeError if something
    does not compile.
    """
    sources = [sources] if isinstance(sources, str) else list(sources)
    folder = Path(build_directory or _default_build_directory(name))
    folder.mkdir(parents=True, exist_ok=True)
    if kernels is not None:
        sources.append(_embed(kernels, folder, name))
    return _torch_extension.load(
        name,
        [os.fspath(source) for source in sources],
        extra_cflags=_with_standard(extra_cflags),
        extra_ldflags=[
            *(extra_ldflags or []),
            *(f"-L{path}" for path in library_paths()),
            f"-l{_LIBRARY}",
        ],
        extra_include_paths=[*(extra_include_paths or []), *include_paths()],
        build_directory=str(folder),
        is_python_module=is_python_module,
        verbose=verbose,
    )


def _embed(kernels: str | os.PathLike[str], folder: Path, name: str) -> str:
    """The path of a C++ file that embeds the kernel files."""
    root = Path(kernels)
    if not root.is_dir():
        raise ValueError(f"kernels: there is no folder {root}")
    source = folder / f"{name}_kernels.cpp"
    embed_kernels.write_if_changed(source, embed_kernels.generate_extension(root))
    return str(source)


def _with_standard(arguments: Any) -> Any:
    """The compiler's arguments, with C++20 unless they choose a standard."""
    if isinstance(arguments, dict):
        return {**arguments, "cxx": _with_standard(arguments.get("cxx"))}
    flags = list(arguments or [])
    return flags if any(flag.startswith("-std=") for flag in flags) else [*flags, _STANDARD]


def _default_build_directory(name: str) -> Path:
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or _torch_extension.get_default_build_root()
    return Path(root) / f"torch_ocl_{torch.__version__}" / name
