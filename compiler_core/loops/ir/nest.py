"""A scheduled kernel: a tree of loops, each of a kind, whose leaves execute the statements of the kernel's `Loops`.

`Loops` says what is computed for each index, in no order.  A `Nest` says in which order, by which loops, and where
values are kept meanwhile; `naive` makes the simplest one, `loops/schedule` rewrites it, and a printer of C++ prints it
as it stands.  In its text, `thread` loops are distributed over threads, `vector` loops are vectorised, on a GPU
`program` loops are shared by programs, whose threads process `block` loops; all others are serial::

    softmax:
        thread i0 < 64:
            accumulate amax:
                vector j0 < 128, 16 lanes:
                    v0: f32 = load x[128*i0 + j0]
                    amax: f32 = max over j of v0
            ...

    for i0_tile < 64 step 8:               over the first elements of blocks
        for i0 in i0_tile .. + 8:          through one block, which ends with the range of i0
    array exp[128]:                        a local array with the values of `exp`
    keep exp: f32 = exp(sub)               computes a value and writes it to its array
    read exp                               reads it there
    write amax                             writes a value, computed before, to its array
    accumulate sum_1:                      accumulators, which start with the identity element; the inner of two
                                           around one loop is combined into the outer one
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal as OneOf

from compiler_core.errors import CompilerBug
from compiler_core.loops.ir.loops import Loops, sweeps
from compiler_core.loops.ir.statements import Reduce, Scan, Statement, Store, addresses, statement_text
from compiler_core.support.size_expr import Int

How = OneOf["compute", "keep", "read", "write"]
Place = OneOf["row", "lanes", "block", "few", "columns"]


@dataclass(frozen=True)
class Do:
    """Executes a statement, or moves its value between a local variable and its array (`Local`)."""

    statement: Statement
    how: How = "compute"
    """"keep" also writes the value to its array; "read" and "write" only move it."""
    is_again: bool = False
    """Whether an earlier sweep over the row has computed the value."""

    @property
    def value(self) -> str:
        """The name of the value; empty for a store."""
        return "" if isinstance(self.statement, Store) else self.statement.name

    @property
    def arguments(self) -> frozenset[str]:
        """The names of the values that it needs."""
        if self.how == "read":
            return frozenset()
        if self.how == "write":
            return frozenset({self.value})
        return frozenset(a for a in self.statement.arguments if isinstance(a, str))


@dataclass(frozen=True)
class For:
    """Executes `body` for each value of `index`, from `start` to before `end`, in steps of `step`."""

    index: str
    end: Int
    body: tuple[Node, ...]
    start: Int = 0
    step: int = 1
    block: str = ""
    """The loop around this one over the first elements of blocks, if this loop runs through one block."""
    size: int = 0
    """The number of elements of that block."""
    is_threaded: bool = False
    is_vector: bool = False
    condition: str = ""
    """Threads are used where this holds, which is known at the call only; empty if it always holds."""
    lanes: int = 0
    """The elements of a vector; 0 leaves their number to the C++ compiler."""
    parts: tuple[str, ...] = ()
    """The indices of which this one is the flattened (row-major) index."""
    is_program: bool = False
    """GPU: whether the programs of the kernel share the loop, one iteration each."""
    is_block: bool = False
    """GPU: whether a program processes all elements of the loop at a time, as a block of its threads."""
    stages: int = 1
    """GPU: the blocks that are loaded ahead."""
    is_exact: bool = False
    """Whether the rest that fills no vector is processed in vectors of half as many lanes each time."""

    @property
    def kind(self) -> str:
        """``thread``, ``vector``, ``thread vector``, on a GPU ``program`` or ``block``, or ``for`` (serial)."""
        words = {
            "thread": self.is_threaded, "vector": self.is_vector, "program": self.is_program, "block": self.is_block
        }  # fmt: skip
        return " ".join(word for word, holds in words.items() if holds) or "for"

    def text(self) -> str:
        """Returns the heading."""
        if self.block:
            covered = f" in {self.block} .. + {self.size}"
        elif self.start != 0:
            covered = f" in {self.start} .. {self.end}"
        else:
            covered = f" < {self.end}"
        step = f" step {self.step}" if self.step != 1 else ""
        lanes = f", {self.lanes} lanes" if self.lanes else ""
        condition = f", if {self.condition}" if self.condition else ""
        parts = f" of {', '.join(self.parts)}" if self.parts else ""
        stages = f", {self.stages} stages" if self.stages > 1 else ""
        return f"{self.kind} {self.index}{covered}{step}{parts}{lanes}{stages}{condition}:"


@dataclass(frozen=True)
class Accumulate:
    """Accumulators of reductions, and running values of scans, for the loops in `body`.

    After the body, accumulators are combined into those of an `Accumulate` around them that has the same reductions, or
    are the results if there is none.  `place` is where they are:

        row      one variable for each; sums of float32 are float64
        lanes    an element for each lane of the vector loop, which is the body, or inside the loops that are
        block    an array with an element for each index of a block of outer indices
        few      one variable for each, in the element type, inside a loop over the outer indices of such a block
        columns  arrays over the inner indices, of stores that reduce over outer indices
    """

    reductions: tuple[Reduce | Store, ...]
    scans: tuple[Scan, ...]
    body: tuple[Node, ...]
    place: Place = "row"

    def text(self) -> str:
        """Returns the heading."""
        names = [s.buffer if isinstance(s, Store) else s.name for s in (*self.reductions, *self.scans)]
        where = {"lanes": " in lanes", "block": " in a block", "columns": " in columns"}.get(self.place, "")
        return f"accumulate {', '.join(names)}{where}:"


@dataclass(frozen=True)
class Local:
    """A local array for the values of `statement`, with an element for each of the indices of `terms`."""

    statement: Statement
    terms: tuple[tuple[str, str, Int], ...]
    """An index, the loop over blocks from whose first element it counts (or empty), and its stride in the array."""
    size: Int
    name: str
    """The suffix of the array's name in C++."""

    @property
    def value(self) -> str:
        assert not isinstance(self.statement, Store)
        return self.statement.name

    def text(self) -> str:
        return f"array {self.value}[{self.size}]"


