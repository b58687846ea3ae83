"""Of each script that is slow to compile, keeps much memory, is inexact or misses the cache, the cause and its line are
named, and the script without the fault has none."""

from __future__ import annotations

import pytest
import torch

import compiler_core
from compiler_core.records import Record
from compiler_core.tools.questions.compare import compare
from tests.faults.corpus import INEXACT, MISSED, REPEATED, SAVED
from tests.faults.fault import Fault, Inexact, Missed, Repeated, Saved
from tests.faults.harness import ENGINES, Engine, changed, run
from tests.sampling import few_of_stock


def lines(items: tuple[str, ...] | list[str]) -> list[int]:
    """Returns the numbers of lines of source."""
    return [int(item.rpartition("#")[2]) for item in items]


def by_title(fault: Fault) -> str:
    return fault.title


# ---------------------------------------------------------------- slow compiles


ON_ENGINES = [(fault, engine) for fault in REPEATED for engine in ENGINES]
IDS = [f"{fault.title} - {engine}" for fault, engine in ON_ENGINES]


@pytest.mark.parametrize(("fault", "engine"), few_of_stock(ON_ENGINES), ids=IDS)
def test_a_repeated_block_is_found(fault: Repeated, engine: Engine) -> None:
    ran = run(fault.script, fault.title, engine)
    ran.record.find_problems(slow_compile_s=0)  # the tests have no time for slow compiles
    (problem,) = ran.problems
    assert (problem.kind, problem.lineno, problem.grade) == ("slow compile", fault.line, "costly")
    assert f"has {fault.blocks} equal blocks" in problem.cause


