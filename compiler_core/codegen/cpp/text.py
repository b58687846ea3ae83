"""Lines of C++ and where they came from, loops, and names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from compiler_core.codegen.source import Line
from compiler_core.loops import ir

TAKEN = re.compile(
    r"""[ij]\d+|(in|out)_.*|.*_(part|all|nan|row|lane|run|wide|chunk|few|array|block)  # indices, arguments, arrays
    |block|tile|chunk|lanes?|fault|other|first|[fiu](8|16|32|64)|bf16|f16   # other names of ours
    |as_f32|as_bits|exp_f32|erf_f32|fma|each|total|widen|narrow|round|from|count|at|Count|INLINE|Nothing
    |alignas|alignof|and|and_eq|asm|auto|bitand|bitor|bool|break|case|catch|char|class|compl|const|constexpr
    |continue|decltype|default|delete|do|double|else|enum|explicit|export|extern|false|float|for|friend|goto|if
    |inline|int|long|mutable|namespace|new|noexcept|not|not_eq|nullptr|operator|or|or_eq|private|protected|public
    |register|return|short|signed|sizeof|static|struct|switch|template|this|throw|true|try|typedef|typeid|typename
    |union|unsigned|using|virtual|void|volatile|while|xor|xor_eq""",
    re.VERBOSE,
)
"""Names that a value must not have in a kernel."""


class Text:
    """Lines, and which statements each came from."""

    def __init__(self, lines: list[str]) -> None:
        self.lines, self.origins, self._depth = lines, list[Line](), 0

    def add(self, line: str, kernel: str = "", statements: tuple[int, ...] = ()) -> None:
        self.lines.append("  " * self._depth + line if line else "")
        if kernel:
            self.origins.append(Line(len(self.lines), kernel, statements))

    @contextmanager
    def nested(self) -> Iterator[None]:
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


def part_of(loop: Loop, block: str, size: int) -> Loop:
    """What `loop` does of the block of `size` that begins at `block`."""
    return Loop(loop.name, f"({block} + {size} < {loop.end} ? {block} + {size} : {loop.end})", block)


def in_memory(dtype: torch.dtype) -> str:
    """The type of an array's elements: compilers do not vectorise loops that read bool."""
    return "u8" if dtype is torch.bool else ir.SHORT[dtype]


def safe(name: str) -> str:
    """`name`, which may mean something else in a kernel, as an identifier."""
    return f"{name}_" if TAKEN.fullmatch(name) else name
