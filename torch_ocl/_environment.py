"""The environment variables that the package reads, each with what it does.

Values that mean nothing are warned of where they are read. A name that is none of these is read
nowhere, so that a misspelt one would do nothing, in silence.
"""

import contextlib
import difflib
import os
import re
import warnings

VARIABLES = {
    "TORCH_OCL_DEVICES": (
        "which devices to use, in which order: comma-separated indices, types (`gpu`, "
        "`accelerator`, `cpu`) or parts of a driver's name or version (`intel`, `pocl`), or, "
        "where no driver has it, of a device's or its vendor's name. Default: GPUs, accelerators, "
        "CPUs"
    ),
    "TORCH_OCL_PARTITION": (
        "a number: each device becomes as many. A CPU is split into sub-devices with a part of the "
        "cores each; a device that can't be split is listed so often. For programs that use "
        "several devices; default 1"
    ),
    "TORCH_OCL_AUTOLOAD": (
        "whether `import torch` adds `ocl`: `always`, `never` or `auto`, the default: not where "
        "torch has a CUDA device ([beside CUDA](install.md#beside-cuda)). `import torch_ocl` "
        "always does"
    ),
    "TORCH_OCL_AS_CUDA": (
        '`1`, and nothing else: "cuda" means `ocl` from `import torch` on, in this process and its '
        "children "
        "([programs that say cuda](libraries.md#programs-that-say-cuda))"
    ),
    "TORCH_OCL_INTEGRATIONS": (
        "how far libraries above PyTorch take `ocl` ([libraries](libraries.md)): `off`, "
        "`explicit` where a program names it, `auto`, the default, also where they choose a device "
        "by themselves and it is a GPU, or `always`"
    ),
    "TORCH_OCL_NOTICES": (
        "`0`: nothing is said where a program that was given `ocl` ends without having used it, "
        "and where a library chose the CPU by itself "
        "([troubleshooting](troubleshooting.md#by-symptom))"
    ),
    "TORCH_OCL_FALLBACK": (
        "`1`: ops without a kernel run on the CPU, with a warning, and are counted"
    ),
    "TORCH_OCL_VERBOSE": (
        "traces on stderr: any of `build`, `launch`, `dispatch`, `memory`, `tune`, "
        "`integrations`, or `all`"
    ),
    "TORCH_OCL_INDUCTOR_FALLBACK": (
        "`1`: where the driver refuses a kernel that torch.compile generated, its ops run eagerly, "
        "and are counted ([torch.compile](compile.md))"
    ),
    "TORCH_OCL_DISTRIBUTED_CHUNK": (
        "bytes of the pieces in which large tensors of process groups go to the host and back, the "
        "same in all processes; `0`: whole tensors; default 8388608"
    ),
    "TORCH_OCL_CACHE": "`0`: compiled kernels aren't kept on disk",
    "TORCH_OCL_CACHE_DIR": (
        "where they are kept; default `$XDG_CACHE_HOME/torch_ocl` or `~/.cache/torch_ocl`. A "
        "folder that others can write to isn't used"
    ),
    "TORCH_OCL_CACHE_SIZE": (
        "MiB of them to keep, about; those not used for longest go first; default 1024"
    ),
    "TORCH_OCL_BUILD_WORKERS": (
        "how many processes beside this one may build kernels that are missing; default: one less "
        "than there are cores, and on a GPU as many as its memory allows; `0`: none, and a launch "
        "waits for its kernel"
    ),
    "TORCH_OCL_KERNEL_DIR": (
        "read kernels from this folder instead of the library, to edit them without a rebuild; "
        "several folders are separated by colons"
    ),
    "TORCH_OCL_MEMORY_FRACTION": (
        "the part of a device's memory that may be allocated, in (0, 1]; default 1"
    ),
    "TORCH_OCL_<ENGINE>": (
        "of an engine's kernels the one to use wherever it can serve, for tests and comparisons, "
        "as in `TORCH_OCL_GEMM=packed`; `torch_ocl.testing.engines()` lists them. With `-` before "
        "the name it is left out: `TORCH_OCL_CONVOLUTION=-winograd` has 3 x 3 convolutions on CPUs "
        "be sums of all terms ([precision](differences.md#convolutions))"
    ),
    "TORCH_OCL_GEMM_TILE": (
        "the tile of those products that have one, as `<m>x<n>x<k>`, for tests and comparisons"
    ),
    "TORCH_OCL_AMD_TARGET": (
        "the AMD processor (`gfx90a`, say) whose instructions for matrix products are taken to be "
        "there, by AMD's driver unchecked; others do what they are specified to do; for tests"
    ),
    "TORCH_OCL_DEVICE_CLASS": "`other`: a GPU is one that nobody knows, for tests of `tune`",
    "TORCH_OCL_GEMM_WORKSPACE": (
        "the bytes a matrix product may take for packed operands; small values make it work "
        "in blocks"
    ),
    "TORCH_OCL_TUNABLE": (
        "`1`: the fastest kernels and tiles for a program's matrix products are searched for "
        "and kept, as with `torch.ocl.tunable.enable()`; `0`: nothing that was found is used; "
        "default: what `python -m torch_ocl tune` found"
    ),
    "TORCH_OCL_TUNABLE_TUNING": "`0`: only what was found before is used",
    "TORCH_OCL_TUNABLE_DURATION": (
        "milliseconds that the search for one class of shapes may take, compiling included; "
        "default 5000"
    ),
    "TORCH_OCL_TUNABLE_ITERATIONS": "timings of one kernel, at most; default 20",
    "TORCH_OCL_TUNABLE_FILENAME": (
        "the file of results; default: one in `TORCH_OCL_CACHE_DIR` for each device and driver"
    ),
    "TORCH_OCL_LOADER": "the ICD loader (`libOpenCL.so.1`) to open instead of the one found",
    "TORCH_OCL_QUARANTINE": (
        "`0`: kernels that fail on the device are not left out ([a driver that computes "
        "wrongly](troubleshooting.md#a-driver-that-computes-wrongly))"
    ),
    "TORCH_OCL_FIRST_USE_CHECK": (
        "`1` or `0`: a few kernels are tried before the first use of a device in every process, or "
        "never; default once where the driver was not tested"
    ),
    "TORCH_OCL_TUNE_AS": (
        "`cpu` or `gpu`: choose kernels as for that class of device, to test the variants "
        "for GPUs where there is none"
    ),
    "TORCH_OCL_WITHOUT": (
        "features to leave out though the device has them, to test what a lesser one would "
        "do: any of `fp64`, `fp16`, `subgroups`, `int64_atomics`, `work_group_reduce`, "
        "`tensor_cores`, `warpgroup_mma`, `assembled_local_memory` and `fast_bfloat16` (Hopper's; "
        "the last one for [float32](differences.md#float32-on-hopper)), `avx512`, "
        "`bf16_dot`, `int8_dot` and `amx` (x86's AVX-512, AVX512-BF16, AVX512-VNNI and AMX), "
        "`system_svm` (addresses as kernels' arguments), `unified_memory` (a device that uses the "
        "host's memory), `command_buffers` (of graphs' replays)"
    ),
    "TORCH_OCL_COMMAND_BUFFERS": (
        "`1` or `0`: replays of graphs enqueue kernels by the driver's command buffers, or one by "
        "one; default what is faster on the device ([graphs](graphs.md))"
    ),
}
# The engines of `TORCH_OCL_<ENGINE>`. `_C.engines()` has the same names, but unknown variables are
# warned of before the library is loaded, and `info` lists them where it does not load.
ENGINES = (
    "attention",
    "average_pool",
    "backward_average_pool",
    "backward_embedding_bag",
    "backward_grid_sample",
    "backward_max_pool",
    "backward_nearest",
    "backward_vision",
    "binning",
    "col2im",
    "convolution",
    "distance",
    "fft",
    "gemm",
    "index",
    "linalg_cholesky",
    "linalg_condense",
    "linalg_implicit_qr",
    "linalg_lu",
    "linalg_qr",
    "linalg_reflect",
    "linalg_triangular",
    "lstm",
    "max_pool",
    "norm",
    "pointwise",
    "random",
    "reduce",
    "scan",
    "sdpa",
    "softmax",
    "sort",
    "unique",
)
OTHERS_VARIABLES = {
    "OCL_ICD_FILENAMES": (
        "more drivers, for those that aren't in `/etc/OpenCL/vendors`. Debian's and Ubuntu's "
        "loader (ocl-icd) ignores it in other programs; here it gets them all the same"
    ),
    "TORCH_DEVICE_BACKEND_AUTOLOAD": (
        "read by PyTorch: `0` keeps `import torch` from loading extensions; `import "
        "torch_ocl` then does"
    ),
}
# Read by the package's own tests.
TEST_VARIABLES = (
    "TORCH_OCL_AS_GPU_DTYPES",
    "TORCH_OCL_COVERAGE_DTYPES",
    "TORCH_OCL_COVERAGE_SAMPLES",
    "TORCH_OCL_FAULTS_SEED",
    "TORCH_OCL_TEST_DTYPES",
    "TORCH_OCL_TEST_SAMPLE",
)


