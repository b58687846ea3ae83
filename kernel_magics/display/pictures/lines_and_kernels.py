"""A picture of a record as SVG, for viewers that run no scripts: which of the user's lines each kernel computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from html import escape

from compiler_core.records import Kernel, Record, limits
from compiler_core.records.timings import bytes_text, plural
from compiler_core.records.user_lines import ItemLines

_Line = tuple[str, int]
MAX_ROWS = 14
"""Lines and kernels that are drawn; the picture says how many there are more."""
MAX_COMPILES = 30
"""Records of more compiles have no picture: it would show too small a part."""
_COLOURS = ("#2f6fd0", "#c05a1c", "#1e8a4a", "#a034a0", "#8f7a12", "#17808f", "#c0334d", "#6a55c8")
_ROW, _LEFT, _GAP, _RIGHT = 22, 430, 110, 300
_CHARACTERS = 60


def lines_and_kernels(record: Record) -> str:
    """Returns the picture; an empty string if no kernel is known to compute a line."""
    if len(record.compiles) > MAX_COMPILES:
        return ""
    run = ItemLines(record)
    found = [(kernel, [line for line in lines if line[1]]) for kernel, lines in run.kernel_lines()]
    kernels = [(kernel, lines) for kernel, lines in found if lines][:MAX_ROWS]
    lines = sorted({line for _, lines in kernels for line in lines})[:MAX_ROWS]
    if not lines:
        return ""
    row = {line: i for i, line in enumerate(lines)}
    parts = [_curve(row[line], at) for at, (_, own) in enumerate(kernels) for line in own if line in row]
    parts += [_line_row(record, run, line, i) for line, i in row.items()]
    parts += [_kernel_row(kernel, i) for i, (kernel, _) in enumerate(kernels)]
    height = _ROW * (max(len(lines), len(kernels)) + 1)
    if len(found) > len(kernels):
        height += _ROW
        left_out = _counted(kernel for kernel, _ in found) - _counted(kernel for kernel, _ in kernels)
        parts.append(_heading(0, height - 6, f"... and {_listed(left_out)}"))
    heads = _heading(0, 14, "your lines") + _heading(_LEFT + _GAP, 14, "kernels that compute them")
    width = _LEFT + _GAP + _RIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="Which kernels compute which lines" '
        f'viewBox="0 0 {width} {height}" width="{width}" style="max-width:100%" font-size="12" fill="currentColor">'
        f"{heads}{''.join(parts)}</svg>"
    )


def _counted(kernels: Iterable[Kernel]) -> Counter[str]:
    """Counts generated kernels apart from calls of PyTorch's, as all counts of kernels do."""
    return Counter("call of PyTorch's kernels" if each.language == "extern" else "more kernel" for each in kernels)


def _listed(counts: Counter[str]) -> str:
    kernels, calls = counts["more kernel"], counts["call of PyTorch's kernels"]
    words = [f"{kernels:,} more {plural('kernel', kernels)}"] if kernels else []
    words += [f"{calls:,} more {plural('call', calls)} of PyTorch's kernels"] if calls else []
    return " and ".join(words)


def _y(row: int) -> int:
    return _ROW * (row + 1) + 15


def _curve(line_row: int, kernel_row: int) -> str:
    (x0, y0), (x1, y1) = (_LEFT, _y(line_row) - 4), (_LEFT + _GAP - 10, _y(kernel_row) - 4)
    middle = (x0 + x1) // 2
    colour = _COLOURS[line_row % len(_COLOURS)]
    return f'<path d="M{x0} {y0}C{middle} {y0} {middle} {y1} {x1} {y1}" fill="none" stroke="{colour}"/>'


def _line_row(record: Record, run: ItemLines, line: _Line, row: int) -> str:
    name = record.labels.get(line[0]) or line[0].replace("\\", "/").rpartition("/")[2]
    text = run.text(line).strip()
    name = limits.truncate(name, 20)
    room = _CHARACTERS - len(f"{name}:{line[1]} ")
    shown = text if len(text) <= room else text[: room - 1] + "…"
    bar = f'<rect x="0" y="{_y(row) - 12}" width="3" height="15" fill="{_COLOURS[row % len(_COLOURS)]}"/>'
    label = f'<tspan opacity="0.65">{escape(name)}:{line[1]}</tspan> '
    return f'{bar}<text x="8" y="{_y(row)}" font-family="monospace" font-size="11">{label}{escape(shown)}</text>'


def _kernel_row(kernel: Kernel, row: int) -> str:
    language = {"cpp": "C++", "triton": "Triton"}.get(kernel.language, "PyTorch's")
    facts = [language]
    if kernel.bytes_read is not None and kernel.bytes_written is not None:
        facts.append(bytes_text(kernel.bytes_read + kernel.bytes_written))
    if kernel.time_ns is not None:
        facts.append(f"{kernel.time_ns / 1000:,.1f} us")
    name = limits.truncate(kernel.name.removeprefix("aten.").removesuffix(".default"), 30)
    return (
        f'<text x="{_LEFT + _GAP}" y="{_y(row)}"><tspan font-family="monospace">{escape(name)}</tspan> '
        f'<tspan opacity="0.65">{escape(", ".join(facts))}</tspan></text>'
    )


def _heading(x: int, y: int, text: str) -> str:
    return f'<text x="{x}" y="{y}" opacity="0.65">{escape(text)}</text>'
