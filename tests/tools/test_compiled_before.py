"""What was compiled before can be opened: records, guards as Python, decompiled code, and files that run."""

from __future__ import annotations

import ast
import gc
import importlib
import inspect
import re
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.errors import UsageError
from compiler_core.tools.inspection.compiled_before import expression, function_from
from compiler_core.tools.testing import difference
from kernel_magics.display.export import save

ROOT = Path(__file__).parents[2]
COMPARES_IDENTITY = ("test_bound_builtin_methods", "test_tuple_as_a_key_is_the_very_object")
"""Programs that compare the identity of constants, which are other objects in decompiled code."""
CORPUS = [*ROOT.glob("tests/programs/test_*.py"), *ROOT.glob("tests/programs/language/test_*.py")]
pytestmark = pytest.mark.usefixtures("fresh_stock")
ENGINES = ("core", "torch")


def branches(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.cos()
    if x.mean() > 0:
        x = x * 2
    return x + y


def two() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(4), torch.ones(4)


def test_our_compiles_are_opened_whether_observed_or_not() -> None:
    compiled = compiler_core.compile(branches, backend="eager", dynamic=False)
    compiled(*two())
    record = compiler_core.already_compiled(compiled)
    assert [frame.kind for frame in record.frames] == ["root", "resume", "resume"]
    first, _ = record.compiles
    assert {"captured", "guards", "decompiled"} <= {artifact.name for artifact in first.artifacts}
    with compiler_core.record() as other:
        compiled(torch.ones(5), torch.ones(5))
    both = compiler_core.already_compiled(compiled)
    assert len(other.compiles) == len(both.compiles) == 2
    assert both.notes[-1].endswith("more compiles are in earlier records.")
    compiler_core.reset()
    with pytest.raises(UsageError, match="no compile in use"):
        compiler_core.already_compiled(compiled)


def compiled_with(engine: str, program: Callable[..., Any], backend: str = "eager") -> Any:
    return (torch.compile if engine == "torch" else compiler_core.compile)(program, backend=backend)


@pytest.mark.parametrize("engine", ENGINES)
def test_guards_are_python_and_their_costs_add_up(engine: str) -> None:
    with compiler_core.record(engine=engine) as record:  # type: ignore[arg-type]
        compiled_with(engine, branches)(*two())
    compile_ = record.compiles[0]
    text = compiler_core.guards_text(record, compile_)
    ast.parse(text)
    shares = [int(found) for found in re.findall(r"  # (\d+) ns", text)]
    assert len(shares) == len(compile_.guards)
    assert sum(shares) == pytest.approx(compile_.guards_ns, abs=len(shares))
    assert "ns; x = x.cos()" in text


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("len(L['x']) == 2  # file.py:3", "len(L['x']) == 2"),
        ("___check_type_id(L['x'], 7), type=<class 'dict'>", "___check_type_id(L['x'], 7)"),
        ("___check_global_state() against {'a': [1]}", "___check_global_state()"),
        ("a or b", "(a or b)"),
        ("ids are none == None", None),
    ],
)
def test_the_expression_of_a_guard(code: str, expected: str | None) -> None:
    assert expression(code) == expected


def programs() -> list[Any]:
    """Returns the programs of the corpus, with what makes their arguments."""
    found = []
    for file in sorted(CORPUS):
        module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
        for name, test in inspect.getmembers(module, inspect.isfunction):
            outside = inspect.getclosurevars(test).nonlocals
            is_left_out = name in COMPARES_IDENTITY or outside.get("changes")
            if name.startswith("test_") and "program" in outside and not is_left_out:
                found.append(pytest.param(outside["program"], outside.get("inputs"), id=name))
    return found


def runs_decompiled(engine: str, program: Callable[..., Any], inputs: Callable[[], Any] | None) -> bool:
    """Returns whether the decompiled code of a program was compared with the compiled code; it may be refused."""

    def arguments() -> Any:
        torch.manual_seed(0)
        needed = [p for p in inspect.signature(program).parameters.values() if p.default is p.empty]
        return inputs() if inputs else tuple(torch.randn(4, 4) for _ in needed)

    compiled = compiled_with(engine, program)
    with warnings.catch_warnings(), torch.enable_grad():  # which restores the grad mode that a program leaves
        warnings.simplefilter("ignore")
        try:
            compiled(*arguments())
            function = compiler_core.decompiled(compiled)
            expected = compiled(*arguments())
            if difference(compiled(*arguments()), expected, 0.0):  # the program counts its calls
                return False
        except Exception:  # the program raises, is not compiled, or has an instruction without text
            return False
        found = function(*arguments())
    differs = difference(found, expected, 0.0)
    assert not differs or "another object" in differs, f"{differs}\n{function.__source__}"  # type: ignore[attr-defined]
    return True


