"""Records, summaries and guard trees take time that grows with what is in them and no faster, and have limits.

Work is counted in instructions of Python's, not timed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compiler_core.guards import GuardSpec, GuardTree
from compiler_core.guards.sources import Constant, Item, Local, Scope
from compiler_core.records import Failure, Record, RecordError, limits
from kernel_magics.display import summary
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


@pytest.mark.parametrize("work", [artifacts, sources])
def test_work_is_linear(work: Callable[[int], Callable[[], object]]) -> None:
    assert is_linear(work)


class Counted(list[Any]):
    """A list that counts what is taken of it."""

    taken = 0

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            self.taken += 1
            yield each

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.taken += len(found) if isinstance(at, slice) else 1
        return found


def test_progress_looks_at_each_frame_once() -> None:
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


def test_names_that_are_added_by_hand_are_known() -> None:
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


def test_a_summary_has_so_many_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LINES", 4)
    monkeypatch.setattr(limits, "FAILURES", 2)
    record = a_record(10)
    record.notes.append("the last word")
    record.compiles[0].failures = [Failure("capture", f"fault {i}") for i in range(5)]
    text = summary.text(record)
    assert "showing the first 2 of 5 failures" in text
    assert "showing the first 4 of 25 lines" in text
    assert text.endswith("note: the last word")
    assert len(text.splitlines()) == 1 + 3 + 5 + 1
    assert "showing the first 4 of " not in summary.explanation(a_record())


def test_a_file_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    file = a_record().save(tmp_path / "a.json")
    monkeypatch.setattr("compiler_core.records.record.MAX_JSON_BYTES", 20)
    monkeypatch.setattr("pathlib.Path.read_text", None)
    with pytest.raises(RecordError, match="at most 20 characters are read"):
        Record.load(file)


NUMBERS = [i + 0.5 for i in range(2000)]


def guards_on(container: Any) -> tuple[Any, dict[str, Any]]:
    """The tree of a guard on each item."""

    def program(numbers: Any) -> None: ...

    keys = list(container) if isinstance(container, dict) else range(len(container))
    scope = {"numbers": container}
    guards = [GuardSpec("TYPE_MATCH", Local("numbers"), Constant(type(container)))]
    guards += [GuardSpec("EQUALS_MATCH", Item(Local("numbers"), key), container[key]) for key in keys]
    return GuardTree(Scope(scope, {}, {}), program.__code__).build(guards).root, scope


def width(manager: Any) -> int:
    """The most items that any manager has."""
    children = manager.get_child_managers()
    return max([len(children), *map(width, children)])


@pytest.mark.parametrize(
    "container", [NUMBERS, tuple(NUMBERS), {str(n): n for n in NUMBERS}], ids=["list", "tuple", "dict"]
)
def test_no_part_of_a_guard_tree_is_wide(container: Any) -> None:
    """PyTorch's managers look for a new item among all they have, so a wide one takes quadratic time to make."""
    root, scope = guards_on(container)
    assert width(root) < 200
    assert root.check(scope)
    for key in (0, 777, 1999):
        assert not root.check({"numbers": changed(container, key)})
    assert not root.check({"numbers": None})
    shorter = {k: container[k] for k in list(container)[:-1]} if isinstance(container, dict) else container[:-1]
    assert not root.check({"numbers": shorter})
    assert root.check(scope)


def changed(container: Any, at: int) -> Any:
    if isinstance(container, dict):
        return container | {str(NUMBERS[at]): -1.0}
    other = list(container)
    other[at] = -1.0
    return type(container)(other)


def test_nothing_of_the_users_is_kept_by_a_check() -> None:
    class Thing:
        pass

    root, _ = guards_on(NUMBERS)
    things: list[Any] = [Thing() for _ in NUMBERS]
    first = weakref.ref(things[0])
    assert not root.check({"numbers": things})
    del things
    assert first() is None
