"""Of each planted recompile the cause and the line are named, on both engines, and nothing else is reported;
the advice that is offered works; the script without the fault has no problem."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from compiler_core import read_logs
from compiler_core.tools.questions.advice import LINES, REMEDIES
from compiler_core.tools.questions.problems import find_problems
from compiler_core.tools.questions.what_failed import what_failed
from tests.docs import recompiles
from tests.faults.checks import errors
from tests.faults.corpus import RECOMPILES
from tests.faults.fault import Change, Recompiled
from tests.faults.harness import ENGINES, Engine, Run, changed, run
from tests.records.texts import wrong_lines
from tests.sampling import always, few_of_stock


def remedies_of(fault: Recompiled) -> set[str]:
    return {fault.remedy, *(change.remedy for change in fault.changes)}


CASES = [(fault, engine) for fault in RECOMPILES for engine in ENGINES if fault.happens_on(engine)]
CHANGES = [(f, c, e) for f in RECOMPILES for c in f.changes for e in c.engines if f.happens_on(e)]


def named(values: list[Any]) -> list[str]:
    """Returns the names of cases: titles, advice and engines."""
    return [" - ".join(map(_name, value)) for value in values]


def _name(value: Recompiled | Change | Engine) -> str:
    if isinstance(value, str):
        return value
    return value.title if isinstance(value, Recompiled) else value.remedy


@functools.cache
def found(fault: Recompiled, engine: Engine) -> Run:
    return run(fault.script, fault.title, engine, fault.options)


@pytest.mark.parametrize(("fault", "engine"), few_of_stock(CASES), ids=named(CASES))
def test_the_cause_is_named_and_nothing_else(fault: Recompiled, engine: Engine) -> None:
    ran = found(fault, engine)
    torch.testing.assert_close(ran.results, run(fault.script, fault.title, None).results)
    assert errors(fault, engine, ran.compiles, ran.problems) == []
    assert wrong_lines(ran.record) == []
    for cause in (each.cause for each in ran.compiles if each.cause):
        for failed in [cause, *cause.besides, *(each for missed in cause.others for each in missed.failed)]:
            assert failed.item if failed.aspect == "relation" else failed.name
            assert failed.got != failed.expected


@pytest.mark.parametrize(("fault", "change", "engine"), few_of_stock(CHANGES), ids=named(CHANGES))
def test_the_advice_that_is_offered_works(fault: Recompiled, change: Change, engine: Engine) -> None:
    before = found(fault, engine)
    assert change.remedy in before.remedies
    script = changed(fault.script, change.replace)
    after = run(script, fault.title, engine, fault.options | change.options)
    torch.testing.assert_close(after.results, run(script, fault.title, None).results)
    assert len(after.compiles) == change.compiles < len(before.compiles)
    assert len(after.problems) == (change.compiles > 1)


LINED = [(f, e) for f in RECOMPILES for e in ENGINES if f.happens_on(e) and set(LINES) & remedies_of(f)]


@pytest.mark.parametrize(("fault", "engine"), few_of_stock(LINED), ids=named(LINED))
def test_the_lines_that_are_offered_save_compiles(fault: Recompiled, engine: Engine) -> None:
    """The lines run before each call, as `Problem.lines` says; the results are those of eager with the lines."""
    before = found(fault, engine)
    lines = dict.fromkeys(line for problem in before.problems for line in problem.lines)
    if not lines:
        pytest.skip("the object is an attribute, or an item without a name")
    parameter = "program" if "def run(program)" in fault.script else "call"
    script = fault.script + AFTER_LINES.format(lines="\n".join(lines), parameter=parameter)
    after = run(script, fault.title, engine, fault.options)
    torch.testing.assert_close(after.results, run(script, fault.title, None).results)
    assert len(after.compiles) < len(before.compiles)


@pytest.mark.parametrize("engine", always(ENGINES, "core".__eq__))
def test_a_script_without_its_fault_has_no_problem(engine: Engine) -> None:
    for fault in filter(lambda each: each.happens_on(engine), RECOMPILES):
        first_call_only = fault.script + ONLY_FIRST
        ran = run(first_call_only, fault.title, engine, fault.options)
        kinds = [problem.kind for problem in ran.problems]
        assert kinds == ["graph break"] * fault.breaks, fault.title


LIMIT = """
def program(x, name):
    return x * len(name)

