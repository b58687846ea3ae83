"""The problems of a record: each is graded, counted once for its line, and has advice that helps."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.errors import FullGraphError
from compiler_core.records import Problem, Record, problem_count

x = torch.randn(4, 3)
number = 1


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


class CounterTensor(Counter):
    """As the advice on `Counter` says."""

    calls: Any

    def __init__(self) -> None:
        super().__init__()
        del self.calls
        self.register_buffer("calls", torch.tensor(0))


def recorded(fn: Any, calls: Sequence[Callable[[Any], Any]], **options: Any) -> Record:
    with compiler_core.record() as record:
        compiled = compiler_core.compile(fn, backend="eager", **options)
        for call in calls:
            call(compiled)
    return record


def scaled(x: torch.Tensor, n: Any) -> Any:
    return x * n


def of_global(x: torch.Tensor) -> torch.Tensor:
    return x * number


def call_with_next_global(compiled: Any) -> None:
    global number
    number += 1
    compiled(x)


def without_grad(compiled: Any) -> None:
    with torch.no_grad():
        compiled(x, 3)


def of_dict(x: torch.Tensor, scales: dict[str, int]) -> torch.Tensor:
    return x * sum(scales.values())


def of_set(x: torch.Tensor, tags: set[str]) -> torch.Tensor:
    for each in sorted(tags):
        x = x + len(each)
    return x


linears = [torch.nn.Linear(3, 4), torch.nn.Linear(3, 8)]


def width(x: torch.Tensor, linear: torch.nn.Linear) -> torch.Tensor:
    result: torch.Tensor = linear(x)
    return result


def of_list(x: torch.Tensor, items: list[torch.Tensor]) -> torch.Tensor:
    for item in items:
        x = x + item
    return x


def of_function(x: torch.Tensor, fn: Any) -> torch.Tensor:
    return x + 1 if fn is len else x - 1


def of_text(x: torch.Tensor, how: str) -> torch.Tensor:
    return x + 1 if how == "up" else x - 1


@pytest.mark.parametrize(
    ("fn", "calls", "grade", "advice"),
    [
        (Counter(), [lambda c: c(x)] * 3, "expected", "compile 0/1 has a symbol for it"),
        (of_global, [lambda c: c(x), call_with_next_global], "expected", "compile 0/1 has a symbol for it"),
        (scaled, [lambda c: c(x, 3), lambda c: c(x, 4)], "expected", "dynamic=True (%%compile"),
        (scaled, [lambda c: c(x, 3), lambda c: c(torch.ones(5, 3), 3)], "expected", "dynamic=True (%%compile"),
        (scaled, [lambda c: c(x, 3), lambda c: c(torch.ones(5), 3)], "costly", "Each number of dimensions of `x`"),
        (scaled, [lambda c: c(x, 3), lambda c: c(x.double(), 3)], "costly", "Convert it to one dtype"),
        (scaled, [lambda c: c(x, 3), without_grad], "expected", "call the function in one grad mode"),
        (of_set, [lambda c: c(x, {"a"}), lambda c: c(x, {"a", "b"})], "costly", "Pass a set that does not change."),
        (width, [lambda c: c(x, linears[0]), lambda c: c(x, linears[1])], "expected", "if it is another module"),
        (
            of_dict,
            [lambda c: c(x, {"a": 1}), lambda c: c(x, {"a": 1, "b": 2})],
            "costly",
            "the same keys, in one order",
        ),
        (of_list, [lambda c: c(x, [x]), lambda c: c(x, [x, x])], "costly", "Each length of"),
        (of_function, [lambda c: c(x, len), lambda c: c(x, print)], "costly", "is another one in some calls"),
        (of_text, [lambda c: c(x, "up"), lambda c: c(x, "down")], "costly", "Each value of `how` is compiled once"),
    ],
)
def test_the_advice_fits_the_guard(fn: Any, calls: Sequence[Any], grade: str, advice: str) -> None:
    (problem,) = recorded(fn, calls).problems
    assert (problem.kind, problem.grade, problem.count) == ("recompile", grade, 1)
    assert advice in problem.advice
    assert "sorted(...)" not in problem.advice
    assert ("dynamic=True (%%compile" in problem.advice) == (advice == "dynamic=True (%%compile")
    assert problem.cost.startswith("Compiled again once, in ")


def looked_up(_: Any, key: str) -> int:
    if key == "missing":
        raise KeyError(key)
    return len(key)


def look_up(compiled: Any, key: str) -> None:
    with contextlib.suppress(KeyError):
        compiled(x, key)


KEYS = [*"abcdefghij", "missing"]


@pytest.mark.parametrize(("fn", "grade"), [(looked_up, "expected"), (of_text, "blocking")])
def test_a_function_that_computes_nothing_is_no_problem(fn: Any, grade: str) -> None:
    """Such as ``__getattribute__`` of a configuration: each key is compiled, up to the limit, and nothing is lost."""
    record = recorded(fn, [functools.partial(look_up, key=key) for key in KEYS])
    assert [p.grade for p in record.problems if p.kind == "recompile"] == [grade]
    assert bool(sum(p.grade != "expected" for p in record.problems)) == (grade != "expected")


def test_an_advice_says_nothing_twice() -> None:
    record = recorded(scaled, [lambda c: c(x, 3), lambda c: c(torch.ones(5, 3), 4)])
    (problem,) = record.problems
    assert problem.advice.count("To avoid this recompile, too: dynamic=True (%%compile --dynamic)") == 1, problem.advice


def test_a_symbol_for_the_size_is_none_for_the_dtype() -> None:
    calls = [lambda c, t=t: c(t, 3) for t in (x, torch.ones(5, 3), torch.ones(1, 3), torch.ones(5, 3).double())]
    one, dtype, size = recorded(scaled, calls).problems  # the costly ones first
    titles = ["the size of x changed", "the dtype of x changed", "the size of x changed"]
    assert [problem.title for problem in (one, dtype, size)] == [f"recompiled: {title}" for title in titles]
    assert (size.grade, size.remedies) == ("expected", ["dynamic sizes"])
    assert (dtype.grade, dtype.remedies) == ("costly", ["one dtype"])
    assert (one.grade, one.remedies) == ("costly", ["sizes 0 and 1"])
    assert one.cause.startswith("The size of x in dimension 0 is 1; compile 0/1 was made for at least 2.")


def test_the_advice_on_a_counter_helps() -> None:
    assert not recorded(CounterTensor(), [lambda c: c(x)] * 3).problems


@pytest.mark.parametrize("second", [lambda c: c(x, 4), lambda c: c(torch.ones(5, 3), 3)])
def test_the_advice_to_use_dynamic_helps(second: Any) -> None:
    assert not recorded(scaled, [lambda c: c(x, 3), second], dynamic=True).problems


def test_the_limit_of_compiles_is_blocking() -> None:
    calls: list[Any] = [lambda c, n=n: c(x, "a" * n) for n in range(9)]
    (problem,) = recorded(of_text, calls).problems
    assert (problem.grade, problem.count, len(problem.compiles)) == ("blocking", 7, 7)
    assert "The limit of 8 compiles is reached" in problem.cause


def test_recompiles_of_prints_are_expected() -> None:
    def program(x: torch.Tensor, step: int) -> torch.Tensor:
        y = x * 2
        print(f"step {step}: {round(y.sum().item())}", end="")
        return y

    record = recorded(program, [lambda compiled, step=step: compiled(x, step) for step in range(12)])  # type: ignore[misc]
    assert any(frame.limit_reached for frame in record.frames)
    assert {p.grade for p in record.problems if p.kind == "recompile"} == {"expected"}


def test_an_interrupt_does_not_make_an_expected_break_blocking() -> None:
    def interrupted(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        raise KeyboardInterrupt

    def program(x: torch.Tensor) -> None:
        (x * 2).sum().backward()

    with compiler_core.record() as record, pytest.raises(KeyboardInterrupt):
        compiler_core.compile(program, backend=interrupted)(torch.ones(3, requires_grad=True))
    assert [(p.title, p.grade) for p in record.problems] == [("graph break: backward", "expected")]


def test_grad_mode_is_named() -> None:
    (problem,) = recorded(scaled, [lambda c: c(x, 3), without_grad]).problems
    assert "The grad mode is off; compile 0/0 was made for on." in problem.cause


def printing(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    print(end="")
    y = y.cos()
    print(end="")
    return y


def test_a_break_counts_once_for_its_line() -> None:
    record = recorded(printing, [lambda c: c(x), lambda c: c(x.double())])
    breaks = [p for p in record.problems if p.kind == "graph break"]
    assert len([b for c in record.compiles for b in c.breaks]) > 2
    assert [(p.title, p.lineno - printing.__code__.co_firstlineno) for p in breaks] == [
        ("graph break: print", 2),
        ("graph break: print", 4),
    ]
    separate = "What follows is compiled separately, in "
    assert [p.cost.startswith(separate) for p in breaks] == [True, False]
    assert [(p.grade, bool(p.cost)) for p in breaks] == [("costly", True), ("expected", False)], "it causes none"
    resumed = [c for f in record.frames if f.kind == "resume" for c in f.compiles]
    assert sum(p.ns for p in breaks) == sum(c.duration_ns for c in resumed)
    assert problem_count(record.problems, "graph break") == 2
    assert problem_count(record.problems, "recompile") == sum(c.cause is not None for c in record.compiles)


def training(x: torch.Tensor) -> None:
    x.sin().sum().backward()


def test_a_break_at_backward_is_expected() -> None:
    record = recorded(training, [lambda c: c(x.clone().requires_grad_())])
    assert [(p.title, p.grade) for p in record.problems] == [("graph break: backward", "expected")]


def read_at_the_end(x: torch.Tensor) -> Any:
    return x.cos().repeat(9, 9).tolist()


def read_at_the_start(x: torch.Tensor) -> torch.Tensor:
    print(x.shape[0], end="")
    return x.cos()


def read_between(x: torch.Tensor) -> torch.Tensor:
    y = x.cos()
    print(y.sum().item(), end="")
    print(end="")
    return y * 2


def read_by_a_callee(x: torch.Tensor) -> Any:
    return x * len(read_at_the_end(x))


@pytest.mark.parametrize("engine", ["core", "torch"])
@pytest.mark.parametrize(
    ("program", "grade"),
    [
        (read_at_the_end, "expected"),
        (read_at_the_start, "expected"),
        (read_between, "costly"),
        (read_by_a_callee, "costly"),
    ],
)
def test_a_break_that_divides_no_graph_is_expected(program: Any, grade: str, engine: Any) -> None:
    problems = compiler_core.explain(program, x, engine=engine).record.problems
    assert {p.grade for p in problems} == {grade}, problems
    assert all(p.advice.startswith("Nothing to change: nothing is computed") == (grade == "expected") for p in problems)


def raising_backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
    raise ValueError("no kernels today")


def branching(x: torch.Tensor) -> torch.Tensor:
    return x.cos() if x.sum() > 0 else x.sin()


@pytest.mark.parametrize(
    ("options", "title", "cause"),
    [
        ({"fullgraph": True}, "graph break: Data-dependent branching", "Detected data-dependent branching"),
        ({"backend": raising_backend}, "the compile raised an error", "BackendCompilerFailed: backend="),
    ],
)
def test_what_stock_raises_is_a_problem(options: dict[str, Any], title: str, cause: str) -> None:
    torch._dynamo.reset()
    with compiler_core.record(engine="torch") as record, pytest.raises(torch._dynamo.exc.TorchDynamoException):
        torch.compile(branching, **options)(x)
    problem = next(p for p in record.problems if p.title == title)
    assert problem.grade == "blocking"
    assert problem.cause.startswith(cause)
    assert problem.lineno >= branching.__code__.co_firstlineno


def test_fullgraph_makes_a_break_blocking() -> None:
    def call(compiled: Any) -> None:
        with pytest.raises(FullGraphError):
            compiled(x)

    assert [p.grade for p in recorded(printing, [call], fullgraph=True).problems] == ["blocking"]


def test_problems_are_saved_and_found_in_older_records() -> None:
    record = recorded(printing, [lambda c: c(x)])
    again = Record.from_json(record.to_json())
    assert again.problems == record.problems
    assert all(isinstance(p, Problem) for p in again.problems)
    text = record.to_json(indent=0)
    start, end = text.index('"problems": ['), text.index('"notes": [')
    assert Record.from_json(text[:start] + text[end:]).problems == record.problems


def second_number() -> int:
    compiler_core.graph_break()
    return 1


def test_a_value_of_the_stack_is_named_as_the_user_wrote_it() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.add(x + 1, second_number())

    record = recorded(program, [lambda c: c(x), lambda c: c(torch.ones(7, 3))])
    (again,) = (problem for problem in record.problems if problem.kind == "recompile")
    assert again.title == "recompiled: the size of x changed"
    assert "compiled again, too: the size of x + 1 changed in line" in again.cause
    assert not any("__stack" in text for p in record.problems for text in (p.title, p.cause, p.advice))


def deepest(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    print("deepest")
    return x * 2


def of_another_shape(xs: list[torch.Tensor]) -> torch.Tensor:
    total = xs[0]
    for each in xs[1:]:
        total = total + each
    return total


def test_the_compile_of_a_break_is_that_of_its_own_function() -> None:
    record = recorded(lambda xs: [deepest(each) for each in xs], [lambda c: c((x, x))])
    (problem,) = record.problems
    frame = next(frame for frame in record.frames if frame.name == "deepest")
    assert problem.compiles == [frame.compiles[0].id, "0/0"]


def test_a_frame_whose_program_raises_is_no_problem() -> None:
    def call(compiled: Any) -> None:
        with pytest.raises(RuntimeError, match="must match"):
            compiled([x, x[:, :2]])

    record = recorded(of_another_shape, [call])
    assert {problem.grade for problem in record.problems} == {"expected"}
    assert {problem.kind for problem in record.problems} == {"graph break"}  # that its frame is Python is no other one


def test_a_listener_that_raises_is_removed() -> None:
    events = []

    def raises(compile_: Any, event: Any) -> None:
        events.append(event)
        raise ValueError("not ready")

    with compiler_core.record() as record:
        stop = record.listen(raises)
        torch.testing.assert_close(compiler_core.compile(torch.sin, strict=True)(torch.ones(3)), torch.ones(3).sin())
    stop()
    assert len(events) == 1
    assert record.notes == ["A listener of this record raised ValueError and was removed: not ready"]


def test_a_failed_search_for_problems_hides_no_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> Any:
        raise KeyError("planted")

    monkeypatch.setattr(compiler_core.records.record, "tool", lambda name: fails)
    with pytest.raises(ZeroDivisionError), compiler_core.record() as record:
        raise ZeroDivisionError
    assert record.notes == ["Problems are missing, since Cutaway failed to find them (KeyError: 'planted')."]
    assert not record.verdict
