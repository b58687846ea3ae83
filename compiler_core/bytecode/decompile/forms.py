"""The Python text of single instructions: expressions and statements over the texts of their operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from compiler_core.bytecode import Instruction, constant_text


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


FORMS: dict[str, Form] = {}


def _register(
    pops: int | Callable[[int], int], *opnames: str, statement: bool = False, atom: bool = True
) -> Callable[[_FormatText], _FormatText]:
    """Registers the decorated function as the text of `opnames`, or of the opcode that it is named after."""

    def register(text: _FormatText) -> _FormatText:
        for opname in opnames or (text.__name__,):
            FORMS[opname] = Form((lambda _: pops) if isinstance(pops, int) else pops, text, statement, atom)
        return text

    return register


def joined_texts(values: Iterable[StackText]) -> str:
    return ", ".join(value.text for value in values)


@_register(2, "BINARY_OP", "COMPARE_OP", atom=False)
def _operator(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"{values[0].inner} {instruction.argval} {values[1].inner}"


@_register(2, atom=False)
def IS_OP(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"{values[0].inner} {'is not' if instruction.arg else 'is'} {values[1].inner}"


@_register(2, atom=False)
def CONTAINS_OP(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"{values[0].inner} {'not in' if instruction.arg else 'in'} {values[1].inner}"


@_register(1, "UNARY_NEGATIVE", "UNARY_NOT", "UNARY_INVERT", "UNARY_POSITIVE", atom=False)
def _unary(instruction: Instruction, values: Sequence[StackText]) -> str:
    signs = {"UNARY_NEGATIVE": "-", "UNARY_NOT": "not ", "UNARY_INVERT": "~", "UNARY_POSITIVE": "+"}
    return signs[instruction.opname] + values[0].inner


@_register(2)
def BINARY_SUBSCR(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"{values[0].inner}[{values[1].text}]"


@_register(3)
def BINARY_SLICE(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"{values[0].inner}[{values[1].inner}:{values[2].inner}]"


@_register(lambda n: n)
def BUILD_SLICE(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"slice({joined_texts(values)})"


@_register(lambda n: n)
def BUILD_TUPLE(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"({joined_texts(values)}{',' if len(values) == 1 else ''})"


@_register(lambda n: n)
def BUILD_LIST(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"[{joined_texts(values)}]"


@_register(lambda n: n)
def BUILD_SET(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"{{{joined_texts(values)}}}" if values else "set()"


@_register(lambda n: 2 * n)
def BUILD_MAP(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"{{{', '.join(f'{key.text}: {value.text}' for key, value in zip(values[::2], values[1::2], strict=True))}}}"


@_register(1, "LIST_TO_TUPLE", "INTRINSIC_LIST_TO_TUPLE")
def _tuple(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"tuple({values[0].text})"


@_register(0)
def RETURN_GENERATOR(instruction: Instruction, values: Sequence[StackText]) -> str:
    return "(yield)"


@_register(1)
def GET_ITER(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"iter({values[0].text})"


@_register(4, statement=True)
def STORE_SLICE(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"{values[1].inner}[{values[2].inner}:{values[3].inner}] = {values[0].text}"


@_register(2, statement=True)
def STORE_ATTR(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"{values[1].inner}.{instruction.argval} = {values[0].text}"


@_register(1, statement=True)
def DELETE_ATTR(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"del {values[0].inner}.{instruction.argval}"


@_register(3, statement=True)
def STORE_SUBSCR(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"{values[1].inner}[{values[2].text}] = {values[0].text}"


@_register(2, statement=True)
def DELETE_SUBSCR(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"del {values[0].inner}[{values[1].text}]"


@_register(0, "DELETE_FAST", "DELETE_DEREF", "DELETE_NAME", "DELETE_GLOBAL", statement=True)
def _delete(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"del {instruction.argval}"


@_register(lambda n: n, statement=True)
def RAISE_VARARGS(instruction: Instruction, values: Sequence[StackText]) -> str:
    return " from ".join(["raise " + values[0].text, *(cause.text for cause in values[1:])]) if values else "raise"


@_register(1, statement=True)
def RETURN_VALUE(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"return {values[0].text}"


@_register(0, statement=True)
def RETURN_CONST(instruction: Instruction, values: Sequence[StackText]) -> str:
    return f"return {constant_text(instruction.argval)}"