def run(call):
    for n in range(10):
        call(torch.ones(3), "a" * n)
"""
HELD = """
NAMES = {"True"}

def program(x):
    y = x.sin()
    NAMES.add(f"{y.sum().item() > 0}")
    return y * 2

def run(call):
    for _ in range(3):
        call(torch.ones(3))
"""


def test_the_limit_of_compiles_is_shown_at_its_function() -> None:
    again, limit = run(LIMIT, "limit", "torch").problems  # what was refused at the limit is no further recompile
    assert (limit.lineno, limit.grade, again.lineno, again.grade) == (2, "blocking", 3, "blocking")
    assert "The limit of 8 compiles is reached" in again.cause
    assert limit.advice == "Remove the recompiles of this function: each is a problem that says what changed."
    script = LIMIT.replace("range(10)", "range(8)") + '    call(torch.ones(3).double(), "a")\n'
    other = run(script, "limit by another cause", "torch").problems[-1]
    assert (other.grade, other.remedies, other.compiles) == ("blocking", ["one dtype"], ["0/8"])


def test_an_object_that_is_held_across_a_break_goes_with_the_break() -> None:
    """Dynamo makes the bound method again in each resume function."""
    before, after = (run(script, "held", "torch") for script in (HELD, HELD.replace(".item()", "")))
    assert len(before.compiles) == 4
    (again,) = (p for p in before.problems if p.kind == "recompile")
    assert again.title == "recompiled: NAMES.add is another object"
    assert again.grade == "expected"
    assert "goes with that break" in again.advice
    assert not [p for p in after.problems if "NAMES.add" in p.title]


CALLED = """
import numpy

def scaled(x):
    factor = 2.0
    return torch.from_numpy(x.numpy().astype("int32")) * factor

def program(x):
    y = scaled(x)
    return y * len("a" * y.shape[0])

def run(call):
    for n in range(2, 4):
        call(torch.ones(n))
"""


COUNTED = """
def program(x, step):
    return x * 2 if step % 10 == 0 else x + 1

def run(call):
    for step in range(3):
        call(torch.ones(3), step)
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_symbol_covers_no_more_than_its_conditions(engine: Engine) -> None:
    (again,) = run(COUNTED, "counted", engine).problems
    assert "covers later calls in which `step % 10 != 0` holds." in again.advice
    more = run(COUNTED.replace("range(3)", "(0, 1, 2, 20, 21)"), "counted more", engine)
    assert "covers later calls in which" in " ".join(problem.advice for problem in more.problems)
    assert "covers all later calls" not in " ".join(problem.advice for problem in more.problems)


def test_a_value_is_named_that_a_called_function_left_at_its_break() -> None:
    again = [p for p in run(CALLED, "called", "core").problems if p.kind == "recompile"]
    assert not any("an intermediate value" in p.cause + p.title + p.advice for p in again)
    assert any("x.numpy().astype('int32')" in p.title for p in again)


EMPTIED = """
def program(x, items):
    x = x * 2
    for each in items:
        x = x + each
    return x

def run(call):
    call(torch.ones(3), [torch.ones(3)])
    call(torch.ones(3), [])
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_the_length_of_an_empty_list_is_named(engine: Engine) -> None:
    (again,) = run(EMPTIED, "emptied", engine).compiles[1:]
    assert again.cause is not None
    assert (again.cause.expected, again.cause.got, again.cause.is_confirmed) == ("1", "0", True)


UNNAMED = """
def program(x, indices):
    out = torch.zeros_like(x)
    counts = torch.bincount(indices, minlength=x.shape[0]).clamp(min=1)
    return (out / counts[:, None]).relu()

def run(call):
    for n in (3, 4):
        call(torch.ones(n, 3), torch.arange(n))
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_no_advice_has_a_condition_on_a_value_without_a_name(engine: Engine) -> None:
    problems = [each for each in run(UNNAMED, "unnamed", engine).problems if each.kind == "recompile"]
    assert problems
    assert not any("an intermediate value.size" in problem.advice for problem in problems)