@dataclass(frozen=True)
class If:
    """Chooses at the call, by a condition on sizes, between two versions of the same loops."""

    condition: str
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]


Node = Do | For | Accumulate | Local | If


@dataclass(frozen=True)
class Nest:
    """The loops of one kernel, scheduled."""

    loops: Loops
    body: tuple[Node, ...]
    warps: int = 0
    """GPU: the warps of a program; 0 on a CPU."""

    def lines(self) -> Iterator[tuple[str, Node | None]]:
        """Yields the lines of the text, each with its node; None for the name and for ``else``."""
        warps = "1 warp" if self.warps == 1 else f"{self.warps} warps"
        yield f"{self.loops.name}:{f' {warps}' if self.warps else ''}", None
        yield from _lines(self.body, self.loops.index_names, 1)

    def text(self) -> str:
        return "\n".join(line for line, _ in self.lines()) + "\n"

    @property
    def over_blocks(self) -> set[str]:
        """The indices of the loops over the first elements of blocks."""
        return {n.block for n in walk(self.body) if isinstance(n, For) and n.block}

    @property
    def in_blocks(self) -> list[For]:
        """The loops inside accumulators of lanes, and of a block of rows: over the elements, and then over the rows."""
        blocks = (n for n in walk(self.body) if isinstance(n, Accumulate) and n.place in ("block", "lanes"))
        return [n for block in blocks for n in walk(block.body) if isinstance(n, For)]

    @property
    def lane_index(self) -> str:
        """The outer index that is inside the loops over the elements of a row; empty if there is none."""
        outer = self.loops.index_names[: len(self.loops.outer)]
        return next((loop.index for loop in self.in_blocks if loop.index in outer), "")

    def find(self, index: str) -> list[For]:
        """Returns the loops over `index`, outermost first."""
        return [node for node in walk(self.body) if isinstance(node, For) and node.index == index]


def _lines(nodes: Sequence[Node], names: Sequence[str], depth: int) -> Iterator[tuple[str, Node | None]]:
    indent = "    " * depth
    for node in nodes:
        if isinstance(node, Do):
            prefix = {"compute": "", "keep": "keep "}.get(node.how)
            text = f"{node.how} {node.value}" if prefix is None else prefix + statement_text(node.statement, names)
            yield indent + text, node
        elif isinstance(node, Local):
            yield indent + node.text(), node
        elif isinstance(node, If):
            yield f"{indent}if {node.condition}:", node
            yield from _lines(node.body, names, depth + 1)
            yield f"{indent}else:", None
            yield from _lines(node.otherwise, names, depth + 1)
        else:
            yield indent + node.text(), node
            yield from _lines(node.body, names, depth + 1)


def children(node: Node) -> tuple[Node, ...]:
    """Returns the nodes inside of `node`."""
    if isinstance(node, If):
        return node.body + node.otherwise
    return node.body if isinstance(node, For | Accumulate) else ()


