"""Parses the guard tree that Dynamo prints into guards."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from compiler_core.records import Guard, Span, limits
from compiler_core.tools.stock.read.guard_meaning import guard_meaning
from compiler_core.tools.stock.read.recompile_reasons import settings_of
from compiler_core.tools.stock.read.source_names import shown_source

_LEAF = re.compile(r"([| ]*)\+- ([A-Z][A-Z_0-9]+)(?:: (.*))?$")
_BRANCH = re.compile(
    r"([| ]*)\+- (?:\w+Manager: )?\w*Manager\w*(?: pair at index=\d+|: source=(.*?), (?:accessed_by|type)=.*)?$"
)
_IDENTITY = re.compile(r"_*check_(type|obj)_id\(.+, \d+\)(?:, type=(.+))?$")
_KEY = re.compile(r"(not )?_*dict_contains\((.+?), .+\)$")
_GLOBAL_KINDS = ("GLOBAL_STATE", "TORCH_FUNCTION_MODE_STACK", "DEFAULT_DEVICE", "LAMBDA_GUARD")
_SIZE = re.compile(r"[LG]\[[^ ]{1,200}?\.(?:size|stride|storage_offset)\(\)(?:\[\d{1,6}\])?")
_VALUE = re.compile(r"\b[LG]\['\w{1,200}'\][\w.\[\]']{0,200}")
_LATENCY = re.compile(r"Guard latency = (\d{1,12}(?:\.\d{1,12})?) us")
_LOCATION = re.compile(r"# (\S+):(\d+) in (\S+)(?: \((?:HINT: [^)]*|\S+:\d+ in \S+)\))*$")
"""Where a guard was made, in the user's code; for a condition, the line of PyTorch's that asked follows."""


@dataclass(slots=True)
class ParsedGuards:
    """The guards of a tree, their spans in its text, and the measured cost of checking all of them."""

    guards: list[Guard]
    spans: list[Span]
    locations: dict[str, tuple[str, int, str]]
    """The user's line of each guard that has one: the end of the file's path, the line number and the line's text."""
    empty_dicts: set[str] = field(default_factory=set)
    """The sources of dicts whose length is checked, of which no key or item is."""
    cost_ns: float | None = None


def read_guards(text: str) -> ParsedGuards:
    """Returns the leaves of the tree, in order; the source of a leaf is that of the branch above it."""
    parsed = ParsedGuards([], [], {})
    sources: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if branch := _BRANCH.match(line):
            depth = len(branch[1]) // 2
            above = sources[depth - 1] if 0 < depth <= len(sources) else ""
            sources[depth:] = [limits.truncate(branch[2]) if branch[2] else above]
            if "+- DictGuardManager" in line:
                parsed.empty_dicts.add(sources[-1])
            elif "+- KeyManager" in line and depth > 1:
                parsed.empty_dicts.discard(sources[depth - 2])
        elif leaf := _LEAF.match(line):
            depth = len(leaf[1]) // 2
            source = sources[depth - 1] if 0 < depth <= len(sources) else ""
            _add_guard(parsed, number, leaf[2], source, leaf[3] or "")
        elif latency := _LATENCY.match(line):
            parsed.cost_ns = float(latency[1]) * 1000
    parsed.empty_dicts -= {
        guard.source for guard in parsed.guards if guard.kind not in ("TYPE_MATCH", "NO_TENSOR_ALIASING")
    }
    return parsed


def _add_guard(parsed: ParsedGuards, number: int, kind: str, source: str, text: str) -> None:
    key = f"g{len(parsed.guards)}"
    code, _, comment = text.partition("  # ")
    code = code.rstrip()
    if not source and kind in _GLOBAL_KINDS:
        value = _SIZE.search(code) or _VALUE.search(code)  # the tree has conditions on values under no source
        source = value[0] if value else "torch's global state"
    meaning = limits.truncate(guard_meaning(kind, code))
    expected, name = expected_value(code) or kind, shown_source(source)
    parsed.guards.append(Guard(key, kind, source, code or kind, expected, name=name, meaning=meaning))
    parsed.spans.append(Span(key, number, number))
    if location := _LOCATION.search("# " + comment):
        code_of_line = comment[: max(location.start() - len("# "), 0)].rstrip()
        parsed.locations[key] = (location[1], int(location[2]), code_of_line)


def expected_value(code: str) -> str:
    """Returns the value that a guard's code compares with, as text."""
    if identity := _IDENTITY.match(code):
        name = (identity[2] or "").removeprefix("<class '").removesuffix("'>")
        return name if identity[1] == "type" else f"the object at capture ({name})"
    if settings := settings_of(code):
        return ", ".join(f"{name} {value}" for name, value in settings.items())
    if key := _KEY.match(code):
        return f"{'no ' if key[1] else ''}{key[2]}"
    _, equals, value = code.rpartition(" == ")
    if equals:
        return value
    if code.startswith("check_tensor("):
        return code.partition(", ")[2].removesuffix(")")
    return code