NOT_READ = """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = 0

    def forward(self, x):
        if self.training:
            self.steps += 1
        return x * 2

program = Model()

def run(call):
    call(torch.ones(3))
    call(torch.ones(3))
    program.eval()
    call(torch.ones(3))
"""


def test_nothing_is_claimed_of_a_value_that_a_compile_does_not_read() -> None:
    """Stock names the guard on the number, which the last compile does not read: its value is not known."""
    *_, last = run(NOT_READ, "not read", "torch").compiles
    assert last.cause is not None
    assert last.cause.text.startswith("self.steps is not 1, for which compile 0/1 was made.")
    assert "self.training is False, not True" in last.cause.text
    assert "type" not in last.cause.text


FORMATTED = """
def program(x):
    y = x.sin()
    text = f"{y.sum().item():.3f} and {y.max().item():.2f}"
    return y.cos(), text

def run(call):
    for n in (1.0, 2.0, 3.0):
        call(torch.full((3,), n))
"""


def test_a_format_is_no_name_of_a_value() -> None:
    for cause in [c.cause for c in run(FORMATTED, "formatted", "core").record.compiles if c.cause is not None]:
        assert not any(each.name.startswith("'.") for each in [cause, *cause.besides]), cause.text


SWAPPED = """
def program(x, y):
    return x.sum() + y.sum()

def run(call):
    one, two = torch.ones(3), torch.ones(3, dtype=torch.float64)
    call(one, one.clone())
    call(two, two.clone())
    call(two, one)
"""


def test_causes_that_two_recompiles_have_in_common_are_one_problem() -> None:
    """The second recompile is nearest to the first compile or to the second, which differ in one of two dtypes."""
    (problem,) = run(SWAPPED, "swapped", "core").problems
    assert (problem.count, problem.remedies) == (2, ["one dtype"])


CACHES = """
def program(x, caches):
    made = [x if cache is None else torch.cat([cache, x]) for cache in caches]
    return torch.stack(made).sum(), made

def run(call):
    for caches in ([None, None], [torch.ones(2), torch.ones(2)], [torch.ones(4), torch.ones(4)]):
        call(torch.ones(2), caches)
"""


def test_none_is_farther_than_another_size() -> None:
    """The third call differs in as many facts from the first, which had no caches, as from the second."""
    first, second = (c.cause for c in run(CACHES, "caches", "core").record.compiles if c.cause is not None)
    assert [(each.subject, each.expected, each.got) for each in (first, second)] == [
        ("caches[0]", "None", "a Tensor"),
        ("the size of caches[0]", "2", "4"),
    ]


ALIAS_AND_SIZE = """
def program(x, y):
    return x.sum() + y.sum()

def run(call):
    x = torch.ones(3)
    call(x, x)
    call(torch.ones(1), torch.ones(1))
"""


def test_a_line_that_leaves_other_differences_is_no_change_to_try() -> None:
    made = run(ALIAS_AND_SIZE, "alias and size", "core")
    (problem,), cause = made.problems, made.record.compiles[1].cause
    assert cause is not None
    assert "Also different: y and x are two objects, not one object." in what_failed(cause, cause.besides[0])
    assert set(problem.remedies) == {"clone", "sizes 0 and 1"}
    assert problem.lines == []


TWO_MODULES = """
linear, norm = torch.nn.Linear(3, 3), torch.nn.LayerNorm(3)
torch.nn.init.constant_(linear.weight, 0.5)
torch.nn.init.constant_(linear.bias, 0.5)

def program():
    pass

def run(program):
    one, other = compiler(linear), compiler(norm)
    return [one(torch.ones(2, 3)), other(torch.ones(3)), one(torch.ones(4, 3))]
"""


def test_another_module_is_no_recompile() -> None:
    """Stock compiles one function around the calls of all of PyTorch's modules."""
    (again,) = run(TWO_MODULES, "two modules", "torch", is_compiled=True).problems
    assert again.title == "recompiled: the size of input changed"
    assert "It is in Linear or LayerNorm, which this line calls" in again.cause


