"""The toy compiler of the workshop: programs compute what they compute in Python, and each stage does its part."""

from __future__ import annotations

import copy
import importlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests import warm_python
from tests.docs import toy as page

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DATA: dict[str, Callable[[int], tuple[Tensor, Tensor]]] = {
    "MLP": lambda n: (torch.randn(n, 8), torch.randint(4, (n,))),
    "CNN": lambda n: (torch.randn(n, 1, 8, 8), torch.randint(4, (n,))),
    "Transformer": lambda n: (torch.randint(16, (n, 5)), torch.randint(4, (5 * n,))),
}


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The toy compiler, as a lesson imports it."""
    monkeypatch.syspath_prepend(str(page.SOURCE.parents[1]))
    return importlib.import_module("toy.compiler")


def train(toy: Any, name: str, sizes: tuple[int, ...], language: str = "c") -> list[Any]:
    """Trains a model compiled and as Python, compares losses and parameters, and returns what was compiled."""
    programs = importlib.import_module("toy.programs")
    torch.manual_seed(0)
    model = getattr(programs, name)()
    other = copy.deepcopy(model)
    step, expected = toy.compile(programs.training_step(model), language), programs.training_step(other)
    for size in sizes:
        inputs, labels = DATA[name](size)
        torch.testing.assert_close(step(inputs, labels), expected(inputs, labels))
        torch.testing.assert_close(list(model.parameters()), list(other.parameters()), rtol=1e-4, atol=1e-5)
    return list(step.entries())


@pytest.mark.parametrize("name", DATA)
def test_training_is_that_of_python(toy: Any, name: str) -> None:
    entries = train(toy, name, (4, 4, 6, 7))
    reasons = [entry.reason for entry in entries]
    assert reasons.count("a call of backward") == 2  # the size of a batch, then any size
    assert reasons.count("a call of _foreach_copy_") == 1
    assert entries[0].stages.saved
    assert any(len(kernel.nodes) > 1 for entry in entries for kernel in entry.stages.kernels)


def test_training_with_triton_is_that_of_python() -> None:
    pytest.importorskip("triton")
    pytest.importorskip("ipykernel")  # the process that is forked has imported it
    program = "import sys; sys.path.insert(0, 'notebooks/workshop')\n" + (
        "from tests.notebooks.test_toy import train\nfrom toy import compiler\n"
        "for name in ('MLP', 'CNN'): print(len(train(compiler, name, (4,), 'triton')))\n"
    )
    ran = warm_python.run(["-c", program], env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)})
    assert ran.stdout.split() == ["6", "6"], ran.stderr[-2000:]


def test_a_branch_on_a_tensor_breaks_and_both_sides_are_units(toy: Any) -> None:
    def branch(a: Tensor, b: Tensor) -> Tensor:
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    compiled, a, b = toy.compile(branch), torch.randn(10), torch.rand(10)
    for each in (b, -b, b):
        torch.testing.assert_close(compiled(a, each), branch(a, each))
    first, *rest = compiled.entries()
    assert "a branch on a tensor" in first.reason
    assert len(rest) == 2


def test_a_guard_fails_for_another_number_and_holds_for_another_element(toy: Any) -> None:
    def scaled(x: Tensor, options: list[float]) -> Tensor:
        for factor in options:
            x = x * factor
        return x

    compiled, x = toy.compile(scaled), torch.ones(3)
    for factors, entries in (([2.0, 3.0], 1), ([2.0, 3.0], 1), ([2.0, 4.0], 2), ([0.0], 3), ([-0.0], 4)):
        assert repr(compiled(x + 1, factors)) == repr(scaled(x + 1, factors))
        assert len(compiled.entries()) == entries
    assert any("repr(L['options'][1]) == " in guard for guard in compiled.entries()[0].guards)


def test_what_is_read_of_an_object_has_a_guard(toy: Any) -> None:
    class Options:
        scale = 2.0

    def scaled(x: Tensor, options: Options, names: dict[str, float], more: list[int]) -> Tensor:
        x = x * options.scale + len(more)
        if "shift" in names:
            x = x + names["shift"]
        factor: float = getattr(options, "scale")  # noqa: B009
        return x * (3 if 7 in more else 4) * factor

    compiled, options, more = toy.compile(scaled), Options(), [1]
    for scale, names, last in ((2.0, {}, 1), (3.0, {}, 1), (3.0, {"shift": 1.0}, 1), (3.0, {"shift": 2.0}, 7)):
        options.scale, more[0] = scale, last
        arguments = torch.ones(3), options, names, more
        for _ in range(2):
            torch.testing.assert_close(compiled(*arguments), scaled(*arguments))


class Stack(nn.Module):
    """Layers to which others can be added."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Numbers(list[float]):
    """A list of the program."""


