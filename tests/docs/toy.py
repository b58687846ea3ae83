"""Writes the page with the toy compiler's text: ``python -m tests.docs.toy``.

Each section of `notebooks/workshop/toy/compiler.py` becomes one of the page: what its comment says, then its code.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "notebooks" / "workshop" / "toy" / "compiler.py"
PAGE = ROOT / "docs" / "toy_compiler.md"
SECTION = re.compile(r"^# -{10,} (Lesson \d+: .*)\n((?:# .*\n)+)", re.MULTILINE)
BEGIN = """# The toy compiler

`python -m tests.docs.toy` writes this page.

A compiler for PyTorch programs in one file, with a section for each lesson of the
[workshop](../notebooks/workshop/01_frames.ipynb). After a lesson, read its section, run it on the lesson's program, and
set it beside the real stage, whose files the [architecture](architecture.md) names. The file is
`notebooks/workshop/toy/compiler.py`: LINES lines in all, with its empty lines and comments. `programs.py` beside it has
three models that it trains. In a notebook of the workshop:

```python
from toy import compiler as toy

compiled = toy.compile(function)
compiled(x)
for entry in compiled.entries():
    print(entry.guards, entry.graph.code, entry.stages.saved, [kernel.text for kernel in entry.stages.kernels])
```
"""


def text() -> str:
    """Returns the text of the page."""
    source = SOURCE.read_text(encoding="utf-8")
    first, *rest = SECTION.split(source)
    begin = BEGIN.replace("LINES", str(len(source.splitlines())))
    parts = [begin, "## Imports\n", code(first.partition('"""\n\n')[2])]
    for title, prose, body in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        parts += [f"## {title}\n", re.sub(r"^# ", "", prose, flags=re.MULTILINE), code(body)]
    return "\n".join(parts)


def code(body: str) -> str:
    return f"```python\n{body.strip()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