BACKENDS = """
def step(x):
    return x.sin()

def make(n):
    def backend(graph, inputs):
        return graph
    return backend

def program():
    pass

def run(program):
    return [compiler(step, backend=make(n))(torch.ones(3)) for n in range(2)]
"""


def test_another_backend_is_named() -> None:
    """Stock's own sentence has both objects, their addresses and a link."""
    (again,) = run(BACKENDS, "backends", "torch", is_compiled=True).problems
    assert again.title == "recompiled: the backend changed"
    assert again.cause == "The backend is another object of that name; compile 0/0 was made for backend."
    assert again.advice.startswith("Each setting (backend) is compiled once.")


RANDOM_BRANCH = """
import random

random.seed(0)

def program(x):
    return x.sin() if random.random() < 0.5 else x.cos()

def run(call):
    for _ in range(4):
        call(torch.ones(3))
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_no_argument_is_advised_for_what_a_break_leaves(engine: Engine) -> None:
    again = [each for each in run(RANDOM_BRANCH, "random branch", engine).problems if each.kind == "recompile"]
    assert again
    assert not any("dynamic=True" in each.advice or "a tensor in place of the number" in each.advice for each in again)


NUMBERS = """
import math

def program(x, n):
    return {body}

def run(call):
    for n in {values}:
        call(torch.ones(12), n)
"""
WAYS = {
    ("x * n", "(2, 3)"): ("dynamic=True", "a tensor in place"),
    ("x.reshape(n, -1)", "(2, 3)"): ("dynamic=True",),
    ("x * math.cos(n)", "(0.5, 0.25)"): ("dynamic=True",),
    ("x[: n + 1] * 2", "(0, 1, 2)"): (),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("body", "values"), WAYS)
def test_each_way_to_avoid_the_compile_for_another_number_works(body: str, values: str, engine: Engine) -> None:
    script, ways = NUMBERS.format(body=body, values=values), WAYS[body, values]
    (again,) = run(script, "numbers", engine).problems
    assert tuple(way for way in ("dynamic=True", "a tensor in place") if way in again.advice) == ways
    for way in ways:
        is_option = way == "dynamic=True"
        text = script if is_option else script.replace("(12), n)", "(12), torch.tensor(n))")
        after = run(text, "numbers", engine, {"dynamic": True} if is_option else {})
        assert (len(after.compiles), after.problems) == (1, [])


SHARES = """
def program(x, share):
    return x[..., : int(16 * share)].square().mean()

def run(call):
    for share in (0.25, 0.5, 0.75, 1.0):
        call(torch.ones(3, 16), share)
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_compile_with_a_symbol_is_near_however_many_of_its_conditions_fail(engine: Engine) -> None:
    costly, expected = run(SHARES, "shares", engine).problems
    assert (costly.remedies, expected.remedies) == (["one case"], ["dynamic numbers"])
    assert costly.title.endswith("!= 16 does not hold")


GIVES_UP = """
def program(x, mode):
    if mode == "none":
        return x
    return x * 2 if mode == "two" else x * 3

def run(call):
    for mode in ("two", "none", "three"):
        call(torch.ones(3), mode)
"""
RAISES = """
def program(x, w):
    y = x.sin()
    return y @ w

def run(program):
    try:
        program(torch.ones(2, 3), torch.ones(2, 3))
    except Exception:
        return []
"""


def test_what_ends_the_compiling_on_stock_is_a_problem_at_its_line() -> None:
    ran = run(GIVES_UP, "gives up", "torch")
    (again,) = ran.problems
    assert (len(ran.compiles), again.grade, again.lineno) == (1, "expected", 3)  # a record does not count such calls
    assert "PyTorch compiles no more calls of the function after one that does not" in again.advice
    (failed,) = run(RAISES, "raises", "torch").problems
    assert (failed.kind, failed.lineno, failed.advice[:9]) == ("failure", 4, "Your code")


