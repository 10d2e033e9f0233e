"""The compilers' results, kept in a file of JSON lines."""

import concurrent.futures
import dataclasses
import json
import time

from tests.silicon.compilers import Compiled, Kernel


class Results:
    """Outcomes of a device's programs, by the programs' names."""

    def __init__(self, path):
        self.path = path
        self.known = {}
        if path.exists():
            for line in path.read_text().splitlines():
                name, outcome = json.loads(line)
                kernels = tuple(Kernel(**kernel) for kernel in outcome.pop("kernels"))
                outcome["warnings"] = tuple(outcome["warnings"])
                self.known[name] = Compiled(**outcome, kernels=kernels)

    def compile(self, compiler, programs, jobs, deadline=float("inf")):
        """Compiles those that aren't known, until a time."""
        left = [program for program in programs if program.name not in self.known]
        self.path.parent.mkdir(parents=True, exist_ok=True)

        def compile_one(program):
            if time.monotonic() < deadline:
                return program.name, compiler.compile(program)
            return program.name, None

        with (
            self.path.open("a") as file,
            concurrent.futures.ThreadPoolExecutor(jobs) as pool,
        ):
            for name, outcome in pool.map(compile_one, left):
                if outcome is None:
                    continue
                self.known[name] = outcome
                file.write(json.dumps([name, dataclasses.asdict(outcome)]) + "\n")
                file.flush()

    def of(self, program):
        """A program's outcome, or None."""
        return self.known.get(program.name)
