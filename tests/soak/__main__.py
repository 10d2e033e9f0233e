"""Trains for a long time, disturbed and not: `python -m tests.soak [--steps 20000]`.

Exits with 1 if a loss differs between the two, or if memory, files, threads or programs grow."""

import argparse
import json
import subprocess
import sys
import time

LOOKS = 40


def train(steps, disturbed):
    """Prints each look at the process, then all losses."""
    from tests.soak import training, watch

    found, begin = [], time.monotonic()
    for number, loss in enumerate(training.losses(training.Training(disturbed), steps), 1):
        found.append(loss)
        if number % max(1, steps // LOOKS) == 0:
            held = watch.look()
            print(json.dumps({"step": number, **held}), flush=True)
    print(json.dumps({"losses": found, "seconds": time.monotonic() - begin}))


def run(steps, disturbed):
    """The looks and the losses of a process."""
    command = [sys.executable, "-m", "tests.soak", "--steps", str(steps), "--only"]
    command.append("disturbed" if disturbed else "alone")
    looks = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            said = json.loads(line)
            if "losses" in said:
                end = said
            else:
                print("disturbed" if disturbed else "alone    ", said, flush=True)
                looks.append(said)
    if process.returncode:
        sys.exit(f"the process ended with {process.returncode}")
    return looks, end


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--only", choices=("alone", "disturbed"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        train(options.steps, options.only == "disturbed")
        return 0
    from tests.soak import watch

    _, alone = run(options.steps, False)
    looks, disturbed = run(options.steps, True)
    pairs = enumerate(zip(alone["losses"], disturbed["losses"], strict=True))
    differ = [step for step, (a, b) in pairs if a != b and not (a != a and b != b)]
    grown = watch.growth([{k: v for k, v in look.items() if k != "step"} for look in looks])
    last, (first, second) = disturbed["losses"][-1], (alone["seconds"], disturbed["seconds"])
    print(f"{options.steps} steps in {first:.0f} s, disturbed in {second:.0f} s")
    print(f"last loss {last:.6f}; {len(differ)} of the losses differ: {differ[:5]}")
    print("grown in the last quarter:", grown or "nothing")
    return 1 if differ or grown else 0


if __name__ == "__main__":
    sys.exit(main())
