"""One process of the runner: a scenario's step with one fault after the other.

Results go into a file as lines of JSON, before and after each fault, so that what a process died of
is known."""

import contextlib
import dataclasses
import faulthandler
import gc
import importlib
import json
import os
import sys
import time
import traceback
import zlib

#: Seconds for a step and the one after it. It may wait for a build worker, or a group's other rank.
LIMIT = 60
#: As many times as long where programs may have to be built: another device has others.
FIRST_USES = 3
#: Steps before the first fault: caches are filled, and a captured graph has its command buffers.
WARM_UP = 5

OUT_OF_RESOURCES, INVALID_OPERATION = -5, -59
MILLISECONDS = 10
NONSENSE = ("zeros", "ones", "empty")
# Calls that tell what a driver knows by itself, set something, or let something go.
QUIET = ("clGet", "clSet", "clRetain", "clRelease")


@dataclasses.dataclass(frozen=True)
class Fault:
    """A line of a plan (plan.h)."""

    call: str
    which: str
    how: str
    number: int

    def plan(self):
        return f"{self.call}:{self.which}:{self.how}:{self.number}"


def faults_of(calls):
    """All faults of a run that made these calls."""
    for name, (count, asked) in sorted(calls.items()):
        kinds = [("before", OUT_OF_RESOURCES), ("before", INVALID_OPERATION)]
        if not name.startswith("clGet"):
            kinds.append(("after", OUT_OF_RESOURCES))
        if not name.startswith(QUIET):
            kinds += [("delay", MILLISECONDS), ("lost", OUT_OF_RESOURCES), ("lost", -36)]
        if name.startswith("clEnqueue"):
            kinds += [("event", OUT_OF_RESOURCES), ("late", 5 * MILLISECONDS)]
        for number in range(1, count + 1):
            for how, value in kinds:
                yield Fault(name, str(number), how, value)
        # Those of events are about status and times: "event" lies about the one.
        if name != "clGetEventInfo":
            for what in asked:
                for how in NONSENSE:
                    yield Fault(name, f"what={what:#x}", how, 0)


def drawn(fault, scenario, share, seed):
    """Whether a fault belongs to a sample of one in `share`."""
    return zlib.crc32(f"{seed} {scenario} {fault.plan()}".encode()) % share == 0


