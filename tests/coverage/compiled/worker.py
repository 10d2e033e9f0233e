"""The process that compiles: reads one JSON job a line, answers one JSON result a line.

Job: {"op", "dtype", "limit"}. Result: {"end", "why", "kernels"}.
"""

import json
import os
import sys


def main():
    # The pipe is for results alone: whatever else prints goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    import torch

    from tests.coverage import scope
    from tests.coverage.compiled import checks

    checks.settings()
    ops = {scope.full_name(op): op for op in scope.all_ops()}
    for line in sys.stdin:
        answers.write(json.dumps(run(json.loads(line), torch, ops, checks)) + "\n")
        answers.flush()


def run(job, torch, ops, checks):
    try:
        outcome = checks.check(ops[job["op"]], getattr(torch, job["dtype"]), job["limit"])
    except Exception as error:  # noqa: BLE001 - the sample can't be made, or CPU torch refuses it
        outcome = ("eager", checks.said(error), 0)
    torch._dynamo.reset()
    return dict(zip(("end", "why", "kernels"), outcome, strict=True))


if __name__ == "__main__":
    main()