def test_an_error_of_the_cpp_compiler_is_named(tmp_path: Path) -> None:
    """The output has the error after the command and what the compiler says of the function."""
    output = "Command:\ng++ main.cpp\n\nOutput:\nmain.cpp: In function kernel:\nmain.cpp:26:29: error: no math here\n"
    failed = {"fail_type": "CppCompileError", "fail_reason": f"C++ compile error\n\n{output}"}
    started = {"dynamo_start": {"stack": [{"file": "step.py", "line": 1, "name": "step"}]}}
    ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    head = "V1206 15:24:45.403000 1667746 torch/_dynamo/utils.py:22] "
    lines = [head + json.dumps(each | ids) + "\n" for each in (started, {"compilation_metrics": failed})]
    (tmp_path / "dedicated_log_torch_trace_rank_0_x.log").write_text("".join(lines))
    (record,) = read_logs(tmp_path)
    (problem,) = find_problems(record)
    assert problem.cause == "CppCompileError: C++ compile error\nThe C++ compiler says: no math here"


REFUSES = """
def program(x, n):
    if n > 3:
        raise ValueError("too many")
    return x * n

def run(program):
    x, results = torch.ones(3), []
    for n in (1, 5, 2):
        try:
            results.append(program(x, n))
        except ValueError:
            pass
    return results
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_calls_that_the_program_refuses_are_no_problem(engine: Engine) -> None:
    assert {problem.grade for problem in run(REFUSES, "refuses", engine).problems} == {"expected"}


KEPT_RESULTS = """
def program(x, cache=None):
    return x if cache is None else x + cache["x"]

def run(call):
    x = torch.ones(3)
    call(x * 2)
    call(x, {"x": x})
"""


def test_the_values_of_tensors_are_not_shown() -> None:
    (again,) = run(KEPT_RESULTS, "kept results", "core").problems
    assert "cache is a dict; compile 0/0 was made for None" in again.cause


TRAINED_LATER = """
weight = torch.ones(3)

def program(x):
    return (x * weight).sum()

def run(call):
    call(torch.ones(3))
    weight.requires_grad_()
    call(torch.ones(3))
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_no_weight_is_detached(engine: Engine) -> None:
    (again,) = run(TRAINED_LATER, "trained later", engine).problems
    assert (again.remedies, again.lines) == (["one requires_grad"], [])
    assert "detach" not in again.advice


CALLED_METHOD = """
import time

class Log:
    def __init__(self):
        self.rows, self.count = [], 0

    def add(self, value, x):
        self.count += 1
        return x * self.count

log = Log()

def program(x):
    y = x.sin()
    return log.add(time.time(), y)

def run(call):
    for _ in range(3):
        call(torch.ones(3))
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_the_owner_of_a_method_is_named_that_a_break_leaves(engine: Engine) -> None:
    (again,) = (p for p in run(CALLED_METHOD, "called method", engine).problems if p.kind == "recompile")
    assert (again.title, again.lineno) == ("recompiled: log.count changed", 9)


REPEATED_LAYER = """
linear = torch.nn.Linear(3, 3)

def layer(x):
    return linear(x).relu()

def program():
    pass

def run(program):
    compiled, x = compiler(layer), torch.ones(2, 3)
    for _ in range(3):
        x = compiled(x)
    return [x * 0]
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_no_gradient_of_a_computed_tensor_is_cut(engine: Engine) -> None:
    """The second call gets what the first computed."""
    (again,) = run(REPEATED_LAYER, "a repeated layer", engine, is_compiled=True).problems
    assert again.remedies == ["one requires_grad"]
    assert again.lines == []
    assert "detach" not in again.advice


FIRST_VALUES = """
def program(x, number):
    return x * number

def run(call):
    for number in (1.0, 2.0, 3.0):
        call(torch.ones(3), number)
"""


@pytest.mark.parametrize("numbers", ["(1.0, 2.0, 3.0)", "(1, 2, 3)", "(0, 1, 2)"])
def test_dynamic_numbers_are_symbolic_from_the_first(numbers: str) -> None:
    script = FIRST_VALUES.replace("(1.0, 2.0, 3.0)", numbers)
    assert len(run(script, "first values", "core", {"dynamic": True}).compiles) == 1


