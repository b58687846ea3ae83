"""Of each planted graph break the reason, the line and the advice are right, on both engines, and nothing else is
reported; the script that follows the advice has no problem."""

from __future__ import annotations

import pytest
import torch

from tests.faults.checks import errors
from tests.faults.corpus import BREAKS
from tests.faults.fault import Broken
from tests.faults.harness import ENGINES, Engine, changed, run
from tests.records.texts import wrong_lines
from tests.sampling import few_of_stock

CASES = [(fault, engine) for engine in ENGINES for fault in BREAKS]
IDS = [f"{fault.title} - {engine}" for fault, engine in CASES]


@pytest.mark.parametrize(("fault", "engine"), few_of_stock(CASES), ids=IDS)
def test_the_reason_is_named_and_nothing_else(fault: Broken, engine: Engine) -> None:
    ran = run(fault.script, fault.title, engine)
    torch.testing.assert_close(ran.results, run(fault.script, fault.title, None).results)
    assert wrong_lines(ran.record) == []
    if fault.happens_on(engine):
        assert errors(fault, engine, ran.record.compiles, ran.problems) == []
    else:
        assert [problem.title for problem in ran.problems] == []


@pytest.mark.parametrize(("fault", "engine"), few_of_stock(CASES), ids=IDS)
def test_the_script_without_its_fault_has_no_problem(fault: Broken, engine: Engine) -> None:
    repaired = changed(fault.script, fault.repair)
    ran = run(repaired, fault.title, engine)
    torch.testing.assert_close(ran.results, run(repaired, fault.title, None).results)
    assert [(problem.title, problem.lineno) for problem in ran.problems] == []
    assert len(ran.compiles) == 1


@pytest.mark.parametrize("fault", [each for each in BREAKS if each.config], ids=lambda each: each.title)
def test_an_option_that_stock_names_works(fault: Broken) -> None:
    with torch._dynamo.config.patch(fault.config):
        ran = run(fault.script, fault.title, "torch")
    assert [problem.title for problem in ran.problems] == []
    assert len(ran.compiles) == 1


LAST = """
import math
from torch import full

SCALE = torch.ones(3)

def made(n):
    return torch.full((3,), n)

def program(x):
    loss = x.square().mean()
    value = loss.item()
    return round(value, 2), math.sqrt(value)
"""
RESTS = {
    "return round(value, 2), math.sqrt(value)": True,
    "history = []\n    history.append(value)\n    return history[-1] * 2": True,
    "return f'{value:.3f}' if value > 1 else None": True,
    "return made(value)": False,  # which Dynamo compiles by itself
    "return SCALE * value": False,  # which runs as plain Python
    "return full((3,), value)": False,
    "return program.scale(value)": False,
}


@pytest.mark.parametrize("rest", RESTS)
def test_nothing_is_computed_after_the_last_break(rest: str) -> None:
    script = LAST.replace("return round(value, 2), math.sqrt(value)", rest)
    if "program.scale" in rest:
        script += "\nprogram.scale = lambda value: SCALE * value\n"
    (problem,) = run(script, "last", "torch").problems
    assert (problem.grade == "expected") == RESTS[rest]
    assert ("nothing is computed after it" in problem.advice) == RESTS[rest]


LOGGED = """
import logging

logger = logging.getLogger("cutaway.faults")
logger.addHandler(logging.NullHandler())

def program(x):
    y = x.sin()
    logger.warning("norm %.3f", y.norm())
    return y * 2
"""


def test_breaks_in_what_a_broken_line_calls_go_with_it() -> None:
    """Python calls the functions of logging, each of which Dynamo compiles."""
    first, *others = run(LOGGED, "logged", "torch").problems
    assert (first.grade, first.lineno) == ("costly", 9)
    assert {(each.grade, each.lineno) for each in others} == {("expected", 9)}


TWICE = """
def program(x):
    y = x.sin()
    return y * (id(x) == id(y))
"""


def test_calls_that_break_in_one_line_are_distinguished() -> None:
    first, second = run(TWICE, "twice", "core").problems
    assert [each.cause.rpartition("  ")[2] for each in (first, second)] == ["It is `id(x)`.", "It is `id(y)`."]


HOOKED = """
linear = torch.nn.Linear(3, 3)
linear.register_full_backward_hook(lambda module, inputs, outputs: None)

def program(x):
    return {argument}.cos()
"""


