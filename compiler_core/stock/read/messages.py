"""What Dynamo tells in sentences: graph breaks and the reasons for recompiles."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from compiler_core.records import Recompile, StackLine, limits

_FILE = re.compile(r'  File "(.+)", line (\d+), in (.+)$')
_EXPECTED = re.compile(r"expected (.+?),? (?:but )?(?:actual|got):? (.+)$")
_TENSOR = re.compile(r"tensor '(.+?)' ")
_VALUE = re.compile(r"^(.+?) (?:==|is|!=|<=|>=|<|>) (.+)$")


@dataclass(slots=True)
class Break:
    """A graph break as Dynamo explains it."""

    kind: str = ""
    explanation: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    link: str = ""
    stack: list[StackLine] = field(default_factory=list)


_HEADS = {"Explanation:": "explanation", "Hint:": "hints"}


def read_break(text: str) -> Break:
    """The parts of ``dynamo_graph_break_reason``."""
    found = Break()
    parts: dict[str, list[list[str]]] = {"explanation": [], "hints": []}
    part: list[str] | None = None
    told, _, trace = text.partition("User code traceback:")
    for line in told.split("\n"):
        stripped = line.strip()
        if found.kind.endswith(":") and stripped and part is None:
            found.kind = stripped  # why the instruction could not be traced, rather than that it could not
            continue
        head = next((head for head in _HEADS if stripped.startswith(head)), None)
        if "Graph Break Reason:" in line:
            found.kind = line.partition("Graph Break Reason:")[2].strip()
        elif head is not None:
            part = [stripped.removeprefix(head).strip()]
            parts[_HEADS[head]].append(part)
        elif "please visit:" in line:
            found.link = line.partition("please visit:")[2].strip()
            part = None
        elif stripped.startswith("Developer debug context:"):
            part = None
        elif part is not None and stripped:
            part.append(stripped)
    found.explanation, found.hints = (["\n".join(lines) for lines in parts[name]] for name in parts)
    found.stack = read_stack(trace.partition("\nTraceback (most recent call last)")[0])
    return found


def read_stack(text: str) -> list[StackLine]:
    """A traceback's frames, the innermost last."""
    stack: list[StackLine] = []
    for line in text.split("\n"):
        if found := _FILE.match(line):
            stack.append(StackLine(found[1], int(found[2]), found[3], ""))
        elif stack and not stack[-1].text and line.startswith("    "):
            stack[-1].text = line.strip()
    return stack


def read_reason(payload: str) -> Recompile | None:
    """Which compile could not be used again, and why: of those that were tried the first."""
    try:
        told = json.loads(payload)
    except ValueError:
        told = payload
    lines = map(str, told) if isinstance(told, list) else [str(told)]
    return next((_reason(limits.cut(line)) for line in lines if line.strip()), None)


def _reason(line: str) -> Recompile:
    of, colon, why = line.partition(": ")
    if not colon or "/" not in of:
        of, why = "", line
    why = why.partition("  # ")[0].strip()
    tensor, both, value = _TENSOR.search(why), _EXPECTED.search(why), _VALUE.match(why)
    if both:
        return Recompile(of, why, f"L[{tensor[1]}]" if tensor else "the value", both[1], both[2])
    if value:
        return Recompile(of, why, value[1], value[2], "something else")
    return Recompile(of, why, tensor[1] if tensor else "the value", why, "something else")
