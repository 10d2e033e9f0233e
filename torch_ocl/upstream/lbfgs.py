"""torch.optim.LBFGS on `ocl`: between calls of the closure a few launches, whatever the history.

Upstream's step reads a number of the device for each pair of the history, and launches three
kernels. Here one launch makes a direction, and one more the slope along it. Results, state and
arguments are upstream's. The line search is upstream's own code, with its numbers on the host.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import lbfgs as upstream

#: More elements are worth a launch for each pair, which takes all cores.
_MOST_ELEMENTS = 1 << 16
_FIRST_ROWS = 8
_OVERRIDABLE = (
    *("_numel", "_gather_flat_grad", "_add_grad", "_clone_param", "_set_param"),
    "_directional_evaluate",
)


def install() -> None:
    """Replaces torch.optim.LBFGS.step, which goes on for what is not ours."""
    cls = torch.optim.LBFGS
    theirs = cls.step
    if getattr(theirs, "hooked", False):  # by an instance that was made before
        theirs = theirs.__wrapped__
    originals = {name: getattr(cls, name) for name in _OVERRIDABLE}

    @functools.wraps(theirs)
    def step(self: torch.optim.LBFGS, closure: Callable[[], Any]) -> Any:
        if not _is_ours(self, originals):
            return theirs(self, closure)
        with torch.no_grad():
            return _Step(self, torch.enable_grad()(closure)).run()

    cls.step = step


def _is_ours(optimiser: torch.optim.LBFGS, originals: dict[str, Any]) -> bool:
    if len(optimiser.param_groups) != 1 or torch.compiler.is_compiling():
        return False
    parameters = optimiser._params
    first = parameters[0]
    if first.device.type != "ocl" or not 0 < optimiser._numel() <= _MOST_ELEMENTS:
        return False
    cls = type(optimiser)
    return (
        all(
            type(p) in (torch.nn.Parameter, torch.Tensor)
            and p.dtype == first.dtype
            and p.device == first.device
            for p in parameters
        )
        and first.dtype in (torch.float32, torch.float64)
        and all(getattr(cls, name) is original for name, original in originals.items())
    )


class _Vector:
    """A gradient or a direction, as upstream's line search asks for it."""

    def __init__(self, flat: torch.Tensor, slope: Any = None, largest: Any = None) -> None:
        self.flat, self.slope, self.largest = flat, slope, largest

    def clone(self, memory_format: torch.memory_format) -> "_Vector":
        return self  # nobody writes to it

    def dot(self, direction: "_Vector") -> torch.Tensor:
        """Along the direction that it was measured with."""
        return self.slope

    def abs(self) -> "_Vector":
        return self

    def max(self) -> torch.Tensor:
        """The largest magnitude."""
        return self.largest


class _History:
    """Rows of pairs on the device. The state's lists are views of them, oldest first."""

    def __init__(self, like: torch.Tensor, most: int) -> None:
        self.most = most
        doubles = torch.ocl.get_device_properties(like.device).has_fp64
        self.numbers = torch.float64 if doubles else torch.float32
        self.facts = like.new_empty(4, dtype=self.numbers)
        self.first = 0
        self.lists: tuple[list[torch.Tensor], ...] = ([], [], [])
        self.make(like, min(most, _FIRST_ROWS))

    def make(self, like: torch.Tensor, rows: int) -> None:
        self.rows = rows
        self.changes, self.steps = (like.new_empty(rows, like.numel()) for _ in range(2))
        self.inverses, self.factors = (like.new_empty(rows, dtype=self.numbers) for _ in range(2))

    def take_over(self, changes: list[Any], steps: list[Any], inverses: list[Any]) -> None:
        """Copies a state that another optimiser made into rows."""
        self.lists = (changes, steps, inverses)
        like = self.changes[0]
        count = len(changes)
        rows = self.rows
        while rows < min(count + 1, self.most):
            rows = min(2 * rows, self.most)
        self.make(like, rows)
        self.first = 0
        for rows_of, values in zip(self.buffers(), self.lists, strict=True):
            if values:
                rows_of[:count].copy_(torch.stack(list(values)))
            values[:] = rows_of[:count].unbind()

    def buffers(self) -> tuple[torch.Tensor, ...]:
        return self.changes, self.steps, self.inverses

    def has_room(self) -> bool:
        return len(self.lists[0]) < self.rows or self.rows == self.most

    def stored(self) -> None:
        """The device has kept another pair."""
        count = len(self.lists[0])
        if count == self.most:
            self.first = (self.first + 1) % self.rows
            for values in self.lists:
                values.pop(0)
            count -= 1
        row = (self.first + count) % self.rows
        for rows_of, values in zip(self.buffers(), self.lists, strict=True):
            values.append(rows_of[row])


