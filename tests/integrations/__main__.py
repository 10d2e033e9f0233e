"""Runs the checks of all libraries, each library in a process of its own, and writes
docs/reference/libraries.json: `make integrations`.

    python -m tests.integrations [LIBRARY ...]
    python -m tests.integrations --without-integrations
    COMFYUI=folder python -m tests.integrations ComfyUI

With libraries named, what is known of the others stays. The second prints, as JSON, what becomes of
the checks with an integration where TORCH_OCL_INTEGRATIONS is off.
"""

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys

RESULTS = "docs/reference/libraries.json"


def _outcome(tried) -> str:
    """Empty if a check works, otherwise its error."""
    from tests.integrations import checklist

    try:
        with contextlib.redirect_stdout(io.StringIO()):
            checklist.perform(tried)
    except BaseException as error:  # a library may end the process
        if isinstance(error, KeyboardInterrupt):
            raise
        first = (str(error).strip().splitlines() or [""])[0]
        return f"{type(error).__name__}: {first[:200]}"
    return ""


def _without_integrations() -> None:
    # Others import it, which may need its ops declared: that is no part of what is tried.
    import torchvision  # noqa: F401

    os.environ["TORCH_OCL_INTEGRATIONS"] = "off"
    from tests.integrations import checklist, test_checks

    # perform() names a mode for each: here none may be in force.
    checklist._environment = lambda mode: contextlib.nullcontext()
    print(json.dumps({str(tried): _outcome(tried) for tried in test_checks.INTEGRATED}))


def _one(library: str) -> None:
    """The results of a library, as the last line."""
    from tests.integrations import checklist

    found = [
        {"what": tried.what, "error": _outcome(tried), "fails": tried.fails}
        for tried in checklist.load()
        if tried.library == library
    ]
    print(json.dumps({"version": checklist.version(library), "checks": found}))


def _all(chosen: list[str]) -> int:
    from tests.integrations import checklist

    libraries = sorted({tried.library for tried in checklist.load()}, key=str.lower)
    path = checklist.ROOT / RESULTS
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    surprises = 0
    for library in chosen or libraries:
        if library != "torch" and checklist.version(library) is None:
            asked = (
                "not tried: COMFYUI names no folder" if library == "ComfyUI" else "not installed"
            )
            print(f"{library}: {asked}")
            continue
        done = subprocess.run(
            [sys.executable, "-m", "tests.integrations", "--one", library],
            capture_output=True,
            text=True,
            timeout=1800,
        )
        try:
            results[library] = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            results[library] = {"version": checklist.version(library), "checks": []}
            print(f"{library}: ended with {done.returncode}\n{done.stderr[-2000:]}")
            surprises += 1
        for check in results[library]["checks"]:
            surprise = bool(check["error"]) != bool(check["fails"])
            surprises += surprise
            word = "fails" if check["error"] else "works"
            print(f"{library}: {check['what']}: {word} {check['error']}", "(!)" * surprise)
    results = {name: results[name] for name in libraries if name in results}
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 1 if surprises else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("libraries", nargs="*")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--without-integrations", action="store_true")
    options = parser.parse_args()
    if options.without_integrations:
        _without_integrations()
    elif options.one:
        _one(options.libraries[0])
    else:
        return _all(options.libraries)
    return 0


if __name__ == "__main__":
    sys.exit(main())