IN_A_LOOP = """
def step(x, weight):
    return (x @ weight).relu()

def program():
    pass

def run(program):
    x = torch.ones(2, 3)
    for _ in range(4):
        x = compiler(step)(x, torch.full((3, 3), 0.1))
    return [x]
"""
OF_A_CLASS = """
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3, 3), 0.1))

    def forward(self, x):
        return (x @ self.weight).relu()

blocks = [Block() for _ in range(4)]

def program():
    pass

def run(program):
    compiled, x = [compiler(block) for block in blocks], torch.ones(2, 3)
    with torch.no_grad():
        for block in compiled:
            x = block(x)
    return [x]
"""
ONCE = {
    "a function": (
        IN_A_LOOP,
        {"    for _ in": "    compiled = compiler(step)\n    for _ in", "compiler(step)(": "compiled("},
        2,
    ),
    "modules of a class": (
        OF_A_CLASS,
        {
            "blocks = ": "Block.forward = compiler(Block.forward)\nblocks = ",
            "[compiler(block) for block in blocks]": "blocks",
        },
        7,
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ONCE)
def test_a_function_that_is_compiled_again_and_again_is_found(name: str, engine: Engine) -> None:
    """Stock finds what it has compiled of a function, whichever call of compile it was; ours from the third of those on
    that are made one after the other."""
    script, repair, line = ONCE[name]
    ran = run(script, name, engine, is_compiled=True)
    if engine == "core" and name == "a function":
        assert (len(ran.compiles), ran.problems) == (2, [])
    elif engine == "core":
        (problem,) = ran.problems
        assert (problem.kind, problem.grade, problem.lineno) == ("slow compile", "costly", line)
        assert problem.cause.startswith("4 calls of compile have compiled ")
        assert len(problem.compiles) == 3
    else:
        assert ran.problems == []
    after = run(changed(script, repair), name, engine, is_compiled=True)
    torch.testing.assert_close(after.results, ran.results)
    assert (len(after.compiles), after.problems) == (1, [])


WINDOWS = """
def program(x):
    return torch.cat([x[:, i : i + 2] for i in range(9)], dim=1) * 2

def run(program):
    return [program(torch.arange(20.0).view(2, 10))]
"""
AS_ONE_VIEW = {"torch.cat([x[:, i : i + 2] for i in range(9)], dim=1)": "x.unfold(1, 2, 1).reshape(2, 18)"}


@pytest.mark.parametrize("engine", ENGINES)
def test_repeated_views_are_advised_to_be_one_operation(engine: Engine) -> None:
    ran = run(WINDOWS, "windows", engine)
    ran.record.find_problems(slow_compile_s=0)
    (problem,) = ran.problems
    assert "has 9 equal blocks of 1 operation" in problem.cause
    assert "x.unfold(" in problem.advice
    assert ".compile(" not in problem.advice
    after = run(changed(WINDOWS, AS_ONE_VIEW), "windows", engine)
    after.record.find_problems(slow_compile_s=0)
    torch.testing.assert_close(after.results, ran.results)
    assert after.problems == []


GROWING = """
layers = [torch.nn.Linear(3 + n, 4 + n) for n in range(10)]

def program(x):
    for layer in layers:
        x = layer(x).relu()
    return x
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_layers_of_different_sizes_are_no_equal_blocks(engine: Engine) -> None:
    ran = run(GROWING, "growing", engine)
    ran.record.find_problems(slow_compile_s=0)
    assert ran.problems == []


@pytest.mark.parametrize("fault", REPEATED, ids=by_title)
def test_the_block_compiled_alone_is_compiled_once(fault: Repeated) -> None:
    unit = f"\n{fault.unit} = compiler({fault.unit})\n\ndef program(x):"
    script = changed(fault.script, {"\ndef program(x):": unit})
    ran = run(script, fault.title, "core", is_compiled=True)
    ran.record.find_problems(slow_compile_s=0)
    torch.testing.assert_close(ran.results, run(fault.script, fault.title, None).results)
    assert [problem for problem in ran.problems if problem.kind == "slow compile"] == []
    assert len(ran.compiles) == fault.compiles


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("fault", SAVED, ids=by_title)
def test_the_largest_saved_value_is_found(fault: Saved) -> None:
    saved = largest(run(fault.script, fault.title, "core", {"backend": "aot_eager"}).record)
    assert saved.value.bytes == fault.bytes
    assert fault.line in lines(saved.lines)
    repaired = largest(run(changed(fault.script, fault.repair), fault.title, "core", {"backend": "aot_eager"}).record)
    assert repaired.value.bytes <= fault.bytes / 10


def largest(record: Record) -> compiler_core.KeptValue:
    """Returns the largest value that is saved for the backward."""
    (compile_,) = (each for each in record.compiles if each.partition)
    assert compile_.partition is not None
    saved = [value for value in compile_.partition.values if value.decision == "saved"]
    node = max(saved, key=lambda value: value.bytes).node
    return compiler_core.why_kept(record, node)[0]


# ---------------------------------------------------------------- inexact values


@pytest.mark.parametrize("fault", INEXACT, ids=by_title)
def test_the_first_inexact_value_is_found(fault: Inexact) -> None:
    record = run(fault.script, fault.title, "core", {"backend": "cpp"}).record
    (compile_,) = record.compiles
    if fault.edit:
        compiler_core.check_accuracy(record)
        assert compiler_core.first_inaccurate(compile_) is None
        (kernels,) = (artifact for artifact in compile_.artifacts if artifact.name == "forward.cpp")
        kernels.text = changed(kernels.text, fault.edit)
    compiler_core.check_accuracy(record)
    first = compiler_core.first_inaccurate(compile_)
    assert first is not None
    assert lines(first.lines)[0] == fault.line
    assert first.is_eagers == (not fault.edit)
    if fault.repair:
        record = run(changed(fault.script, fault.repair), fault.title, "core", {"backend": "cpp"}).record
        compiler_core.check_accuracy(record)
        assert compiler_core.first_inaccurate(record.compiles[0]) is None


# ---------------------------------------------------------------- misses of the cache


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("fault", MISSED, ids=by_title)
def test_the_field_of_the_key_that_differs_is_named(fault: Missed) -> None:
    for script, is_miss in ((fault.script, True), (changed(fault.script, fault.repair), False)):
        runs = [run(script, fault.title, "core", {"backend": "cpp"}, rank=rank).record for rank in range(2)]
        found = [each for each in compare(*runs).lines if each.aspect == "cache key"]
        if not is_miss:
            assert found == []
            continue
        before = "\n".join(text for each in found for text in each.before)
        after = "\n".join(text for each in found for text in each.after)
        assert (fault.name in before, fault.before in before, fault.after in after) == (True, True, True), found
