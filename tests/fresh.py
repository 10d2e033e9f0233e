"""Scripts that need a process of their own: for another environment, or for first uses.

They are forked from a process that has imported torch and touched no device, since importing it
takes longer than most of them. What is about starting, forking or ending a process itself starts
one in the usual way.

Run as a program, this file is that process."""

import atexit
import contextlib
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile

_server = None


def run_script(code, *arguments, environment=None, cwd=None):
    """Runs Python code with those arguments in sys.argv and an environment, by default this
    process's. Returns a subprocess.CompletedProcess with the text it wrote."""
    global _server
    if _server is None or _server.poll() is not None:
        _server = _start()
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        request = {
            "code": code,
            "arguments": arguments,
            "environment": dict(os.environ if environment is None else environment),
            "cwd": str(cwd or os.getcwd()),
            "files": (out.name, err.name),
        }
        _send(_server.stdin, request)
        code = _receive(_server.stdout)
        return subprocess.CompletedProcess("run_script", code, out.read(), err.read())


def _start():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    command = [sys.executable, "-m", "tests.fresh"]
    pipe = subprocess.PIPE
    server = subprocess.Popen(command, cwd=root, stdin=pipe, stdout=pipe)
    atexit.register(server.stdin.close)  # it ends with its input
    return server


def _send(stream, value):
    data = pickle.dumps(value)
    stream.write(struct.pack("Q", len(data)) + data)
    stream.flush()


def _receive(stream):
    """None at the end of the stream."""
    head = stream.read(8)
    return pickle.loads(stream.read(struct.unpack("Q", head)[0])) if head else None


def _serve():
    """Answers requests; returns one in each forked child, and None at the end."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    while (request := _receive(requests)) is not None:
        child = os.fork()
        if child == 0:
            requests.close()
            answers.close()
            return request
        _, status = os.waitpid(child, 0)
        _send(answers, os.waitstatus_to_exitcode(status))
    return None


def _become(request):
    """Takes on a request's environment, folder and files."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.path[0] = request["cwd"]
    sys.argv = ["-c", *request["arguments"]]
    for descriptor, name in zip((1, 2), request["files"], strict=True):
        file = os.open(name, os.O_WRONLY)
        os.dup2(file, descriptor)
        os.close(file)
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


if __name__ == "__main__":
    import torch  # noqa: F401

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _request = _serve()
    if _request is not None:
        _become(_request)
        exec(compile(_request["code"], "<string>", "exec"), {"__name__": "__main__"})
