"""Runs checks in a worker process that is replaced when it dies, hangs or has grown."""

import json
import pathlib
import selectors
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT = 240  # seconds for one case
#: A driver keeps a few MB for every program: a worker past this is replaced.
MAX_RESIDENT_BYTES = 3 << 30


class Runner:
    """One worker process, started when first needed."""

    def __init__(self, timeout=TIMEOUT, worker="tests.coverage.worker"):
        self._timeout = timeout
        self._worker = worker
        self._process = None
        self._log = None

    def run(self, op, dtype, limit, errors=False):
        """The worker's result for one case (see worker.py); a crash or hang is a failed result."""
        if self._process is not None and self._resident() > MAX_RESIDENT_BYTES:
            self.close()
        if self._process is None:
            self._start()
        job = {"op": op, "dtype": dtype, "limit": limit, "errors": errors}
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return self._died("crash")
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(self._timeout):
                return self._died(f"hang: nothing came back in {self._timeout} s")
        line = self._process.stdout.readline()
        return json.loads(line) if line else self._died("crash")

    def close(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self._log.close()

    def _start(self):
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._worker],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def _died(self, what):
        self._process.kill()
        code = self._process.wait()
        self._log.seek(0)
        tail = self._log.read()[-2000:]
        self.close()
        error = f"{what} (exit code {code})"
        return {"passed": False, "error": error, "traceback": tail, "failed": {"run": error}}

    def _resident(self):
        try:
            status = pathlib.Path(f"/proc/{self._process.pid}/statm").read_text()
        except OSError:
            return 0
        return int(status.split()[1]) * 4096