@pytest.mark.parametrize(("argument", "is_before"), [("linear(x.sin())", False), ("linear(x)", True)])
def test_nothing_is_moved_out_that_is_computed_in_its_line(argument: str, is_before: bool) -> None:
    problems = run(HOOKED.format(argument=argument), "hooked", "core").problems
    assert any("do it before the compiled function" in each.advice for each in problems) == is_before


COROUTINE = """
import asyncio

async def doubled(x):
    return x * 2

def program(x):
    y = x.sin()
    y = asyncio.run(doubled(y))
    return y.cos()
"""


def test_nothing_is_moved_out_that_needs_what_a_break_leaves() -> None:
    problems = run(COROUTINE, "a coroutine", "core").problems
    assert {each.lineno for each in problems} == {9}
    assert all("No change is known that keeps it in the graph" in each.advice for each in problems)


STACK = """
import inspect

def program(x):
    y = x.sin()
    name = inspect.stack()[0].function
    return y.cos(), name
"""


def test_what_a_broken_line_calls_is_not_compiled_again_for_nothing() -> None:
    """It asks all modules for their files, some of which are objects of one class."""
    first, *others = run(STACK, "the stack", "core").problems
    assert (first.kind, first.grade, first.lineno) == ("graph break", "costly", 6)
    assert {(each.grade, each.lineno) for each in others} <= {("expected", 6)}


SCHEDULED = """
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.Adam([weight], lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
weight.grad = torch.ones(3)

def program():
    optimizer.step()

def run(call):
    for _ in range(3):
        call()
        schedule.step()
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_an_optimizer_with_a_schedule_is_an_optimizer(engine: Engine) -> None:
    """A schedule puts another function around `step`."""
    problems = run(SCHEDULED, "scheduled", engine).problems
    assert {each.grade for each in problems} == {"expected"}
    assert any("the step runs as without the compiler" in each.advice for each in problems)
    with_call = [each for each in problems if "goes with that one" in each.advice]
    assert [(each.is_training, each.checked) for each in with_call] == [(True, "")] * (engine == "torch")


STEPPED = """
weight = torch.nn.Parameter(torch.ones(3))
schedule = torch.optim.lr_scheduler.StepLR(torch.optim.SGD([weight], lr=0.1), 2)
schedule.optimizer.step()

def program(x):
    y = (x * weight).sum()
    schedule.step()
    return y * 2
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_the_step_of_a_schedule_is_a_part_of_the_training_step(engine: Engine) -> None:
    (problem,) = run(STEPPED, "stepped", engine).problems
    assert (problem.grade, problem.is_training) == ("expected", True)


COPIES = """
import copy

model = torch.nn.Linear(3, 1)

def program(x):
    y = x.sin()
    first = copy.deepcopy(model)
    y = y.cos() * 2
    last = copy.deepcopy(model)
    return y
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_what_follows_one_call_of_a_library_says_nothing_of_another(engine: Engine) -> None:
    """Both have their break in the same line of the library."""
    problems = run(COPIES, "copies", engine).problems
    grades = {each.lineno: each.grade for each in problems if each.kind == "graph break"}
    assert grades == {8: "costly", 10: "expected"}


HANDLE = """
model = torch.nn.Linear(3, 3)

def program(x):
    handle = model.register_forward_hook(lambda module, args, result: result.mean().item())
    y = model(x)
    handle.remove()
    return y

def run(call):
    for _ in range(2):
        call(torch.ones(2, 3))
"""


def test_a_number_within_what_a_library_left_is_not_to_be_kept_as_a_tensor() -> None:
    problems = run(HANDLE, "handle", "core").problems
    for problem in (each for each in problems if each.kind == "recompile"):
        assert "Keep it a tensor" not in problem.advice
        assert "`an intermediate value" not in problem.advice


RETRIED = """
def program(x):
    for _ in range(3):
        if x.sum() > 0:
            x = x * 2
    return x
"""


def test_no_earlier_break_is_blamed_that_is_not_there() -> None:
    (problem,) = run(RETRIED, "retried", "torch").problems
    assert "earlier graph break" not in problem.advice


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("before", "grade"), [("", "expected"), ("x = x.cos()", "costly")])
def test_setting_the_seed_costs_nothing_where_nothing_is_computed_before(
    before: str, grade: str, engine: Engine
) -> None:
    script = f"def program(x):\n    {before or 'pass'}\n    torch.manual_seed(0)\n    return x.sin()\n"
    (problem,) = run(script, "a seed", engine).problems
    assert (problem.kind, problem.lineno, problem.grade) == ("graph break", 3, grade)


EMPTY_AT_FIRST = """
def program(x, items):
    for each in items:
        x = x + each
    return x

