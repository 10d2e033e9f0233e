"""A graph of torch.ocl.graphs.auto(), with what it takes and gives: auto_graphs.py makes them.

A graph works on memory of its own. Arguments are copied there and what is written into them is
copied back, and results are copies.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_unflatten

from torch_ocl.api.auto_forms import Refused, storage
from torch_ocl.api.stream_graphs import OclGraph


class Arguments:
    """The tensors among a call's arguments, and those of a graph that stand for them."""

    def __init__(self, leaves: list[Any], fixed: set[int]) -> None:
        self.fixed = fixed  # arguments that are the same tensors at all calls
        self.static: dict[int, torch.Tensor] = {}
        self._flat: list[tuple[torch.Tensor, int, int]] = []  # memory, an argument in it, and start
        owners: dict[int, list[int]] = {}
        for i, leaf in enumerate(leaves):
            if i in fixed:
                self.static[i] = leaf
            elif isinstance(leaf, torch.Tensor):
                owners.setdefault(storage(leaf), []).append(i)
        with torch.inference_mode(False), torch.no_grad():
            for members in owners.values():
                self._add(leaves, members)
        self.copied = [i for i in self.static if i not in fixed]
        self.copy_in(leaves)
        self._versions = {i: self.static[i]._version for i in self.copied}
        self.sources = {id(t): i for i, t in self.static.items()}

    def _add(self, leaves: list[Any], members: list[int]) -> None:
        """Arguments in one memory share one here, too. Layouts are those of the arguments."""
        first = leaves[members[0]]
        if any(leaves[i].dtype != first.dtype for i in members):
            raise Refused("arguments of several dtypes share memory")
        start = min(leaves[i].storage_offset() for i in members)
        end = max(_end(leaves[i]) for i in members)
        memory = first.new_empty(max(end - start, 0))
        self._flat.append((memory, members[0], start))
        made: dict[int, torch.Tensor] = {}
        for i in members:
            leaf = leaves[i]
            if id(leaf) not in made:
                at = max(leaf.storage_offset() - start, 0)
                made[id(leaf)] = memory.as_strided(leaf.shape, leaf.stride(), at)
                made[id(leaf)].requires_grad_(leaf.requires_grad)
            self.static[i] = made[id(leaf)]

    def copy_in(self, leaves: list[Any]) -> None:
        for memory, i, _ in self._flat:
            # Shares of one memory lie alike at all calls: that is in the form.
            leaf = leaves[i].detach()
            before = self.static[i].storage_offset()
            flat = leaf.as_strided(memory.shape, (1,), leaf.storage_offset() - before)
            memory.copy_(flat)

    def written(self) -> list[int]:
        return [i for i in self.copied if self.static[i]._version != self._versions[i]]

    def copy_out(self, leaves: list[Any], written: Iterable[int]) -> None:
        with torch.no_grad():
            for i in written:
                leaves[i].copy_(self.static[i])

    def source(self, result: torch.Tensor) -> int | None:
        """The argument that a result is, or is a view of; None for other results."""
        if id(result) in self.sources:
            return self.sources[id(result)]
        if result.layout != torch.strided:
            return None
        own = storage(result)
        return next((i for i in self.copied if storage(self.static[i]) == own != 0), None)

    def theirs(self, leaves: list[Any], result: Any) -> Any:
        """A result of a call whose arguments these were, for who made the call."""
        if not isinstance(result, torch.Tensor) or (i := self.source(result)) is None:
            return result
        leaf, static = leaves[i], self.static[i]
        if static is result:
            return leaf
        if leaf.dtype != result.dtype:
            return result
        at = leaf.storage_offset() + result.storage_offset() - static.storage_offset()
        return leaf.detach().as_strided(result.shape, result.stride(), at)


def _end(tensor: torch.Tensor) -> int:
    """Where a tensor ends in its memory."""
    if tensor.numel() == 0:
        return tensor.storage_offset()
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.storage_offset() + sum((n - 1) * s for n, s in sizes) + 1


class Captured:
    """A form's graph, its inputs and its results."""

    def __init__(self, graph: OclGraph, arguments: Arguments) -> None:
        self.graph = graph
        self.arguments = arguments

    def finish(
        self,
        parameters: list[torch.Tensor],
        before: list[torch.Tensor | None],
        results: list[Any],
        form: Any,
    ) -> None:
        self.parameters, self.results, self.form = parameters, results, form
        self.written = self.arguments.written()
        self.gradients = [p.grad for p in parameters]
        # A sum goes on in the memory of before. Others begin with None, or were dropped.
        self.sums = [a is not None and a is b for a, b in zip(before, self.gradients, strict=True)]
        self.own = [isinstance(t, torch.Tensor) and self._made(t) for t in results]

    def _made(self, tensor: torch.Tensor) -> bool:
        """Whether the graph's memory holds a tensor: a replay writes it again."""
        pool, at = self.graph.pool(), tensor.data_ptr()
        return any(
            s["segment_pool_id"] == pool and s["address"] <= at < s["address"] + s["total_size"]
            for s in torch.ocl.memory_snapshot()
        )

    def takes(self) -> bool:
        """Whether sums of gradients lie where they did."""
        rows = zip(self.parameters, self.gradients, self.sums, strict=True)
        return all(p.grad is gradient for p, gradient, is_sum in rows if is_sum)

    def replay(self, leaves: list[Any]) -> Any:
        self.arguments.copy_in(leaves)
        return self.run(leaves)

    def run(self, leaves: list[Any]) -> Any:
        self.graph.replay()
        self.arguments.copy_out(leaves, self.written)
        for p, gradient in zip(self.parameters, self.gradients, strict=True):
            if p.grad is not gradient:
                p.grad = gradient
        sources = self.arguments.sources
        results = [
            leaves[sources[id(t)]] if id(t) in sources else t.clone() if own else t
            for t, own in zip(self.results, self.own, strict=True)
        ]
        return tree_unflatten(results, self.form)