def walk(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yields all nodes, each before those inside it."""
    for node in nodes:
        yield node
        yield from walk(children(node))


def statements(nodes: Sequence[Node]) -> list[Do]:
    """Returns the leaves, in order."""
    return [node for node in walk(nodes) if isinstance(node, Do)]


def map_nodes(nodes: Sequence[Node], change: Callable[[Node], Sequence[Node]]) -> tuple[Node, ...]:
    """Returns the nodes with each replaced by ``change(node)``, those inside a node before the node itself."""
    found: list[Node] = []
    for node in nodes:
        if isinstance(node, If):
            body, otherwise = map_nodes(node.body, change), map_nodes(node.otherwise, change)
            found += change(replace(node, body=body, otherwise=otherwise))
        elif isinstance(node, For | Accumulate):
            found += change(replace(node, body=map_nodes(node.body, change)))
        else:
            found += change(node)
    return tuple(found)


def check(nest: Nest) -> None:
    """Checks one nest: every value is defined once in its scope, before it is used, inside the loops that it needs.

    Raises:
        CompilerBug: a rule is broken; the message shows the nest.
    """
    if problem := _problem(nest.loops.index_names, nest.body, _Scope()):
        raise CompilerBug(f"loop nest: {problem}\n{nest.text()}")


@dataclass(frozen=True)
class _Scope:
    """What the nodes of a scope may use."""

    values: frozenset[str] = frozenset()
    arrays: frozenset[str] = frozenset()
    indices: frozenset[str] = frozenset()
    accumulated: frozenset[str] = frozenset()
    has_whole_rows: bool = False
    """Whether a reduction is over a block, without an accumulator."""


def _problem(names: Sequence[str], nodes: Sequence[Node], around: _Scope) -> str | None:
    """Returns what is wrong with the nodes of a scope, or None."""
    own: set[str] = set()
    scope = around
    for node in nodes:
        inside = scope
        defined: set[str] = set()
        arrays: set[str] = set()
        if isinstance(node, Do):
            if problem := _leaf_problem(names, node, scope):
                return problem
            # the result of the `Accumulate` around it
            is_result = node.how != "read" and isinstance(node.statement, Reduce) and not scope.has_whole_rows
            defined = {node.value} if node.value and node.how != "write" and not is_result else set()
        elif isinstance(node, Local):
            arrays = {node.value}
        elif isinstance(node, Accumulate):
            results = {s.name for s in node.reductions if isinstance(s, Reduce)}
            inside = replace(scope, accumulated=scope.accumulated | results)
            arrays, defined = (results, set()) if node.place == "block" else (set(), results - scope.accumulated)
        elif isinstance(node, For):
            whole = node.is_block and not node.block
            inside = replace(scope, indices=scope.indices | {node.index, *node.parts}, has_whole_rows=whole)
        bodies = (node.body, node.otherwise) if isinstance(node, If) else (children(node),)
        for problem in (_problem(names, body, inside) for body in bodies):
            if problem:
                return problem
        declared = defined | {f"array {name}" for name in arrays}
        if twice := sorted(own & declared):
            return f"{twice[0]} is defined twice in one scope"
        own |= declared
        scope = replace(scope, values=scope.values | defined, arrays=scope.arrays | arrays)
    return None


def _leaf_problem(names: Sequence[str], do: Do, scope: _Scope) -> str | None:
    missing = sorted(do.arguments - scope.values)
    if missing:
        return f"{missing[0]} is used before it is defined"
    if do.how != "compute" and do.value not in scope.arrays:
        return f"{do.value} has no array"
    if do.how in ("read", "write"):
        return None
    if isinstance(do.statement, Reduce) and not (do.value in scope.accumulated or scope.has_whole_rows):
        return f"{do.value} has no accumulator"
    for address in addresses(do.statement):
        for name, stride in zip(names, address.strides, strict=True):
            if stride and name not in scope.indices:
                return f"no loop over {name} is around {statement_text(do.statement, names)}"
    return None


def naive(loops: Loops) -> Nest:
    """Returns the simplest nest: serial loops over the outer indices, and for each of them one sweep after the other.

    >>> nest("aten.sub(x, aten.amax(x, [1], True))", x="f32[64, 128]")
    forward_0:
        for i0 < 64:
            accumulate amax:
                for j0 < 128:
                    v0: f32 = load x[128*i0 + j0]
                    amax: f32 = max over j of v0
            for j0 < 128:
                v0: f32 = load x[128*i0 + j0]
                sub: f32 = sub(v0, amax)
                store sub[128*i0 + j0] = sub
    """
    names, rank = loops.index_names, len(loops.outer)
    body: list[Node] = []
    for sweep in sweeps(loops):
        body += [Do(s) for s in sweep.outer]
        if not sweep.inner:
            continue
        every = (*sweep.recomputed, *sweep.inner)
        again = [Do(s, is_again=True) for s in sweep.recomputed]
        inside = _nested(names[rank:], loops.inner, [*again, *(Do(s) for s in sweep.inner)])
        reductions = tuple(s for s in sweep.inner if isinstance(s, Reduce))
        scans = tuple(s for s in every if isinstance(s, Scan))
        body += [Accumulate(reductions, scans, inside)] if reductions or scans else inside
    if not loops.column_stores:
        return Nest(loops, _nested(names[:rank], loops.outer, body))
    first = rank - loops.sequential_rank
    rows = _nested(names[first:rank], loops.outer[first:], body)
    columns = Accumulate(loops.column_stores, (), rows, "columns")
    return Nest(loops, _nested(names[:first], loops.outer[:first], [columns]))


def _nested(names: Sequence[str], sizes: Sequence[Int], body: Sequence[Node]) -> tuple[Node, ...]:
    """Returns serial loops inside each other around `body`."""
    inside = tuple(body)
    for name, size in reversed(list(zip(names, sizes, strict=True))):
        inside = (For(name, size, inside),)
    return inside
