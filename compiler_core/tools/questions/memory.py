"""What holds the memory of a compiled function at its peak: each value with its owner, as the user would write it.

Counted is what the compiled code allocates in its forward and backward.  Its inputs (arguments, parameters, states of
an optimizer) are listed beside it, since others allocated them.  If the record has no memory plan of the code, as of
stock's, only what its forward leaves is known: the results, and what is saved for the backward.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from compiler_core.records import Artifact, Compile, ItemId, Node, PlannedMemory, Record
from compiler_core.records.user_lines import ItemLines
from compiler_core.tools.stack_values import statement_of

Which = Literal["forward", "backward"]
_KEEPING = frozenset({"append", "appendleft", "add", "insert"})
"""Methods of containers that keep what they get."""
_VIEWS = re.compile(
    r"\b(view|_unsafe_view|reshape|permute|transpose|t|expand|squeeze|unsqueeze|slice|select|split|split_with_sizes"
    r"|unbind|detach|alias|as_strided|diagonal|getitem|_reshape_alias|numel|size|T|mT|shape)(\.|$)"
)
"""The names of operations that allocate nothing."""


_ONE_BY_ONE = frozenset({"aot_eager", "aot_eager_decomp_partition"})
"""Backends that run the operations of the graphs of the forward and the backward one by one, with no plan."""
LARGE_BYTES = 2**20
"""Memory at the peak from which on it is listed what holds it."""

TRIED_MEMORY = "memory: tried"
"""How the note begins that says what a trial did to the memory at the peak."""


def is_view(target: str) -> bool:
    """Whether an operation allocates nothing."""
    return _VIEWS.search(target) is not None


@dataclass(frozen=True)
class Held:
    """A value in memory, in use from step `first` to step `last` of forward and backward."""

    name: str
    bytes: int
    first: int
    last: int
    kind: Literal["result", "saved", "intermediate"]
    node: ItemId | None
    owner: str = ""
    """``self.kept``, ``the gradient of self.up.weight``; empty if it has no name in the program."""
    within: str | None = None
    """The value in whose memory it lies."""


@dataclass(frozen=True)
class Peak:
    """The step with the most memory, and what is held then, the largest first."""

    compile: Compile
    which: Which
    step: int
    """The number of the step in forward or backward, from 1."""
    bytes: int
    held: list[Held]
    inputs: list[tuple[str, int]]
    """The names and bytes of the inputs, the largest first."""
    is_peak: bool
    """Whether it is the peak; else only what is held at the end of the forward is known."""

    def bytes_of(self, kind: str) -> int:
        """Returns the bytes of the values of one kind (`Held.kind`)."""
        return sum(each.bytes for each in self.held if each.kind == kind)

    @property
    def saved_bytes(self) -> int:
        """The bytes that are saved for the backward."""
        return self.bytes_of("saved")


def highest_peak(record: Record) -> Peak | None:
    """Returns the peak of the compile with the most memory; None if none is known or it is small."""
    peaks = [peak for compile_ in record.compiles if (peak := memory_peak(compile_))]
    peak = max(peaks, key=lambda each: each.bytes, default=None)
    return peak if peak is not None and peak.bytes >= LARGE_BYTES else None


def memory_peak(compile_: Compile) -> Peak | None:
    """Returns the peak of a compile; None if the record has neither memory plans nor graphs of it."""
    plans = {plan.graph: plan for plan in compile_.memory}
    forward, backward = _graph(compile_, "forward"), _graph(compile_, "backward")
    forward = forward or (None if plans else next(iter(compile_.captured_graphs), None))
    results = _program_results(compile_, forward)
    if plans:
        steps = {which: _steps(plans.get(which)) for which in ("forward", "backward")}
        held = list(_of_plans(plans, forward, backward, steps["forward"], results))
    else:
        steps = {"forward": len(_operations(forward)), "backward": len(_operations(backward))}
        held = list(_of_graphs(forward, backward, steps["forward"], results))
    is_peak = bool(plans) or compile_.backend in _ONE_BY_ONE
    if not is_peak:
        held = [each for each in held if each.kind != "intermediate" and each.first < steps["forward"]]
    if not held:
        return None
    owners = _owners(compile_, forward, backward, results)
    held = [replace(each, owner=owners.get(each.node or "", "")) for each in held]
    changes: Counter[int] = Counter()
    for each in (each for each in held if each.within is None):
        changes[each.first] += each.bytes
        changes[each.last + 1] -= each.bytes
    steps_of_changes = sorted(changes)
    used = list(itertools.accumulate(changes[step] for step in steps_of_changes))
    most = max(used)
    at = steps_of_changes[used.index(most)]
    there = sorted(_held_at(held, at), key=lambda each: -each.bytes)
    which: Which = "forward" if at < steps["forward"] else "backward"
    number = at + 1 - (0 if which == "forward" else steps["forward"])
    return Peak(compile_, which, number, most, there, _inputs(compile_), is_peak)


def _held_at(held: list[Held], at: int) -> Iterator[Held]:
    """Yields what is held at a step: of a value in whose memory others lie, only the bytes that they do not take."""
    there = [each for each in held if each.first <= at <= each.last]
    taken: Counter[str] = Counter()
    for each in there:
        if each.within is not None:
            taken[each.within] += each.bytes
    for each in there:
        if each.bytes > taken[each.name]:
            yield replace(each, bytes=each.bytes - taken[each.name])


def _graph(compile_: Compile, which: Which) -> Artifact | None:
    """Returns the graph of a direction: ours, or the last one of stock."""
    found = {artifact.name: artifact for artifact in compile_.artifacts if artifact.graph}
    return found.get(f"{which}.post_grad") or found.get(which)


def _nodes(artifact: Artifact | None) -> list[Node]:
    return artifact.graph.nodes if artifact and artifact.graph else []


def _operations(artifact: Artifact | None) -> list[Node]:
    return [node for node in _nodes(artifact) if node.op.startswith("call_")]


# ---- of memory plans ---------------------------------------------------------------------------


def _steps(plan: PlannedMemory | None) -> int:
    if plan is None:
        return 0
    steps = [step for each in plan.buffers for step in (each.first, each.last or 0)]
    return 1 + max([-1, *steps, *plan.released.values()])


def _of_plans(
    plans: dict[Which, PlannedMemory],
    forward: Artifact | None,
    backward: Artifact | None,
    forward_steps: int,
    results: Container[str],
) -> Iterator[Held]:
    end = forward_steps + _steps(plans.get("backward")) - 1
    released = plans["backward"].released if "backward" in plans else {}
    for each in _planned(plans.get("forward"), forward, 0, end):
        if each.kind == "result" and each.name in released and each.name not in results:
            yield replace(each, kind="saved", last=forward_steps + released[each.name])
        else:
            yield each
    yield from _planned(plans.get("backward"), backward, forward_steps, end)


def _planned(plan: PlannedMemory | None, artifact: Artifact | None, offset: int, end: int) -> Iterator[Held]:
    taken = {each.takes: each.first for each in plan.buffers} if plan else {}
    keys = {node.key for node in _nodes(artifact)}
    for each in plan.buffers if plan else ():
        if each.bytes:
            # the memory of one that another takes waits for it
            last = taken[each.name] - 1 if each.name in taken else each.last
            node = artifact.item(each.name) if artifact and each.name in keys else None
            kind: Literal["result", "intermediate"] = "result" if each.last is None else "intermediate"
            end_of_use = end if last is None else offset + last
            yield Held(each.name, each.bytes, offset + each.first, end_of_use, kind, node, within=each.within)


# ---- of graphs without a plan ------------------------------------------------------------------


def _of_graphs(
    forward: Artifact | None, backward: Artifact | None, forward_steps: int, results: Container[str]
) -> Iterator[Held]:
    end = forward_steps + len(_operations(backward)) - 1
    uses = _last_uses(backward)
    taken = [node.key for node in _nodes(backward) if node.op == "placeholder"]
    released: dict[str, int] = {}
    for key, base in zip(taken, _viewed(forward, taken) if forward else taken, strict=True):  # it may take a view
        released[base] = max(released.get(base, 0), uses.get(key, 0))
    for each in _of_graph(forward, 0, end):
        if each.kind == "result" and each.name in released and each.name not in results:
            yield replace(each, kind="saved", last=forward_steps + min(released[each.name], end))
        else:
            yield each
    yield from _of_graph(backward, forward_steps, end)


def _of_graph(artifact: Artifact | None, offset: int, end: int) -> Iterator[Held]:
    uses, results = _last_uses(artifact), _results(artifact)
    for step, node in enumerate(_operations(artifact)):
        if node.bytes and not is_view(node.target) and artifact:
            is_result = node.key in results
            last = end if is_result else offset + uses.get(node.key, step)
            kind: Literal["result", "intermediate"] = "result" if is_result else "intermediate"
            yield Held(node.key, node.bytes, offset + step, last, kind, artifact.item(node.key))


def _last_uses(artifact: Artifact | None) -> dict[str, int]:
    """Returns the last step that uses each value, also through views of it."""
    at = {node.key: step for step, node in enumerate(_operations(artifact))}
    views = {node.key for node in _nodes(artifact) if is_view(node.target)}
    edges = artifact.graph.edges if artifact and artifact.graph else []
    uses: dict[str, int] = {}
    for source, reader in sorted(edges, key=lambda edge: -at.get(edge[1], len(at))):  # a view passes its last use on
        step = max(at.get(reader, 0), uses.get(reader, 0) if reader in views else 0)
        uses[source] = max(uses.get(source, 0), step)
    return uses


def _results(artifact: Artifact | None) -> list[str]:
    """Returns the values that a graph returns, in order and without repetition, and those that they are views of."""
    if artifact is None or artifact.graph is None:
        return []
    outputs = {node.key for node in artifact.graph.nodes if node.op == "output"}
    found = [source for source, reader in artifact.graph.edges if reader in outputs]
    return found + _viewed(artifact, found)


def _outputs(captured: Artifact) -> list[str]:
    return [source for source, reader in captured.graph.edges if reader.startswith("output")] if captured.graph else []


def _program_results(compile_: Compile, forward: Artifact | None) -> dict[str, str]:
    """Returns what the program gets of the forward's values, with the outputs of the captured graph that they are.

    The program may keep them after the backward, which uses some of them, too.
    """
    captured = next(iter(compile_.captured_graphs), None)
    if captured is None or forward is None:
        return {}
    outputs = _outputs(captured)
    results = outputs if forward is captured else _results(forward)[: len(outputs)]
    if _shapes(forward, results) != _shapes(captured, outputs):
        return {}
    return dict(zip(_viewed(forward, results), outputs, strict=True))


def _viewed(artifact: Artifact, keys: list[str]) -> list[str]:
    """Returns for each value the one that its chain of views begins with."""
    views = {node.key for node in _nodes(artifact) if is_view(node.target)}
    inputs: dict[str, str] = {}
    for source, reader in artifact.graph.edges if artifact.graph else ():
        inputs.setdefault(reader, source)
    found = []
    for key in keys:
        seen: set[str] = set()
        while key in views and key not in seen and key in inputs:
            seen.add(key)
            key = inputs[key]
        found.append(key)
    return found


# ---- owners ------------------------------------------------------------------------------------


def _inputs(compile_: Compile) -> list[tuple[str, int]]:
    captured = next(iter(compile_.captured_graphs), None)
    # stock's graph reads parameters and states of an optimizer as attributes
    inputs = [node for node in _nodes(captured) if node.op in ("placeholder", "get_attr") and node.bytes]
    return sorted(((node.place or node.key, node.bytes or 0) for node in inputs), key=lambda each: -each[1])


def _owners(
    compile_: Compile, forward: Artifact | None, backward: Artifact | None, results: dict[str, str]
) -> dict[ItemId, str]:
    """Returns the owners of results of the forward, and of gradients, by the nodes that compute them."""
    captured = next(iter(compile_.captured_graphs), None)
    if captured is None or captured.graph is None:
        return {}
    places = {node.key: node.place for node in captured.graph.nodes}
    inputs = [node.key for node in captured.graph.nodes if node.op == "placeholder"]
    lines = ItemLines(compile_)
    for key in _outputs(captured):  # stock does not say where it puts a result: the lines that compute and keep it do
        places[key] = places.get(key) or _keeper(lines, captured.item(key))
    owners: dict[ItemId, str] = {}
    if forward is not None:
        owners.update((forward.item(key), places.get(each, "")) for key, each in results.items())
    if backward is not None:
        returned = _returned(backward)
        if len(returned) == len(inputs):
            for key, base, source in zip(returned, _viewed(backward, returned), inputs, strict=True):
                if key and places[source]:
                    owners[backward.item(base)] = f"the gradient of {places[source]}"
    return owners


def _keeper(lines: ItemLines, item: ItemId) -> str:
    """Returns the object in which the lines of a function keep a value; empty if they keep it in none."""
    file, made = lines.line_of(item)
    numbered = lines.file_lines().get(file, {})
    texts = [numbered.get(number, "") for number in range(1, max(numbered, default=0) + 1)]
    at = keeping_line(texts, made, "")
    return kept_in(lines.text((file, made))) or (kept_in(texts[at - 1]) if at else "")


def kept_in(line: str) -> str:
    """Returns the object in which a line keeps what it computes: ``self.kept`` of ``self.kept = y * 2``, or of
    ``self.kept.append(y * 2)``; empty if it keeps it in none, as far as its text says."""
    match statement_of(line.strip()):
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript() as target]):
            return ast.unparse(target)
        case ast.AugAssign(target=ast.Attribute() | ast.Subscript() as target):
            return ast.unparse(target)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr=method))) if method in _KEEPING:
            return ast.unparse(owner)
    return ""


def keeping_line(lines: Sequence[str], made: int, owner: str) -> int:
    """Returns the number of the line that keeps in an object what is made in line `made`: the only one that keeps
    something in `owner`, or the next one in the function that keeps it by its name; 0 if there is none."""
    of_owner = [number for number, line in enumerate(lines, 1) if owner and kept_in(line) == owner]
    of_owner = [number for number in of_owner if not _keeps_literal(lines[number - 1])]
    if len(of_owner) == 1:
        return of_owner[0]
    match statement_of(lines[made - 1].strip()) if made else None:
        case ast.Assign(targets=[ast.Name(name)]):
            pass
        case _:
            name = ""
    for number, line in enumerate(lines[made - 1 :] if made else (), made):
        if line.lstrip().startswith(("def ", "async def ", "class ")):
            break
        if number > made and _assigns(line, name):
            break
        if kept_in(line) and _names_it(line, name):
            return number
    return 0


def _keeps_literal(line: str) -> bool:
    """Whether a line keeps a constant or a container that it writes out, as a constructor does."""
    match statement_of(line.strip()):
        case ast.Assign(value=ast.Constant() | ast.List() | ast.Dict() | ast.Tuple()):
            return True
    return False


def _assigns(line: str, name: str) -> bool:
    """Whether a line gives another value to a variable."""
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        for node in ast.walk(statement_of(line.strip()) or ast.Pass())
    )


def _names_it(line: str, name: str) -> bool:
    """Whether a line that keeps a value keeps that of a variable."""
    match statement_of(line.strip()):
        case ast.Assign(value=ast.Name(id)) | ast.Expr(value=ast.Call(args=[*_, ast.Name(id)])):
            return id == name
    return False


def _shapes(artifact: Artifact, keys: list[str]) -> list[object]:
    nodes = {node.key: node for node in _nodes(artifact)}
    return [nodes[key].shape if key in nodes else None for key in keys]


def _returned(artifact: Artifact) -> list[str]:
    """Returns what the last statement of a graph's text returns, value by value; empty for None."""
    _, _, values = artifact.text.rpartition("return ")
    names = [re.sub(r"#.*", "", line) for line in values.split("\n")]
    parts = [part.strip() for part in "".join(names).strip().strip("[]()").split(",")]
    return ["" if part == "None" else part for part in parts if part]