def run(call):
    for n in range(3):
        call(torch.ones(3), [torch.ones(3)] * n)
"""


def test_a_function_that_computes_nothing_at_first_runs_as_python_on_stock() -> None:
    ran = run(EMPTY_AT_FIRST, "empty at first", "torch")
    (problem,) = ran.problems
    assert (ran.compiles, problem.kind, problem.grade, problem.lineno) == ([], "plain Python", "costly", 2)
    assert "its first call computes nothing with tensors, and PyTorch does not try again" in problem.cause
    assert problem.advice.startswith("If later calls compute with tensors, decide outside of the compiled function")
    assert run(EMPTY_AT_FIRST.replace("range(3)", "range(1, 3)"), "not empty", "torch").problems[0].kind == "recompile"
    for body in ("return x", "return sorted(range(3)) if x.ndim else []"):
        assert run(f"@torch.no_grad()\ndef program(x):\n    {body}\n", "nothing", "torch").problems == []


WARMED_UP = """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.norm = 0, torch.nn.LayerNorm(3)

    def forward(self, x):
        self.calls += 1
        return x if self.calls < 3 else self.norm(x)

program = Model()

def run(call):
    for _ in range(4):
        call(torch.ones(2, 3))
"""


def test_a_module_that_computes_nothing_at_first_runs_as_python_on_stock() -> None:
    (problem,) = run(WARMED_UP, "warmed up", "torch").problems
    assert (problem.kind, problem.grade, problem.lineno) == ("plain Python", "costly", 7)


LOOPS = {
    "a branch": "if y.sum() > 0:",
    "a value that is read": "if y.sum().item() > 0:",
    "an optimizer": "optimizer.zero_grad()\n        if True:",
}
IN_LOOP = """
weight = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([weight], 0.1)

def program(x):
    x = x.sin()
    for row in x:
        y = row * weight
        {broken}
            x = x + y.cos()
    return x.tanh()
"""
MOVED = """
    for row in x:
        x = body(x, row)
    return x.tanh()

def body(x, row):
    if True:
"""


@pytest.mark.parametrize("broken", LOOPS)
def test_of_a_break_in_a_loop_the_body_is_compiled(broken: str) -> None:
    script = IN_LOOP.format(broken=LOOPS[broken])
    ran = run(script, "in a loop", "core")
    torch.testing.assert_close(ran.results, run(script, "in a loop", None).results)
    (problem,) = (each for each in ran.problems if each.kind == "graph break")
    assert (problem.lineno, problem.grade) == (9, "expected" if broken == "an optimizer" else "costly")
    assert "its body is compiled as a function, once for all rounds for which its guards hold" in problem.cause
    assert "function" not in problem.advice
    assert all(frame.calls > 0 or not frame.compiles for frame in ran.record.frames)
    assert {compile_.outcome for frame in ran.record.frames for compile_ in frame.compiles} == {"compiled"}


@pytest.mark.parametrize("broken", LOOPS)
def test_a_break_in_a_loop_is_one_problem_on_stock(broken: str) -> None:
    """Its function runs as plain Python: that goes with the break, and so does what the advice says of the loop."""
    engine: Engine = "torch"
    script = IN_LOOP.format(broken=LOOPS[broken])
    (problem,) = run(script, "in a loop", engine).problems
    assert (problem.kind, problem.lineno) == ("graph break", 9)
    assert problem.grade != "expected"
    assert "ove the body of the loop into a function" in problem.advice
    assert "Nothing to change" not in problem.advice
    old = "\n    for row in x:\n"
    head, _, rest = script.partition(old)
    lines, _, end = rest.partition("    return")
    moved = head + MOVED.rstrip("\n") + "\n" + lines + "    return x\n" + end.partition("\n")[2]
    after = run(moved, "in a loop", engine)
    torch.testing.assert_close(after.results, run(script, "in a loop", None).results)
    compiled = {frame.name for frame in after.record.frames for each in frame.compiles if each.captured_graphs}
    assert "body" in compiled
    assert not any("loop into a function" in each.advice for each in after.problems)


CHANGED_INPUT = """
weight = torch.ones((), requires_grad=True)

class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.count = 2
        {changes}
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.count

def program(x):
    y = (x.sin() * weight)[:]
    y = Doubled.apply(y)
    return y.cos()
