"""Lines of generated Python source, their spans, and values as literals."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any

import torch
import torch.fx as fx

from compiler_core.codegen.wrapper.values import tuple_text
from compiler_core.records import Span
from compiler_core.support import fx_symbols


class SourceLines:
    """Lines of source that are being written, with the graph nodes behind them."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.nodes: dict[str, list[fx.Node]] = {}
        """From the key of a span to the nodes that its lines were made from."""
        self.constants: dict[str, Any] = {}
        """Objects without a literal, by the name that stands for them."""
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def add(self, depth: int, text: str, key: str = "", nodes: Sequence[fx.Node | None] = ()) -> None:
        """Adds a line that is indented `depth` times; with a `key`, it is a span made from `nodes`."""
        self._lines.append("    " * depth + text if text else "")
        if key:
            self.span(key, nodes)

    def blank(self, count: int = 1) -> None:
        """Adds empty lines."""
        for _ in range(count):
            self.add(0, "")

    def span(self, key: str, nodes: Sequence[fx.Node | None], lines: int = 1) -> None:
        """Makes the last `lines` lines a span."""
        self.spans.append(Span(key, len(self._lines) - lines + 1, len(self._lines)))
        self.nodes[key] = [n for n in nodes if n is not None]

    def literal(self, value: Any) -> str:
        """Returns `value` as Python source, or a name for it in `constants` if it has no literal."""
        if fx_symbols.is_symbolic(value):
            return fx_symbols.text(value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return repr(value)
        if isinstance(value, (torch.dtype, torch.memory_format)):
            return str(value)
        if isinstance(value, EllipsisType):
            return "..."
        if isinstance(value, slice):
            return f"slice({', '.join(map(self.literal, (value.start, value.stop, value.step)))})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.literal, value))}]"
        if isinstance(value, tuple):
            return tuple_text(map(self.literal, value))
        name = f"constant_{len(self.constants)}"
        self.constants[name] = value
        return name


def numbers_text(numbers: Sequence[Any]) -> str:
    """Returns a tuple of plain and symbolic numbers as source."""
    return tuple_text(map(fx_symbols.text, numbers))


def assignment(names: Sequence[str]) -> str:
    """Returns the left side of an assignment that unpacks a sequence to `names`; an empty string if there are none."""
    if not names:
        return ""
    comma = "," if len(names) == 1 else ""
    return f"{', '.join(names)}{comma} = "
