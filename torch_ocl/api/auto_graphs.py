"""A function that captures itself after some equal calls: torch.ocl.graphs.auto().

A replay runs none of the function's Python. So it may take the place of a call only where Python
would do the same again. What decides that is compared at every call: the arguments' layouts, plain
values and tensors that the function reads, the modules and optimisers that it was seen to use, and
PyTorch's modes. They are a call's form (auto_forms.py), and each form has a graph of its own.

Python runs once in a call, also in one that fails to be captured. A capture that meets something
that can't be captured is given up there: what was captured until then runs, and the rest of the
function runs as ever.
"""

import collections
import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from torch_ocl import _C
from torch_ocl.api import auto_forms
from torch_ocl.api.auto_captures import Arguments, Captured
from torch_ocl.api.auto_forms import PLAIN, Refused, Surroundings, is_dense, storage
from torch_ocl.api.auto_users import Users
from torch_ocl.api.auto_watch import DRAWS, Watch, state_of
from torch_ocl.api.stream_graphs import OclGraph, graph_pool_handle, is_current_stream_capturing

_log = logging.getLogger("torch_ocl.graphs")
_MOST_WAITING = 64  # forms that were seen too seldom for a capture, and those that were refused

#: Held by the thread that watches or captures a function: hooks and warnings are the process's.
_watching = threading.Lock()
_here = threading.local()


