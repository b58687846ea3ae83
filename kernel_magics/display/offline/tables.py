"""Offline HTML pages with tables: a click on a head sorts by it, and a field filters the rows."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SCRIPT = """
const order = (cell) => cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
const sort = (table, column, sign) => {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [order(row.cells[column]), row]);
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  rows.sort(([a], [b]) => sign * compare(a, b));
  body.append(...rows.map(([, row]) => row));
};
for (const table of document.querySelectorAll("table")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.tabIndex = 0;
    const press = () => {
      const sign = head.ariaSort === "ascending" ? -1 : 1;
      for (const other of table.tHead.rows[0].cells) other.ariaSort = null;
      head.ariaSort = sign > 0 ? "ascending" : "descending";
      sort(table, column, sign);
    };
    head.addEventListener("click", press);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") press(); });
  });
}
const field = document.getElementById("filter");
field.addEventListener("input", () => {
  const wanted = field.value.toLowerCase();
  for (const row of document.querySelectorAll("tbody tr")) row.hidden = !row.textContent.toLowerCase().includes(wanted);
});
"""
_STYLE = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { margin: 1.5em auto; max-width: 90em; padding: 0 1em; }
table { border-collapse: collapse; margin: .5em 0 1.5em; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid light-dark(#ddd, #444); padding: .25em .7em; text-align: left; vertical-align: top; }
td { white-space: pre-wrap; }
th { cursor: pointer; position: sticky; top: 0; background: light-dark(#f4f4f4, #26282d); white-space: nowrap; }
th[aria-sort=ascending]::after { content: " \\25b2"; } th[aria-sort=descending]::after { content: " \\25bc"; }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
tr.bad td:first-child { border-left: 4px solid #c33; }
.bar { display: inline-block; height: .7em; background: #58a; vertical-align: baseline; }
code { font-family: ui-monospace, monospace; font-size: 92%; }
#filter { font: inherit; padding: .3em .6em; width: 22em; }
"""


@dataclass(frozen=True)
class Cell:
    """The text of a cell; `value` sorts it as a number, and `link` is the address of a page beside this one."""

    text: str
    value: float | None = None
    link: str = ""
    share: float | None = None
    """The length of a bar beside the text, from 0 to 1."""

    def html(self) -> str:
        text = html.escape(self.text)
        if self.link:
            text = f'<a href="{html.escape(self.link)}">{text}</a>'
        if self.share is not None:
            text = f'<span class="bar" style="width:{max(0.0, min(1.0, self.share)) * 6:.2f}em"></span> {text}'
        if self.value is None:
            return f"<td>{text}</td>"
        return f'<td class="number" data-value="{self.value:.9g}">{text}</td>'


@dataclass(frozen=True)
class Table:
    """A table with a title; rows whose numbers are in `bad` are marked."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    bad: frozenset[int] = frozenset()

    def html(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.head)
        rows = "\n".join(
            f"<tr{' class=bad' if number in self.bad else ''}>{''.join(cell.html() for cell in row)}</tr>"
            for number, row in enumerate(self.rows)
        )
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        title = f"<h2>{html.escape(self.title)}</h2>{note}"
        return f"{title}<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"


def page(title: str, lines: Iterable[str], tables: Iterable[Table]) -> str:
    """Returns a page: its title, lines of text, and the tables that have rows."""
    text = "".join(f"<p>{html.escape(line)}</p>" for line in lines)
    body = "\n".join(table.html() for table in tables if table.rows)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_content_security_policy()}">
<meta name="viewport" content="width=device-width">
<title>{html.escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{html.escape(title)}</h1>
{text}
<input id="filter" type="search" placeholder="show rows with this text" aria-label="show rows with this text">
{body}
<script>{_SCRIPT}</script>
</body>
</html>
"""


def number(value: float | None, digits: int = 3, unit: str = "") -> Cell:
    """Returns a cell with a number; empty for None, which sorts first."""
    if value is None:
        return Cell("", -1.0)
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}g}"
    return Cell(f"{text}{unit}", float(value))


def _content_security_policy() -> str:
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'"
    )