"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("changes", ["ctx.mark_dirty(x)", "ctx.mark_dirty(x); print(end='')"])
def test_an_autograd_function_that_python_calls_is_one_problem(changes: str, engine: Engine) -> None:
    """What its forward does with its ``ctx`` breaks no other graph."""
    ran = run(CHANGED_INPUT.format(changes=changes), "an autograd function", engine)
    costly = [problem for problem in ran.problems if problem.grade != "expected"]
    assert [(problem.kind, problem.lineno) for problem in costly] == [("graph break", 18 if len(changes) < 20 else 9)]
    if engine == "core":
        assert ran.problems == costly


CALLED_IN_A_LOOP = """
def layer(x):
    y = x.sin()
    print(end="")
    return y.cos()

def program(x):
    x = x + 1
    for _ in range(2):
        x = layer(x)
    return x
"""


def test_the_loop_that_calls_a_function_with_a_break_is_named() -> None:
    ran = run(CALLED_IN_A_LOOP, "called in a loop", "core")
    (problem,) = ran.problems
    assert problem.lineno == 4
    assert (
        "program calls this in line 10, in a loop: Python runs the loop, and its body is compiled as a function, once"
        in problem.cause
    )
    assert "loop" not in problem.advice


READER = """
def program(x):
    y = x.sin()
    space = {}
    exec("scale = 2.0", space)
    return y * space["scale"]
"""
OF_ITS_OWN = {
    '    space = {}\n    exec("scale = 2.0", space)\n    return y * space["scale"]\n': """    return y * scale()

def scale():
    space = {}
    exec("scale = 2.0", space)
    return space["scale"]
"""
}


def test_what_can_read_the_frame_is_moved_into_a_separate_function() -> None:
    (problem,) = run(READER, "a reader", "core").problems
    assert (problem.kind, problem.lineno) == ("plain Python", 5)
    assert "it calls exec(), which can read its local variables" in problem.cause
    assert "Move this line into a separate function" in problem.advice
    moved = changed(READER, OF_ITS_OWN)
    after = run(moved, "a reader", "core")
    torch.testing.assert_close(after.results, run(READER, "a reader", None).results)
    assert len(after.compiles) == 2


DIVIDED_BY_A_LIBRARY = """
linear = torch.nn.Linear(3, 3)
SAVED = {name: value.clone() for name, value in linear.state_dict().items()}

def program(x):
    y = x.sin()
    linear.load_state_dict(SAVED)
    return linear(y)
"""


def test_breaks_in_what_one_line_calls_of_a_library_are_one_problem() -> None:
    (problem,) = run(DIVIDED_BY_A_LIBRARY, "a library", "core").problems
    assert (problem.lineno, problem.grade) == (7, "costly")
    assert "2 more graph breaks are in what this line calls." in problem.cause


PERCENT = """
LINES = []

def program(x):
    loss = x.sin().mean()
    LINES.append("loss %.3f" % loss)
    return loss{rest}
"""


@pytest.mark.parametrize(("rest", "grade"), [(" * 2", "costly"), ("", "expected")])
def test_what_follows_percent_runs_as_python_on_stock(rest: str, grade: str) -> None:
    ran = run(PERCENT.format(rest=rest), "percent", "torch")
    (problem,) = ran.problems
    assert (len(ran.compiles), problem.grade, problem.lineno) == (1, grade, 6)
    assert "What follows in program runs as plain Python" in problem.cause


OPENED = """
def program(x):
    y = x.sin()
    with open("/dev/null", "w") as file:
        file.write("step")
    return y.cos()
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_with_of_what_broke_the_graph_goes_with_that_break(engine: Engine) -> None:
    problems = run(OPENED, "opened", engine).problems
    assert [problem.lineno for problem in problems if problem.grade != "expected"] == [4]


PASSED_ON = """
weight = torch.ones(3, requires_grad=True)

def program(x):
    total, best = 0, None
    for row in (x, x + 1, x + 2):
        row = row * weight
        print(end="")
        total = total + row.sum()
        best = row if best is None else torch.maximum(best, row)
    return total * best
"""


def test_what_a_round_passes_on_has_a_compile_for_the_first_one() -> None:
    ran = run(PASSED_ON, "passed on", "core")
    torch.testing.assert_close(ran.results, run(PASSED_ON, "passed on", None).results)
    found = [each for each in ran.problems if each.kind == "recompile"]
    assert found
    for each in found:
        assert each.grade == "expected"
        assert each.advice.startswith("Nothing to change here: the rounds of a loop pass `")
    assert {tuple(frame.carried) for frame in ran.record.frames} == {(), ("best", "total")}


OVER_BATCHES = """
loader = torch.utils.data.DataLoader(list(torch.ones(4, 3)), batch_size=2)

