"""Tests of compiler_core.tools.decompile: the statements that it prints do what the bytecode does."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from compiler_core import bytecode
from compiler_core.bytecode import Instruction, make
from compiler_core.tools.decompile import decompile, statements
from tests.bytecode import round_trip

graph: Any = None
flag: Any = None
resume_1: Any = None
resume_2: Any = None
print_: Any = None
owner: Any = None
table: Any = None


def calls_a_graph(x: Any, weights: Any, *, scale: Any) -> Any:
    y, z, _ = graph(x, weights["a"], scale)
    if flag(z):
        return resume_1(y, z, scale=scale)
    owner.total = y - (z - 1) * 2
    table["last"] = [y, (z,), {"k": -z}]
    print_(y is not None, y <= z, z not in [1])
    return resume_2(z, *weights["rest"], **weights["more"])


def keeps_order(x: Any, weights: Any, *, scale: Any) -> Any:
    first = x
    x = graph(x, first, scale)
    first, x = x, first
    weights["a"] += 1
    del weights["rest"]
    return print_(first, flag(x), weights["a"], (graph(1, 2, 3), first))


def raises(x: Any, weights: Any, *, scale: Any) -> Any:
    print_(x)
    raise KeyError(x) from None


LOG: list[object] = []


def recording_globals() -> dict[str, Any]:
    """Returns globals for the functions above, which note every access."""
    LOG.clear()

    def note(name: str, result: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            LOG.append((name, args, kwargs))
            return result(*args)

        return noted

    names: dict[str, Any] = {
        name: note(name, lambda *a, name=name: name) for name in ("resume_1", "resume_2", "print_")
    }
    names["graph"] = note("graph", lambda x, w, s: (x * w, x + s, None))
    names["flag"] = note("flag", bool)
    return names | {"owner": types.SimpleNamespace(), "table": {}}


def effects_of_call(function: Callable[..., Any], x: Any) -> tuple[object, ...]:
    """Returns all visible effects of a call of `function` with new globals."""
    names = recording_globals()
    weights = {"a": 3, "rest": [8, 9], "more": {"m": 1}}
    try:
        result = types.FunctionType(function.__code__, names, None, None)(x, weights, scale=2)
    except KeyError as error:
        result = repr(error)
    return result, list(LOG), vars(names["owner"]), names["table"], weights


@pytest.mark.parametrize("function", [calls_a_graph, keeps_order, raises])
@pytest.mark.parametrize("x", [5, -2])
def test_the_text_does_what_the_bytecode_does(function: Callable[..., Any], x: int) -> None:
    text = statements(function.__code__)
    assert "#" not in text
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    assert effects_of_call(namespace[function.__name__], x) == effects_of_call(function, x)


def test_reads_like_the_source() -> None:
    text = statements(calls_a_graph.__code__)
    assert text.splitlines()[:4] == [
        "def calls_a_graph(x, weights, *, scale):",
        "    y, z, _ = graph(x, weights['a'], scale)",
        "    if flag(z):",
        "        return resume_1(y, z, scale=scale)",
    ]


def test_each_instruction_has_its_line() -> None:
    code = calls_a_graph.__code__
    text, spans = decompile(code)
    lines, instructions = text.splitlines(), bytecode.disassemble(code)
    line_of = {int(span.key): lines[span.first - 1] for span in spans}
    assert set(line_of) == set(range(len(instructions)))
    for i, x in enumerate(instructions):
        if x.opname in ("LOAD_GLOBAL", "LOAD_FAST", "STORE_FAST", "STORE_ATTR"):
            assert str(x.argval) in line_of[i]
    assert {line_of[i] for i, x in enumerate(instructions) if x.opname == "RESUME"} == {lines[0]}


def resume_function() -> types.CodeType:
    """A resume function pushes one value and jumps over the dead start of the original body."""

    def original(x: Any, y: Any) -> Any:
        x = x + 1
        return x * y

    body = bytecode.disassemble(original.__code__)
    at = next(i for i, x in enumerate(body) if x.opname == "STORE_FAST")
    entry = [*make.prologue(), make.load_fast("stack0"), make.jump(body[at])]
    names = {"co_varnames": ("stack0", "y", "x"), "co_name": "resume_in_original"}
    return bytecode.assemble([*entry, *body], original.__code__, **names)


def test_dead_code_is_left_out() -> None:
    assert statements(resume_function()).splitlines() == [
        "def resume_in_original(stack0, y):",
        "    x = stack0",
        "    return x * y",
    ]


def test_what_has_no_python_is_a_comment() -> None:
    def loops(items: Any) -> Any:
        with items:
            for item in items:
                print(item)
        return items

    lines = statements(loops.__code__).splitlines()
    assert any("FOR_ITER" in line and line.lstrip().startswith("#") for line in lines)
    assert "    return items" in lines
    assert any("# continues at instruction" in line for line in lines)


def test_temporaries_keep_values_apart() -> None:
    def template(f: Any) -> None: ...

    call = [*make.load_callable([make.load_fast("f")]), *make.call(0)]
    end: list[Instruction] = [make.copy(1), make.build_tuple(2), make.return_value()]
    code = bytecode.assemble([*make.prologue(), *call, *end], template.__code__)
    bytecode.verify(code)
    assert statements(code).splitlines()[1:] == ["    t0 = f()", "    return (t0, t0)"]


def test_a_constant_function_goes_by_its_name() -> None:
    def template(x: Any) -> None: ...

    call = [
        *make.load_callable([make.load_const(round_trip.main)]),
        *(make.load_fast("x"), make.load_const(-1)),
        *make.call(2),
    ]
    code = bytecode.assemble([*make.prologue(), *call, make.return_value()], template.__code__)
    assert statements(code).splitlines()[1:] == ["    return main(x, -1)"]


@pytest.mark.parametrize("module", ["textwrap", "contextlib", "asyncio.queues", "dataclasses"])
def test_never_fails(module: str) -> None:
    for code in round_trip.code_objects(module):
        text, spans = decompile(code)
        n_lines = len(text.splitlines())
        keys = [int(span.key) for span in spans]
        assert keys == sorted(set(keys))
        assert all(1 <= span.first == span.last <= n_lines for span in spans)
