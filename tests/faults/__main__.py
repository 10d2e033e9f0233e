"""Tries faults and prints counts and defects: `python -m tests.faults --help`."""

import argparse
import pathlib
import sys
import time

from tests.faults import runner, scenarios


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("scenarios", nargs="*", help="all, if none is given")
    parser.add_argument("--share", type=int, default=1, help="one fault in so many is tried")
    parser.add_argument("--seed", default="", help="chooses which")
    parser.add_argument("--report", type=pathlib.Path, help="a file for the defects' tracebacks")
    options = parser.parse_args()
    unknown = set(options.scenarios) - set(scenarios.ALL)
    if unknown:
        parser.error(f"no scenario {unknown}; there are: {', '.join(scenarios.ALL)}")
    begin = time.monotonic()
    if options.report:
        options.report.write_text("")
    faults = runner.Runner(options.share, options.seed, lambda text: print(text, flush=True))
    for name in options.scenarios or scenarios.ALL:
        known = len(faults.report.defects)
        faults.run(name)
        if options.report:
            with options.report.open("a") as file:
                for defect in faults.report.defects[known:]:
                    file.write(f"{defect}\n{defect.text}\n\n")
    print(faults.report.table())
    print(f"{time.monotonic() - begin:.0f} seconds")
    sys.exit(1 if faults.report.defects else 0)


if __name__ == "__main__":
    main()
