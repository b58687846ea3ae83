"""Tests of compiler_core.bytecode: reassembled code is unchanged, and invalid code is rejected."""

from __future__ import annotations

import dis
import inspect
import itertools
import math
import random
import shutil
import subprocess
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compiler_core import bytecode
from compiler_core.bytecode import Handler, Instruction, make
from compiler_core.errors import CompilerBug
from tests.bytecode import round_trip
from tests.sampling import always, sample

MINOR = sys.version_info.minor


# --- disassemble and assemble ----------------------------------------------------------------------------------------


def python(minor: int) -> str | None:
    """Returns the path of a CPython 3.`minor` on this machine."""
    if minor == MINOR:
        return sys.executable
    installed = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
    return str(installed[-1]) if installed else shutil.which(f"python3.{minor}")


@pytest.mark.parametrize(("minor", "step"), always(itertools.product([11, 12, 13], [6, 1]), lambda case: case[1] == 6))
def test_standard_library_comes_back_the_same_and_is_verified(minor: int, step: int) -> None:
    """Each sixth module; `make sweeps` takes all."""
    executable = python(minor)
    if executable is None:
        pytest.skip(f"no CPython 3.{minor} here")
    script = [executable, "-W", "ignore", str(Path(round_trip.__file__)), *round_trip.MODULES[::step]]
    ran = subprocess.run(script, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    total, same_bytes, same_lines = (int(word) for word in ran.stdout.split() if word.isdigit())
    assert total == same_bytes == same_lines > 1000 / step


def test_needs_the_standard_library_only() -> None:
    program = "import sys, compiler_core.bytecode, compiler_core.tools.decompile; print('torch' in sys.modules)"
    root = Path(__file__).resolve().parents[2]
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root, check=True)
    assert ran.stdout == "False\n"


def local_and_cell(items: list[int]) -> Any:
    x = 1
    get = lambda: x  # noqa: E731
    return [x for x in items], [(lambda: x) for x in items][0](), get()  # noqa: B023, C416, RUF015


def local_and_free() -> Callable[[list[int]], Any]:
    x = 5

    def inner(items: list[int]) -> Any:
        return x, [x for x in items], [x + 1 for x in items if x], (lambda: x)()  # noqa: C416

    return inner


@pytest.mark.parametrize("function", [local_and_cell, local_and_free()])
def test_one_name_in_several_slots(function: Callable[[list[int]], Any]) -> None:
    code = function.__code__
    outcome = round_trip.Outcome()
    round_trip.round_trip(code, outcome)
    assert (outcome.faults, outcome.same_bytes) == ([], 1)
    expected = function([3, 4])
    function.__code__ = bytecode.assemble(bytecode.disassemble(code), code)
    assert function([3, 4]) == expected


# --- added NOPs change nothing ------------------------------------------------------------------

ADJACENT = {"KW_NAMES", "PRECALL", "END_FOR", "YIELD_VALUE", "SEND", "RETURN_GENERATOR", "COPY_FREE_VARS", "MAKE_CELL"}


def with_nops(code: types.CodeType, count: Callable[[], int]) -> types.CodeType:
    """Returns `code`, and all code in it, with ``count()`` NOPs after each instruction that allows it."""
    created: list[Instruction] = []
    started = False
    for x in bytecode.disassemble(code):
        if isinstance(x.argval, types.CodeType):
            x.argval = with_nops(x.argval, count)
        created.append(x)
        started = started or x.opname == "RESUME"
        if started and x.opname not in ADJACENT:
            created += [Instruction("NOP", positions=x.positions, handler=x.handler) for _ in range(count())]
    changed = bytecode.assemble(created, code)
    bytecode.verify(changed)
    return changed


def rewritten(name: str, count: Callable[[], int]) -> types.ModuleType:
    """Imports a standard-library module with NOPs added to all of its functions."""
    code = next(round_trip.code_objects(name))
    module = types.ModuleType(name)
    module.__dict__.update(__file__=code.co_filename, __package__=name.rpartition(".")[0])
    sys_module, sys.modules[name] = sys.modules.get(name), module  # dataclasses and enums look their module up
    try:
        exec(with_nops(code, count), module.__dict__)
    finally:
        if sys_module is not None:
            sys.modules[name] = sys_module
    return module


