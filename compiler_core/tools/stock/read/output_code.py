"""Parses Inductor's output code: its kernels, its calls of PyTorch's own kernels, and its memory plan."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from compiler_core.records import Language, Span
from compiler_core.tools.stock.read.graph_text import tensor_bytes

_KERNEL = re.compile(r"^(\w+) = async_compile\.(\w+)\(.*?r?'''\n", re.MULTILINE)
_FRAGMENT = re.compile(r"^#   %(\w+) : ", re.MULTILINE)
_EXTERN = re.compile(r"\b(extern_kernels\.\w+|torch\.ops\.[\w.]+|aten\.[\w.]+)\(")
_CALL_HEAD = re.compile(r"^( *)def call\(", re.MULTILINE)
_ALLOCATED = re.compile(r"^\s*(buf\d+) = (?:\w+\.)?empty_strided\w*\(\((.*?)\), \(.*?\), (?:dtype=)?torch\.(\w+)")
_ALLOCATED_ANY = re.compile(r"^\s*(buf\d+) = (.*)$")
_REUSED = re.compile(r"^\s*(buf\d+) = ([a-z]\w*)(?:;|  #|$)|^\s*(buf\d+) = reinterpret_tensor\(([a-z]\w*),.*# reuse")
_FREED = re.compile(r"\bdel (\w+)")


@dataclass(slots=True)
class ParsedKernel:
    """A kernel's text, the line at which it starts, and the graph nodes named in its comment."""

    name: str
    language: Language
    text: str
    line: int
    nodes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class OutputCode:
    """The contents of one output code; line numbers start at 1."""

    kernels: list[ParsedKernel]
    externs: list[tuple[str, int]]
    """Calls of PyTorch's own kernels: name and line number."""
    calls: dict[str, list[int]]
    """The lines that launch each kernel, by its name."""
    plan: list[str]
    """The memory plan, a line for each buffer."""
    plan_spans: list[Span]


def read_output_code(text: str) -> OutputCode:
    """Parses the file that Inductor generates for one graph."""
    kernels = list(_parse_kernels(text))
    head = _CALL_HEAD.search(text)
    start = text.count("\n", 0, head.start()) if head else 0
    body = _indented_block(text.split("\n"), start, len(head[1])) if head else []
    calls: dict[str, list[int]] = {kernel.name: [] for kernel in kernels}
    externs = []
    for number, line in enumerate(body, start + 1):
        stripped = line.strip()
        if stripped.startswith("#"):
            continue
        name = re.split(r"[.(]", stripped, maxsplit=1)[0]
        if name in calls:
            calls[name].append(number)
        elif extern := _EXTERN.search(stripped):
            externs.append((extern[1], number))
    plan, spans = _memory_plan(body, start + 1)
    return OutputCode(kernels, externs, calls, plan, spans)


def _parse_kernels(text: str) -> list[ParsedKernel]:
    kernels, line, counted = [], 1, 0
    previous_end = 0
    for match in _KERNEL.finditer(text):
        end = text.find("'''", match.end())
        line += text.count("\n", counted, match.end())
        counted = match.end()
        language: Language = "triton" if match[2].startswith("triton") else "cpp"
        kernel = ParsedKernel(match[1], language, text[match.end() : end].rstrip("\n") + "\n", line)
        kernel.nodes = list(dict.fromkeys(_FRAGMENT.findall(text, previous_end, match.start())))
        previous_end = end
        kernels.append(kernel)
    return kernels


def _indented_block(lines: Sequence[str], start: int, indent: int) -> list[str]:
    """Returns the line at `start` and the lines below it that are indented deeper than `indent`."""
    body = [lines[start]]
    for line in lines[start + 1 :]:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        body.append(line)
    return body


def _memory_plan(body: Sequence[str], first: int) -> tuple[list[str], list[Span]]:
    """Lists each buffer: its size, the lines that allocate and free it, or the buffer whose memory it reuses."""
    buffers: dict[str, str] = {}
    freed: set[str] = set()
    for number, line in enumerate(body, first):
        if found := _ALLOCATED.match(line):
            buffers[found[1]] = f"{_size(found[2], found[3]):>12}  line {number}: allocated"
        elif reused := _REUSED.match(line):
            name, of = reused[1] or reused[3], reused[2] or reused[4]
            buffers[name] = f"{'':>12}  line {number}: reuses the memory of {of}"
        elif (other := _ALLOCATED_ANY.match(line)) and other[1] not in buffers:
            buffers[other[1]] = f"{'':>12}  line {number}: made by {other[2].split('(')[0].strip()}"
        for name in _FREED.findall(line):
            if name not in freed:
                buffers[name] = f"{buffers.get(name, ' ' * 12 + '  an input')}, freed in line {number}"
            freed.add(name)
    plan = [f"{name:<12}{what}" for name, what in buffers.items()]
    return plan, [Span(name, i, i) for i, name in enumerate(buffers, 1)]


def _size(shape: str, dtype: str) -> str:
    sizes = [size.strip() for size in shape.split(",") if size.strip()]
    if all(size.isdigit() for size in sizes):
        return f"{tensor_bytes([int(size) for size in sizes], dtype):,} B"
    return "symbolic"
