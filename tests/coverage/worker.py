"""The process that runs checks: reads one JSON job a line, answers one JSON result a line.

Checks run apart from pytest so that a crash or a hang in a driver costs one case, and so that the
memory compiled programs take is given back (see runner.py). A check that fails doesn't keep the
others from running.

Job: {"op", "dtype" (None: bad input alone), "limit", "errors" (that too)}.
Result: {"passed", "looked_at": {check: samples}, "failed": {check: error}, "error" and "traceback"
of the first, "fallbacks" and "host_staged": {op: runs}, "programs": what this job built}.
"""

import json
import os
import sys
import traceback

#: How many error inputs are looked at.
ERROR_INPUTS = 40


def main():
    # The pipe is for results alone: whatever else prints goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    import torch

    from tests.coverage import checks, scope

    ops = {scope.full_name(op): op for op in scope.all_ops()}
    for line in sys.stdin:
        answers.write(json.dumps(run(json.loads(line), torch, ops, checks)) + "\n")
        answers.flush()


def run(job, torch, ops, checks):
    torch.ocl.reset_fallback_counts()
    torch.ocl.reset_host_staged_counts()
    before = torch.ocl.program_stats()
    result = {"looked_at": {}, "failed": {}}

    def attempt(name, check, *arguments):
        # Random numbers don't depend on what ran before, so that a failure can be repeated.
        torch.manual_seed(0)
        try:
            result["looked_at"][name] = check(ops[job["op"]], *arguments)
            torch.ocl.synchronize()
        except Exception as error:  # noqa: BLE001 - the parent decides what a failure means
            result["failed"][name] = f"{type(error).__name__}: {error}"
            result.setdefault("error", f"{name}: {type(error).__name__}: {error}")
            result.setdefault("traceback", traceback.format_exc())

    if job["dtype"] is not None:
        for name, check in checks.CHECKS.items():
            attempt(name, check, getattr(torch, job["dtype"]), job["limit"])
    if job["dtype"] is None or job.get("errors"):
        attempt("errors", checks.check_errors, ERROR_INPUTS)
        attempt("refused", checks.check_refused)
    result["passed"] = not result["failed"]
    result["fallbacks"] = torch.ocl.fallback_counts()
    result["host_staged"] = torch.ocl.host_staged_counts()
    after = torch.ocl.program_stats()
    result["programs"] = {key: after[key] - before[key] for key in after}
    return result


if __name__ == "__main__":
    main()