TEXT = "The quick  brown fox\tjumps over the lazy dog, again and again. " * 4


def use_textwrap(m: Any) -> Iterator[object]:
    yield m.wrap(TEXT, 23, break_on_hyphens=True)
    yield m.shorten(TEXT, 40)
    yield m.indent(m.dedent("  a\n    b\n"), "> ")
    with pytest.raises(ValueError, match="invalid width"):
        m.wrap("x", 0)


def use_difflib(m: Any) -> Iterator[object]:
    a, b = TEXT.split(), TEXT.replace("fox", "cat").split()[3:]
    yield list(m.unified_diff(a, b, lineterm=""))
    yield list(m.ndiff(a[:9], b[:9]))
    yield m.get_close_matches("appel", ["ape", "apple", "peach"])


def use_heapq(m: Any) -> Iterator[object]:
    values = [math.sin(i) for i in range(40)]
    yield list(m.merge(sorted(values[:20]), sorted(values[20:], reverse=False), key=None))
    yield m.nsmallest(5, values, key=abs), m.nlargest(5, values)


def use_contextlib(m: Any) -> Iterator[object]:
    log: list[str] = []

    def note(name: str) -> Iterator[str]:
        try:
            yield name
        except KeyError as error:
            log.append(f"{name} {error!r}")
        finally:
            log.append(f"left {name}")

    noted = m.contextmanager(note)
    with noted("outer"), m.ExitStack() as stack, m.suppress(ZeroDivisionError):
        stack.callback(log.append, stack.enter_context(noted("inner")))
        if 1 / len(log):
            log.append("never")
    with noted("last"):
        raise KeyError("k")
    yield log


def use_json(m: Any) -> Iterator[object]:
    encoder = m.JSONEncoder(indent=2, sort_keys=True, default=str)
    yield encoder.encode({"b": [1, 2.5, None, True, {"é": Path("p")}], "a": {}})
    yield list(m.JSONEncoder().iterencode([1, (2, "x"), {"k": float("inf")}]))
    circular: list[object] = []
    circular.append(circular)
    with pytest.raises(ValueError, match="Circular"):
        (
            m._make_iterencode({}, None, m.encode_basestring, None, repr, ":", ",", False, False, False)(
                circular, 0
            ).send(None),
            list(m.JSONEncoder(indent=1).iterencode(circular)),
        )


def use_statistics(m: Any) -> Iterator[object]:
    data = [2.5, 3.25, 5.5, 11.25, 11.75]
    yield m.mean(data), m.stdev(data), m.quantiles(data), m.mode("aabbb"), m.NormalDist(1, 2).cdf(2.5)
    with pytest.raises(m.StatisticsError):
        m.mean([])


LIBRARY = {
    "textwrap": use_textwrap,
    "difflib": use_difflib,
    "heapq": use_heapq,
    "contextlib": use_contextlib,
    "json.encoder": use_json,
    "statistics": use_statistics,
}


PADDED = [
    ("textwrap", 1),
    ("textwrap", 45),
    *sample([("heapq", 45), ("contextlib", 45)], 2),
    *sample([(name, "random") for name in LIBRARY], 3),
]