def test_every_advice_is_proven() -> None:
    proven = {change.remedy for fault in RECOMPILES for change in fault.changes}
    proven |= {fault.remedy for fault in RECOMPILES if fault.remedy}
    assert set(REMEDIES) == proven


def test_every_line_is_proven() -> None:
    proven = {key for fault, engine in LINED for key in remedies_of(fault) if found(fault, engine).problems[0].lines}
    assert set(LINES) <= proven


def test_the_page_says_what_the_record_says() -> None:
    assert recompiles.PAGE.read_text() == recompiles.page(lambda fault: found(fault, "core")), (
        "run `python -m tests.docs.recompiles`"
    )


AFTER_LINES = """

def run_after_lines({parameter}, run=run, original=program):
    import inspect
    is_module = isinstance(original, torch.nn.Module)
    signature = inspect.signature(original.forward if is_module else original)

    def after_lines(*args, **kwargs):
        space = dict(signature.bind(*args, **kwargs).arguments)
        exec({lines!r}, globals() | {{"self": original}}, space)
        return {parameter}(*space.values())

    return run(after_lines)

run = run_after_lines
"""

ONLY_FIRST = """

def run_first(call, run=run):
    results = []
    def first(*args, **kwargs):
        if not results:
            results.append(call(*args, **kwargs))
        return results[0]
    run(first)

run = run_first
"""


HISTORY = """
import collections

history = collections.defaultdict(list)

def program(x):
    y = x * 2
    history["loss"].append(y)
    return y

def run(call):
    call(torch.ones(3))
    call(torch.ones(3))
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_the_first_key_of_an_empty_dict_is_named(engine: Engine) -> None:
    (problem,) = run(HISTORY, "history", engine).problems
    assert (problem.title, problem.lineno) == ("recompiled: history got the key 'loss'", 8)
    assert "history has the key 'loss'; compile 0/0 was made without it." in problem.cause


TWO_SYMBOLS = """
def program(x, n):
    assert x.shape[0] < 100 and n < 1000
    return x * n

def run(call):
    for i in range(3):
        call(torch.ones(3 + i), 10 + i)
"""


def test_several_symbols_have_one_advice() -> None:
    (problem,) = run(TWO_SYMBOLS, "two symbols", "core").problems
    assert problem.advice.count("Nothing to change") == 1
    assert "`n < 1000`" in problem.advice
    assert "`x.size(0) < 100`" in problem.advice


AFTER_BREAKS = """
def program(x):
    y = x.sin()
    print(end="")
    y = y.cos()
    print(end="")
    return y * 2

def run(call):
    for n in (4, 5, 1):
        call(torch.ones(n, 3))
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_what_follows_graph_breaks_is_one_problem_with_what_is_before(engine: Engine) -> None:
    again = [each for each in run(AFTER_BREAKS, "after breaks", engine).problems if each.kind == "recompile"]
    assert [(each.lineno, each.count, each.remedies) for each in again] == [
        (3, 3, ["sizes 0 and 1"]),
        (3, 3, ["dynamic sizes"]),
    ]
    later = "compiled again, too: the size of y changed in line 5, the size of y changed in line 7."
    assert all(later in each.cause for each in again)


KEPT_BY_A_HOOK = """
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
features = {}

def keep(module, inputs, output):
    features["mean"] = torch.tensor(output.detach().mean(0).tolist())

model[0].register_forward_hook(keep)

def program(x):
    return model(x).sum() + features["mean"].sum()

def run(call):
    for n in range(3):
        call(torch.ones(2, 3) * n)
"""


def test_the_difference_is_named_that_the_advice_is_on() -> None:
    """The numbers that a break leaves differ, too; compiles have symbols for them."""
    again = [each for each in run(KEPT_BY_A_HOOK, "kept by a hook", "torch").problems if each.kind == "recompile"]
    assert [(each.title, each.remedies) for each in again] == [
        ("recompiled: the length of features changed", ["all keys"])
    ]
    assert again[0].cause.startswith("The length of features is 1; compile ")
