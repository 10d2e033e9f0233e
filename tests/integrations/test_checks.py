"""The checks of the libraries that `make test` installs, with and without their integrations."""

import json
import subprocess
import sys

import pytest
import torch

from tests.integrations import checklist

PINNED = checklist.pinned()
OTHERS = ("safetensors", "torch", "torchvision", "transformers")  # which other tests need, too
HERE = [c for c in checklist.load() if c.library in PINNED or c.library in OTHERS]
INTEGRATED = [c for c in HERE if c.integration]


@pytest.mark.parametrize("tried", HERE, ids=str)
def test_check(tried):
    try:
        # PyTorch's own helpers for tests, which others have imported, forbid libraries to set it.
        with torch.backends.__allow_nonbracketed_mutation():
            checklist.perform(tried)
    except Exception:
        if tried.fails is None:
            raise
        return
    if tried.fails is not None:
        pytest.fail(f"works, so take away: fails={tried.fails!r}")


@pytest.mark.slow
def test_upstream_still_needs_the_integrations():
    """Their checks, run without any: each has to fail. One that works shows what can go."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integrations", "--without-integrations"],
        capture_output=True,
        text=True,
        cwd=checklist.ROOT,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout.splitlines()[-1])
    assert set(errors) == {str(tried) for tried in INTEGRATED}
    needless = [name for name, error in errors.items() if not error]
    assert not needless, "upstream works by itself now: take these parts out"
    of_imports = [name for name, error in errors.items() if "ModuleNotFound" in error]
    assert not of_imports, "these fail for another reason"


def test_every_integration_has_a_check():
    from torch_ocl.integrations import KERNELS, LIBRARIES

    # An integration that adds kernels changes nothing that could be left out.
    tried = {c.integration for c in checklist.load()}
    assert tried - {None} == {v for name, v in LIBRARIES.items() if name not in KERNELS}


def test_the_pinned_libraries_are_installed():
    for library, version in PINNED.items():
        assert checklist.version(library) == version
