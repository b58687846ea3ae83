"""One kernel: a body that runs for every index of an iteration domain, its division into sweeps, and its verifier.

Sweeps are runs over the inner indices, between which reductions are complete.  `check` verifies the rules of the
package's docstring.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cached_property

import torch

from compiler_core.errors import CompilerBug
from compiler_core.loops.ir.statements import (
    COMPARISONS,
    OPS,
    REDUCTIONS,
    SCANS,
    SHORT,
    Address,
    Argument,
    Compute,
    Literal,
    Load,
    Position,
    Reduce,
    Scalar,
    Scan,
    Statement,
    Store,
    addresses,
    dependencies,
    statement_text,
)
from compiler_core.records import ItemId
from compiler_core.support.size_expr import Int, hint, prod, symbols_in


@dataclass(frozen=True)
class Loops:
    """One kernel: `body` runs for every index of ``outer + inner``.  See the package's docstring."""

    name: str
    outer: tuple[Int, ...]
    inner: tuple[Int, ...]
    body: tuple[Statement, ...]

    @property
    def space(self) -> tuple[Int, ...]:
        return self.outer + self.inner

    @property
    def index_names(self) -> tuple[str, ...]:
        """The names ``i0, i1, ...`` of the outer indices and ``j0, j1, ...`` of the inner ones."""
        outer, inner = (f"i{k}" for k in range(len(self.outer))), (f"j{k}" for k in range(len(self.inner)))
        return (*outer, *inner)

    @property
    def outer_numel(self) -> Int:
        return prod(self.outer)

    @property
    def inner_numel(self) -> Int:
        return prod(self.inner)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The buffers that are loaded from, in order of first use."""
        loads = (s for s in self.body if isinstance(s, Load))
        return tuple(dict.fromkeys(buffer for s in loads for buffer in (s.buffer, s.given) if buffer))

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """The buffers that are stored to, in order of first use."""
        return tuple(dict.fromkeys(s.buffer for s in self.body if isinstance(s, Store)))

    @cached_property
    def makes(self) -> tuple[str, ...]:
        """The buffers of `writes` that these loops define; the others exist already and are updated."""
        return tuple(dict.fromkeys(s.buffer for s in self.body if isinstance(s, Store) and s.mode == "="))

    @property
    def needs(self) -> tuple[str, ...]:
        """What earlier steps must have defined: buffers that are read or updated, and random numbers."""
        return (*self.reads, *(b for b in self.writes if b not in self.makes), *self.scalars)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The buffers that are arguments of the kernel, in order."""
        return tuple(dict.fromkeys(self.reads + self.writes))

    @cached_property
    def dtypes(self) -> dict[str, torch.dtype]:
        """The types of the values, by name."""
        return {s.name: s.dtype for s in self.body if not isinstance(s, Store)}

    def dtype(self, argument: Argument) -> torch.dtype:
        return argument.dtype if isinstance(argument, Literal) else self.dtypes[argument]

    @property
    def addresses(self) -> list[Address]:
        return [a for s in self.body for a in addresses(s)]

    @cached_property
    def position_sizes(self) -> dict[str, Int]:
        """The sizes of the positions, by name."""
        return {s.name: s.size for s in self.body if isinstance(s, Position)}

    @cached_property
    def _position_indices(self) -> dict[str, frozenset[int]]:
        """The numbers of the indices with which each position changes, by its name."""
        found: dict[str, frozenset[int]] = {}
        for s in self.body:
            if not isinstance(s, Store):
                own = {k for a in addresses(s) for k, stride in enumerate(a.strides) if stride}
                of_arguments = (found.get(a, frozenset()) for a in s.arguments if isinstance(a, str))
                found[s.name] = frozenset(own).union(*of_arguments)
        return {name: found[name] for name in self.position_sizes}

    def far_strides(self, address: Address) -> tuple[int, ...]:
        """How far apart in memory the elements are for neighbouring values of each index, for the captured sizes.

        With an index that a position of the address changes with, neighbours are at least that position's factor apart.
        """
        far = [abs(hint(stride)) for stride in address.strides]
        for name, factor in address.values:
            for k in self._position_indices[name]:
                far[k] += abs(hint(factor))
        return tuple(far)

    @property
    def numbers(self) -> list[Int]:
        """All sizes, and all numbers in addresses."""
        found = [*self.space, *self.position_sizes.values()]
        found += [r.size for s in self.body if isinstance(s, (Load, Position)) for r in s.within]
        for address in self.addresses:
            found += [*address.strides, address.offset, *(factor for _, factor in address.values)]
        return found

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The symbols in sizes and addresses; they are int64 arguments of the kernel, after its buffers."""
        return tuple(sorted(set(symbols_in(self.numbers))))

    @cached_property
    def scatters(self) -> bool:
        """Whether a buffer that an earlier step defined is updated."""
        return any(isinstance(s, Store) and s.mode != "=" for s in self.body)

    @cached_property
    def may_fail(self) -> bool:
        """Whether the kernel reads indices from a tensor, which may be out of range."""
        return any(isinstance(s, Position) for s in self.body)

    @cached_property
    def scalars(self) -> tuple[str, ...]:
        """The numbers that are arguments of the kernel, after its symbols, each with the type of its statement."""
        return tuple(dict.fromkeys(s.number.name for s in self.body if isinstance(s, Scalar)))

    @cached_property
    def scans(self) -> tuple[Scan, ...]:
        return tuple(s for s in self.body if isinstance(s, Scan))

    @cached_property
    def column_stores(self) -> tuple[Store, ...]:
        """The stores that reduce over the last outer indices."""
        return tuple(s for s in self.body if isinstance(s, Store) and s.reduction)

    @cached_property
    def sequential_rank(self) -> int:
        """The number of last outer indices over which column stores reduce: a program runs through them in order."""
        strides = [s.address.strides[len(self.outer) - 1 :: -1] for s in self.column_stores]
        return min((len(list(itertools.takewhile(lambda stride: stride == 0, each))) for each in strides), default=0)

    @property
    def row_numel(self) -> Int:
        """The number of outer indices that the programs of a kernel share by blocks: those of a part, or all."""
        return prod(self.outer[len(self.outer) - self.sequential_rank :]) if self.column_stores else self.outer_numel

    @property
    def operations(self) -> int:
        """The cost of the kernel in additions (`Op.cost`), for the sizes with which the graph was captured."""
        once, each = hint(self.outer_numel), hint(self.outer_numel) * hint(self.inner_numel)
        prices = (
            (s, OPS[s.op].cost if isinstance(s, Compute) else 1)
            for s in self.body
            if isinstance(s, (Compute, Reduce)) or s in self.column_stores
        )
        # a Reduce statement is at the outer level, but runs for each inner index
        return sum(price * (each if isinstance(s, Reduce) or self.is_inner(s) else once) for s, price in prices)

    @cached_property
    def origin(self) -> tuple[ItemId, ...]:
        return tuple(dict.fromkeys(item for s in self.body for item in s.origin))

    @cached_property
    def inner_names(self) -> frozenset[str]:
        """The names of the values at the inner level."""
        names: set[str] = set()
        for statement in self.body:
            if not isinstance(statement, Store) and self.is_inner(statement, names):
                names.add(statement.name)
        return frozenset(names)

    def is_inner(self, statement: Statement, inner_names: set[str] | frozenset[str] | None = None) -> bool:
        """Whether `statement` is at the inner level; `inner_names` are the inner values before it, by default all."""
        if isinstance(statement, (Reduce, Scalar, Scan)):
            return isinstance(statement, Scan)
        names = self.inner_names if inner_names is None else inner_names
        used = statement.arguments[1:] if isinstance(statement, Store) else statement.arguments
        return any(a in names for a in used) or any(any(a.strides[len(self.outer) :]) for a in addresses(statement))

    @cached_property
    def places(self) -> list[tuple[int, bool, Statement]]:
        """Each statement, in order, with the number of its sweep (see `sweeps`) and whether it is an inner one."""
        depth: dict[str, int] = {}
        needed: dict[str, int] = {}
        placed: list[tuple[int, bool, Statement]] = []
        for s in self.body:
            at = max((depth[a] for a in s.arguments if isinstance(a, str)), default=0)
            if not isinstance(s, Store):
                depth[s.name] = at + 1 if isinstance(s, Reduce) else at
            placed.append((at, isinstance(s, Reduce) or self.is_inner(s), s))
        for k, (at, swept, s) in reversed(list(enumerate(placed))):
            if swept and not isinstance(s, Reduce | Store):
                at = needed.get(s.name, at)
                placed[k] = at, swept, s
            needed |= {a: min(at, needed.get(a, at)) for a in s.arguments if isinstance(a, str)}
        return placed

    def lines(self) -> Iterator[tuple[str, Statement | None]]:
        """Yields the lines of the text, each with its statement; the heading has None."""
        names = self.index_names
        outer = ", ".join(f"{n} < {s}" for n, s in zip(names, self.outer, strict=False))
        inner = ", ".join(f"{n} < {s}" for n, s in zip(names[len(self.outer) :], self.inner, strict=True))
        heading = f"{self.name}: for {outer or '()'}:"
        yield f"{heading} over {inner}:" if inner else heading, None
        for statement in self.body:
            yield f"    {statement_text(statement, names)}", statement

    def text(self) -> str:
        return "\n".join(line for line, _ in self.lines()) + "\n"


@dataclass(frozen=True)
class Sweep:
    """The `outer` statements, then one run over all inner indices that executes the `inner` statements.

    `recomputed` are inner statements of earlier sweeps whose values this sweep needs: a printer repeats them before
    `inner`, or has kept their values.  Reduce statements are among `inner`: the sweep accumulates them, and later
    sweeps use the result.
    """

    outer: tuple[Statement, ...]
    inner: tuple[Statement, ...]
    recomputed: tuple[Statement, ...]


def sweeps(loops: Loops, kept: Set[str] = frozenset()) -> list[Sweep]:
    """Divides the body at its reductions: sweep k may use the results of reductions in sweeps before k.

    The last sweep has the remaining statements; its `inner` is empty if all of them are outer ones.  An inner
    statement is in the first sweep that needs it.  The values `kept` stay in registers or memory between sweeps, so
    statements that only they depend on are not recomputed.
    """
    placed = loops.places
    found: list[Sweep] = []
    for k in range(max((at for at, _, _ in placed), default=0) + 1):
        outer = tuple(s for at, swept, s in placed if at == k and not swept)
        inner = tuple(s for at, swept, s in placed if at == k and swept)
        earlier = [s for at, swept, s in placed if at < k and swept and not isinstance(s, Reduce)]
        used = {argument for s in inner for argument in s.arguments}
        found.append(Sweep(outer, inner, dependencies(earlier, used, kept)))
    return found


def check(loops: Loops) -> None:
    """Checks one loop nest.

    Raises:
        CompilerBug: a rule is broken; the message shows the body and marks the statement.
    """
    dtypes: dict[str, torch.dtype] = {}
    positions = {s.name for s in loops.body if isinstance(s, Position)}
    stored: dict[str, set[Address]] = {}
    for s in loops.body:
        if isinstance(s, Store):
            stored.setdefault(s.buffer, set()).add(s.address)
    for at, statement in enumerate(loops.body):
        if problem := _statement_problem(loops, statement, dtypes, positions, stored):
            lines = loops.text().splitlines()
            lines[at + 1] += f"    <-- {problem}"
            raise CompilerBug("loop IR: " + "\n".join([problem, *lines]))
        if not isinstance(statement, Store):
            dtypes[statement.name] = statement.dtype


def _statement_problem(
    loops: Loops,
    statement: Statement,
    dtypes: dict[str, torch.dtype],
    positions: Set[str],
    stored: dict[str, set[Address]],
) -> str | None:
    """Returns what is wrong with `statement`, or None; `dtypes` has the values that are defined before it,
    `stored` where each buffer is written."""
    types = []
    for argument in statement.arguments:
        if isinstance(argument, str) and argument not in dtypes:
            return f"{argument} is used before it is defined"
        types.append(argument.dtype if isinstance(argument, Literal) else dtypes[argument])
    if not isinstance(statement, Store) and statement.name in dtypes:
        return f"{statement.name} is defined twice"
    for address in addresses(statement):
        if len(address.strides) != len(loops.space):
            return f"the address has {len(address.strides)} strides for {len(loops.space)} sizes"
        if any(name not in positions for name, _ in address.values):
            return "the address depends on a value that is not a position"
    if isinstance(statement, Load) and not stored.get(statement.buffer, set()) <= {statement.address}:
        return f"{statement.buffer} is read and written at different addresses"
    if isinstance(statement, Store) and statement.mode != "=" and loops.inner:
        return "a store that updates an existing buffer is in a loop nest without inner indices"
    if isinstance(statement, Store) and statement.value in loops.inner_names and not loops.is_inner(statement):
        return "an inner value is stored at the outer level"
    if isinstance(statement, Position):
        return None if types[0] is torch.int64 else "a position needs an i64 argument"
    if isinstance(statement, Store) and statement.reduction:
        return _column_store_problem(loops, statement)
    if isinstance(statement, Scan) and not loops.inner:
        return "a scan needs an inner index"
    if isinstance(statement, (Reduce, Scan)):
        if statement.op not in (SCANS if isinstance(statement, Scan) else REDUCTIONS):
            return f"unknown reduction {statement.op}; ir.REDUCTIONS and ir.SCANS have the known ones"
        return None if types == [statement.dtype] else "a reduction has the type of its value"
    return _compute_problem(statement, types) if isinstance(statement, Compute) else None


def _column_store_problem(loops: Loops, store: Store) -> str | None:
    """Checks a store over the last outer indices, whose kernel runs through the rows of a part in order."""
    sequential = len(loops.outer) - loops.sequential_rank
    if not 0 < sequential < len(loops.outer):
        return "a loop nest with a store over an index has outer indices of two kinds, for the part and for the row"
    if not all(store.address.strides[:sequential]):
        return "the address of a store over an index depends on the indices of the part, and on no others"
    return None


def _compute_problem(statement: Compute, types: list[torch.dtype]) -> str | None:
    op, dtype = statement.op, statement.dtype
    if op not in OPS:
        return f"unknown operation {op}; ir.OPS has the known ones"
    if len(types) != OPS[op].arity:
        return f"{op} takes {OPS[op].arity} arguments"
    if op == "cast":
        return None
    if op == "uniform" and dtype is not torch.float32:
        return "the result of uniform is f32"
    want = [torch.bool, dtype, dtype] if op == "where" else [types[0] if op in COMPARISONS else dtype] * len(types)
    if op == "uniform":
        want = [*[torch.int64] * 4, torch.int32]
    if op in COMPARISONS and dtype is not torch.bool:
        return f"the result of {op} is bool"
    if types == want:
        return None
    return f"argument types are {[SHORT[t] for t in types]}, must be {[SHORT[t] for t in want]}"
