"""A small sample of each kernel family, for a run under a memory and race checker:

    oclgrind --data-races --uninitialized --log oclgrind.log python tests/memory_checker/sample.py

`make check-memory` runs it and fails if the log is not empty. Arguments name the families to run.
"""

import sys
import time

import algebra  # noqa: F401
import detection  # noqa: F401
import elements  # noqa: F401
import epilogues  # noqa: F401
import lookups  # noqa: F401
import networks  # noqa: F401
import torch
from family import FAMILIES


def main():
    print("device:", torch.ocl.get_device_name(0))
    for name in sys.argv[1:] or FAMILIES:
        start = time.monotonic()
        torch.manual_seed(0)
        results = FAMILIES[name]()
        total = sum(float(t.detach().cpu().float().sum()) for t in results)
        torch.ocl.synchronize()
        print(f"{name}: checksum {total}, {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
