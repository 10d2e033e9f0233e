"""Programs whose whole output is wanted: drivers' tests, and compilers."""

import subprocess


def run(command, seconds, **options):
    """Runs a program to its end.

    Args:
        command: The program and its arguments.
        seconds: It is killed after so many.
        **options: As subprocess.run() has them.

    Returns:
        A subprocess.CompletedProcess, with both outputs as one text. The program may have failed.

    Raises:
        subprocess.TimeoutExpired: It took longer.
    """
    return subprocess.run(
        [*map(str, command)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
        **options,
    )