@pytest.mark.parametrize(("name", "padding"), PADDED)
def test_a_rewritten_library_behaves_the_same(name: str, padding: int | str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    draw = random.Random(seed)
    module = rewritten(name, lambda: padding if isinstance(padding, int) else draw.choice([0] * 40 + [1, 1, 3, 200]))
    original = __import__(name, fromlist=["*"])
    assert list(LIBRARY[name](module)) == list(LIBRARY[name](original))


def test_line_numbers_of_a_traceback_stay() -> None:
    def fails(values: list[int]) -> int:
        total = 0
        for value in values:
            total += 10 // value
        return total

    def lines() -> list[tuple[int | None, str | None]]:
        with pytest.raises(ZeroDivisionError) as caught:
            fails([5, 0])
        return [(frame.lineno, frame.line) for frame in traceback.extract_tb(caught.tb)][-1:]

    before = lines()
    fails.__code__ = with_nops(fails.__code__, lambda: 50)
    assert lines() == before


# --- building code ----------------------------------------------------------------------------------------------


def function(body: list[Instruction], *parameters: str, **replace: Any) -> Callable[..., Any]:
    """Returns a function of `parameters` with this body, after a RESUME, and verifies it."""

    def template() -> None: ...

    template.__code__.replace()
    names = {"co_varnames": parameters, "co_argcount": len(parameters)}
    instructions = body if body[0].opname in ("COPY_FREE_VARS", "MAKE_CELL") else [*make.prologue(), *body]
    code = bytecode.assemble(instructions, template.__code__, **(names | replace))
    bytecode.verify(code)
    return types.FunctionType(code, globals())


def returning(*loads: Instruction) -> list[Instruction]:
    return [*loads, make.return_value()]


def calling(
    loading: list[Instruction], arguments: list[list[Instruction]], keywords: tuple[str, ...] = ()
) -> list[Instruction]:
    loads = [load for argument in arguments for load in argument]
    return [*make.load_callable(loading), *loads, *make.call(len(arguments), keywords)]


def test_calls() -> None:
    arguments = [[make.load_fast("x")], [make.load_const(2)], [make.load_const(3)]]
    plain = calling([make.load_fast("f")], arguments)
    assert function(returning(*plain), "f", "x")(lambda *a: a, 1) == (1, 2, 3)
    keywords = calling([make.load_fast("f")], arguments, ("b", "c"))
    assert function(returning(*keywords), "f", "x")(lambda *a, **k: (a, k), 1) == ((1,), {"b": 2, "c": 3})
    method = calling([make.load_global("math"), make.load_attr("hypot")], arguments[1:])
    assert function(returning(*method))() == math.hypot(2, 3)
    with pytest.raises(CompilerBug, match="cannot have 2 keywords"):
        make.call(1, ("a", "b"))


def test_containers_attributes_and_operators() -> None:
    load = make.load_fast
    body = [
        *(load("x"), make.load_const(0), make.load_subscript(), load("x"), make.load_const(1), make.load_subscript()),
        *(make.build_tuple(2), make.unpack_sequence(2), make.store_fast("first"), make.store_fast("second")),
        *(load("second"), load("x"), make.load_const(0), make.store_subscript()),
        *(load("first"), load("owner"), make.store_attr("kept")),
        *(make.load_const("k"), load("first"), load("second"), make.binary_op("-"), make.build_map(1)),
        *(load("x"), make.build_tuple(2), make.copy(1), make.swap(2), make.pop_top()),
    ]
    owner, x = types.SimpleNamespace(), [7, 4]
    assert function(returning(*body), "x", "owner")(x, owner) == ({"k": 3}, [4, 4])
    assert owner.kept == 7


@pytest.mark.parametrize("value", [0, 1, [], [0], None, "", "x"])
def test_branches_take_any_object(value: object) -> None:
    yes, no = make.load_const("yes"), make.load_const("no")
    body = [make.load_fast("v"), *make.pop_jump_if(False, no), *returning(yes), *returning(no)]
    assert function(body, "v")(value) == ("yes" if value else "no")
    none, some = make.load_const("none"), make.load_const("some")
    body = [make.load_fast("v"), *make.pop_jump_if_none(True, none), *returning(some), *returning(none)]
    assert function(body, "v")(value) == ("none" if value is None else "some")


def test_constants_keep_type_sign_and_identity() -> None:
    holder: list[int] = []
    values = [1, True, 1.0, 0.0, -0.0, "a", b"a", (1,), (True,), None, holder, 1, "a"]
    result = function(returning(*map(make.load_const, values), make.build_tuple(len(values))))
    assert [repr(v) for v in result()] == [repr(v) for v in values]
    assert result()[10] is holder
    assert result.__code__.co_consts.count("a") == 1


def test_many_constants_names_and_far_jumps() -> None:
    end = make.load_fast("total")
    body = [make.load_const(0), make.store_fast("total"), make.load_fast("go"), *make.pop_jump_if(False, end)]
    for i in range(1000, 1700):
        body += [make.load_fast("total"), make.load_const(i), make.binary_op("+="), make.store_fast("total")]
        body += [make.load_fast("o"), make.load_fast("o"), make.store_attr(f"name{i}")]
    result = function([*body, *returning(end)], "go", "o")
    owner = types.SimpleNamespace()
    assert (result(True, owner), result(False, owner)) == (sum(range(1000, 1700)), 0)
    assert len(vars(owner)) == 700


def test_new_locals_move_the_cells_behind_them() -> None:
    def outer(a: int) -> Callable[[], int]:
        b = a + 1

        def inner() -> int:
            return a + b + n_free

        return inner

    n_free = 100
    instructions = bytecode.disassemble(outer.__code__)
    after = next(i for i, x in enumerate(instructions) if x.opname == "RESUME") + 1
    instructions[after:after] = [make.load_const("x"), *(make.store_fast(f"new{i}") for i in range(1))]
    outer.__code__ = bytecode.assemble(instructions, outer.__code__)
    bytecode.verify(outer.__code__)
    assert "new0" in outer.__code__.co_varnames
    assert outer(1)() == 103


@pytest.mark.parametrize("extra", [0, 20])
def test_locals_can_be_reordered(extra: int) -> None:
    def swap(a: int, b: int) -> tuple[int, int]:
        c, d = b, a
        a, b = c, d
        return a, b

    names = ("b", "a", *(f"unused{i}" for i in range(extra)), "c", "d")
    code = bytecode.assemble(bytecode.disassemble(swap.__code__), swap.__code__, co_varnames=names)
    bytecode.verify(code)
    assert types.FunctionType(code, {})(1, 2) == (1, 2)  # the parameters were swapped, too


def test_what_cannot_be_assembled_is_refused() -> None:
    lost = make.nop()
    with pytest.raises(CompilerBug, match="not in the list"):
        function([make.jump(lost)])
    with pytest.raises(CompilerBug, match="not a local, cell or free variable"):
        function(returning(make.load_deref("nothing")))
    with pytest.raises(CompilerBug, match="in the list twice"):
        function([lost, lost, *returning(make.load_const(1))])
    with pytest.raises(CompilerBug, match="has no LOAD_EVERYTHING"):
        function([Instruction("LOAD_EVERYTHING")])
    with pytest.raises(CompilerBug, match="a jump needs a target"):
        function([Instruction("JUMP_FORWARD")])
    guarded = Instruction("NOP", handler=Handler(lost, 0, False))
    with pytest.raises(CompilerBug, match="has its handler at"):
        function([guarded, *returning(make.load_const(1))])


def test_handlers_survive_insertion() -> None:
    def safe(a: int, b: int) -> object:
        try:
            return a // b
        except ZeroDivisionError as error:
            return type(error).__name__

    instructions = bytecode.disassemble(safe.__code__)
    divide = next(x for x in instructions if x.opname == "BINARY_OP")
    at = instructions.index(divide)
    padding = [Instruction("NOP", handler=divide.handler) for _ in range(300)]
    safe.__code__ = bytecode.assemble([*instructions[:at], *padding, *instructions[at:]], safe.__code__)
    bytecode.verify(safe.__code__)
    assert (safe(7, 2), safe(1, 0)) == (3, "ZeroDivisionError")


def resume_at(code: types.CodeType, at: int, n_stack: int, live: list[str], cells: list[str]) -> types.CodeType:
    """Returns a function that continues `code` at instruction `at`; it takes the stack, the live locals and the
    cells."""
    body = bytecode.disassemble(code)
    stack = [f"stack{i}" for i in range(n_stack)]
    names = (*stack, *live, *(n for n in code.co_varnames if n not in live and n not in cells))
    entry = [*make.prologue((), len(cells)), *map(make.load_fast, stack), make.jump(body[at])]
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    sizes = {"co_argcount": n_stack + len(live), "co_posonlyargcount": 0, "co_kwonlyargcount": 0, "co_flags": flags}
    tables = {"co_varnames": names, "co_cellvars": (), "co_freevars": tuple(cells)}
    return bytecode.assemble([*entry, *body], code, **sizes, **tables)


def test_resume_in_the_middle() -> None:
    def original(x: int, *rest: int, scale: int = 3) -> list[int]:
        count = 0

        def bump(by: int) -> int:
            nonlocal count
            count += by
            return count

        out = []
        for value in rest:
            try:
                out.append(bump(value) // (x + value) * scale)
            except ZeroDivisionError:
                out.append(-count)
        return [*out, count]

    code = original.__code__
    body = bytecode.disassemble(code)
    at = next(i for i, x in enumerate(body) if x.opname == "FOR_ITER")
    live = sorted(bytecode.live_locals(body)[at] - {"count"})
    assert live == ["bump", "out", "scale", "x"]
    resume = resume_at(code, at, 1, live, ["count"])
    bytecode.verify(resume)
    cell = types.CellType(10)
    continued = types.FunctionType(resume, globals(), None, None, (cell,))

    def bump(by: int) -> int:
        cell.cell_contents += by
        return int(cell.cell_contents)

    assert continued(iter([1, -2, 5]), bump, [0], 3, 2) == [0, 9, -9, 6, 14]


def test_live_locals() -> None:
    def body(a: int, b: int, c: int) -> int:
        try:
            d = a
            d = c + d
        except ValueError:
            return b
        del c
        b = d
        return b  # noqa: RET504

    instructions = bytecode.disassemble(body.__code__)

    def live(opname: str, name: str) -> set[str]:
        found = (i for i, x in enumerate(instructions) if x.opname.startswith(opname) and name in str(x.argval))
        return bytecode.live_locals(instructions)[next(found)]

    assert live("LOAD_FAST", "a") == {"a", "b", "c"}  # b: the handler reads it
    assert live("DELETE_FAST", "c") == {"c", "d"}
    assert live("RETURN_VALUE", "") <= {"b"}


def test_bound_locals() -> None:
    def body(a: int, b: int) -> int:
        try:
            c = a
            if c:
                del b
        except ValueError:
            d = 1
        else:
            d = c
        return d

    instructions = bytecode.disassemble(body.__code__)
    bound = bytecode.bound_locals(instructions, ("a", "b"))

    def at(opname: str, name: str) -> set[str]:
        found = (i for i, x in enumerate(instructions) if x.opname.startswith(opname) and name in str(x.argval))
        return bound[next(found)] & {"a", "b", "c", "d"}

    assert at("LOAD_FAST", "a") == {"a", "b"}
    assert at("DELETE_FAST", "b") == {"a", "b", "c"}
    assert at("PUSH_EXC_INFO", "") == {"a"}  # the handler may be reached before `c` is bound, or after `b` is deleted


def test_variables_of_inlined_comprehensions() -> None:
    def body(items: list[int], i: int) -> tuple[list[int], int, int]:
        doubled = [2 * i for i in items]
        j = i
        sums = [i + j for i in items for j in items]
        return doubled + sums, i, j

    instructions = bytecode.disassemble(body.__code__)
    inlined = bytecode.comprehension_variables(instructions)
    if sys.version_info < (3, 12):
        assert inlined == {}
        return
    assert set().union(*inlined.values()) == {"i", "j"}
    outside = [x for x in instructions if x not in inlined and x.lineno == body.__code__.co_firstlineno + 2]
    assert outside[0].opname in ("LOAD_FAST", "LOAD_FAST_CHECK")
    live = bytecode.live_locals(instructions, inlined)
    first = next(i for i, x in enumerate(instructions) if x.opname == "RESUME")
    assert live[first] == {"items", "i"}
    at = next(i for i, x in enumerate(instructions) if x.opname == "LOAD_FAST_AND_CLEAR" and x.argval == "j")
    assert {"i", "j"} <= live[at]


# --- the verifier -------------------------------------------------------------------------------------------------


def plain(a: int, b: int) -> int:
    return a + b if a else b


def closing(a: int) -> Callable[[], int]:
    def inner() -> int:
        return a

    return inner


def looping(items: list[int]) -> Iterator[int]:
    for item in items:
        if item:
            try:
                yield item
            except ValueError:
                return


def assembled(*body: Instruction, **replace: Any) -> types.CodeType:
    return bytecode.assemble([*make.prologue(), *body], plain.__code__, **replace)


def without(code: types.CodeType, opname: str) -> types.CodeType:
    return bytecode.assemble([x for x in bytecode.disassemble(code) if x.opname != opname], code)


def with_operand(code: types.CodeType, opname: str, operand: int) -> types.CodeType:
    at = next(i.offset for i in dis.get_instructions(code) if i.opname.startswith(opname))
    raw = bytearray(code.co_code)
    raw[at + 1] = operand
    return code.replace(co_code=bytes(raw))


def uneven() -> types.CodeType:
    joined = make.return_value()
    body = [make.load_const(1), make.load_fast("a"), *make.pop_jump_if(False, joined), make.load_const(2), joined]
    return assembled(*body)


def without_end_for() -> types.CodeType:
    instructions = bytecode.disassemble(looping.__code__)
    at = next(i for i, x in enumerate(instructions) if x.opname == "END_FOR")
    instructions[at].opname = "POP_TOP"  # END_FOR is a POP_TOP, in 3.12 two of them
    return bytecode.assemble(
        [*instructions[: at + 1], *([make.pop_top()] * (MINOR < 13)), *instructions[at + 1 :]], looping.__code__
    )


INNER = closing(1).__code__
ONE = make.load_const("one")
DAMAGE: dict[str, tuple[Callable[[], types.CodeType], str]] = {
    "jump to nowhere": (lambda: with_operand(plain.__code__, "POP_JUMP", 200), r"jumps to offset \d+"),
    "jump into a cache": (
        lambda: with_operand(plain.__code__, "POP_JUMP", 2 if MINOR == 13 else 3),
        "no instruction starts",
    ),
    "local": (lambda: with_operand(plain.__code__, "LOAD_FAST", 240), "LOAD_FAST.* 240 is outside its table"),
    "constant": (lambda: assembled(ONE, make.return_value()).replace(co_consts=()), r"LOAD_CONST \d is outside"),
    "name": (lambda: assembled(make.load_global("g"), make.return_value()).replace(co_names=()), r"LOAD_GLOBAL \d is"),
    "operator": (lambda: with_operand(plain.__code__, "BINARY_OP", 99), "BINARY_OP 99 is outside"),
    "past the end": (lambda: assembled(ONE, make.pop_top()), "runs past the end"),
    "empty stack": (lambda: assembled(make.pop_top(), ONE, make.return_value()), "needs 1 on the stack, 0 are there"),
    "too little for an operator": (
        lambda: assembled(ONE, make.load_const(2), make.pop_top(), make.binary_op("+"), make.return_value()),
        "needs 2 on the stack, 1 are there",
    ),
    "copy of nothing": (lambda: assembled(ONE, make.copy(2), make.return_value()), "needs 2 on the stack, 1 are"),
    "call without NULL": (
        lambda: assembled(make.load_global("g"), *make.call(0), make.return_value()),
        "needs 2 on the stack, 1 are there",
    ),
    "two depths": (uneven, "deep on one path and"),
    "small stack": (lambda: plain.__code__.replace(co_stacksize=1), "co_stacksize is 1"),
    "no MAKE_CELL": (lambda: without(closing.__code__, "MAKE_CELL"), "'a' may not be a cell here"),
    "no COPY_FREE_VARS": (lambda: without(INNER, "COPY_FREE_VARS"), "need COPY_FREE_VARS first"),
    "wrong COPY_FREE_VARS": (lambda: with_operand(INNER, "COPY_FREE_VARS", 2), "must come first and copy 1"),
    "no cell variable": (
        lambda: assembled(Instruction("MAKE_CELL", 0, "a"), ONE, make.return_value()),
        "not a cell var",
    ),
    "no RESUME": (lambda: without(plain.__code__, "RESUME"), "comes before RESUME"),
    "no generator": (
        lambda: looping.__code__.replace(co_flags=looping.__code__.co_flags & ~inspect.CO_GENERATOR),
        "not marked as a generator",
    ),
    "no RETURN_GENERATOR": (
        lambda: plain.__code__.replace(co_flags=plain.__code__.co_flags | inspect.CO_GENERATOR),
        "a generator needs RETURN_GENERATOR",
    ),
    "handler nowhere": (lambda: plain.__code__.replace(co_exceptiontable=bytes([128, 1, 50, 0])), "go to 100, where"),
    "handler for half": (lambda: plain.__code__.replace(co_exceptiontable=bytes([129, 40, 0, 0])), "cuts through"),
    "handler cut off": (lambda: plain.__code__.replace(co_exceptiontable=bytes([129, 1])), "in the middle of an entry"),
    "handler too deep": (
        lambda: assembled(Instruction("NOP", handler=Handler(ONE, 3, False)), ONE, make.return_value()),
        "its handler wants 3 on the stack",
    ),
}
ON_SOME: dict[str, tuple[Callable[[], types.CodeType], str]] = {
    "call of another size": (
        lambda: assembled(
            *(make.push_null(), ONE, make.load_const(2)),
            Instruction("PRECALL", 1),
            Instruction("CALL", 0),
            *returning(),
        ),
        "a CALL of as many arguments",
    ),
    "keywords without a call": (
        lambda: assembled(Instruction("KW_NAMES", None, ("a",)), ONE, make.return_value()),
        "must hold names",
    ),
    "loop without END_FOR": (without_end_for, "must jump to an END_FOR"),
    "END_FOR alone": (
        lambda: bytecode.assemble(
            [
                y
                for x in bytecode.disassemble(looping.__code__)
                for y in ([x, make.nop()] if x.opname == "END_FOR" else [x])
            ],
            looping.__code__,
        ),
        "must be followed by POP_TOP",
    ),
    "unbound local": (
        lambda: assembled(make.load_fast("later"), make.store_fast("later"), *returning(ONE)),
        "'later' may be unbound here",
    ),
}
VERSIONS = {
    "call of another size": range(11, 12),
    "keywords without a call": range(11, 13),
    "loop without END_FOR": range(12, 14),
    "END_FOR alone": range(13, 14),
    "unbound local": range(12, 14),
}


@pytest.mark.parametrize("name", [*DAMAGE, *(name for name in ON_SOME if MINOR in VERSIONS[name])])
def test_damage_is_refused_and_shown(name: str) -> None:
    damage, message = (DAMAGE | ON_SOME)[name]
    with pytest.raises(CompilerBug, match=message) as refused:
        bytecode.verify(damage())
    shown = str(refused.value).splitlines()[1:]
    assert 1 <= len(shown) <= 11
    assert sum(line.startswith("-->") for line in shown) == 1


def test_a_changed_operand_is_refused_or_harmless_to_read() -> None:
    """The verifier accepts or rejects code with any one operand changed, and never raises another error."""
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    draw, refused = random.Random(seed), 0
    for code in round_trip.code_objects("textwrap"):
        for _ in range(20):
            raw = bytearray(code.co_code)
            raw[draw.randrange(len(raw) // 2) * 2 + 1] = draw.randrange(256)
            try:
                bytecode.verify(code.replace(co_code=bytes(raw)))
            except CompilerBug:
                refused += 1
    assert refused > 10


# --- the listing --------------------------------------------------------------------------------------------------


def test_bytecode_text() -> None:
    text, spans = bytecode.bytecode_text(looping.__code__)
    lines, instructions = text.splitlines(), bytecode.disassemble(looping.__code__)
    assert [span.key for span in spans] == [str(i) for i in range(len(instructions))]
    for span, x in zip(spans, instructions, strict=True):
        assert span.first == span.last
        assert x.opname in lines[span.first - 1]
    loop = next(i for i, x in enumerate(instructions) if x.opname == "FOR_ITER")
    target = instructions.index(next(x.target for x in instructions if x.opname == "FOR_ITER" and x.target))
    assert f"to {target}" in lines[loop]
    assert "items" in text
    assert "except to" in text
    assert f"{looping.__code__.co_firstlineno + 1}" in text


def test_code_that_never_runs_is_marked() -> None:
    end = make.load_const(2)
    text, _ = bytecode.bytecode_text(assembled(make.jump(end), make.nop(), end, make.return_value()))
    assert [line.split()[0] for line in text.splitlines()][1:] == ["1", "~", ">", "4"]


def test_constants_are_shown_without_addresses() -> None:
    assert bytecode.constant_text((1, "a", None)) == "(1, 'a', None)"
    assert bytecode.constant_text(object()) == "<object>"
    assert bytecode.constant_text(math.sin) == "<builtin_function_or_method sin>"
    assert bytecode.constant_text(INNER) == "<code closing.<locals>.inner>"
    assert len(bytecode.constant_text("x" * 1000)) == 60
