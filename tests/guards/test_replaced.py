"""Functions of modules, methods of classes and builtins that a program replaces after a compile cause a recompile."""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import compiler_core
from tests import warm_python
from tests.sampling import pairs

X = torch.linspace(0.1, 0.9, 9).reshape(3, 3)
LINEAR = nn.Linear(3, 3)
CHAIN = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid(), nn.Dropout(0.0))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x) * 2


MODEL = Model()


def _hundred(x: Any, *_: Any, **__: Any) -> Any:
    return x * 100


def _last_hundred(_: Any, x: Any, *__: Any) -> Any:
    return x * 100


PROGRAMS: dict[str, tuple[Any, str, Callable[[torch.Tensor], Any], Any]] = {
    "a function of torch": (torch, "sin", lambda x: torch.sin(x) + 1, _hundred),
    "a function of torch.nn.functional": (F, "relu", lambda x: F.relu(x) + 1, _hundred),
    "what such a function calls": (torch, "relu", lambda x: F.relu(x) + 1, _hundred),
    "a method that such a function calls": (torch.Tensor, "softmax", lambda x: F.softmax(x, -1), _hundred),
    "attention": (F, "scaled_dot_product_attention", lambda x: F.scaled_dot_product_attention(x, x, x), _hundred),
    "what a module's forward calls": (F, "linear", lambda x: LINEAR(x) + 1, _hundred),
    "the same in a chain": (F, "dropout", lambda x: CHAIN(x) + 1, _hundred),
    "a module that a library imports": (nn.modules.linear, "F", lambda x: LINEAR(x), mock.Mock(linear=_hundred)),
    "a method of tensors": (torch.Tensor, "add", lambda x: x.add(1), _hundred),
    "an operator": (torch.Tensor, "__sub__", lambda x: x - 2, _hundred),
    "a reflected operator": (torch.Tensor, "__rsub__", lambda x: 1 - x, _hundred),
    "a sign": (torch.Tensor, "__neg__", lambda x: -x, lambda x: x.clone()),
    "indexing": (torch.Tensor, "__getitem__", lambda x: x[0], _hundred),
    "calls of modules": (nn.Module, "__call__", lambda x: MODEL(x) + 1, _last_hundred),
    "what calls of modules run": (nn.Module, "_call_impl", lambda x: MODEL(x) + 1, _last_hundred),
    "calls of one library class": (nn.Linear, "__call__", lambda x: MODEL(x) + 1, _last_hundred),
    "calls of one class": (Model, "__call__", lambda x: MODEL(x) + 1, _last_hundred),
    "a library's forward": (nn.Linear, "forward", lambda x: MODEL(x) + 1, _last_hundred),
    "a forward": (Model, "forward", lambda x: MODEL(x) + 1, _last_hundred),
    "a function of math": (math, "sqrt", lambda x: x * math.sqrt(4), lambda n: 100),
    "a constant": (math, "pi", lambda x: x * math.pi, 3.0),
    "a function of operator": (operator, "mul", lambda x: operator.mul(x, 2), lambda x, n: x + n),
    "a builtin": (builtins, "divmod", lambda x: x * divmod(7, 2)[0], lambda *n: (100, 0)),
    "a function of numpy": (np, "sqrt", lambda x: x * float(np.sqrt(4.0)), lambda n: 100.0),
    "a new function": (torch, "made_up", lambda x: torch.made_up(x) if hasattr(torch, "made_up") else x, _hundred),
    "a new method": (torch.Tensor, "made_up", lambda x: x.made_up() if hasattr(x, "made_up") else x, _hundred),
    "a function of linalg": (torch.linalg, "norm", lambda x: torch.linalg.norm(x), _hundred),
}


@pytest.mark.parametrize(("name", "backend"), pairs(PROGRAMS, ["eager", "aot_eager"], 6))
def test_replaced_after_the_compile(name: str, backend: str) -> None:
    """A special method is replaced in another process, because CPython does not undo all of it: once a class had its
    own ``__getitem__``, `torch.tensor` fails for a list of tensors without dimensions."""
    if PROGRAMS[name][1].startswith("__"):
        call = f"from tests.guards.test_replaced import compare_replaced; compare_replaced({name!r}, {backend!r})"
        ran = warm_python.run(["-c", call])
        assert ran.returncode == 0, ran.stderr
    else:
        compare_replaced(name, backend)


