"""Numbers that one page shows together agree: graphs, breaks, recompiles, kernels, guards and times."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch

import compiler_core
from compiler_core.records import Record
from compiler_core.records.timings import bytes_text
from compiler_core.tools.explain import Explanation
from compiler_core.tools.questions.costs import function_costs
from compiler_core.tools.questions.counts import count
from compiler_core.tools.questions.line_facts import COUNTS, ComparedRun, stage_ns
from compiler_core.tools.questions.memory import memory_peak
from kernel_magics.display import summary
from kernel_magics.display.packing import pack, unpack
from tests.sampling import always

Engine = Literal["core", "torch"]
x, longer = torch.ones(3, 3), torch.ones(5, 3)
layer = torch.nn.Linear(3, 3)


def plain(x: torch.Tensor) -> Any:
    return layer(x).relu()


def branches(x: torch.Tensor) -> Any:
    y = x.sin()
    if y.sum() > 0:
        y = y + 1
    print(end="")
    return y.cos()


def prints_in_a_loop(x: torch.Tensor) -> Any:
    for _ in range(3):
        print(end="")
        x = x + 1
    return x


def trains(x: torch.Tensor) -> Any:
    layer(x).sum().backward()


def prints(x: torch.Tensor) -> Any:
    print(end="")
    return x.sin()


def calls_twice(x: torch.Tensor) -> Any:
    return prints(x) + prints(x * 2)


def same_line_twice(x: torch.Tensor) -> Any:
    print(end=""), print(end="")
    return x.sin()


def computes_nothing(x: torch.Tensor) -> Any:
    return x


def scaled(x: torch.Tensor, n: Any) -> Any:
    return x * n


def masked(x: torch.Tensor) -> Any:
    return x[x > 0].sum()


def attends(x: torch.Tensor) -> Any:
    return torch.softmax(x @ x, -1).sum()


def raises(x: torch.Tensor) -> Any:
    raise ValueError(x.sin())


def clips(x: torch.Tensor) -> Any:
    return torch.nn.utils.clip_grad_norm_([x], 1.0, error_if_nonfinite=True) * x.sin()


def unrolls(x: torch.Tensor, n: int) -> Any:
    for i in range(n):
        x = x.sin() * i
    return x


def without_gradients(x: torch.Tensor) -> Any:
    with torch.no_grad():
        y = x.sin()
    return y * x


PROGRAMS: dict[Callable[..., Any], list[tuple[Any, ...]]] = {
    plain: [(x,), (longer,)],
    branches: [(x,), (x.double(),)],
    prints_in_a_loop: [(x,)],
    trains: [(x,)],
    calls_twice: [(x,), (longer,)],
    same_line_twice: [(x,)],
    computes_nothing: [(x,)],
    scaled: [(x, n) for n in (1, 2, 3)],
    masked: [(x,), (longer,)],
    attends: [(x.clone().requires_grad_(),)],
    raises: [(x,)],
    clips: [(x,)],
    unrolls: [(x, n) for n in range(9)],
    without_gradients: [(x,), (x.clone().requires_grad_(),)],
}
KERNELS: dict[Engine, str] = {"core": "cpp", "torch": "inductor"}
CASES = [
    *((program, engine, "eager") for program in PROGRAMS for engine in KERNELS),
    *always(
        [(program, engine, backend) for program in PROGRAMS for engine, backend in KERNELS.items()],
        lambda case: case[1] == "core" and case[0] in (plain, attends, calls_twice),
    ),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("program", "engine", "backend"), CASES)
def test_numbers_agree(program: Callable[..., Any], engine: Engine, backend: str) -> None:
    torch._dynamo.reset()
    with compiler_core.record(engine=engine) as record:
        make: Any = compiler_core.compile if engine == "core" else torch.compile
        compiled = make(program, backend=backend)
        for args in PROGRAMS[program]:
            try:
                result = compiled(*args)
            except ValueError:
                assert program is raises
                continue
            if program is attends:
                result.backward()
    numbers(record)
    assert shown(unpack(pack(record))) == shown(record)


def shown(record: Record) -> dict[str, float]:
    """Returns the numbers of the first line of a summary; a number of expected ones is added."""
    head, _, took = summary.headline(record).rpartition("; compiled in ")
    found = {"seconds": float(took.removesuffix(" s"))}
    for number, name, expected in re.findall(r"(\d+) (\w+(?: \w+)?)(?: \((?:and )?(\d+) expected\))?(?:,|$)", head):
        found[name.removesuffix("s")] = int(number) + int(expected or 0)
    return found


def numbers(record: Record) -> None:
    """Checks every pair of numbers that says the same."""
    head, side, counts = shown(record), ComparedRun(record), count(record)
    total = {name: of(side) for name, of in COUNTS.items()}
    explained = Explanation(record)
    assert head["graph"] == total["graphs"] == counts.graphs == explained.graph_count
    assert head["graph break"] == total["graph breaks"] == counts.graph_breaks == explained.graph_break_count
    assert head["recompile"] == total["recompiles"] == counts.recompiles
    assert head["kernel"] == total["kernels"] == counts.kernels
    assert head["frame"] == counts.frames
    seconds = total["compile seconds"] or 0
    assert head["seconds"] == pytest.approx(seconds, abs=0.006)
    assert counts.compile_seconds == pytest.approx(seconds)
    stages = sum(seconds or 0 for name, seconds in total.items() if name.startswith("of these in "))
    assert stages == pytest.approx(seconds, abs=1e-6)
    assert explained.guard_count == total["guards"]
    for compile_ in record.compiles:
        assert sum(stage_ns(compile_.events).values()) == compile_.duration_ns
        costs = [guard.cost_ns for guard in compile_.guards if guard.cost_ns is not None]
        if compile_.guards_ns is not None and costs:
            assert sum(costs) == pytest.approx(compile_.guards_ns)
            assert max(costs) <= compile_.guards_ns * (1 + 1e-9)
        if (partition := compile_.partition) is not None:
            saved = [value.bytes for value in partition.values if value.decision == "saved"]
            assert (len(saved), sum(saved)) == (partition.saved_count, partition.saved_bytes)
            assert bytes_text(partition.saved_bytes) in summary.saved_text(partition)
        if (peak := memory_peak(compile_)) is not None:
            assert peak.bytes == sum(held.bytes for held in peak.held)
        keys = {kernel.key for kernel in compile_.kernels} | {kernel.name for kernel in compile_.kernels}
        assert {fusion.kernel for fusion in compile_.fusions if fusion.kernel} <= keys
        problems = [problem for problem in record.problems if compile_.id in problem.compiles]
        broken = [f"{compile_.id}#{each.key}" for each in compile_.breaks]
        assert sorted(id_ for p in problems for id_ in p.breaks if id_.startswith(f"{compile_.id}#")) == sorted(broken)
        assert sum(problem.kind == "recompile" for problem in problems) == (compile_.cause is not None)
    of_functions = function_costs(record)
    assert sum(cost.compiles for cost in of_functions) == len(record.compiles)
    assert sum(cost.ns for cost in of_functions) / 1e9 == pytest.approx(seconds)
    lines = summary.text(record)
    for compile_ in (each for each in record.compiles if each.outcome == "compiled"):
        size = f"{summary.count_text(len(compile_.guards), 'guard')}"
        assert re.search(rf"^\s*{compile_.id} compiled .*, {size}$", lines, re.MULTILINE)
