"""The checks of the libraries that `make test` installs, with and without their integrations."""

import json
import subprocess
import sys

import pytest

from tests.integrations import checklist

PINNED = checklist.pinned()
OTHERS = ("safetensors", "torch", "torchvision", "transformers")  # which other tests need, too
HERE = [c for c in checklist.load() if c.library in PINNED or c.library in OTHERS]
INTEGRATED = [c for c in HERE if c.integration]


@pytest.mark.parametrize("tried", HERE, ids=str)
def test_check(tried):
    if tried.fails is None:
        checklist.perform(tried)
        return
    try:
        checklist.perform(tried)
    except Exception:
        return
    pytest.fail(f"works, so take away: fails={tried.fails!r}")


@pytest.fixture(scope="module")
def without():
    """What becomes of the checks that have an integration without any: an error, or none."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integrations", "--without-integrations"],
        capture_output=True,
        text=True,
        cwd=checklist.ROOT,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("tried", INTEGRATED, ids=str)
def test_upstream_still_needs_the_integration(tried, without):
    assert without[str(tried)], "upstream works by itself now: take this part out"


def test_every_integration_has_a_check():
    from torch_ocl.integrations import LIBRARIES

    tried = {c.integration for c in checklist.load()}
    assert tried - {None} == set(LIBRARIES.values())


def test_the_pinned_libraries_are_installed():
    for library, version in PINNED.items():
        assert checklist.version(library) == version
