"""Every OpInfo of torch under torch.compile on the device, in a process beside this one.

    python -m tests.coverage.compiled                  (all of it; `make coverage-compile`)
    python -m tests.coverage.compiled --dtypes float32 --ops '^add' -v
    python -m tests.coverage.compiled --only failed    (what failed last time, once more)
    python -m tests.coverage.compiled --only new --write

Results are kept in build/compile-coverage.json. --write puts all that is kept there into
docs/reference/compile-coverage.json and the page made of it.
"""

import argparse
import re
import runpy
import sys
import time

import torch

from tests.coverage import results as files
from tests.coverage import scope
from tests.coverage.compiled import results
from tests.coverage.runner import Runner

DTYPES = "float32,float16,bfloat16,int64,bool,float64"
#: Seconds for one op and dtype. CPU torch's inductor may have to compile it, too.
TIMEOUT = 120
#: Cases between two saves.
SAVED_EACH = 20
#: Cases that --only asks for, by how they ended.
KINDS = {"new": (), "failed": results.FAILING, "breaks": ("breaks",)}


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m tests.coverage.compiled", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--dtypes", default=DTYPES, help="comma-separated; default: %(default)s")
    parser.add_argument("--ops", default="", help="a regular expression for the names of OpInfos")
    parser.add_argument("--samples", type=int, default=1, help="samples of each")
    parser.add_argument("--seconds", type=float, default=1e9, help="start nothing after that long")
    parser.add_argument("--only", choices=list(KINDS), help="what ended so")
    parser.add_argument("--write", action="store_true", help="write the page and its table")
    parser.add_argument("-v", "--verbose", action="store_true", help="failures in full")
    return parser.parse_args(arguments)


def cases(dtypes, pattern):
    """(OpInfo's name, dtype) of all in scope that CPU torch and the device have."""
    if not torch.ocl.get_device_properties(0).has_fp64:
        dtypes = [name for name in dtypes if name != "float64"]
    for name in dtypes:
        for op in scope.in_scope():
            known = getattr(torch, name) in op.supported_dtypes("cpu")
            if known and re.search(pattern, scope.full_name(op)):
                yield scope.full_name(op), name


def is_wanted(case, part, only):
    """Whether --only asks for a case, by what is known of it."""
    entry = part["ops"].get(case[0], {}).get(case[1])
    if entry is None:
        return only in (None, "new")
    return only is None or results.kind(entry) in KINDS[only]


def run(todo, part, options, save):
    """Runs cases one by one; their results go into `part`."""
    start = time.monotonic()
    runner = Runner(TIMEOUT, "tests.coverage.compiled.worker")
    slowest = []
    for number, (op, dtype) in enumerate(todo):
        began = time.monotonic()
        if began - start > options.seconds:
            break
        result = runner.run(op, dtype, options.samples)
        entry = part["ops"].setdefault(op, {})[dtype] = results.verdict(result)
        slowest.append((time.monotonic() - began, op, dtype))
        if results.kind(entry) in results.FAILING:
            print(f"{op} {dtype}: {entry[0]}", flush=True)
            if options.verbose:
                print(result.get("why", result.get("traceback", "")), flush=True)
        if number % SAVED_EACH == SAVED_EACH - 1:
            save()
    runner.close()
    save()
    print(f"\n{len(slowest)} cases in {time.monotonic() - start:.0f} s")
    for took, op, dtype in sorted(slowest, reverse=True)[:5]:
        print(f"  {took:6.1f} s  {op} {dtype}")


def main():
    options = parse()
    everything = files.load(results.KEPT)
    part = everything.setdefault(results.runtime(), {"about": {}, "ops": {}})
    part["about"] = {
        "device": torch.ocl.get_device_name(0),
        "torch": torch.__version__,
        "samples": options.samples,
    }
    dtypes = options.dtypes.split(",")
    todo = [c for c in cases(dtypes, options.ops) if is_wanted(c, part, options.only)]
    run(todo, part, options, lambda: files.save(everything, results.KEPT))
    for dtype in dtypes:
        count, generated = results.counts(part["ops"], dtype)
        print(f"{dtype:10} {count}, {generated} with generated kernels")
    if options.write:
        merged = results.merge(files.load(results.DOCUMENTED), everything)
        files.save(merged, results.DOCUMENTED)
        sys.path.insert(0, str(results.ROOT / "tools" / "docs"))
        sys.argv = ["generate.py"]
        runpy.run_path(str(results.ROOT / "tools" / "docs" / "generate.py"), run_name="__main__")


if __name__ == "__main__":
    main()
