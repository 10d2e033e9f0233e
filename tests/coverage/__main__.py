"""The whole op matrix: every OpInfo of torch against CPU torch, in processes side by side.

    python -m tests.coverage                            (all of it; `make coverage` adds the docs)
    python -m tests.coverage --dtypes float32 --ops 'linalg' --samples 1 -v

Results are kept in docs/reference/op-coverage.json, those of other runtimes stay. A run that --ops,
--dtypes or --samples restrict only prints them, unless --results names the file, where those of
other ops and dtypes stay too.
"""

import argparse
import concurrent.futures
import pathlib
import re
import sys
import threading
import time

import torch

from tests import cores
from tests.coverage import results, scope
from tests.coverage.runner import Runner

DTYPES = "float32,float64,float16,bfloat16,int64,int32,bool,complex64"
SAMPLES = 2
#: Seconds for one op and dtype: several times what the slowest takes with a cold cache.
TIMEOUT = 120


class Pool:
    """A worker process per thread."""

    def __init__(self):
        self._local = threading.local()
        self._runners = []

    def run(self, case, limit):
        if not hasattr(self._local, "runner"):
            self._local.runner = Runner(TIMEOUT)
            self._runners.append(self._local.runner)
        start = time.monotonic()
        result = self._local.runner.run(case["op"], case["dtype"], limit, case["errors"])
        return case, result, time.monotonic() - start

    def close(self):
        for runner in self._runners:
            runner.close()


def cases(dtypes, pattern):
    """Every OpInfo in scope with each of the dtypes that CPU torch has for it. Bad input is looked
    at with the first of its dtypes."""
    for op in scope.in_scope():
        name = scope.full_name(op)
        if re.search(pattern, name):
            known = [
                d for d in DTYPES.split(",") if getattr(torch, d) in op.supported_dtypes("cpu")
            ]
            for dtype in (d for d in known if d in dtypes):
                yield {"op": name, "dtype": dtype, "errors": dtype == known[0]}


def is_partial(options):
    """Whether only a part of the matrix, or of its samples, is asked for."""
    return options.ops != "" or options.dtypes != DTYPES or options.samples != SAMPLES


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m tests.coverage", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--dtypes", default=DTYPES, help="comma-separated; default: %(default)s")
    parser.add_argument("--ops", default="", help="a regular expression for the names of OpInfos")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="samples a check looks at")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes")
    parser.add_argument("--seconds", type=float, default=1e9, help="start nothing after that long")
    parser.add_argument("--only", choices=["new", "gaps"], help="what has no result, or a gap")
    parser.add_argument("--results", type=pathlib.Path, help="the file to keep results in")
    parser.add_argument("-v", "--verbose", action="store_true", help="errors as they come, in full")
    return parser.parse_args(arguments)


def verdict_of(part, case):
    """Known results of a case: see results.py."""
    return part["ops"].get(case["op"], {}).get(case["dtype"], ["none"])[0]


def main():
    options = parse()
    cores.share(options.jobs)
    keep = options.results is not None or not is_partial(options)
    results.PATH = options.results or results.PATH
    runtime = torch.ocl.get_device_properties(0).platform_name
    everything = results.load()
    part = everything.setdefault(runtime, {"about": {}, "ops": {}})
    todo = list(cases(options.dtypes.split(","), options.ops))
    kind = {None: "", "new": "none", "gaps": "gap"}[options.only]
    todo = [c for c in todo if verdict_of(part, c).startswith(kind)]
    start = time.monotonic()
    programs = {"built": 0, "loaded": 0, "build_seconds": 0.0, "load_seconds": 0.0}
    slowest = []
    pool = Pool()

    def run(case):
        late = time.monotonic() - start > options.seconds
        return None if late else pool.run(case, options.samples)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as executor:
        for outcome in executor.map(run, todo):
            if outcome is None:
                continue
            case, result, seconds = outcome
            kept = results.verdict(result)
            part["ops"].setdefault(case["op"], {})[case["dtype"]] = list(kept)
            for key, value in result.get("programs", {}).items():
                programs[key] += value
            slowest.append((seconds, case["op"], case["dtype"]))
            if kept[0].startswith("gap"):
                print(f"{case['op']} {case['dtype']}: {kept[0]}", flush=True)
                if options.verbose:
                    print(result.get("traceback", ""), flush=True)
    pool.close()
    part["about"] = {
        "device": torch.ocl.get_device_name(0),
        "torch": torch.__version__,
        "samples": options.samples,
    }
    if keep:
        results.save(everything)
    report(part, options, programs, slowest, time.monotonic() - start)


def report(part, options, programs, slowest, seconds):
    print(f"\n{len(slowest)} cases in {seconds:.0f} s with {options.jobs} processes")
    print(
        f"programs: {programs['built']} built in {programs['build_seconds']:.0f} s, "
        f"{programs['loaded']} loaded from disk in {programs['load_seconds']:.0f} s"
    )
    for took, op, dtype in sorted(slowest, reverse=True)[:5]:
        print(f"  {took:6.1f} s  {op} {dtype}")
    for dtype in options.dtypes.split(","):
        count = results.counts(part["ops"], dtype)
        print(f"{dtype:10} {count} of {sum(count.values())}")


if __name__ == "__main__":
    sys.exit(main())
