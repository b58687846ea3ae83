"""The tasks of lessons 1, 2 and 4: a cache of compiled code, a stack machine, a function without a break."""

from __future__ import annotations

import operator
import random
from collections.abc import Mapping
from typing import Any

from kernel_magics.workshop.checks import Misconception
from kernel_magics.workshop.tasks.task import Function, Task


def _call(entries: list[Any], compile_for: Function, x: Any) -> Any:
    for guard, code in entries:
        if guard(x):
            return code(x)
    guard, code = compile_for(x)
    entries.append((guard, code))
    return code(x)


def _calls_of(call: Function) -> Function:
    """Returns what calls of the learner's function return, how often they compile, and what they leave."""

    def run(*values: Any) -> dict[str, Any]:
        entries: list[Any] = []
        compiled: list[str] = []
        made: list[tuple[Function, Function]] = []

        def compile_for(x: Any) -> tuple[Function, Function]:
            kind, number = type(x), len(compiled)
            compiled.append(kind.__name__)
            made.append((lambda each: type(each) is kind, lambda each: f"{kind.__name__} {each!r} by code {number}"))
            return made[-1]

        results = [call(entries, compile_for, value) for value in values]
        pairs = [tuple(each) for each in entries if isinstance(each, tuple | list)]
        order = [made.index(each) for each in pairs if each in made]
        in_order = order == sorted(order)
        return {"results": results, "compiled for": compiled, "entries": len(entries), "in order": in_order}

    return run


def _values() -> Mapping[str, tuple[Any, ...]]:
    n = random.randint(3, 99)
    return {
        "one call": (n,),
        "the same call twice": (n, n),
        "another value of the same type": (n, n + 1),
        "int, float": (n, n + 0.5),
        "int, float, int": (n, n + 0.5, n),
        "int, float, float": (n, n + 0.5, n + 1.5),
        "four types, twice": (n, "a", 0.5, None, n, "a", 0.5, None),
    }


def _has(**wanted: Any) -> Any:
    return lambda got: all(got[name.replace("_", " ")] == value for name, value in wanted.items())


BINARY = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
Instructions = list[tuple[str, Any]]


def _execute(instructions: Instructions, variables: dict[str, float]) -> Any:
    stack: list[Any] = []
    variables = dict(variables)
    for name, argument in instructions:
        if name == "LOAD_FAST":
            stack.append(variables[argument])
        elif name == "LOAD_CONST":
            stack.append(argument)
        elif name == "STORE_FAST":
            variables[argument] = stack.pop()
        elif name == "UNARY_NEGATIVE":
            stack.append(-stack.pop())
        elif name == "BINARY_OP":
            right, left = stack.pop(), stack.pop()
            stack.append(BINARY[argument](left, right))
        elif name == "RETURN_VALUE":
            return stack.pop()
    return None


def _unchanged(execute: Function) -> Function:
    """Returns the result of a program, and the variables that the caller gave, which it must not change."""

    def run(instructions: Instructions, variables: dict[str, float]) -> tuple[Any, dict[str, float]]:
        given = dict(variables)
        return execute(list(instructions), given), given

    return run


def _programs() -> Mapping[str, tuple[Any, ...]]:
    y, x, c = sorted(random.sample(range(2, 50), 3))
    load_x, load_y, last = ("LOAD_FAST", "x"), ("LOAD_FAST", "y"), ("RETURN_VALUE", None)
    difference = [load_x, load_y, ("BINARY_OP", "-")]
    values = {"x": float(x), "y": float(y)}
    return {
        "return x": ([load_x, last], values),
        f"return {c}": ([("LOAD_CONST", float(c)), last], values),
        "return -x": ([load_x, ("UNARY_NEGATIVE", None), last], values),
        "return x + y": ([load_x, load_y, ("BINARY_OP", "+"), last], values),
        "return x - y": ([*difference, last], values),
        "return x - x": ([load_x, load_x, ("BINARY_OP", "-"), last], values),
        "z = x - y; return z * z": (
            [*difference, ("STORE_FAST", "z"), ("LOAD_FAST", "z"), ("LOAD_FAST", "z"), ("BINARY_OP", "*"), last],
            values,
        ),
        f"x = x * {c}; return x": (
            [load_x, ("LOAD_CONST", float(c)), ("BINARY_OP", "*"), ("STORE_FAST", "x"), load_x, last],
            values,
        ),
        f"return {c} - (x - y) / x": (
            [("LOAD_CONST", float(c)), *difference, load_x, ("BINARY_OP", "/"), ("BINARY_OP", "-"), last],
            values,
        ),
        "return 9 - 8 / 2": (
            [*(("LOAD_CONST", each) for each in (9.0, 8.0, 2.0)), ("BINARY_OP", "/"), ("BINARY_OP", "-"), last],
            values,
        ),
        "return 3 - -4": (
            [("LOAD_CONST", 3.0), ("LOAD_CONST", 4.0), ("UNARY_NEGATIVE", None), ("BINARY_OP", "-"), last],
            values,
        ),
        "return x, and more code after it": ([load_x, last, load_y, last], values),
        "return x - (z := y)": (
            [load_x, load_y, ("STORE_FAST", "z"), ("LOAD_FAST", "z"), ("BINARY_OP", "-"), last],
            values,
        ),
        "return y in a loop, whose iterator x is below it": ([load_x, load_y, last], values),
    }