def program(x):
    x = x.sin()
    for item in {head}:
        x = (x + torch.stack(list(item)[-1:]).sum()).cos()
    return x * 2
"""


@pytest.mark.parametrize("head", ["loader", "enumerate(loader)", "zip(loader, loader)"])
def test_the_body_of_a_loop_over_batches_is_compiled(head: str) -> None:
    script = OVER_BATCHES.format(head=head)
    ran = run(script, "batches", "core")
    torch.testing.assert_close(ran.results, run(script, "batches", None).results)
    assert {(each.grade, each.lineno) for each in ran.problems} == {("expected", 6)}
    assert {each.advice for each in ran.problems} == {
        "Nothing to change here: Python runs the loop, and the body of the loop is compiled as a function."
    }
    body = next(frame for frame in ran.record.frames if frame.line == 7)
    assert (body.calls, [len(each.captured_graphs) for each in body.compiles]) == (1, [1])


AFTER_A_CHANGE = """
import copy

class Counter:
    n = 0

counter = Counter()
optimizer = torch.optim.SGD([torch.ones(3, requires_grad=True)], 0.1)

def program(x):
    y = x.sin()
    {before}
    state = copy.deepcopy(optimizer)
    return y * len(state.param_groups)
"""


@pytest.mark.parametrize(
    ("before", "is_before"), [("y = y + 1", True), ("counter.n += 1", False), ("optimizer.zero_grad()", False)]
)
def test_no_object_is_read_earlier_than_what_changes_it(before: str, is_before: bool) -> None:
    problems = run(AFTER_A_CHANGE.format(before=before), "after a change", "core").problems
    (problem,) = [each for each in problems if each.grade != "expected"]
    assert ("do it before the compiled function" in problem.advice) == is_before


SEEDED = """
loader = torch.utils.data.DataLoader(list(torch.ones(4, 3)), batch_size=2, shuffle=True)

def program(x):
    y = {before}
    {seeds}
    return y + torch.rand(3)
"""


@pytest.mark.parametrize("seeds", ["torch.manual_seed(0)", "y = y + next(iter(loader))"])
@pytest.mark.parametrize(
    ("before", "is_before"),
    [
        ("x.sin()", True),
        ("torch.nn.functional.dropout(x)", False),
        ('torch.nn.functional.dropout(x)\n    print(end="")\n    y = y + 1', False),
    ],
)
def test_what_seeds_is_not_moved_before_random_numbers(before: str, is_before: bool, seeds: str) -> None:
    problems = run(SEEDED.format(before=before, seeds=seeds), "seeded", "core").problems
    (problem,) = [each for each in problems if each.title.endswith("skipped function")]
    assert ("do it before the compiled function" in problem.advice) == is_before
    assert ("1 more graph break is in what this line calls." in problem.cause) == ("next" in seeds)


FETCHED = """
loader = torch.utils.data.DataLoader(list(torch.ones(4, 3)), batch_size=2)

def program(x):
    y = x.sin()
    batch = next(iter(loader))
    return (y + batch).cos()
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_calls_around_one_another_are_one_problem(engine: Engine) -> None:
    ran = run(FETCHED, "fetched", engine)
    (problem,) = ran.problems
    assert (problem.count, problem.lineno) == (2, 6)
    assert "1 more graph break is in what this line calls." in problem.cause


STATE_DICT = """
optimizer = torch.optim.SGD([torch.ones(3, requires_grad=True)], 0.1)

def program(x):
    y = x.sin()
    state = optimizer.state_dict()
    return y * len(state["param_groups"])
"""


def test_a_state_that_is_read_is_no_step() -> None:
    (problem,) = run(STATE_DICT, "state", "core").problems
    assert (problem.is_training, problem.grade, problem.lineno) == (False, "costly", 6)
    assert "changes parameters" not in problem.cause


CHECKED_ARGUMENTS = """
def program(x):
    y = torch.distributions.Normal(x, x.exp(), validate_args={checks}).log_prob(x)
    return y.cos()
"""


def test_the_advice_on_a_distribution_is_on_its_call() -> None:
    """Stock's own hint is to change a function of PyTorch's that the distribution calls."""
    (problem,) = run(CHECKED_ARGUMENTS.format(checks=True), "checked", "torch").problems
    assert (problem.grade, problem.lineno) == ("costly", 3)
    assert "Pass validate_args=False to the distribution" in problem.advice
    assert "is_dependent" not in problem.advice
    assert run(CHECKED_ARGUMENTS.format(checks=False), "not checked", "torch").problems == []
