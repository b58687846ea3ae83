"""The Python text of single instructions: expressions and statements over the texts of their operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from compiler_core.bytecode import Instruction, constant_text

MERGED = "dict(**"
"""The beginning of the text of the keyword arguments of a call that come from several dicts."""


@dataclass(frozen=True, slots=True)
class StackText:
    """The text of a value on the stack, and the indices of the instructions that made it.

    `is_atom`: it needs no parentheses inside a larger expression.  `is_stable`: it is a constant or a name, which can
    be printed twice, or later than it was loaded.
    """

    text: str
    instructions: tuple[int, ...] = ()
    is_atom: bool = True
    is_stable: bool = False
    constant: object = None

    @property
    def inner(self) -> str:
        return self.text if self.is_atom else f"({self.text})"


_FormatText = Callable[[Instruction, Sequence[StackText]], str]


@dataclass(frozen=True, slots=True)
class Form:
    """How to print an instruction that pops values and pushes one (an expression) or none (a statement)."""

    pops: Callable[[int], int]
    text: _FormatText
    is_statement: bool
    is_atom: bool


def joined_texts(values: Iterable[StackText]) -> str:
    """Returns the texts of values, with commas between them."""
    return ", ".join(value.text for value in values)


def _count(operand: int) -> int:
    return operand


def _form(
    pops: int | Callable[[int], int], text: str | _FormatText, *, statement: bool = False, atom: bool = True
) -> Form:
    """Returns a form.  A `text` with braces is filled in: ``{0}`` is the first operand, ``{argval}`` the argument."""
    format_text = text if callable(text) else lambda at, values: text.format(*values, argval=at.argval)
    return Form(pops if callable(pops) else lambda _: pops, format_text, statement, atom)


def _tuple(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"({joined_texts(values)}{',' if len(values) == 1 else ''})"


def _set(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"{{{joined_texts(values)}}}" if values else "set()"


def _map(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"{{{', '.join(f'{key.text}: {value.text}' for key, value in zip(values[::2], values[1::2], strict=True))}}}"


def _constant_keys(instruction: Instruction, values: Sequence[StackText]) -> str:
    keys = values[-1].constant
    texts = [constant_text(key) for key in keys] if isinstance(keys, tuple) else []
    return f"{{{', '.join(f'{key}: {value.text}' for key, value in zip(texts, values, strict=False))}}}"


def _raise(instruction: Instruction, values: Sequence[StackText]) -> str:
    return " from ".join(["raise " + values[0].text, *(cause.text for cause in values[1:])]) if values else "raise"


def _is(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"{values[0].inner} {'is not' if instruction.arg else 'is'} {values[1].inner}"


def _in(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"{values[0].inner} {'not in' if instruction.arg else 'in'} {values[1].inner}"


def _formatted(instruction: Instruction, values: Sequence[StackText]) -> str:
    """A part of an f-string, up to CPython 3.12."""
    spec = ":{1}" if len(values) > 1 else ""
    return "'{0" + _CONVERSIONS[(instruction.arg or 0) & 3] + spec + "}'" + f".format({joined_texts(values)})"


def _converted(instruction: Instruction, values: Sequence[StackText]) -> str:
    return "'{" + _CONVERSIONS[instruction.arg or 0] + "}'" + f".format({values[0].text})"


_CONVERSIONS = ("", "!s", "!r", "!a")
FORMS = {
    "BINARY_OP": _form(2, "{0.inner} {argval} {1.inner}", atom=False),
    "COMPARE_OP": _form(2, "{0.inner} {argval} {1.inner}", atom=False),
    "IS_OP": _form(2, _is, atom=False),
    "CONTAINS_OP": _form(2, _in, atom=False),
    "UNARY_NEGATIVE": _form(1, "-{0.inner}", atom=False),
    "UNARY_POSITIVE": _form(1, "+{0.inner}", atom=False),
    "UNARY_INVERT": _form(1, "~{0.inner}", atom=False),
    "UNARY_NOT": _form(1, "not {0.inner}", atom=False),
    "BINARY_SUBSCR": _form(2, "{0.inner}[{1.text}]"),
    "BINARY_SLICE": _form(3, "{0.inner}[{1.inner}:{2.inner}]"),
    "BUILD_SLICE": _form(_count, lambda _, values: f"slice({joined_texts(values)})"),
    "BUILD_TUPLE": _form(_count, _tuple),
    "BUILD_LIST": _form(_count, lambda _, values: f"[{joined_texts(values)}]"),
    "BUILD_SET": _form(_count, _set),
    "BUILD_CONST_KEY_MAP": _form(lambda operand: operand + 1, _constant_keys),
    "BUILD_MAP": _form(lambda operand: 2 * operand, _map),
    "FORMAT_VALUE": _form(lambda operand: 2 if operand & 4 else 1, _formatted),
    "CONVERT_VALUE": _form(1, _converted),
    "FORMAT_SIMPLE": _form(1, "'{{}}'.format({0.text})"),
    "FORMAT_WITH_SPEC": _form(2, "'{{0:{{1}}}}'.format({0.text}, {1.text})"),
    "BUILD_STRING": _form(_count, lambda _, values: f"''.join(({joined_texts(values)},))"),
    "LOAD_ASSERTION_ERROR": _form(0, "AssertionError"),
    "LIST_TO_TUPLE": _form(1, "tuple({0.text})"),
    "INTRINSIC_LIST_TO_TUPLE": _form(1, "tuple({0.text})"),
    "RETURN_GENERATOR": _form(0, "(yield)"),
    "GET_ITER": _form(1, "iter({0.text})"),
    "STORE_SLICE": _form(4, "{1.inner}[{2.inner}:{3.inner}] = {0.text}", statement=True),
    "STORE_ATTR": _form(2, "{1.inner}.{argval} = {0.text}", statement=True),
    "DELETE_ATTR": _form(1, "del {0.inner}.{argval}", statement=True),
    "STORE_SUBSCR": _form(3, "{1.inner}[{2.text}] = {0.text}", statement=True),
    "DELETE_SUBSCR": _form(2, "del {0.inner}[{1.text}]", statement=True),
    **dict.fromkeys(
        ("DELETE_FAST", "DELETE_DEREF", "DELETE_NAME", "DELETE_GLOBAL"), _form(0, "del {argval}", statement=True)
    ),
    "RAISE_VARARGS": _form(_count, _raise, statement=True),
    "RETURN_VALUE": _form(1, "return {0.text}", statement=True),
    "RETURN_CONST": _form(0, lambda at, _: f"return {constant_text(at.argval)}", statement=True),
}
