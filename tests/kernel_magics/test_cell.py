"""Tests of split cells: a cell run as skeleton and units has the same effects as in plain IPython."""

from __future__ import annotations

import inspect
import re
import traceback
import types
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import compiler_core
from kernel_magics.cell import parse as cells
from kernel_magics.tracebacks.traces import user_traceback

CELLS = Path(__file__).parent / "cells"


def programs(file: str) -> list[Any]:
    """The cells of a file, each under a line ``%% its name``."""
    parts = (CELLS / file).read_text().split("%% ")[1:]
    return [pytest.param(text, id=name) for name, _, text in (part.partition("\n") for part in parts)]


MAGIC = "# %%compile\n"
HISTORY = re.compile("__builtins__|__warningregistry__|_+|_i*[0-9]*")
"""Names that IPython adds to the namespace."""


def direct(unit: types.FunctionType) -> Callable[[], object]:
    return unit


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> object:
    import asyncio

    return asyncio.run(coroutine)


def parse(shell: InteractiveShell, text: str) -> cells.Program:
    return cells.parse(shell, text, MAGIC)


def run_split(shell: InteractiveShell, text: str, compile_unit: cells.CompileUnit = direct) -> object:
    return parse(shell, text).run(shell.user_ns, compile_unit, run_coroutine)


def compiled(unit: types.FunctionType) -> Callable[[], object]:
    """Compiles a unit as the magics do."""
    from compiler_core.api import compile as api

    result: Callable[[], object] = api.compile(unit)
    return result


either_way = pytest.mark.parametrize("compile_unit", [direct, compiled])


def new_names(shell: InteractiveShell, before: set[str]) -> dict[str, str]:
    """Returns the names that a cell bound, with text for values that compare by identity."""
    result = {n: v for n, v in shell.user_ns.items() if n not in before and not HISTORY.fullmatch(n)}
    return {n: repr(v).split(" at 0x")[0] for n, v in sorted(result.items())}


@pytest.fixture
def plain(shell: InteractiveShell) -> Callable[[str], tuple[object, str, dict[str, str]]]:
    def run(text: str) -> tuple[object, str, dict[str, str]]:
        before = set(shell.user_ns)
        with capture_output() as output:
            result = shell.run_cell(text)
        result.raise_error()
        tensor = new_names(shell, before)
        shell.reset()
        shell.compile.reset_compiler_flags()
        return result.result, output.stdout.partition("Out[")[0], tensor

    return run


def as_text(value: object) -> str:
    return repr(value).split(" at 0x")[0]


@either_way
@pytest.mark.parametrize("text", programs("runs.txt"))
def test_leaves_what_a_plain_cell_leaves(
    text: str,
    compile_unit: cells.CompileUnit,
    shell: InteractiveShell,
    plain: Callable[[str], tuple[object, str, dict[str, str]]],
) -> None:
    # the magic's line is line 1 of the visible cell, so the plain cell has a comment there
    value, printed, names = plain(MAGIC + text)
    before = set(shell.user_ns)
    with capture_output() as output:
        got = run_split(shell, text, compile_unit)
    assert as_text(got) == as_text(value)
    assert output.stdout == printed
    assert new_names(shell, before) == names


def lines_of(error: BaseException, filename: str) -> list[tuple[int | None, str]]:
    return [(f.lineno, f.name) for f in traceback.extract_tb(error.__traceback__) if f.filename == filename]


@either_way
@pytest.mark.parametrize("text", programs("raises.txt"))
def test_raises_what_a_plain_cell_raises(text: str, compile_unit: cells.CompileUnit, shell: InteractiveShell) -> None:
    with capture_output():
        result = shell.run_cell(MAGIC + text)
    want = result.error_in_exec
    assert want is not None
    wanted = lines_of(want, traceback.extract_tb(want.__traceback__)[1].filename)
    shell.reset()
    program = parse(shell, text)
    with pytest.raises(type(want)) as caught:
        program.run(shell.user_ns, compile_unit, run_coroutine)
    got = caught.value
    got.__traceback__ = user_traceback(got.__traceback__, program.filename)
    assert str(got) == str(want)
    assert type(got.__cause__) is type(want.__cause__)
    assert lines_of(got, program.filename) == wanted
    assert len(traceback.extract_tb(got.__traceback__)) == len(traceback.extract_tb(want.__traceback__)) - 1


