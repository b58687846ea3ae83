"""Records, summaries and guard trees take time that grows with what is in them and no faster, and have limits.

Work is counted in instructions of Python's, not timed.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from compiler_core.guards import GuardSpec, GuardTree
from compiler_core.guards.sources import (
    VERSIONS_ARE_STALE,
    AttrSource,
    Box,
    ConstantSource,
    GetItemSource,
    GlobalSource,
    LocalSource,
    Scope,
)
from compiler_core.records import Failure, Graph, Kernel, Node, Record, RecordError, Span, limits
from compiler_core.tools.questions.compare import compare
from kernel_magics.display import progress, summary
from kernel_magics.display.explorer import Explorer
from tests.cases.counted import is_linear


def a_record(frames: int = 1) -> Record:
    record = Record()
    for i in range(frames):
        record.compile(record.frame(f"f{i}", "a.py", i + 1, "root"))
    return record


def artifacts(n: int) -> Callable[[], object]:
    (compile_,) = a_record().compiles
    return lambda: [compile_.artifact("other", f"a{i}", "text", "") for i in range(n)]


def sources(n: int) -> Callable[[], object]:
    record = a_record()
    return lambda: [(record.source_lines(f"{i}.py", {1: "x"}), record.line(f"{i}.py", 1)) for i in range(n)]


def unlinked_nodes(n: int) -> Callable[[], object]:
    """A comparison of graphs in which each node was made from the one before, and none from a line."""
    record = a_record()
    compile_ = record.compiles[0]
    graph = Graph([Node(f"n{i}", "call_function", "cos") for i in range(n)], [])
    made = compile_.artifact("captured", "captured", "text", "", graph=graph)
    for i in range(1, n):
        compile_.link(made.item(f"n{i}"), [made.item(f"n{i - 1}")], "x")
    return lambda: compare(record, record)


def compared_frames(n: int) -> Callable[[], object]:
    record = a_record(n)
    return lambda: compare(record, record)


def compared_kernels(n: int) -> Callable[[], object]:
    record = a_record()
    compile_ = record.compiles[0]
    for i in range(n):
        item = compile_.artifact("kernel", f"k{i}", "cpp", "int x;", [Span("1", 1, 1)]).item("1")
        compile_.kernels.append(Kernel(f"k{i}", f"k{i}", "cpp", "forward", item))
    return lambda: compare(record, record)


def edited_lines(n: int) -> Callable[[], object]:
    """A comparison of two files of many equal lines, each edited throughout."""
    sides = [a_record(), a_record()]
    for side, text in zip(sides, ("x = 1", "y = 1"), strict=True):
        side.source_lines("a.py", {i: (text if i % 3 else "z = 1") for i in range(1, 5 * n)})
    return lambda: compare(*sides)


@pytest.mark.parametrize(
    "work",
    [artifacts, sources, unlinked_nodes, compared_frames, compared_kernels, edited_lines],
    ids=lambda f: f.__name__,
)
def test_work_is_linear(work: Callable[[int], Callable[[], object]]) -> None:
    assert is_linear(work)


class Counted(list[Any]):
    """A list that counts the items read from it."""

    taken = 0

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            self.taken += 1
            yield each

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.taken += len(found) if isinstance(at, slice) else 1
        return found


def test_progress_reads_each_frame_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PARTIAL_AFTER_S", 1000.0)  # packing the record so far reads it all
    record, explorer = a_record(50), Explorer()
    compiles, record.frames = record.compiles, Counted(record.frames)
    explorer.follow(record)
    for compile_ in compiles:
        with compile_.step("capture"):
            pass
    assert explorer.progress["frame"] == "f49"
    assert record.frames.taken == 50


def test_a_search_splits_each_text_once(monkeypatch: pytest.MonkeyPatch) -> None:
    record = Record()
    source = record.source("a.py", 1, ["x = 1", "y = 2"])
    monkeypatch.setattr(type(source), "lines", None)
    assert record.search("x") == ["src:0#1"]


def test_names_appended_directly_are_found() -> None:
    record = a_record()
    (compile_,) = record.compiles
    compile_.artifact("other", "a", "text", "")
    compile_.artifacts.append(Record().source_lines("b", {}))
    compile_.artifacts[-1].id = "0/0:b"
    with pytest.raises(ValueError, match="already has an artifact named 'b'"):
        compile_.artifact("other", "b", "text", "")
    assert Record.from_json(record.to_json()) == record


def test_frames_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FRAMES", 3)
    record = a_record(7)
    assert [c.id for c in record.compiles] == ["0/0", "1/0", "2/0"]
    assert record.notes == ["The first 3 of 7 frames are kept."]
    assert "note: The first 3 of 7 frames are kept." in summary.text(record)


def test_the_lines_of_a_summary_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LINES", 4)
    monkeypatch.setattr(limits, "FAILURES", 2)
    record = a_record(10)
    record.notes.append("the last word")
    record.compiles[0].failures = [Failure("capture", f"fault {i}") for i in range(5)]
    record.find_problems()
    text = summary.text(record)
    assert "showing the first 2 of 5 failures" in text
    assert "showing the first 4 of 25 lines" in text
    assert text.endswith("note: the last word")
    assert len(text.splitlines()) == 1 + 3 + 5 + 1


def test_a_file_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    file = a_record().save(tmp_path / "a.json")
    monkeypatch.setattr("compiler_core.records.limits.JSON", 20)
    monkeypatch.setattr("pathlib.Path.read_text", None)
    with pytest.raises(RecordError, match="at most 20 characters are read"):
        Record.load(file)


def test_only_regular_files_are_read(tmp_path: Any) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(RecordError, match="not a regular file"):
            Record.load(path)


NUMBERS = [i + 0.5 for i in range(2000)]


class Slots:
    """An object whose attributes are not in a dict."""

    __slots__ = tuple(f"a{i}" for i in range(len(NUMBERS)))


def guard_tree(value: Any, sources: list[Any], f_globals: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    """Returns a guard tree with an equality guard on each source, and the variables of its frame."""

    def program(value: Any) -> None: ...

    scope = Scope({"value": value}, f_globals or {}, {})
    guards = [GuardSpec("TYPE_MATCH", LocalSource("value"), Box(type(value)))]
    guards += [GuardSpec("EQUALS_MATCH", source, source.fetch(scope)) for source in sources]
    return GuardTree(scope, program.__code__).build(guards).root, scope.f_locals


def guards_on(container: Any) -> tuple[Any, dict[str, Any]]:
    """Returns a guard tree with a guard on each item."""
    keys = list(container) if isinstance(container, dict) else range(len(container))
    return guard_tree(container, [GetItemSource(LocalSource("value"), key) for key in keys])


def width(manager: Any) -> int:
    """Returns the greatest number of children of a guard manager."""
    children = manager.get_child_managers()
    return max([len(children), *map(width, children)])


@pytest.mark.parametrize("table", ["__dict__", None])
def test_no_guards_on_attributes_are_wide(table: str | None) -> None:
    owner: Any = SimpleNamespace() if table else Slots()
    for i, number in enumerate(NUMBERS):
        setattr(owner, f"a{i}", number)
    root, variables = guard_tree(owner, [AttrSource(LocalSource("value"), f"a{i}", table) for i in range(len(NUMBERS))])
    assert width(root) < 200
    for name in ("a0", "a777", "a1999"):
        assert root.check(variables)
        number = getattr(owner, name)
        setattr(owner, name, -1.0)
        assert not root.check(variables)
        delattr(owner, name)
        assert not root.check(variables)
        setattr(owner, name, number)
    assert root.check(variables)


def test_no_guards_on_globals_are_wide() -> None:
    f_globals = {f"a{i}": number for i, number in enumerate(NUMBERS)}
    root, variables = guard_tree(0, [GlobalSource(name) for name in f_globals], f_globals)
    assert width(root) < 200
    assert root.check(variables)
    f_globals["a777"] = -1.0
    assert not root.check(variables)


def test_no_guards_on_constants_are_wide() -> None:
    root, variables = guard_tree(0, [ConstantSource(Box(number), str(number)) for number in NUMBERS])
    assert width(root) < 200
    assert root.check(variables)


class Leaf(torch.nn.Module):
    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number


@pytest.mark.parametrize("version_checks", [True, False])
def test_no_guards_on_submodules_are_wide(version_checks: bool) -> None:
    def program(value: Any) -> None: ...

    model = torch.nn.ModuleList(map(Leaf, NUMBERS[:600]))
    submodules = [AttrSource(LocalSource("value"), str(i), "_modules") for i in range(len(model))]
    scope = Scope({"value": model}, {}, {})
    guards = [
        GuardSpec("TYPE_MATCH", each, Box(type(each.fetch(scope)))) for each in (LocalSource("value"), *submodules)
    ]
    guards += [
        GuardSpec("EQUALS_MATCH", AttrSource(each, "number", "__dict__"), number)
        for each, number in zip(submodules, NUMBERS, strict=False)
    ]
    root: Any = GuardTree(scope, program.__code__).build(guards, version_checks).root
    assert width(root) < 200
    assert root.check(scope.f_locals)
    vars(model[444])["number"] = -1.0
    assert not root.check(scope.f_locals)
    model[444] = Leaf(NUMBERS[444])
    same_only = version_checks and not VERSIONS_ARE_STALE
    assert root.check(scope.f_locals) != same_only, "version checks hold for the same modules only"


@pytest.mark.parametrize(
    "container", [NUMBERS, tuple(NUMBERS), {str(n): n for n in NUMBERS}], ids=["list", "tuple", "dict"]
)
def test_no_part_of_a_guard_tree_is_wide(container: Any) -> None:
    """PyTorch's managers search all their children for a new one, so a wide manager takes quadratic time to build."""
    root, scope = guards_on(container)
    assert width(root) < 200
    assert root.check(scope)
    for key in (0, 777, 1999):
        assert not root.check({"value": changed(container, key)})
    assert not root.check({"value": None})
    shorter = {k: container[k] for k in list(container)[:-1]} if isinstance(container, dict) else container[:-1]
    assert not root.check({"value": shorter})
    assert root.check(scope)


def changed(container: Any, at: int) -> Any:
    if isinstance(container, dict):
        return container | {str(NUMBERS[at]): -1.0}
    other = list(container)
    other[at] = -1.0
    return type(container)(other)


def test_a_check_keeps_no_object_alive() -> None:
    class Thing:
        pass

    root, _ = guards_on(NUMBERS)
    things: list[Any] = [Thing() for _ in NUMBERS]
    first = weakref.ref(things[0])
    assert not root.check({"value": things})
    del things
    assert first() is None