def _clip(v: Any) -> Any:
    import torch

    norm = v.norm()
    return v / torch.where(norm > 1, norm, 1.0)


def _captured(clip: Function) -> Function:
    """Returns the learner's result, its gradient, the input afterwards, and the number of graphs."""
    import torch

    def run(values: list[float]) -> dict[str, Any]:
        graphs: list[Any] = []

        def backend(gm: Any, _: object) -> Any:
            graphs.append(gm)
            return gm.forward

        import compiler_core

        x = torch.tensor(values, requires_grad=True)
        clip(x).sum().backward()
        plain = torch.tensor(values)
        result = compiler_core.compile(clip, backend=backend)(plain)
        return {"result": result, "gradient": x.grad, "v afterwards": plain, "graphs": len(graphs)}

    return run


def _vectors() -> Mapping[str, tuple[Any, ...]]:
    factor = random.uniform(2, 9)
    return {
        "[0.3, 0.4]": ([0.3, 0.4],),
        "[3, 4]": ([3.0, 4.0],),
        "[0.9, 0.9]": ([0.9, 0.9],),
        "[-3, 4]": ([-3.0, 4.0],),
        "[0.6, -0.7]": ([0.6, -0.7],),
        "[0, 0]": ([0.0, 0.0],),
        "a long vector": ([factor * (i % 5 - 2) for i in range(20)],),
    }


def _near(*values: float) -> Any:
    """Returns what says whether a result has these elements."""
    return lambda got: [round(each, 3) for each in got["result"].tolist()] == [round(each, 3) for each in values]


