"""Writes docs/recompiles.md, every kind of recompile, from the planted ones:  python -m tests.docs.recompiles"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from compiler_core.tools.questions.advice import NOTHING_TO_CHANGE
from tests.docs.imports import ROOT
from tests.faults.fault import MARK, Change, Recompiled
from tests.faults.harness import Run, run
from tests.faults.recompiles import RECOMPILES

PAGE = ROOT / "docs" / "recompiles.md"
HEAD = """\
# Every kind of recompile

A call is compiled again if no compile of its frame fits: at least one guard of each fails.
`python -m tests.docs.recompiles` writes this page from small scripts with one planted recompile each,
`tests/faults/recompiles.py`; the test suite runs them on both engines, and applies each advice.

## How the cause is found

- All guards of all compiles of the frame are checked with the values of the call. The *nearest* compile has the fewest
  facts that differ, where another object, or one in place of None, counts more than other facts; it need not be the
  newest. What follows from another difference (strides from sizes, attributes from the object) does not count.
- The cause is *confirmed* if exactly one fact differs and all other guards of the nearest compile hold: the call would
  have used that compile otherwise. Else all that differs is listed.
- For stock `torch.compile`, Dynamo names the first guard of each compile that failed. The guards of the new compile say
  what the call had, so the rest follows from comparing both lists, also in a log. A guard that cannot be compared
  leaves the cause unconfirmed.
- *Nothing* needs to change if the new compile has a symbol for what changed and no later call contradicts.

`record.compiles[1].cause` has the facts: `name`, `aspect`, `expected`, `got`, `line`, the same for all else that
differs (`besides`) and for the other compiles (`others`), and `text`, the explanation.

## The kinds

| kind | what is said | what to do |
|---|---|---|
"""


def page(ran: Callable[[Recompiled], Run]) -> str:
    """Returns the whole text of docs/recompiles.md; `ran` runs a fault on our engine."""
    rows = "".join(_row(fault, ran(fault)) for fault in RECOMPILES)
    return HEAD + rows + "\n## The scripts\n\n" + "\n".join(map(_section, RECOMPILES))


def _row(fault: Recompiled, found: Run) -> str:
    id_, cause = next((c.id, c.cause) for c in found.compiles if c.cause and c.cause.got == fault.got)
    problem = next(p for p in found.problems if id_ in p.compiles)
    cells = (f"[{fault.title}](#{_anchor(fault.title)})", _escaped(cause.text), _escaped(problem.advice))
    return f"| {' | '.join(cells)} |\n"


def _section(fault: Recompiled) -> str:
    script = fault.script.strip().replace(MARK, "  # here")
    proofs = [*_proofs(fault, "core"), *_proofs(fault, "torch")]
    return f"### {fault.title}\n\n{' '.join(proofs)}\n\n```python\n{script}\n```\n"


def _proofs(fault: Recompiled, engine: str) -> Iterator[str]:
    """Yields what each advice does, as the tests check it."""
    name = "Ours" if engine == "core" else "Stock"
    if not fault.happens_on(engine):
        yield f"{name} does not compile again."
        return
    before = fault.of(engine)["compiles"]
    if fault.of(engine)["remedy"] in NOTHING_TO_CHANGE:
        yield f"{name}: {before} compiles for all calls."
    yield from (
        f"{name}: {before} compiles, {_effect(change)}." for change in fault.changes if engine in change.engines
    )


def _effect(change: Change) -> str:
    how = "with dynamic=True" if change.options else "changed as advised"
    return f"{change.compiles} {how}"


def _anchor(title: str) -> str:
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def _escaped(text: str) -> str:
    return text.replace("|", "&#124;").replace("  ", " ").replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    PAGE.write_text(page(lambda fault: run(fault.script, fault.title, "core", fault.options)))
