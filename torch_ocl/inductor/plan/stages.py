"""Which pass over a row computes what.

A row's elements are read in passes, since some values need a reduction's result first: in softmax
the maximum, then the sum, then the quotients. Stage s has what needs s passes before it. A value of
an early stage that a later pass needs is kept in a private array, or computed once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch_ocl.inductor.values import Assert, Item, Reduction, Store, Value, loads_of, operands_of

# Most vector instructions that computing something once more may cost: as many as storing and
# loading it costs.
_KEPT_FROM = 5
_COSTS = {
    "load": 1,
    "index": 1,
    "constant": 0,
    "cast": 1,
    "number": 0,
    "pow": 40,
    "special": 80,
    "lanes": 40,
    "called": 40,
}
_DEAR = ("EXP", "ERF", "SIN", "COS", "TAN", "NORMAL", "RANDOM", "log", "exp", " / ", "sqrt")


class Plan:
    """The passes of a kernel.

    Args:
        items: Its values and effects, in order.
        in_row: Whether one depends on the place in the row, its operands aside.
        memory_of: A buffer's memory.
        is_removed: Whether a buffer needs no memory.
        may_keep: Whether a value can be kept, and so many others.
        keeps_loads: Whether what is read of the row is worth keeping, however cheap it is.

    Attributes:
        passes: The items of each, in order, with what it computes again.
        outside: What is computed once a row: before each pass, and after the last.
        kept: Values that later passes find in private arrays, with the pass that computes them.
    """

    def __init__(
        self,
        items: list[Item],
        *,
        in_row: Callable[[Item], bool],
        memory_of: Callable[[str], str],
        is_removed: Callable[[str], bool],
        may_keep: Callable[[Value, int], bool],
        keeps_loads: bool = False,
    ) -> None:
        self._items = items
        self._memory_of = memory_of
        self._may_keep, self._keeps_loads = may_keep, keeps_loads
        self.in_row: dict[Item, bool] = {}
        self.stage: dict[Item, int] = {}
        self._made_by: dict[Value, Reduction] = {}
        self._order = {item: i for i, item in enumerate(items)}
        for item in items:
            self._place(item, in_row)
        effects = [
            item
            for item in items
            if (isinstance(item, Store) and not is_removed(item.name)) or isinstance(item, Assert)
        ]
        self.needed = self._needed(effects)
        reductions = [i for i in items if isinstance(i, Reduction) and i in self.needed]
        self.count = max((self.stage[i] for i in reductions), default=-1) + 1
        for item in effects:
            if self.in_row[item]:
                self.count = max(self.count, self.stage[item] + 1)
        self.kept: dict[Value, int] = {}
        self._members: list[set[Item]] = []
        self._costs: dict[Value, float] = {}
        self._fill(effects, reductions)

    def _operands(self, item: Item) -> tuple[Value, ...]:
        return item.values if isinstance(item, Reduction) else operands_of(item)

    def _place(self, item: Item, in_row: Callable[[Item], bool]) -> None:
        operands = self._operands(item)
        stage = max((self.stage[v] for v in operands), default=0)
        if isinstance(item, Reduction):
            self.in_row[item], self.stage[item] = True, stage
            for result in item.results:
                self._made_by[result] = item
                self.in_row[result], self.stage[result] = False, stage + 1
                self._order[result] = self._order[item]
        elif item not in self.stage:
            self.in_row[item] = in_row(item) or any(self.in_row[v] for v in operands)
            self.stage[item] = stage

    def _needed(self, effects: Iterable[Item]) -> set[Item]:
        needed: set[Item] = set()
        work = list(effects)
        while work:
            item = work.pop()
            if item in needed:
                continue
            needed.add(item)
            if isinstance(item, Value) and item in self._made_by:
                work.append(self._made_by[item])
            else:
                work.extend(self._operands(item))
        return needed

    def _cost(self, value: Value) -> float:
        """The cost of computing it again in a later pass."""
        if value not in self._costs:
            if not self.in_row[value] or value in self.kept:
                cost = 0.0
            else:
                cost = _COSTS.get(value.op, 8 if any(d in value.op for d in _DEAR) else 1)
                if value.op == "load" and any(v.op not in ("index",) for v in value.args):
                    cost = 10
                if value.op == "masked":
                    cost = 10
                cost += sum(self._cost(v) for v in operands_of(value))
            self._costs[value] = cost
        return self._costs[value]

    def _reads(self, value: Value) -> bool:
        """Whether it is read at places of the row, or computed of what is."""
        if not self.in_row[value]:
            return False
        return bool(loads_of(value)) or any(map(self._reads, operands_of(value)))

    def _fill(self, effects: list[Item], reductions: list[Reduction]) -> None:
        members = self._members = [set() for _ in range(self.count)]
        reads: list[set[str]] = [set() for _ in range(self.count)]
        stores = [i for i in effects if isinstance(i, Store) and self.in_row[i]]
        late = {}
        for stage in range(self.count):
            roots: list[Item] = [i for i in reductions if self.stage[i] == stage]
            roots += [i for i in effects if self.in_row[i] and self.stage[i] == stage]
            self._collect(stage, roots, members[stage], reads[stage])
        # Memory that a later pass reads is written there.
        for store in stores:
            memory = self._memory_of(store.name)
            last = max(
                (s for s in range(self.count) if memory in reads[s]), default=self.stage[store]
            )
            if last > self.stage[store]:
                late[store] = last
        for store, last in late.items():
            members[self.stage[store]].discard(store)
            self._collect(last, [store], members[last], reads[last])
        self.passes = [sorted(m, key=self._order.__getitem__) for m in members]
        self.outside: list[list[Item]] = [[] for _ in range(self.count + 1)]
        every_read = set().union(*reads) if reads else set()
        for item in self._items:
            if item not in self.needed or self.in_row[item] or isinstance(item, Reduction):
                continue
            at = min(self.stage[item], self.count)
            if isinstance(item, Store) and self._memory_of(item.name) in every_read:
                at = self.count
            self.outside[at].append(item)

    def _collect(self, stage: int, roots: list[Item], into: set[Item], reads: set[str]) -> None:
        work = list(roots)
        while work:
            item = work.pop()
            if item in into or not self.in_row[item]:
                continue
            if isinstance(item, Value) and self.stage[item] < stage:
                if item in self.kept:
                    continue
                before = [s for s in range(stage) if item in self._members[s]]
                dear = item.op != "constant" and (
                    self._cost(item) >= _KEPT_FROM or (self._keeps_loads and self._reads(item))
                )
                if before and dear and self._may_keep(item, len(self.kept)):
                    self.kept[item] = before[0]
                    self._costs.clear()
                    continue
            into.add(item)
            reads.update(self._memory_of(name) for name in loads_of(item))
            work.extend(self._operands(item))