def names() -> list[str]:
    """Those that the package reads."""
    engines = [f"TORCH_OCL_{engine.upper()}" for engine in ENGINES]
    return [*engines, *(name for name in VARIABLES if "<" not in name)]


def switched_on(variable: str, otherwise: bool) -> bool:
    """Whether a variable is 1; what is neither 0 nor 1 is warned of and ignored. The native part
    does the same (csrc/opencl/environment.h)."""
    value = os.environ.get(variable, "")
    if value in ("0", "1"):
        return value == "1"
    if value:
        with contextlib.suppress(Warning):  # it may run within `import torch`
            warnings.warn(f"{variable}={value}: 0 and 1 are known, it is ignored", stacklevel=1)
    return otherwise


def is_as_cuda() -> bool:
    """Whether TORCH_OCL_AS_CUDA has "cuda" mean `ocl`."""
    return switched_on("TORCH_OCL_AS_CUDA", False)


def is_verbose(topic: str) -> bool:
    """Whether TORCH_OCL_VERBOSE asks for a topic."""
    asked = os.environ.get("TORCH_OCL_VERBOSE", "").split(",")
    return bool({topic, "all"} & {name.strip() for name in asked})


def unknown_names() -> list[str]:
    """Those of the environment that only look like the package's."""
    known = (*names(), *TEST_VARIABLES)
    return [name for name in os.environ if name.startswith("TORCH_OCL_") and name not in known]