class AutoGraph:
    """The callable that torch.ocl.graphs.auto() returns."""

    def __init__(
        self, function: Callable[..., Any], after: int, watch: Iterable[Any], most: int
    ) -> None:
        if after < 1 or most < 1:
            raise ValueError(f"auto: after and most must be positive, got {after} and {most}")
        self.function = function
        self.after = after
        self.most = most
        #: Calls that were replays.
        self.replays = 0
        #: Modules and optimisers that were seen at work.
        self.users = Users()
        #: Why the last form that was refused can't be replayed; None if none was.
        self.reason: str | None = None
        self._surroundings = Surroundings(function, watch)
        self._lock = threading.RLock()  # of what follows, and of replays: they share memory
        self._graphs: dict[Hashable, Captured] = {}
        self._refused: collections.OrderedDict[Hashable, None] = collections.OrderedDict()
        self._seen: collections.OrderedDict[Hashable, tuple[int, list[Any]]] = (
            collections.OrderedDict()
        )
        # By stream: graphs of one share their memory, and run one after another.
        self._pools: dict[Any, Any] = {}
        self._streams: dict[int, torch.Stream] = {}

    @property
    def graphs(self) -> int:
        """How many graphs there are."""
        return len(self._graphs)

    def reset(self) -> None:
        """Forgets all graphs and gives their memory back."""
        with self._lock:
            for captured in self._graphs.values():
                captured.graph.reset()
            self._graphs.clear()
            self._refused.clear()
            self._seen.clear()
            self.reason = None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if (
            torch.compiler.is_compiling()
            or is_current_stream_capturing()
            or getattr(_here, "watches", False)  # another function of auto() calls this one
        ):
            return self.function(*arguments, **named)
        leaves, form = tree_flatten((arguments, named))
        with self._lock:
            try:
                key, around = self._key(leaves, form)
            except Refused as why:
                self._say(str(why))
                key = None
            captured = self._graphs.get(key) if key is not None else None
            if captured is not None:
                if any(leaves[i] is not captured.arguments.static[i]
                       for i in captured.arguments.fixed):  # fmt: skip
                    del self._graphs[key]  # and it is captured with copies of them
                    self._seen[key] = self.after, []
                elif captured.takes():
                    self.replays += 1
                    return captured.replay(leaves)
                else:
                    key = None
        # Python may wait for other threads, so none waits here for its end.
        if key is None or key in self._refused or not _watching.acquire(blocking=False):
            return self.function(*arguments, **named)
        _here.watches = True
        try:
            with self._lock:
                count, fixed = self._look_up(key, leaves)
            if count >= self.after and self.graphs < self.most:
                return self._capture(key, around, leaves, form, fixed)
            return self._warm_up(key, around, arguments, named)
        finally:
            _here.watches = False
            _watching.release()

    def _key(self, leaves: list[Any], form: Any) -> tuple[Hashable, Hashable]:
        modes = auto_forms.modes()
        around, values = self._surroundings.form()
        parts: list[Hashable] = []
        memory: dict[int, tuple[int, int]] = {}
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                if not isinstance(leaf, PLAIN):
                    raise Refused(f"an argument is {type(leaf).__name__}")
                parts.append(values.of(leaf))
            elif type(leaf) is not torch.Tensor or not is_dense(leaf):
                raise Refused("an argument isn't a dense tensor of the device")
            elif leaf.requires_grad and torch.is_grad_enabled():
                raise Refused("an argument needs a gradient: see make_graphed_callables()")
            else:
                # Which arguments share memory, and so may be written through each other.
                at, own = leaf.storage_offset(), storage(leaf)
                owner, first = memory.setdefault(own, (len(memory), at))
                layout = leaf.shape, leaf.stride(), leaf.dtype, leaf.device.index
                read = own in values.storages
                parts.append((*layout, leaf.requires_grad, owner, at - first, read))
        return (form, tuple(parts), modes, around, self.users.form(values)), around

    def _look_up(self, key: Hashable, leaves: list[Any]) -> tuple[int, set[int]]:
        """How often the form was seen, and the arguments that were the same tensors."""
        count, last = self._seen.pop(key, (0, []))
        fixed = {i for i, known in enumerate(last) if known is not None and known() is leaves[i]}
        known = [
            weakref.ref(t) if isinstance(t, torch.Tensor) and (count == 0 or i in fixed) else None
            for i, t in enumerate(leaves)
        ]
        self._seen[key] = count + 1, known
        if len(self._seen) > _MOST_WAITING:
            self._seen.popitem(last=False)
        return count, fixed

    def _changed(self, around: Hashable) -> str | None:
        try:
            same = self._surroundings.form()[0] == around
        except Refused as why:
            return str(why)
        return None if same else "it changes what it reads, which a replay would not do"

    def _warm_up(self, key: Hashable, around: Hashable, arguments: Any, named: Any) -> Any:
        """A call that shows who takes part, and whether the host waits."""
        users, watch, before = Users(), Watch(), _C.waits_of_thread()
        with users.watched(), watch.watched():
            results = self.function(*arguments, **named)
        waits = _C.waits_of_thread() > before
        why = "the host waits for the device, or reads from it" if waits else None
        with self._lock:
            self.users.add(users)
            if why := why or watch.why or self._changed(around):
                self._refuse(key, why)
            elif self._surroundings.add(watch.ran):
                # Forms compare more from now on: this call counts as one of the new form.
                with contextlib.suppress(Refused):
                    around, seen = self._surroundings.form()[0], self._seen.pop(key)
                    self._seen[(*key[:3], around, *key[4:])] = seen
        return results

    def _capture(
        self, key: Hashable, around: Hashable, leaves: list[Any], form: Any, fixed: set[int]
    ) -> Any:
        parameters = list(self.users.parameters().values())
        with self._lock:
            self._seen.pop(key, None)
            try:
                self.users.check()
                self._check_memory(leaves, fixed, parameters)
                given = Arguments(leaves, fixed)
            except Refused as why:
                self._refuse(key, str(why))
                given = None
        if given is None:
            arguments, named = tree_unflatten(leaves, form)
            return self.function(*arguments, **named)
        known = set(map(id, parameters))
        parameters += [p for p in self._surroundings.form()[1].leaves if id(p) not in known]
        before = [p.grad for p in parameters]
        stream = torch.ocl.current_stream()
        captured = Captured(OclGraph(), given)
        arguments, named = tree_unflatten(
            [given.static.get(i, t) for i, t in enumerate(leaves)], form
        )
        try:
            results, why = self._run_captured(captured, stream, around, arguments, named)
        except BaseException:
            given.copy_out(leaves, given.written())
            self._say("it raised while it was captured")  # it may be captured after other calls
            raise
        found, shape = tree_flatten(results)
        if why is not None:
            given.copy_out(leaves, given.written())
            with self._lock:
                self._refuse(key, why)
            return tree_unflatten([given.theirs(leaves, t) for t in found], shape)
        with self._lock:
            captured.finish(parameters, before, found, shape)
            self._graphs[key] = captured
            self.replays += 1
            return captured.run(leaves)

    def _run_captured(
        self, captured: Captured, stream: Any, around: Hashable, arguments: Any, named: Any
    ) -> tuple[Any, str | None]:
        """The function's results, and why they were computed already; None if a replay will.

        It is captured on a stream of its own: other threads may use this one."""
        index = torch.ocl.current_device()
        own = self._streams.setdefault(index, torch.ocl.Stream())
        pool = self._pools.setdefault((index, stream.stream_id), graph_pool_handle())
        graph = captured.graph._graph
        torch.ocl.synchronize()  # memory that other streams have given back is free
        try:
            with torch.ocl.stream(own):
                graph.capture_begin(pool, may_give_up=True)
                numbers = state_of(torch.default_generator)
                try:
                    results = self.function(*arguments, **named)
                    why = self._why_not(captured.arguments, around, results)
                    if state_of(torch.default_generator) != numbers:
                        why = DRAWS
                except BaseException:
                    if not graph.given_up():
                        graph.give_up("it raised")
                    raise
                if not graph.given_up():
                    graph.capture_end() if why is None else graph.give_up(why)
            return results, graph.given_up() or None
        finally:
            stream.wait_stream(own)

    def _check_memory(self, leaves: list[Any], fixed: set[int], parameters: list[Any]) -> None:
        read = self._surroundings.form()[1].storages
        read |= {storage(p) for p in parameters if is_dense(p)}
        read |= {storage(leaves[i]) for i in fixed}
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor) and i not in fixed and storage(leaf) in read:
                raise Refused("an argument shares memory with what the function reads")

    def _why_not(self, given: Arguments, around: Hashable, results: Any) -> str | None:
        """Why a replay could not do the same."""
        for result in tree_flatten(results)[0]:
            if not isinstance(result, torch.Tensor):
                if not isinstance(result, PLAIN):
                    return f"a result is {type(result).__name__}"
            elif result.requires_grad and id(result) not in given.sources:
                return "a result has a history of gradients"
            elif type(result) is not torch.Tensor or not is_dense(result):
                return "a result isn't a dense tensor of the device"
            elif id(result) not in given.sources and given.source(result) is not None:
                return "a result is a view of an argument"
        if any(given.static[i].grad is not None for i in given.copied):
            return "an argument gets a gradient: see make_graphed_callables()"
        return self._changed(around)

    def _refuse(self, key: Hashable, reason: str) -> None:
        self._refused[key] = None
        if len(self._refused) > _MOST_WAITING:
            self._refused.popitem(last=False)
        self._say(reason)

    def _say(self, reason: str) -> None:
        if reason != self.reason:
            self.reason = reason
            _log.info("not captured: %s", reason)
