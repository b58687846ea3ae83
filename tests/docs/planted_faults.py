"""Writes docs/planted_faults.md, a table of the planted faults:  python -m tests.docs.planted_faults"""

from __future__ import annotations

from collections.abc import Sequence

from tests.docs.imports import ROOT
from tests.faults import corpus
from tests.faults.fault import MARK, Broken, Diverged, Fault, Inexact, Missed, Recompiled, Repeated, Saved

PAGE = ROOT / "docs" / "planted_faults.md"
FAULTS: dict[str, Sequence[Fault]] = {
    "recompile": corpus.RECOMPILES,
    "graph break": corpus.BREAKS,
    "difference of ranks": corpus.DIVERGENCES,
    "slow compile": corpus.REPEATED,
    "memory": corpus.SAVED,
    "inexact values": corpus.INEXACT,
    "miss of the cache": corpus.MISSED,
}


def page() -> str:
    """Returns the whole text of docs/planted_faults.md."""
    count = sum(map(len, FAULTS.values()))
    rows = "".join(_row(kind, fault) for kind, faults in FAULTS.items() for fault in faults)
    return f"""\
# Planted faults

`tests/faults` has {count} small scripts with one planted fault each. The test suite runs them: the cause, the line and
the grade that Cutaway names must be the true ones, nothing else may be reported, what is advised must work, and the
script without its fault has no problem. Recompiles, graph breaks, differences of ranks and slow compiles run on both
engines; stock's recompiles and graph breaks are read from logs, too. `python -m tests.docs.planted_faults` writes this
page.

| kind | fault | line | cause |
|---|---|---|---|
{rows}"""


def _row(kind: str, fault: Fault) -> str:
    line = fault.script.split("\n")[fault.line - 1].removesuffix(MARK).strip()
    cells = (kind, fault.title, f"`{line}`", _cause(fault))
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |\n"


def _cause(fault: Fault) -> str:
    match fault:
        case Recompiled():
            return f"{fault.aspect} of `{fault.name}`: `{fault.expected}`, then `{fault.got}`"
        case Broken():
            return f"{fault.reason}: `{fault.expression}`"
        case Diverged():
            return f"{fault.kind}: `{fault.here}`, the others `{fault.others}`"
        case Repeated():
            return f"{fault.blocks} equal blocks"
        case Saved():
            return f"{fault.bytes:,} bytes are saved for the backward"
        case Inexact():
            return "the kernel" if fault.edit else "the precision; eager PyTorch has the error, too"
        case Missed():
            return f"`{fault.name}`: `{fault.before}`, then `{fault.after}`"
    raise TypeError(fault)


if __name__ == "__main__":
    PAGE.write_text(page())