def weighted(x: Tensor, first: Iterable[float], second: Iterable[float]) -> Tensor:
    for factor in first:
        x = x * factor
    for factor in second:
        x = x * factor
    return x + 1 if type(x) is Tensor else x - 1


def test_what_lists_and_iterators_of_the_program_have_is_read_at_each_call(toy: Any) -> None:
    x, numbers, same, stack = torch.ones(3), Numbers([2.0]), [3.0], Stack()
    compiled, by_layers = toy.compile(weighted), toy.compile(stack)
    for _ in range(2):
        for lists in ((numbers, same), (same, same), (same, [5.0])):
            torch.testing.assert_close(compiled(x, *lists), weighted(x, *lists))
        torch.testing.assert_close(compiled(x, iter(same), reversed(same)), weighted(x, iter(same), reversed(same)))
        torch.testing.assert_close(by_layers(x), stack(x))
        numbers.append(7.0)
        stack.layers.append(nn.Linear(3, 3))


MASK = torch.tensor([[True, False, True], [False, True, False]])
VALUES = torch.tensor([[0.1, -2.0, float("nan")], [3.0, 0.0, 1.5]])
OPERATIONS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "bools": (lambda a, b: (a + b, a * b, a / b, a.sum()), (MASK, ~MASK)),
    "infinity": (lambda a, b: torch.where(a, b, float("-inf")).softmax(-1), (MASK, VALUES)),
    "a number that float32 rounds": (lambda a: (a > 0.1, a == 0.1, a * 0.1 + 0.3), (VALUES,)),
    "integers": (lambda a: (a + 1, a / 2, a // 2, a * 1.5), (torch.arange(6),)),
    "float64": (lambda a: (a + 1).sin() * 1e-300, (VALUES.double(),)),
    "nan": (lambda a: (torch.maximum(a, a * 2), a.relu(), a.amax(-1), a.sum()), (VALUES,)),
    "broadcast": (lambda a, b: (a + b, (a * b).sum((0, 1)), a.sum(1, keepdim=True) + b), (VALUES, VALUES[:1])),
    "views": (lambda a: (a.t(), a[1:].view(-1), a), (VALUES,)),
    "no element": (lambda a: (a + 1, a.sum(-1)), (torch.zeros(0, 3),)),
    "transposed": (lambda a: (a + 1, a.sum(-1)), (VALUES.t(),)),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_kernels_compute_what_pytorch_does(toy: Any, name: str) -> None:
    function, arguments = OPERATIONS[name]
    torch.testing.assert_close(toy.compile(function)(*arguments), function(*arguments), equal_nan=True)


def test_the_forward_saves_what_the_cut_says(toy: Any) -> None:
    compiled, x = toy.compile(lambda x: x.cos().cos().sum()), torch.randn(5, 5, requires_grad=True)
    compiled(x).backward()
    expected = torch.autograd.grad(x.cos().cos().sum(), x)[0]
    torch.testing.assert_close(x.grad, expected)
    (entry,) = compiled.entries()
    assert entry.stages.saved == ["primals_1"]
    assert len(entry.stages.kernels[0].nodes) == 2  # one loop for the forward
    assert [str(node) for node in entry.stages.forward.graph.nodes] == [
        "primals_1",
        "kernel_0",
        "cos_1",
        "sum_1",
        "output",
    ]


def test_views_are_computed_again_and_a_number_of_a_tensor_breaks(toy: Any) -> None:
    def layer(x: Tensor, weight: Tensor) -> Tensor:
        y = x @ weight.t()
        return (y.sigmoid() * y).sum() * y.detach().sum().item()

    compiled, x, weight = toy.compile(layer), torch.randn(5, 4), torch.randn(3, 4, requires_grad=True)
    torch.testing.assert_close(compiled(x, weight), layer(x, weight))
    first = compiled.entries()[0]
    assert first.reason == "a call of item"
    assert not any(name.startswith(("detach", "t")) for name in first.stages.saved)


def test_a_gradient_of_a_gradient_is_refused(toy: Any) -> None:
    compiled, x = toy.compile(lambda x: (x * x * x).sum()), torch.ones(3, requires_grad=True)
    with pytest.raises(AssertionError, match="no gradients of gradients"):
        torch.autograd.grad(compiled(x), x, create_graph=True)


def test_a_pass_changes_the_graph(toy: Any) -> None:
    def twice_sine(gm: torch.fx.GraphModule) -> None:
        for node in gm.graph.find_nodes(op="call_function", target=torch.sin):
            node.target = torch.cos

    compiled, x = toy.compile(lambda x: torch.sin(x * 1 + 0) + 1, passes=[twice_sine]), torch.randn(3)
    torch.testing.assert_close(compiled(x), torch.cos(x) + 1)
    (entry,) = compiled.entries()
    assert len([node for node in entry.graph.graph.nodes if node.op == "call_function"]) == 2


def in_place(x: Tensor) -> Tensor:
    y = x + 1
    y += 2
    return torch.relu_(y) * y.sum().item()


def shares(x: Tensor) -> Any:
    parts = [x, x * 2]
    parts.append(parts[0] + 1)
    first = parts
    print(len(parts))
    return first is parts, first, {"x": x}


def draws(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x + 1, 0.5) * torch.rand_like(x)


def raises(x: Tensor) -> Tensor:
    y = x * 2
    return y @ y[:, :1].T.repeat(3, 3)


def by_keyword(x: Tensor, *more: Tensor, scale: float = 2.0) -> Tensor:
    return torch.add(x, more[0], alpha=3) * scale if more and x is not more[0] else x.sum(dim=0)


def keeps(x: Tensor) -> Any:
    pairs, best, part = zip(x, x * 2, strict=True), torch.topk(x + 1, 2), slice(0, 2)
    x.sum().item()
    return [a + b for a, b in pairs], best.values, best, x[part], x.shape


NUMBERS = {0: 5, 1: 6}


def unpacks(x: Tensor) -> Any:
    (a, b), (c, d) = NUMBERS, map(float, (1, 2))
    b >>= 1
    return x + (a << b), c, d


def unpacks_one_too_few(x: Tensor) -> Tensor:
    a, b = x.shape[:1]
    return x * a * b


def reads_no_variable(x: Tensor) -> Any:
    return x + 1, no_variable  # type: ignore[name-defined]  # noqa: F821


def reads_an_empty_cell(x: Tensor) -> Any:
    def inner() -> Any:
        return x + 1, later

    result = inner()
    later = 1
    return result


def clips(x: Tensor) -> Tensor:
    weight = torch.ones(3, 4, requires_grad=True)
    (x * weight).sum().backward()
    torch.nn.utils.clip_grad_norm_([weight], 0.5)
    return (weight.grad if weight.grad is not None else weight) * 1


def by_order(x: Tensor) -> Any:
    results = []
    for names in ({"a": 2.0, "b": 3.0}, {"b": 3.0, "a": 2.0}):
        results.append(first_of(x, names))
    return results


def first_of(x: Tensor, names: dict[str, float]) -> Tensor:
    for name in names:
        return x * names[name]
    return x


PROGRAMS = [clips, by_order, keeps, in_place, shares, draws, raises, by_keyword]
PROGRAMS += [unpacks, unpacks_one_too_few, reads_no_variable, reads_an_empty_cell]


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_that_break_compute_what_they_compute_in_python(
    toy: Any, program: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    def outcome(function: Callable[..., Any]) -> Any:
        torch.manual_seed(1)
        x = torch.randn(3, 4)
        try:
            result = function(x)
        except Exception as error:
            print(repr(error))
            result = None
        return (result, x, torch.get_rng_state()), capsys.readouterr().out

    compiled = toy.compile(program)
    for _ in range(2):
        (values, printed), (wanted, wanted_print) = outcome(compiled), outcome(program)
        torch.testing.assert_close(values, wanted)
        assert printed == wanted_print
    assert shares(x := torch.ones(1))[1][0] is x
    assert toy.compile(shares)(x)[1][0] is x


def test_the_compiler_is_small_and_its_page_has_its_text() -> None:
    assert len(page.SOURCE.read_text(encoding="utf-8").splitlines()) <= 700
    assert page.PAGE.read_text(encoding="utf-8") == page.text(), "run: python -m tests.docs.toy"