class Process:
    """A scenario's steps in this process, beside a proxy."""

    def __init__(self, scenario, proxy):
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.proxy = proxy
        self.starts = scenario.starts
        self.step = scenario.prepare()
        self.expected = [value.cpu() for value in self.step("cpu")]

    def run(self):
        """Runs a step, and returns an exception, or None and whether its results are right."""
        import torch

        try:
            results = [value.cpu() for value in self.step("ocl")]
            torch.ocl.synchronize()
        except Exception as error:
            return error, False
        return None, all(
            torch.allclose(one, other, rtol=1e-4, atol=1e-5)
            for one, other in zip(results, self.expected, strict=True)
        )

    def settle(self):
        """Lets each of several devices report what failed between them: all do."""
        import torch

        for index in range(torch.ocl.device_count() if torch.ocl.device_count() > 1 else 0):
            with contextlib.suppress(RuntimeError):
                torch.ocl.synchronize(index)

    def held(self):
        """The objects that the program holds, by kind, and bytes."""
        import torch

        gc.collect()
        held = {}
        if torch.ocl.is_available():
            torch.ocl.synchronize()
            torch.ocl.empty_cache()
            torch.ocl.empty_host_cache()
            held["bytes"] = torch.ocl.memory_allocated()
            held["pinned bytes"] = torch.ocl.host_memory_stats().get("active_bytes.current", 0)
        for kind, references, _ in self.proxy.objects().values():
            held[kind] = held.get(kind, 0) + references
        return held

    def warm_up(self):
        """Steps without a fault: the calls of one, the most that is held, what each step adds."""
        for _ in range(WARM_UP):
            self.check(*self.run())
        self.settle()
        gc.collect()
        gc.freeze()
        before = self.held()
        calls, most = {}, {}
        for _ in range(WARM_UP):
            self.proxy.plan()
            self.check(*self.run())
            for name, (count, asked) in self.proxy.calls().items():
                known, asked_before = calls.get(name, (0, []))
                calls[name] = (max(known, count), sorted({*asked_before, *asked}))
            after = self.held()
            most = {kind: max(most.get(kind, 0), after.get(kind, 0)) for kind in {**most, **after}}
        growth = {kind: (after.get(kind, 0) - before.get(kind, 0)) // WARM_UP for kind in after}
        return calls, most, {kind: max(0, each) for kind, each in growth.items()}

    def check(self, error, right):
        """Without a fault nothing may fail."""
        if error is not None:
            raise error
        assert right, "wrong results without a fault"
        assert not (wrong := self.proxy.wrong()), wrong

    def try_fault(self, fault):
        """Runs a step with a fault, and one behind it; returns a dictionary of what came of it."""
        self.proxy.plan(fault.plan())
        begin = time.monotonic()
        error, right = self.run()
        outcome = {"struck": self.proxy.struck(), "seconds": round(time.monotonic() - begin, 3)}
        self.proxy.plan()
        outcome["wrong"] = self.proxy.wrong()
        if error is not None:
            outcome["error"] = "".join(traceback.format_exception(error))
            outcome["named"] = names(error, fault)
            error.__traceback__ = None
        elif not right:
            outcome["wrong"].append("wrong results, and no exception")
        del error
        self.settle()
        error, right = self.run()
        if error is not None and self.starts and fault.how in NONSENSE and names(error, fault):
            pass  # a device is asked once, and stays what it said
        elif error is not None:
            outcome["wrong"].append(f"the next step: {error}")
            outcome["next"] = "".join(traceback.format_exception(error))
            self.run()  # so that the next fault is not blamed for it
        elif not right:
            outcome["wrong"].append("wrong results of the next step")
        outcome["wrong"] += self.proxy.wrong()
        return outcome


def names(error, fault):
    """Whether an exception names the call. The command of an event fails at a wait, whose name it
    has; where a device is lost, any call may be the first."""
    text = ""
    while error is not None:
        text += f"{error}\n"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if fault.how in ("event", "lost"):
        return " failed: CL_" in text
    if fault.how in NONSENSE:  # the driver may notice, or this package
        words = (" failed: CL_", fault.call, "no usable device", "CL_DEVICE_", "kernel '")
        words += ("the arguments of ",)  # of a kernel that is captured
        return any(word in text for word in words)
    return fault.call in text


def leaks(before, after):
    """The kinds of which more is held than before, in words. Caches are empty."""
    return [
        f"leaked {after[kind] - before.get(kind, 0)} {kind}"
        for kind in after
        if after[kind] > before.get(kind, 0)
    ]


def run(process, request, write):
    """Tries faults, or all that the warm-up shows."""
    calls, most, growth = process.warm_up()
    if request["faults"] is None:
        chosen = (request["scenario"], request["share"], request["seed"])
        faults = [fault for fault in faults_of(calls) if drawn(fault, *chosen)]
        write({"faults": [dataclasses.astuple(fault) for fault in faults]})
    else:
        faults = [Fault(*fault) for fault in request["faults"]]
    for fault in faults:
        write({"begin": dataclasses.astuple(fault)})
        faulthandler.dump_traceback_later(request["limit"], exit=True)
        objects = process.proxy.objects()
        outcome = process.try_fault(fault)
        most = {kind: most[kind] + 3 * growth.get(kind, 0) for kind in most}
        for _ in range(5):  # other threads may not be done, and a late event
            held = process.held()
            found = leaks(most, held)
            if not found:
                break
            time.sleep(0.1)
        if found:
            outcome["wrong"] += found
            new = process.proxy.objects().items() - objects.items()
            outcome["objects"] = sorted(f"{kind} by {by}" for _, (kind, _, by) in new)
            most = {kind: max(most.get(kind, 0), held.get(kind, 0)) for kind in {**most, **held}}
        faulthandler.cancel_dump_traceback_later()
        write({"end": outcome})


def run_first_step(process, request, write):
    """The first step of a process, with a fault or without."""
    faulthandler.dump_traceback_later(FIRST_USES * request["limit"], exit=True)
    if request["faults"] is None:
        process.check(*process.run())
        calls = process.proxy.calls()
        process.settle()  # as beside a fault: where there are other devices, they get a context
        process.check(*process.run())
        write({"calls": calls, "held": process.held()})
        return
    fault = Fault(*request["faults"][0])
    write({"begin": dataclasses.astuple(fault)})
    outcome = process.try_fault(fault)
    if fault.how not in NONSENSE:  # which is another device, of other programs
        outcome["wrong"] += leaks(request["held"], process.held())
    write({"end": outcome})


def main():
    from tests.faults.proxy import Proxy

    with open(sys.argv[1]) as file:
        request = json.load(file)
    scenario = importlib.import_module(request["module"]).ALL[request["scenario"]]
    process = Process(scenario, Proxy())
    with open(sys.argv[2], "a") as results:

        def write(line):
            print(json.dumps(line), file=results, flush=True)

        (run_first_step if scenario.starts else run)(process, request, write)
        write({"done": True})
    if scenario.starts and request["share"] > 1:
        os._exit(0)  # the end of a process takes longer than all before