def wrong_values() -> list[str]:
    """Complaints about variables that have one of several values."""
    from torch_ocl import _C

    found = []
    for engine, implementations in _C.engines().items():
        value = os.environ.get(name := f"TORCH_OCL_{engine.upper()}", "")
        if value and value.removeprefix("-") not in implementations:
            found.append(_none_of(name, value, implementations))
    for name, several in (("VERBOSE", True), ("WITHOUT", True), ("TUNE_AS", False)):
        name = f"TORCH_OCL_{name}"
        text = VARIABLES[name]
        known = [*re.findall(r"`(\w+)`", text)]
        value = os.environ.get(name, "")
        for part in value.split(",") if several else [value]:
            if part.strip() and part.strip() not in known:
                found.append(_none_of(name, part.strip(), known))
    value = os.environ.get(name := "TORCH_OCL_AS_CUDA", "")
    if value not in ("", "0", "1"):
        found.append(f"{name}={value} is none of 0, 1; it is ignored.")
    value = os.environ.get(name := "TORCH_OCL_MEMORY_FRACTION", "")
    try:
        right = not value or 0 < float(value) <= 1
    except ValueError:
        right = False
    if not right:
        found.append(f"{name}={value} is no number above 0 and at most 1.")
    return found


def _none_of(name: str, value: str, known: list[str]) -> str:
    return f"{name}={value} is none of {', '.join(known)}."


def advice(name: str) -> str:
    """The name that may have been meant by an unknown one."""
    similar = difflib.get_close_matches(name, names(), 1, cutoff=0.8)
    return f"did you mean {similar[0]}?" if similar else f"there are {', '.join(VARIABLES)}"


def warn_of_unknown_names() -> None:
    """Never raises, even where warnings are errors: it runs within `import torch`."""
    for name in unknown_names():
        with contextlib.suppress(Warning):
            text = f"the environment variable {name} is unknown: {advice(name)}"
            warnings.warn(text, stacklevel=2)