def breaks_without_gradients(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        total = (x + y).sum().item()
        y = y * total
    return x * y


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "program",
    [branches, breaks_without_gradients, lambda x, y: [x + y, {"k": x * 2}, *(y, y)], lambda x, y: (x @ y).item()],
)
def test_decompiled_code_runs_and_gives_the_same_values(engine: str, program: Callable[..., Any]) -> None:
    assert runs_decompiled(engine, program, two)


COUNT = 0


def test_decompiled_code_writes_to_globals_and_cells() -> None:
    total = 0

    def counts(x: int) -> int:
        nonlocal total
        global COUNT
        COUNT += 1
        total += 2
        return x + total

    function = types.FunctionType(counts.__code__, globals(), closure=counts.__closure__)
    assert function_from(counts.__code__, function)(1) == 3
    assert (COUNT, total) == (1, 2)


def merges_keywords(x: dict[str, int], y: dict[str, int]) -> list[str]:
    def inner(**given: int) -> list[str]:
        return [*given, inner.__qualname__, (lambda: 0).__qualname__]

    return inner(first=1, **x, **y)


def makes_a_tuple(x: list[int]) -> Any:
    return (*x, 1)


def makes_a_tuple_and_names_another(x: list[int]) -> Any:
    return (*x, 1), tuple


def test_decompiled_code_has_keywords_names_and_builtins_of_the_original() -> None:
    merges = function_from(merges_keywords.__code__, merges_keywords)  # type: ignore[arg-type]
    for x, y in (({"a": 1}, {"b": 2}), ({"a": 1}, {"a": 2}), ({"first": 1}, {})):
        assert repr(_outcome(merges, x, y)) == repr(_outcome(merges_keywords, x, y))
    shadowed = {"__builtins__": __builtins__, "tuple": list}
    makes, names = (types.FunctionType(f.__code__, shadowed) for f in (makes_a_tuple, makes_a_tuple_and_names_another))
    assert function_from(makes.__code__, makes)([2]) == (2, 1)
    with pytest.raises(UsageError, match="a global variable hides the builtin tuple"):
        function_from(names.__code__, names)


def _outcome(call: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    try:
        return (call(*args),)
    except TypeError as error:
        return (error,)


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ENGINES)
def test_decompiled_code_of_the_corpus(engine: str) -> None:
    ran = 0
    failed = []
    for program in programs():
        torch._dynamo.reset()
        try:
            ran += runs_decompiled(engine, *program.values)
        except Exception as error:
            failed.append(f"{program.id}: {error}")
    assert not failed, "\n".join(failed)
    assert ran >= 200


def makes_a_class(x: Any) -> Any:
    class Made:
        value = x

    return Made


def test_code_without_text_is_refused() -> None:
    with pytest.raises(UsageError, match="makes_a_class cannot be decompiled: a class statement has no Python text"):
        function_from(makes_a_class.__code__, types.FunctionType(makes_a_class.__code__, {}))


@pytest.mark.parametrize("engine", ENGINES)
def test_each_python_file_of_a_folder_runs(engine: str, tmp_path: Path) -> None:
    def gradients(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.cos().cos() * y

    with compiler_core.record(engine=engine) as record:  # type: ignore[arg-type]
        x = torch.ones(4, requires_grad=True)
        compiled_with(engine, gradients, "aot_eager")(x, x.detach()).sum().backward()
    save(record, f"{tmp_path}/")
    files = sorted(file for file in tmp_path.rglob("*.py") if file.parent.name != "source")
    assert {"guards.py", "decompiled.py", "captured.py", "joint.py"} <= {file.name for file in files}
    for file in files:
        exec(compile(file.read_text(), str(file), "exec"), {"__name__": "__main__"})


def test_a_compile_whose_guarded_object_was_freed_is_left_out(fresh_stock: None) -> None:
    def f(x: torch.Tensor, option: type) -> torch.Tensor:
        return x + 1 if option is not int else x

    compiled, kept = torch.compile(f, backend="eager"), type("Kept", (), {})
    for option in (type("Freed", (), {}), kept):
        compiled(torch.ones(2), option)
    assert len(compiler_core.already_compiled(compiled).compiles) == 2
    del option
    gc.collect()
    assert len(compiler_core.already_compiled(compiled).compiles) == 1
    assert torch.equal(compiler_core.decompiled(compiled)(torch.ones(2), kept), torch.full((2,), 2.0))


def test_modules_of_pytorch_that_stock_compiled_are_opened_pinned_and_decompiled() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    module[0].register_forward_hook(lambda module, inputs, output: output * 2)
    compiled, x = torch.compile(module, backend="eager"), torch.randn(2, 4)
    expected = compiled(x)
    assert len(compiler_core.already_compiled(compiled).compiles) == 1
    for function in (compiler_core.decompiled(compiled), compiler_core.pin(compiled)):
        assert torch.equal(function(x), expected)