def compare_replaced(name: str, backend: str) -> None:
    home, attribute, program, other = PROGRAMS[name]
    compiled = compiler_core.compile(program, backend=backend)
    first = program(X)
    torch.testing.assert_close(compiled(X), first)
    with mock.patch.object(home, attribute, other, create=True):
        changed = program(X)
        assert not torch.equal(changed, first)
        torch.testing.assert_close(compiled(X), changed)
        torch.testing.assert_close(compiler_core.compile(program, backend=backend)(X), changed)
    torch.testing.assert_close(compiled(X), first)


def _functions() -> Iterator[tuple[Any, str]]:
    """Yields the functions and methods that take one tensor and return another, as (module or class, name)."""
    for home in (torch, F, torch.special, torch.linalg, torch.fft, torch.Tensor):
        for name in sorted(vars(home)) if home is not torch.Tensor else sorted(dir(home)):
            # functions that change settings, or that the comparison itself calls
            if name.startswith(("_", "set_", "use_", "seed", "manual_seed")) or name in (
                "abs",
                "clone",
                "detach",
                "isfinite",
                "all",
                "is_complex",
                "resolve_conj",
            ):
                continue
            function = getattr(home, name)
            if not callable(function) or isinstance(function, type) or name in ("from_numpy", "empty_like"):
                continue
            try:
                with torch.random.fork_rng():
                    result = function(X.clone())
                    second_result = function(X.clone())
            except Exception:
                continue
            is_plain = isinstance(result, torch.Tensor) and result.dtype == X.dtype and result.layout == torch.strided
            if is_plain and torch.equal(result, second_result):
                yield home, name


def _program_calling(home: Any, name: str) -> Any:
    """Makes a program that calls a function or method of one tensor."""
    namespace = {"home": home}
    if home is torch.Tensor:
        exec(f"def program(x):\n    return x.clone().{name}() * 3", namespace)
    else:
        exec(f"def program(x):\n    return home.{name}(x.clone()) * 3", namespace)
    return namespace["program"]


@pytest.mark.filterwarnings("ignore")
def test_any_function_of_one_tensor() -> None:
    wrong, count = [], 0
    marked = X + 7

    def other(*_: Any) -> torch.Tensor:
        return marked

    for home, name in [*_functions()][::3]:  # of some 200
        program = _program_calling(home, name)
        compiled = compiler_core.compile(program, backend="eager")
        compiled(X)
        with mock.patch.object(home, name, other):
            got = compiled(X)
        count += 1
        if not torch.equal(got, marked * 3) or not torch.equal(compiled(X), program(X)):
            wrong.append(f"{home.__name__}.{name}")
    assert count > 50
    assert not wrong


def test_a_wrapper_that_keeps_the_name() -> None:
    """A replacement that has the name and module of PyTorch's function, by functools.wraps, is called."""
    calls = []
    original = F.gelu

    @functools.wraps(original)
    def counted(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return original(x, *args, **kwargs)

    compiled = compiler_core.compile(lambda x: F.gelu(x) + 1, backend="aot_eager")
    compiled(X)
    with mock.patch.object(F, "gelu", counted):
        for _ in range(3):
            compiled(X)
    assert len(calls) == 3


def test_an_unrelated_change_causes_no_recompile() -> None:
    compiled = compiler_core.compile(lambda x: torch.sin(x) + F.relu(x).add(1), backend="eager")
    compiled(X)
    with (
        mock.patch.object(torch, "made_up", 1, create=True),
        mock.patch.object(torch.Tensor, "made_up", 1, create=True),
    ):
        compiled(X)
    compiled(X)
    frames = compiler_core.api.compile.record_of(compiled).frames
    assert [c.id for f in frames for c in f.compiles] == ["0/0"]


def test_the_record_says_what_was_replaced() -> None:
    compiled = compiler_core.compile(lambda x: torch.sin(x), backend="eager")
    compiled(X)
    with mock.patch.object(torch, "sin", _hundred):
        compiled(X)
    frame = compiler_core.api.compile.record_of(compiled).frames[0]
    guards = [g.code for g in frame.compiles[0].guards if g.kind == "LIBRARY"]
    assert "unchanged('torch', sin)" in guards
    cause = frame.compiles[1].cause
    assert cause is not None
    assert "torch.sin was replaced" in cause.text
