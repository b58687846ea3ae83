"""Recorded steps: replaying them gives the interpreter's state at each step."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from compiler_core.api import compile as api
from compiler_core.capture.values.base import UNBOUND
from compiler_core.records import Compile, Guard, Record, to_plain
from compiler_core.records.steps import StepCall, StepCode, Steps
from compiler_core.tools import recording, step_recorder
from compiler_core.tools.questions.step_states import Replay, steps_text
from compiler_core.tools.step_recorder import RecordingInterpreter
from compiler_core.tools.value_texts import describe

State = tuple[list[str], dict[str, str]]
layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
STATE = {"calls": 0}


def scale(value: torch.Tensor, by: int = 2) -> torch.Tensor:
    return value * by


def numbers(n: int) -> Iterator[int]:
    for i in range(n):
        yield i * i


def plain(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    return y.relu()


def containers(x: torch.Tensor) -> Any:
    out = [x]
    found = {"a": x}
    for i in range(3):
        out.append(out[-1] + i)
        found[str(i)] = out[-1]
    first, *rest = out
    del first
    return [v * 2 for v in rest], found


def calls(x: torch.Tensor) -> torch.Tensor:
    return scale(scale(layers(x), by=3)) + sum(numbers(3))


def closures(x: torch.Tensor) -> Any:
    count = 1

    def step(v: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return v + count

    return step(step(x)), count


def effects(x: torch.Tensor) -> torch.Tensor:
    STATE["calls"] += 1
    return x.cos()


def branch(x: torch.Tensor) -> torch.Tensor:
    y = scale(x)
    if y.sum() > 0:
        y = y + 1
    return y


PROGRAMS: list[Callable[[torch.Tensor], Any]] = [plain, containers, calls, closures, effects, branch]


def record_of(function: Callable[[torch.Tensor], Any]) -> Record:
    STATE["calls"] = 0
    with recording.record() as result:
        api.compile(function, backend="eager", steps=True)(torch.ones(4, 4))
    return result


def seen_state(tx: Any) -> State:
    names = {**tx.locals, **tx.cells}
    kept = {name: describe(v) for name, v in names.items() if v is not UNBOUND}
    return [describe(v) for v in tx.stack], kept


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_replay_gives_each_state_that_there_was(
    function: Callable[[torch.Tensor], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[tuple[Steps, int, int, State]] = []
    step = RecordingInterpreter.step

    def watched(self: RecordingInterpreter) -> None:
        try:
            step(self)
        finally:
            steps = self.recorder.steps
            log.append((steps, len(steps.call) - 1, self.call_number, seen_state(self)))

    monkeypatch.setattr(RecordingInterpreter, "step", watched)
    record = record_of(function)
    replays = {id(s): Replay(s) for c in record.compiles for s in c.steps}
    # forward in the order of execution, and backward from the end
    for steps, n, call, (stack, local) in [*log, *reversed(log)]:
        replay = replays[id(steps)]
        assert [replay.text(v, n) for v in replay.stack(call, n)] == stack
        assert {name: replay.text(v, n) for name, v in replay.locals(call, n).items()} == local
    assert sum(len(r) for r in replays.values()) == len(log) > 5


def test_nothing_is_recorded_unless_it_is_asked_for() -> None:
    with recording.record() as result:
        api.compile(plain, backend="eager")(torch.ones(4))
    (compiled,) = result.compiles
    assert compiled.steps == []
    with pytest.raises(ValueError, match="--steps"):
        compiled.replay()


def guards(compile_: Compile) -> list[Guard]:
    return [dataclasses.replace(guard, cost_ns=None) for guard in compile_.guards]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_recording_changes_nothing_that_is_captured(function: Callable[[torch.Tensor], Any]) -> None:
    STATE["calls"] = 0
    with recording.record() as without:
        api.compile(function, backend="eager")(torch.ones(4, 4))
    recorded = record_of(function)
    assert [guards(c) for c in recorded.compiles] == [guards(c) for c in without.compiles]
    assert [texts(c) for c in recorded.compiles] == [texts(c) for c in without.compiles]


def texts(compiled: Compile) -> list[tuple[str, str]]:
    return [(a.name, a.text) for a in compiled.artifacts]


def test_a_node_a_guard_and_a_line_find_their_steps() -> None:
    record = record_of(calls)
    (compiled,) = record.compiles
    replay = compiled.replay()
    graph = compiled.find("captured")
    assert graph.graph is not None
    for node in graph.graph.nodes:
        if node.op != "output":
            step = replay.step_of(graph.item(node.key))
            assert step is not None
            assert graph.item(node.key) in [note.item for note in replay.notes(step)]
    found = {note.item for note in replay.state(len(replay) - 1).guards}
    guards = compiled.find("guards")
    assert found == {guards.item(g.key) for g in compiled.guards} - {guards.item("g0")}
    linear = replay.step_of(graph.item("linear"))
    assert linear is not None
    state = replay.state(linear)
    assert [c.name for c in state.calls] == ["calls", "Sequential.forward", "Linear.forward"]
    assert replay.items(linear)[0].startswith(f"{compiled.id}:bytecode#")
    line = record.search("return value * by", pane="source")[0]
    at_line = {replay.state(n).calls[-1].name for n in replay.steps_of(line)}
    assert at_line == {"scale"}


def test_an_instruction_without_a_line_does_not_have_that_of_the_caller() -> None:
    steps = Steps(
        codes=[StepCode("f", "f.py", ["CALL"], [1]), StepCode("g", "g.py", ["JUMP", "RETURN"], [0, 5])],
        calls=[StepCall(0, None), StepCall(1, 0)],
        call=[0, 1, 1],
        at=[0, 0, 1],
        pops=[0, 0, 0],
        pushes=[[], [], []],
    )
    both = Replay(steps, lambda filename, line: f"{filename}:{line}" if line else None)
    assert [both.items(n) for n in range(3)] == [["f.py:1"], [], ["g.py:5"]]
    only_caller = Replay(steps, lambda filename, line: "f.py:1" if filename == "f.py" else None)
    assert [only_caller.items(n) for n in range(3)] == [["f.py:1"]] * 3


def test_the_graph_grows_step_by_step() -> None:
    (compiled,) = record_of(plain).compiles
    replay = compiled.replay()
    sizes = [len(replay.state(n).nodes) for n in range(len(replay))]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (0, 3)
    (node,) = replay.state(sizes.index(3)).added
    assert node.text == 'relu: "f32[4, 4]" = add.relu()'


def test_a_break_is_in_the_attempt_that_met_it_and_the_last_attempt_counts() -> None:
    compiled = record_of(branch).compiles[0]
    first, last = compiled.steps
    assert (first.outcome, last.outcome) == ("broke", "captured")
    (note,) = (note for note in first.notes if note.kind == "break")
    assert note.step == len(first.call) - 1
    assert note.item is not None
    assert note.item == compiled.breaks[0].instruction
    assert compiled.replay(0).step_of(note.item) == note.step
    assert not any(note.kind == "break" for note in last.notes)


def test_side_effects_are_noted() -> None:
    (compiled,) = record_of(effects).compiles
    notes = [note.text for note in compiled.steps[-1].notes if note.kind == "effect"]
    assert notes == ["changes G['STATE']: dict of 1"]


def test_steps_survive_json_and_say_themselves_in_words() -> None:
    record = record_of(calls)
    read = Record.from_json(record.to_json())
    assert read == record
    text = steps_text(read.compiles[0].steps)
    assert text.startswith("attempt 1 of 1: captured, ")
    assert "    Linear.forward:" in text
    assert "gives linear: f32[4, 4]" in text
    assert '+ node: linear: "f32[4, 4]" = torch.nn.functional.linear(' in text


def test_a_very_long_attempt_is_kept_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = record_of(calls).compiles[0].steps[0]
    monkeypatch.setattr(step_recorder, "MAX_STEPS", 50)
    (steps,) = record_of(calls).compiles[0].steps
    assert (len(steps.call), steps.dropped) == (50, len(whole.call) - 50)
    assert Replay(steps).state(20) == Replay(whole).state(20)


def damage(plain: dict[str, Any], name: str, value: Any) -> Steps:
    steps: Steps = Record.from_json(json.dumps(plain)).compiles[0].steps[0]
    setattr(steps, name, value(getattr(steps, name)))
    return steps


def test_steps_of_a_stranger_that_do_not_fit_are_refused() -> None:
    record = to_plain(record_of(calls))
    damages = {
        "call": lambda x: [99, *x[1:]],
        "at": lambda x: [10_000, *x[1:]],
        "pops": lambda x: x[1:],
        "pushes": lambda x: [[10_000], *x[1:]],
        "notes": lambda x: x[::-1],
        "values": lambda x: [],
    }
    for name, value in damages.items():
        with pytest.raises(ValueError, match="inconsistent"):
            Replay(damage(record, name, value))
    steps = damage(record, "calls", lambda x: x)
    steps.calls[0].caller = 0
    with pytest.raises(ValueError, match="inconsistent"):
        Replay(steps)
    replay = Replay(damage(record, "calls", lambda x: x))
    with pytest.raises(IndexError, match="no step"):
        replay.state(len(replay))
