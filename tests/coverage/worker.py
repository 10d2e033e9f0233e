"""The process that runs checks: reads one JSON job a line, answers one JSON result a line.

Checks run apart from pytest so that a crash or a hang in a driver costs one case, and so that the
memory compiled programs take is given back (see runner.py).
"""

import json
import os
import sys
import traceback


def main():
    # The pipe is for results alone: whatever else prints goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    import torch

    from tests.coverage import checks, scope

    ops = {scope.full_name(op): op for op in scope.all_ops()}
    for line in sys.stdin:
        job = json.loads(line)
        result = {"passed": True, "looked_at": {}}
        try:
            op = ops[job["op"]]
            if job["dtype"] is None:
                result["looked_at"]["errors"] = checks.check_errors(op, job["limit"])
            else:
                dtype = getattr(torch, job["dtype"])
                for name, check in checks.CHECKS.items():
                    result["looked_at"][name] = check(op, dtype, job["limit"])
            torch.ocl.synchronize()
        except Exception as error:  # noqa: BLE001 - the parent decides what a failure means
            result["passed"] = False
            result["error"] = f"{type(error).__name__}: {error}"
            result["traceback"] = traceback.format_exc()
        result["fallbacks"] = torch.ocl.fallback_counts()
        result["programs"] = torch.ocl.program_stats()
        answers.write(json.dumps(result) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
