"""Runs the cases and prints, per case, the times of ocl and of torch on another device, their
ratio, and how much of the device's measured peaks ocl reaches.

python -m benchmarks [--against cuda] [--compile] [--family gemm] [--case mm] [--quick] [--list]
                     [--document]
python -m benchmarks --against onnxruntime|openvino|llama.cpp [--compile]
"""

import argparse
import math
import pathlib

import torch

from benchmarks.cases import CASES
from benchmarks.cases.naive import naive_cases
from benchmarks.harness import measure, report
from benchmarks.harness.case import COPY, MODELS, compile_models
from benchmarks.harness.engines import ENGINES, is_installed
from benchmarks.harness.untimed import by_family, record
from benchmarks.harness.worker import Worker
from torch_ocl.cli.peaks import measure_peaks, moving

#: --document without a file.
DEVICES_OWN = pathlib.Path()


def positive(text):
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError
    return number


def wanted(chosen, case):
    """Whether the options ask for that case."""
    if chosen.against in ENGINES and not ENGINES[chosen.against].takes(case):
        return False
    # By itself `make bench` is of torch alone.
    if case.family == "inference" and chosen.against not in ENGINES and not chosen.family:
        return False
    if case.for_gpus and chosen.against == "cpu" and chosen.family != case.family:
        return False
    if chosen.compile and case.family not in MODELS:
        return False
    return chosen.family in (None, case.family) and chosen.case in case.name


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    sides = ("cpu", "cuda", *ENGINES)
    parser.add_argument(
        "--against", choices=sides, default="cpu", help="torch on this, or an engine for inference"
    )
    parser.add_argument("--compile", action="store_true", help="models by torch.compile, on both")
    families = sorted({case.family for case in CASES} | {"naive"})
    parser.add_argument("--family", choices=families, help="only cases of this family")
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    parser.add_argument(
        "--seconds", type=positive, default=measure.SECONDS, help="per side and case"
    )
    parser.add_argument("--quick", action="store_true", help="a call or two per case: does it work")
    parser.add_argument("--list", action="store_true", help="the cases' names, nothing is timed")
    parser.add_argument(
        "--document",
        nargs="?",
        type=pathlib.Path,
        const=DEVICES_OWN,
        help="write this device's section of the file (its own in docs/measurements) and its plot",
    )
    chosen = parser.parse_args(arguments)
    every = [*CASES, *(case for case, _ in naive_cases())]
    if not any(wanted(chosen, case) for case in every):
        family = f" of the family {chosen.family}" if chosen.family else ""
        parser.error(f"no case{family} has a name with {chosen.case!r}: --list shows all")
    if chosen.list:
        for case in every:
            if wanted(chosen, case):
                print(f"{case.family:12s} {case.name}")
        parser.exit()
    part = chosen.quick or chosen.family or chosen.case or chosen.compile
    if chosen.document == DEVICES_OWN and part:
        parser.error("--document writes a whole section: name a file of your own")
    if chosen.document and not chosen.document.parent.is_dir():
        parser.error(f"there is no folder {chosen.document.parent}")
    if chosen.against == "cuda" and not torch.cuda.is_available():
        parser.error("--against cuda needs a torch with CUDA and a device for it")
    if chosen.against in ENGINES and not is_installed(chosen.against):
        parser.error(f"--against {chosen.against} needs its package, see benchmarks/README.md")
    return chosen


def other_side(chosen):
    """The side that ocl is compared with: a device of torch, or what makes sides of cases."""
    if chosen.against == "cuda":  # CUDA torch gets a process of its own, for its backward passes
        return Worker("cuda", compiled=chosen.compile)
    return ENGINES[chosen.against]() if chosen.against in ENGINES else chosen.against


def main(arguments=None):
    chosen = parse(arguments)
    limits = {"seconds": 0.0, "least_calls": 1} if chosen.quick else {"seconds": chosen.seconds}
    properties = torch.ocl.get_device_properties(0)
    print(
        f"{properties.name} ({properties.platform_name}), torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads"
    )
    probe_mib = 32 if chosen.quick else 256
    run = report.Run(chosen.against, measure_peaks(probe_mib))
    print("peaks:", run.peaks.describe())

    if chosen.quick:
        print("--quick: a cold call or two of each case, whose times say nothing")
    print(report.ROW.format(*report.header(run), ""))
    seen = set()
    other = other_side(chosen)
    compile_models(chosen.compile)
    for case in (case for case in CASES if wanted(chosen, case)):
        seen |= record(case.make("ocl"))
        by_memory = not chosen.quick and run.peaks.may_be_bound_by_memory(case)
        moves = [moving(case.bytes, *m) for m in (case.moves, COPY)] if by_memory else []
        try:
            result = measure.run(case, other, moves=moves, **limits)
        except RuntimeError as error:  # a case that one side can't run must not cost the others
            run.failed.append((case, str(error).split("\n")[0]))
            print(f"{case.name:44s} failed: {run.failed[-1][1]}", flush=True)
            continue
        run.results.append((case, result))
        print(report.row(run, case, result), flush=True)
    if run.results:
        print(f"geometric mean of {len(run.results)} ratios: {run.mean:.3f}")
    naive = [(case, make) for case, make in naive_cases() if wanted(chosen, case)]
    if naive:
        print("beside kernels with one work-item per element, on the same device:")
    for case, make in naive:
        sides = (measure.Side(call, "ocl") for call in (case.make("ocl"), make("ocl")))
        result = measure.compare(case, *sides, **limits)
        run.naive.append((case, result))
        print(report.row(run, case, result), flush=True)
    run.peaks = run.peaks.or_more(measure_peaks(probe_mib))
    run.programs = torch.ocl.program_stats()
    print(report.programs_text(run.programs))
    if chosen.family is None and not chosen.case:
        run.untimed = by_family(seen)
        print("\n".join(report.untimed_text(run.untimed)))
    if chosen.document:
        own = chosen.document == DEVICES_OWN
        path = report.document_of_device(run.other) if own else chosen.document
        report.document(run, path)
    wrong = any(result.error for _, result in run.results + run.naive)
    raise SystemExit(wrong or bool(run.failed))


if __name__ == "__main__":
    main()
