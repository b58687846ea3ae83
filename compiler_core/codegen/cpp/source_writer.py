"""Lines of C++ with their origins, loop headers, and identifiers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from compiler_core.codegen.source import LineOrigin
from compiler_core.loops import ir

RESERVED_NAMES = re.compile(
    r"""[ij]\d+|(in|out)_.*|.*_(part|all|nan|row|lane|run|wide|chunk|few|array|block)  # indices, arguments, arrays
    |block|tile|chunk|lanes?|fault|other|first|[fiu](8|16|32|64)|bf16|f16   # other names in printed kernels
    |as_f32|as_bits|exp_f32|erf_f32|fma|each|total|widen|narrow|round|from|count|at|Count|INLINE|Nothing
    |alignas|alignof|and|and_eq|asm|auto|bitand|bitor|bool|break|case|catch|char|class|compl|const|constexpr
    |continue|decltype|default|delete|do|double|else|enum|explicit|export|extern|false|float|for|friend|goto|if
    |inline|int|long|mutable|namespace|new|noexcept|not|not_eq|nullptr|operator|or|or_eq|private|protected|public
    |register|return|short|signed|sizeof|static|struct|switch|template|this|throw|true|try|typedef|typeid|typename
    |union|unsigned|using|virtual|void|volatile|while|xor|xor_eq""",
    re.VERBOSE,
)
"""Names that a value must not have in a kernel: those of printed code, and C++ keywords."""


class SourceWriter:
    """Collects lines of source and the statements that each was printed from."""

    def __init__(self, lines: list[str]) -> None:
        self.lines, self.origins, self._depth = lines, list[LineOrigin](), 0

    def add(self, line: str, kernel: str = "", statements: tuple[int, ...] = ()) -> None:
        """Appends a line, indented; `kernel` and `statements` are its origin, if it has one."""
        self.lines.append("  " * self._depth + line if line else "")
        if kernel:
            self.origins.append(LineOrigin(len(self.lines), kernel, statements))

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Indents the lines that are added inside the block."""
        self._depth += 1
        yield
        self._depth -= 1


@dataclass(frozen=True)
class Loop:
    """``for (i64 name = start; name < end; name += step)``."""

    name: str
    end: str
    start: str = "0"
    step: int = 1

    def __str__(self) -> str:
        step = f"++{self.name}" if self.step == 1 else f"{self.name} += {self.step}"
        return f"for (i64 {self.name} = {self.start}; {self.name} < {self.end}; {step}) {{"


def block_of(loop: Loop, block: str, size: int) -> Loop:
    """Returns the part of `loop` in the block of `size` elements that starts at `block`."""
    return Loop(loop.name, f"({block} + {size} < {loop.end} ? {block} + {size} : {loop.end})", block)


def memory_type(dtype: torch.dtype) -> str:
    """Returns the C++ type of array elements; u8 for bool, because compilers do not vectorise loops that read bool."""
    return "u8" if dtype is torch.bool else ir.SHORT[dtype]


def identifier(name: str) -> str:
    """Returns `name` as a C++ identifier that does not collide with reserved names."""
    return f"{name}_" if RESERVED_NAMES.fullmatch(name) else name