class _Step:
    """One call of step()."""

    def __init__(self, optimiser: torch.optim.LBFGS, closure: Callable[[], Any]) -> None:
        self.optimiser, self.closure = optimiser, closure
        self.group = optimiser.param_groups[0]
        self.parameters = optimiser._params
        self.state = optimiser.state[self.parameters[0]]
        self.sizes = [p.numel() for p in self.parameters]

    def run(self) -> Any:
        group, state = self.group, self.state
        rate = upstream._to_scalar(group["lr"])
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        result = self.closure()
        loss = float(result)
        evaluations = 1
        state["func_evals"] += 1
        flat = self.optimiser._gather_flat_grad()
        self.take_history(flat)
        gradient = self.measured(flat, flat)
        if gradient.largest <= group["tolerance_grad"]:
            return result
        iteration = 0
        while iteration < group["max_iter"]:
            iteration += 1
            state["n_iter"] += 1
            slope, size = self.find_direction(gradient.flat)
            direction = _Vector(state["d"], largest=size)
            state["prev_loss"] = loss
            step = rate
            if state["n_iter"] == 1:
                step = min(1.0, 1.0 / self.facts[2]) * rate
            state["t"] = step = float(step)
            if slope > -group["tolerance_change"]:
                break
            made = 0
            if group["line_search_fn"] is not None:
                loss, gradient, made = self.search(
                    direction, gradient, step, loss, slope, group["max_eval"] - evaluations
                )
            else:
                self.move(step, direction.flat)
                if iteration != group["max_iter"]:
                    with torch.enable_grad():
                        loss = float(self.closure())
                    flat = self.optimiser._gather_flat_grad()
                    gradient = self.measured(flat, flat)
                    made = 1
            evaluations += made
            state["func_evals"] += made
            if (
                iteration == group["max_iter"]
                or evaluations >= group["max_eval"]
                or gradient.largest <= group["tolerance_grad"]
                or abs(state["t"]) * float(size) <= group["tolerance_change"]
                or abs(loss - state["prev_loss"]) < group["tolerance_change"]
            ):
                break
        return result

    def take_history(self, like: torch.Tensor) -> None:
        """The rows of the state's lists, made anew where the state was loaded."""
        state, most = self.state, self.group["history_size"]
        held = getattr(self.optimiser, "_ocl_history", None)
        lists = tuple(state.get(name) for name in ("old_dirs", "old_stps", "ro"))
        known = held is not None and all(
            mine is theirs for mine, theirs in zip(held.lists, lists, strict=True)
        )
        if not known or held.most != most or held.changes.dtype != like.dtype:
            held = _History(like, most)
            if lists[0] is not None:
                for values in lists:
                    del values[: max(0, len(values) - most)]
                held.take_over(*lists)
                held.facts[3] = state["H_diag"]
            self.optimiser._ocl_history = held
        self.history = held

    def find_direction(self, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Sets state["d"], and returns the slope along it and its largest magnitude."""
        state, held = self.state, self.history
        direction = torch.empty_like(gradient)
        if state["n_iter"] == 1:
            state["prev_flat_grad"] = torch.empty_like(gradient)
            torch.ops.torch_ocl.lbfgs_first(
                gradient, state["prev_flat_grad"], direction, held.facts
            )
            held.first, held.lists = 0, ([], [], [])
            state["old_dirs"], state["old_stps"], state["ro"] = held.lists
        else:
            if not held.has_room():
                held.take_over(*held.lists)
            torch.ops.torch_ocl.lbfgs_direction(
                *(gradient, state["prev_flat_grad"], state["d"], float(state["t"]), direction),
                *(held.steps, held.changes, held.inverses, held.factors, held.facts),
                *(held.first, len(held.lists[0]), held.most),
            )
        self.facts = held.facts.cpu().double()
        if state["n_iter"] != 1 and self.facts[2] == 1:
            held.stored()
        state["d"], state["H_diag"] = direction, held.facts[3]
        return self.facts[0], self.facts[1]

    def measured(self, gradient: torch.Tensor, direction: torch.Tensor) -> _Vector:
        """With its slope along the direction, and its largest magnitude."""
        facts = gradient.new_empty(4, dtype=self.history.numbers)
        torch.ops.torch_ocl.lbfgs_slope(gradient, direction, facts)
        slope, largest, _, _ = facts.cpu().double().unbind()
        return _Vector(gradient, slope, largest)

    def move(self, step: Any, direction: torch.Tensor) -> None:
        parts = direction.split(self.sizes)
        parts = [d.view(p.shape) for d, p in zip(parts, self.parameters, strict=True)]
        torch._foreach_add_(self.parameters, parts, alpha=float(step))

    def search(
        self,
        direction: _Vector,
        gradient: _Vector,
        step: float,
        loss: float,
        slope: torch.Tensor,
        most: int,
    ) -> tuple[float, _Vector, int]:
        """The loss and the gradient where the line search ends, and its evaluations. The parameters
        are moved there."""
        if self.group["line_search_fn"] != "strong_wolfe":
            raise RuntimeError("only 'strong_wolfe' is supported")
        start = [p.clone(memory_format=torch.contiguous_format) for p in self.parameters]

        def evaluate(x: list[torch.Tensor], t: Any, d: _Vector) -> tuple[float, _Vector]:
            self.move(t, d.flat)
            value = float(self.closure())
            found = self.measured(self.optimiser._gather_flat_grad(), d.flat)
            torch._foreach_copy_(self.parameters, x)
            return value, found

        loss, end, t, made = upstream._strong_wolfe(
            evaluate, start, step, direction, loss, gradient, slope, max_ls=most
        )
        self.state["t"] = float(t)
        self.move(t, direction.flat)
        return loss, end, made