TASKS = {
    "frames/call": Task(
        _values,
        _call,
        (
            Misconception(
                "You probably compile at each call. Look for an entry first whose guard holds.",
                {"the same call twice": _has(entries=2)},
            ),
            Misconception(
                "You probably forgot to keep what was compiled: without an entry, the next call compiles again.",
                {"one call": _has(entries=0, compiled_for=["int"])},
            ),
            Misconception(
                "You probably use an entry without asking its guard: this code is for another type.",
                {"int, float": lambda got: len(got["compiled for"]) == 1},
            ),
            Misconception(
                "You probably run the entry that was compiled last. Run the one whose guard holds.",
                {"int, float, int": lambda got: got["results"][2].startswith("float") and got["entries"] == 2},
            ),
            Misconception(
                "You probably compile twice for a new value: keep what you compiled, and run the same.",
                {"one call": _has(compiled_for=["int", "int"])},
            ),
            Misconception(
                "You probably keep the code alone. An entry is a pair of guard and code.",
                {"the same call twice": lambda got: "unpack" in got.text},
            ),
            Misconception(
                "You probably replace the old entry. It stays, and its guard is asked at the next call, too.",
                {"int, float, int": _has(compiled_for=["int", "float", "int"])},
            ),
            Misconception(
                "You probably put the new entry before the others. It is kept after them, so they are asked first.",
                {"int, float": _has(in_order=False)},
            ),
            Misconception(
                "You probably ask only the first guard. Any entry may have the right code.",
                {"int, float, float": _has(compiled_for=["int", "float", "float"])},
            ),
            Misconception(
                "You probably return the code. It has to run with the value.",
                {"one call": lambda got: callable(got["results"][0])},
            ),
            Misconception(
                "You probably run nothing after a compile: the call needs a result the first time, too.",
                {"one call": lambda got: got["results"] == [None] and got["compiled for"] == ["int"]},
            ),
        ),
        _calls_of,
    ),
    "bytecode/execute": Task(
        _programs,
        _execute,
        (
            Misconception(
                "You probably take the operands in the wrong order. The right one was pushed last, so it comes first.",
                {"return x - y": lambda got: got[0] < 0},
            ),
            Misconception(
                "You probably store in the variables of the caller. A frame has variables of its call: copy them.",
                {"z = x - y; return z * z": lambda got: "z" in got[1]},
            ),
            Misconception(
                "You probably remove a variable when you load it. It stays, and can be loaded again.",
                {"return x - x": lambda got: "KeyError" in got.text},
            ),
            Misconception(
                "You probably add always. The argument of BINARY_OP says which operator it is.",
                {"return x - y": lambda got: got[0] == got[1]["x"] + got[1]["y"]},
            ),
            Misconception(
                "You probably leave the operands on the stack. An instruction pops them, then pushes its result.",
                {"return 9 - 8 / 2": lambda got: got[0] == -2},
            ),
            Misconception(
                "You probably take the operands that were pushed first. What was pushed last comes first.",
                {"return 9 - 8 / 2": lambda got: got[0] == 0.875},
            ),
            Misconception(
                "You probably do not store: later loads of a variable get what was stored last.",
                {"z = x - y; return z * z": lambda got: "KeyError" in got.text},
            ),
            Misconception(
                "You probably return the stack. RETURN_VALUE returns its last value.",
                {"return y in a loop, whose iterator x is below it": lambda got: len(got[0]) > 1},
            ),
            Misconception(
                "You probably go on after RETURN_VALUE. It ends the frame.",
                {"return x, and more code after it": lambda got: got[0] is not None},
            ),
            Misconception(
                "You probably take the first value of the stack. What was pushed last comes first.",
                {"return y in a loop, whose iterator x is below it": lambda got: got[0] > 0},
            ),
            Misconception(
                "You probably take the first value of the stack in a store. What was pushed last comes first.",
                {"return x - (z := y)": lambda got: got[0] < 0},
            ),
            Misconception(
                "You probably leave what you store on the stack. A store pops.",
                {"return x - (z := y)": lambda got: got[0] == 0},
            ),
            Misconception(
                "You probably push the negative value beside its operand. An instruction pops its operands first.",
                {"return 3 - -4": lambda got: got[0] == 8.0},
            ),
        ),
        _unchanged,
    ),
    "breaks/clip": Task(
        _vectors,
        _clip,
        (
            Misconception(
                "The graph still breaks: a branch, `.item()` or `bool()` needs the value.",
                {"[3, 4]": lambda got: got["graphs"] != 1},
            ),
            Misconception(
                "You probably chose the wrong side: long vectors are divided, and short ones stay.",
                {"[0.3, 0.4]": _near(0.6, 0.8), "[3, 4]": _near(3, 4)},
            ),
            Misconception(
                "You probably divide always. Vectors whose norm is at most 1 stay as they are.",
                {"[0.3, 0.4]": _near(0.6, 0.8)},
            ),
            Misconception(
                "You probably clamp each element. The vector keeps its direction: one number divides all.",
                {"[3, 4]": _near(1, 1)},
            ),
            Misconception(
                "You probably divide by the largest element. The norm is the root of the sum of squares.",
                {"[3, 4]": _near(0.75, 1)},
            ),
            Misconception(
                "You probably divide by the sum of elements. The norm is the root of the sum of squares.",
                {"[3, 4]": _near(3 / 7, 4 / 7)},
            ),
            Misconception(
                "You probably divide in place. The caller's vector must stay as it is.",
                {"[3, 4]": lambda got: "in-place" in str(got) or got["v afterwards"].tolist() != [3.0, 4.0]},
            ),
            Misconception(
                "You probably divide by the sum of the squares. The norm is its root.",
                {"[3, 4]": _near(3 / 25, 4 / 25)},
            ),
            Misconception(
                "You probably divide by the root of the mean. The norm is the root of the sum of squares.",
                {"[3, 4]": _near(3 / 12.5**0.5, 4 / 12.5**0.5)},
            ),
            Misconception(
                "You probably keep the norm out of the gradient, by `.item()` or `.detach()`. It depends on v, too.",
                {"[3, 4]": lambda got: got["gradient"].allclose(got["gradient"].new_tensor([0.2, 0.2]))},
            ),
            Misconception(
                "The gradient of zero is NaN: torch.where computes both sides, and 0 / 0.\n"
                "Choose the divisor, not the result.",
                {"[0, 0]": lambda got: bool(got["gradient"].isnan().any())},
            ),
        ),
        _captured,
    ),
}
