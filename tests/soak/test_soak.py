"""A short run of `make soak`, and what it would find."""

import subprocess
import sys

import pytest

from tests.soak import watch


@pytest.mark.slow
def test_a_short_run():
    command = [sys.executable, "-m", "tests.soak", "--steps", "1200"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


def test_growth_is_found():
    flat = [{"host bytes": 1000 + i % 3, "files": 7} for i in range(40)]
    assert watch.growth(flat) == {}
    leaking = [{"host bytes": 1000 + 2 * i, "files": 7 + i // 30} for i in range(40)]
    assert watch.growth(leaking) == {"host bytes": (1058, 1078), "files": (7, 8)}
