"""Tests of what waves of AMD's GPUs multiply by share this: a process whose device is taken for
such a GPU, and instructions that do something else than is documented."""

import os
import re
from pathlib import Path

from tests import fresh
from tests.as_gpu import UNVECTORISED

ROOT = Path(__file__).resolve().parents[1]


def run(target, calls, dtypes, **environment):
    """Runs functions of a module of tests.ops in a process whose device is taken for AMD's; its
    stderr."""
    environment = {
        **os.environ,
        **UNVECTORISED,
        "TORCH_OCL_AMD_TARGET": target,
        "TORCH_OCL_VERBOSE": "dispatch",
        **environment,
    }
    module = calls[0].__module__
    lines = ["import sys", "sys.path.insert(0, sys.argv[1])", f"import {module} as module"]
    lines += [f"module.{call.__name__}(sys.argv[2])" for call in calls]
    done = fresh.run_script("\n".join(lines), str(ROOT), dtypes, environment=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def changed_kernels(folder, pattern, replacement, file="gemm/fragments/emulation.clh"):
    """A folder of kernels in which instructions do something else than the kernels expect."""
    text = (ROOT / "kernels" / file).read_text()
    changed, count = re.subn(pattern, replacement, text)
    assert count > 0
    (folder / file).parent.mkdir(parents=True)
    (folder / file).write_text(changed)
    return {"TORCH_OCL_KERNEL_DIR": str(folder)}


#: MI200's instructions take subnormal halves for 0.
FLUSHED = (
    r"#define REGISTER_ELEMENT\(from, i\) (DECODE_AS.*)",
    r"""#define REGISTER_ELEMENT(from, i) flushed(\1)
static inline float flushed(float x) { return fabs(x) < 0x1p-14f ? 0 : x; }""",
)
