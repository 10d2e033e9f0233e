"""The folder that the package was built in, which tests of several processes use."""

import contextlib
import fcntl
import pathlib
import re
import subprocess
import sys

BUILD = pathlib.Path(__file__).resolve().parents[1] / "build"
CACHE = BUILD / "CMakeCache.txt"
OPTION = "TORCH_OCL_EDITABLE"


@contextlib.contextmanager
def alone():
    """No other test builds there meanwhile."""
    with (BUILD / ".in_use_by_a_test").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def kept_editable():
    """alone(), and what a wheel's build sets is taken back: `make build` installs by it."""
    with alone():
        before = _option()
        try:
            yield
        finally:
            if _option() != before:
                cmake = pathlib.Path(sys.executable).with_name("cmake")
                again = [f"-D{OPTION}={before}", "-S", BUILD.parent, "-B", BUILD]
                subprocess.run([cmake, *again], check=True, capture_output=True)


def _option():
    found = re.search(rf"^{OPTION}:BOOL=(\w+)$", CACHE.read_text(), re.MULTILINE)
    return found[1] if found else "OFF"
