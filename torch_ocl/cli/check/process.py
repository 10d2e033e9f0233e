"""Runs cases in a process that may crash or hang, and begins another one after that."""

import json
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

_START_SECONDS = 600  # importing torch on a busy machine
_LIVELY = 20  # times as long as without a sign of life a case may take
_VARIABLES = {
    "TORCH_OCL_VERBOSE": "dispatch,build,launch",
    "TORCH_OCL_QUARANTINE": "0",  # what was left out is tried again
    "TORCH_OCL_FIRST_USE_CHECK": "0",
    "TORCH_OCL_FALLBACK": "0",
}
_RUNS = re.compile(r"^torch_ocl:  *(\w+) .*: (\w+) runs$", re.MULTILINE)
_LAUNCH = re.compile(r"^torch_ocl: launch: (.*)$", re.MULTILINE)
_BUILD = re.compile(r"^torch_ocl: build: .*?: (\S+\.cl) (.*)$", re.MULTILINE)
_FILE = re.compile(r" of (\S+\.cl)")

LeftOut = tuple[str, str, str]


@dataclass
class Outcome:
    """The outcome of one case. `ran` has pairs of an engine and its implementation."""

    fault: str = ""
    skipped: str = ""
    ran: list[tuple[str, str]] = field(default_factory=list)
    launches: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)


class Runner:
    """Answers run() for a device; close() ends the process, and end() does so without a wait."""

    def __init__(self, device: str, timeout: float) -> None:
        self.device, self.timeout, self.restarts = device, timeout, 0
        self._process: subprocess.Popen[bytes] | None = None
        self._said = tempfile.NamedTemporaryFile()  # noqa: SIM115, closed by close()
        self._options: dict[str, str] = {}

    def run(
        self,
        engine: str,
        case: int,
        dtype: str,
        implementation: str = "",
        left_out: tuple[LeftOut, ...] = (),
    ) -> Outcome:
        """One case, with that implementation put in front and those left out."""
        if self._process is None:
            fault = self._start()
            if fault:
                return Outcome(fault=fault)
        start = self._said.seek(0, os.SEEK_END)
        task = {
            "engine": engine,
            "case": case,
            "dtype": dtype,
            "implementation": implementation,
            "left_out": left_out,
        }
        answer = self._ask(json.dumps(task) + "\n", self.timeout)
        self._said.seek(start)
        text = self._said.read().decode(errors="replace")
        self._options.update(_BUILD.findall(text))
        outcome = Outcome(answer.get("fault", ""), answer.get("skipped", ""))
        outcome.ran = list(dict.fromkeys(_RUNS.findall(text)))
        if outcome.fault:
            outcome.launches = list(dict.fromkeys(_LAUNCH.findall(text)))
            files = _FILE.findall("\n".join(outcome.launches)) + [
                f for f, _ in _BUILD.findall(text)
            ]
            outcome.options = {f: self._options[f] for f in files if f in self._options}
        return outcome

    def _start(self) -> str:
        command = [sys.executable, "-m", "torch_ocl.cli.check.worker", self.device]
        pipe = subprocess.PIPE
        environment = {**os.environ, **_VARIABLES}
        with open(self._said.name, "ab") as said:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=said, env=environment
            )
        return self._ask("", _START_SECONDS).get("fault", "")

    def _ask(self, line: str, seconds: float) -> dict:
        """The process's answer. It is gone after a crash or a hang."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(line.encode())
            process.stdin.flush()
        except BrokenPipeError:
            return self._end(process)
        if not self._answers(process, seconds):
            process.kill()
            self._end(process)
            return {"fault": f"hangs: there was no sign of life for {seconds:g} s"}
        answer = process.stdout.readline()
        return json.loads(answer) if answer.endswith(b"\n") else self._end(process)

    def _answers(self, process: subprocess.Popen[bytes], seconds: float) -> bool:
        """Waits while the process builds programs and launches kernels, which it says, but not for
        ever: something may launch kernels without an end."""
        said, last = 0, time.monotonic()
        end = last + _LIVELY * seconds
        while time.monotonic() < min(last + seconds, end):
            if select.select([process.stdout], [], [], min(seconds, 0.5))[0]:
                return True
            before, said = said, os.fstat(self._said.fileno()).st_size
            if said != before:
                last = time.monotonic()
        return False

    def _end(self, process: subprocess.Popen[bytes]) -> dict:
        code = process.wait()
        self._process = None
        self.restarts += 1
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        return {"fault": f"crashes: the process ended with {how}"}

    def end(self) -> None:
        """Tells the process to end, which close() waits for."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def close(self) -> None:
        self.end()
        if self._process is not None:
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        self._said.close()