@pytest.mark.parametrize("text", programs("refuses.txt"))
def test_refuses_what_a_plain_cell_refuses(text: str, shell: InteractiveShell) -> None:
    with capture_output():
        result = shell.run_cell(MAGIC + text)
    want = result.error_before_exec or result.error_in_exec
    assert isinstance(want, SyntaxError)
    with pytest.raises(type(want)) as caught:
        parse(shell, text)
    assert caught.value.msg == want.msg
    assert caught.value.lineno == want.lineno


def test_source_of_a_function_in_a_cell(shell: InteractiveShell) -> None:
    run_split(shell, "x = 1\ndef f(a):\n    return a + x\nf(2)")
    assert inspect.getsource(shell.user_ns["f"]) == "def f(a):\n    return a + x\n"
    assert shell.user_ns["f"].__code__.co_firstlineno == 3


def test_loop_body_is_one_unit_called_each_round(shell: InteractiveShell) -> None:
    calls: list[int] = []

    def counting(unit: types.FunctionType) -> Callable[[], object]:
        def call() -> object:
            calls.append(1)
            return unit()

        return call

    program = parse(shell, "t = 0\nfor i in range(500):\n    t += i\n    u = t\nt")
    program.run(shell.user_ns, counting, run_coroutine)
    assert len(program.units) == 3
    assert len(calls) == 502
    assert shell.user_ns["t"] == sum(range(500))


def test_unit_is_module_code_by_name(shell: InteractiveShell) -> None:
    program = parse(shell, "x = [i for i in range(3)]\ny = lambda: 1")
    (unit,) = program.units
    assert (unit.co_name, unit.co_qualname, unit.co_firstlineno) == ("<module>", "<module>", 1)
    assert min(line for *_, line in unit.co_lines() if line) == 2


def test_notes_name_the_lines_that_ran_as_plain_python(shell: InteractiveShell) -> None:
    program = parse(shell, "x = 1\nfrom math import *\nfor i in 'a':\n    exec('y = 1')\n%alias_magic zz timeit")
    assert [note.split(" ran as plain Python: ")[0] for note in program.notes] == ["Line 3", "Line 5", "Line 6"]
    assert "from math import *" in program.notes[0]
    assert "exec" in program.notes[1]
    assert "magic" in program.notes[2]


def test_comprehension_over_a_break_is_compiled_again_for_its_numbers_alone(shell: InteractiveShell) -> None:
    """Before CPython 3.12 the comprehension's function is on the stack at the break, a new one in each iteration."""
    text = "for n in range(6):\n    t = torch.randint(0, 1000, (3,))\n    y = torch.stack([x + i for i in numbers(t)])"
    shell.user_ns.update(torch=torch, x=torch.ones(2), numbers=torch.compiler.disable(torch.Tensor.tolist))
    with compiler_core.record("cell") as record:
        run_split(shell, text, compiled)
    assert torch.equal(shell.user_ns["y"], torch.ones(2) + shell.user_ns["t"][:, None])
    causes = [c.cause.guard for c in record.compiles if c.cause]
    assert len(causes) == 1
    assert re.fullmatch(r"L\['__stack\d'\]\[0\] == \d+", causes[0])


def test_no_name_of_ours_in_the_namespace(shell: InteractiveShell) -> None:
    before = set(shell.user_ns)
    run_split(shell, "seen = sorted(globals())\nfor i in 'a':\n    seen2 = sorted(globals())")
    assert set(shell.user_ns) - before == {"seen", "seen2", "i"}
    assert set(shell.user_ns["seen2"]) - before == {"seen", "i"}


def test_syntax_warnings_appear_once(shell: InteractiveShell) -> None:
    with pytest.warns(SyntaxWarning) as caught:
        parse(shell, "x = 1\nx is 1")
    assert len(caught) == 1
