"""How single instructions read in Python: expressions and statements of the values that they take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from compiler_core.bytecode import Instruction, constant_text


@dataclass(frozen=True, slots=True)
class Value:
    """Something on the stack: its text and the instructions that made it.

    `atom`: needs no parentheses inside a larger expression.  `fixed`: a constant or a name, which can be printed
    twice, or later than it was loaded.
    """

    text: str
    made: tuple[int, ...] = ()
    atom: bool = True
    fixed: bool = False
    constant: object = None

    @property
    def inner(self) -> str:
        return self.text if self.atom else f"({self.text})"


_Text = Callable[[Instruction, Sequence[Value]], str]


@dataclass(frozen=True, slots=True)
class Form:
    """How an instruction reads that takes values and gives one (an expression) or none (a statement)."""

    pops: Callable[[int], int]
    text: _Text
    statement: bool
    atom: bool


FORMS: dict[str, Form] = {}


def _reads(
    pops: int | Callable[[int], int], *opnames: str, statement: bool = False, atom: bool = True
) -> Callable[[_Text], _Text]:
    """The function below gives the text of `opnames` (or of the opcode that it is named after)."""

    def register(text: _Text) -> _Text:
        for opname in opnames or (text.__name__,):
            FORMS[opname] = Form((lambda _: pops) if isinstance(pops, int) else pops, text, statement, atom)
        return text

    return register


def listed(values: Iterable[Value]) -> str:
    return ", ".join(value.text for value in values)


@_reads(2, "BINARY_OP", "COMPARE_OP", atom=False)
def _operator(x: Instruction, v: Sequence[Value]) -> str:
    return f"{v[0].inner} {x.argval} {v[1].inner}"


@_reads(2, atom=False)
def IS_OP(x: Instruction, v: Sequence[Value]) -> str:
    return f"{v[0].inner} {'is not' if x.arg else 'is'} {v[1].inner}"


@_reads(2, atom=False)
def CONTAINS_OP(x: Instruction, v: Sequence[Value]) -> str:
    return f"{v[0].inner} {'not in' if x.arg else 'in'} {v[1].inner}"


@_reads(1, "UNARY_NEGATIVE", "UNARY_NOT", "UNARY_INVERT", "UNARY_POSITIVE", atom=False)
def _unary(x: Instruction, v: Sequence[Value]) -> str:
    signs = {"UNARY_NEGATIVE": "-", "UNARY_NOT": "not ", "UNARY_INVERT": "~", "UNARY_POSITIVE": "+"}
    return signs[x.opname] + v[0].inner


@_reads(2)
def BINARY_SUBSCR(x: Instruction, v: Sequence[Value]) -> str:
    return f"{v[0].inner}[{v[1].text}]"


@_reads(3)
def BINARY_SLICE(x: Instruction, v: Sequence[Value]) -> str:
    return f"{v[0].inner}[{v[1].inner}:{v[2].inner}]"


@_reads(lambda n: n)
def BUILD_SLICE(x: Instruction, v: Sequence[Value]) -> str:
    return f"slice({listed(v)})"


@_reads(lambda n: n)
def BUILD_TUPLE(x: Instruction, v: Sequence[Value]) -> str:
    return f"({listed(v)}{',' if len(v) == 1 else ''})"


@_reads(lambda n: n)
def BUILD_LIST(x: Instruction, v: Sequence[Value]) -> str:
    return f"[{listed(v)}]"


@_reads(lambda n: n)
def BUILD_SET(x: Instruction, v: Sequence[Value]) -> str:
    return f"{{{listed(v)}}}" if v else "set()"


@_reads(lambda n: 2 * n)
def BUILD_MAP(x: Instruction, v: Sequence[Value]) -> str:
    return f"{{{', '.join(f'{key.text}: {value.text}' for key, value in zip(v[::2], v[1::2], strict=True))}}}"


@_reads(1, "LIST_TO_TUPLE", "INTRINSIC_LIST_TO_TUPLE")
def _tuple(x: Instruction, v: Sequence[Value]) -> str:
    return f"tuple({v[0].text})"


@_reads(0)
def RETURN_GENERATOR(x: Instruction, v: Sequence[Value]) -> str:
    return "(yield)"


@_reads(1)
def GET_ITER(x: Instruction, v: Sequence[Value]) -> str:
    return f"iter({v[0].text})"


@_reads(4, statement=True)
def STORE_SLICE(x: Instruction, v: Sequence[Value]) -> str:
    return f"{v[1].inner}[{v[2].inner}:{v[3].inner}] = {v[0].text}"


@_reads(2, statement=True)
def STORE_ATTR(x: Instruction, v: Sequence[Value]) -> str:
    return f"{v[1].inner}.{x.argval} = {v[0].text}"


@_reads(1, statement=True)
def DELETE_ATTR(x: Instruction, v: Sequence[Value]) -> str:
    return f"del {v[0].inner}.{x.argval}"


@_reads(3, statement=True)
def STORE_SUBSCR(x: Instruction, v: Sequence[Value]) -> str:
    return f"{v[1].inner}[{v[2].text}] = {v[0].text}"


@_reads(2, statement=True)
def DELETE_SUBSCR(x: Instruction, v: Sequence[Value]) -> str:
    return f"del {v[0].inner}[{v[1].text}]"


@_reads(0, "DELETE_FAST", "DELETE_DEREF", "DELETE_NAME", "DELETE_GLOBAL", statement=True)
def _delete(x: Instruction, v: Sequence[Value]) -> str:
    return f"del {x.argval}"


@_reads(lambda n: n, statement=True)
def RAISE_VARARGS(x: Instruction, v: Sequence[Value]) -> str:
    return " from ".join(["raise " + v[0].text, *(cause.text for cause in v[1:])]) if v else "raise"


@_reads(1, statement=True)
def RETURN_VALUE(x: Instruction, v: Sequence[Value]) -> str:
    return f"return {v[0].text}"


@_reads(0, statement=True)
def RETURN_CONST(x: Instruction, v: Sequence[Value]) -> str:
    return f"return {constant_text(x.argval)}"
