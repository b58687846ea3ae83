"""Dynamo's guard tree, as it prints it, read into guards."""

from __future__ import annotations

import re
from dataclasses import dataclass

from compiler_core.records import Guard, Span, limits

_LEAF = re.compile(r"([| ]*)\+- ([A-Z][A-Z_0-9]+)(?:: (.*))?$")
_BRANCH = re.compile(r"([| ]*)\+- \w*(?:GuardManager|Manager)\w*(?:: source=(.*?), accessed_by=.*)?$")
_LATENCY = re.compile(r"Guard latency = (\d{1,12}(?:\.\d{1,12})?) us")
_AT = re.compile(r"# (\S+):(\d+) in (\S+)(?: \(HINT: [^)]*\))?$")


@dataclass(slots=True)
class ReadGuards:
    guards: list[Guard]
    spans: list[Span]
    at: dict[str, tuple[str, int, str]]
    """For each guard that has one, the user's line: the end of the file's name, the line's number, and its text."""
    cost_ns: float | None = None


def read_guards(text: str) -> ReadGuards:
    """The leaves of the tree, in its order; each knows the source of the branch that it hangs on."""
    found = ReadGuards([], [], {})
    sources: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if branch := _BRANCH.match(line):
            depth = len(branch[1]) // 2
            above = sources[depth - 1] if 0 < depth <= len(sources) else ""
            sources[depth:] = [limits.cut(branch[2]) if branch[2] else above]
        elif leaf := _LEAF.match(line):
            depth = len(leaf[1]) // 2
            source = sources[depth - 1] if 0 < depth <= len(sources) else ""
            _leaf(found, number, leaf[2], source, leaf[3] or "")
        elif latency := _LATENCY.match(line):
            found.cost_ns = float(latency[1]) * 1000
    return found


def _leaf(found: ReadGuards, number: int, kind: str, source: str, text: str) -> None:
    key = f"g{len(found.guards)}"
    code, _, comment = text.partition("  # ")
    code = code.rstrip()
    found.guards.append(Guard(key, kind, source, code or kind, expected(code) or kind))
    found.spans.append(Span(key, number, number))
    if at := _AT.search("# " + comment):
        found.at[key] = (at[1], int(at[2]), comment[: max(at.start() - len("# "), 0)].rstrip())


def expected(code: str) -> str:
    """What a guard's code compares with."""
    _, equals, value = code.rpartition(" == ")
    if equals:
        return value
    if code.startswith(("check_tensor(", "___check_type_id(", "___check_obj_id(")):
        return code.partition(", ")[2].removesuffix(")")
    return code
