"""Tests that a frame which cannot be captured does not keep frames of other modules with the same code from it."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import compiler_core
from compiler_core.pipeline.compiled_region import regions
from compiler_core.records import Compile, Frame, Record

pytestmark = pytest.mark.usefixtures("fresh_stock")
"""What stock skipped in an earlier test would be skipped in threads, too."""


def nothing(module: nn.Module, args: Any) -> None:
    """Runs before the forward of a module, as FSDP2's hooks do."""


hook: Any = torch._dynamo.disable(nothing)


def hooked(*layers: nn.Module) -> nn.Sequential:
    """Returns a Sequential that cannot be captured, because it calls a hook in its loop."""
    layers[-1].register_forward_pre_hook(hook)
    return nn.Sequential(*layers)


class Stages(nn.Module):
    """Calls parts that all have the code of ``Sequential.forward``."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            torch._dynamo.graph_break()
            x = part(x)
        return x


def frame(record: Record, file: str = "container.py", name: str = "forward") -> Frame:
    (found,) = [each for each in record.frames if each.filename.endswith(file) and each.name == name]
    return found


def outcomes(compiles: list[Compile]) -> list[str]:
    return [each.outcome for each in compiles]


def test_other_modules_with_the_same_code_are_compiled() -> None:
    fits, unfit = nn.Sequential(nn.Linear(4, 4), nn.GELU()), hooked(nn.Linear(4, 4), nn.Tanh())
    model, x = Stages(unfit, fits, hooked(nn.Linear(4, 4), nn.ReLU())), torch.randn(2, 4)
    with compiler_core.record() as record:
        compiled = compiler_core.compile(model, backend="eager")
        results = [compiled(x) for _ in range(3)]
    assert all(torch.equal(each, model(x)) for each in results)
    shared = frame(record)
    assert [each for each in outcomes(shared.compiles) if each == "compiled"]
    assert outcomes(shared.compiles).count("skipped") == 2
    assert shared.skipped == ""
    assert all(each.cause is None or "id(" not in each.cause.guard for each in shared.compiles)
    before = len(shared.compiles)
    with compiler_core.record() as later:
        compiled(x)
    assert len(shared.compiles) == before
    assert [f for f in later.frames if f.filename.endswith("container.py") and f.compiles] == []


def test_it_holds_in_a_thread() -> None:
    fits, unfit = nn.Sequential(nn.Linear(4, 4), nn.GELU()), hooked(nn.Linear(4, 4))
    model, x = Stages(unfit, fits), torch.randn(2, 4)
    compiled = compiler_core.compile(model, backend="eager")
    found: list[torch.Tensor] = []

    def calls() -> None:
        with compiler_core.record() as record:
            found.extend(compiled(x) for _ in range(3))
        assert sorted(outcomes(frame(record).compiles)) == ["compiled", "skipped"]

    thread = threading.Thread(target=calls)
    thread.start()
    thread.join()
    assert len(found) == 3
    assert all(torch.equal(each, model(x)) for each in found)


def suspended() -> Iterator[None]:
    """Stays suspended in a try block when it is dropped, after which a graph cannot end."""
    try:
        yield
    finally:
        len("")


def test_for_a_users_code_one_try_decides() -> None:
    def step(part: nn.Module, x: torch.Tensor) -> torch.Tensor:
        next(suspended())
        result: torch.Tensor = part(x)
        return result

    compiled = compiler_core.compile(lambda part, x: step(part, x) + 1, backend="eager")
    parts = [nn.Linear(4, 4) for _ in range(3)]
    parts[0].register_forward_pre_hook(hook)
    with compiler_core.record() as record:
        for part in parts:
            compiled(part, torch.randn(2, 4))
    assert outcomes(frame(record, __file__, "step").compiles) == ["skipped"]


def test_code_is_not_tried_without_end() -> None:
    parts = [hooked(nn.Linear(4, 4)) for _ in range(12)]
    model, x = Stages(*parts), torch.randn(2, 4)
    with compiler_core.record() as record:
        compiled = compiler_core.compile(model, backend="eager", recompile_limit=4)
        for _ in range(2):
            compiled(x)
    assert outcomes(frame(record).compiles) == ["skipped"] * 5


def test_the_decision_keeps_no_module_alive() -> None:
    def run(part: nn.Module, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        result: torch.Tensor = part(x)
        return result

    compiled, unfit = compiler_core.compile(run, backend="eager"), hooked(nn.Linear(4, 4))
    compiled(unfit, torch.randn(2, 4))
    reference = weakref.ref(unfit)
    plain = [
        entry for region in regions() for state in region.states.values() for entry in state.entries if entry.is_plain
    ]
    assert plain
    del unfit
    gc.collect()
    assert reference() is None
    entries = [entry for region in regions() for state in region.states.values() for entry in state.entries]
    assert not any(entry in entries for entry in plain)


class Meter:
    """Counts what a program logs."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def note(self, item: Any) -> Any:
        self.seen.append(type(item).__name__)
        return len(item) * (2.0 if isinstance(item, str) else item.sum())


def test_a_function_that_has_no_tensors_is_compiled_once() -> None:
    """Where Python calls it: what it would be compiled for again is no reason to."""

    def plain(meter: Meter, items: list[Any]) -> Any:
        assert "items" in locals()
        return [meter.note(item) for item in items]

    def program(meter: Meter, items: list[Any]) -> Any:
        return plain(meter, items)

    def compiles(*calls: list[Any]) -> list[str]:
        compiler_core.reset()
        with compiler_core.record() as record:
            compiled, meters = compiler_core.compile(program, backend="eager", strict=True), (Meter(), Meter())
            for items in calls:
                assert repr(compiled(meters[0], items)) == repr(program(meters[1], items))
        assert meters[0].seen == meters[1].seen
        return outcomes(frame(record, "test_plain_frames.py", "note").compiles)

    assert compiles(["a", "bc"], ["def", "longer"]) == ["compiled"]
    assert compiles([torch.ones(2), torch.ones(3)], ["def", "longer"]) == ["compiled"] * 4
    assert compiles(["a", torch.ones(3)], ["longer"]) == ["compiled"] * 3
