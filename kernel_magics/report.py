"""A record as one HTML file: the explorer with the record in it, no kernel, no network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from pathlib import Path

from compiler_core.record import Record
from kernel_magics.assets import asset

# The only script that the page's policy lets start; it starts the explorer, which is kept beside
# the record as JSON, so that nothing in either can end a script element or begin one.
_BOOT = """
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const url = URL.createObjectURL(new Blob([read("explorer")], { type: "text/javascript" }));
const { open } = await import(url);
open(document.getElementById("report"), read("record"));
"""

_STYLE = """
html { color-scheme: light dark; }
body { margin: 0; background: light-dark(#fff, #16181d); }
#report > .cutaway { height: 100vh; min-height: 400px; border: 0; border-radius: 0; resize: none; }
noscript { display: block; padding: 1em; font: 14px sans-serif; }
"""


def write_report(record: Record, path: str | Path) -> Path:
    """Write the report of `record` to `path`; it opens from the file, with no network."""
    path = Path(path)
    path.write_text(report_html(record), encoding="utf-8")
    return path


def report_html(record: Record) -> str:
    """The report's text."""
    title = html.escape(record.title or "Cutaway")
    css = asset("explorer.css").read_text(encoding="utf-8")
    explorer = asset("explorer.js").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy()}">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{css}{_STYLE}</style>
</head>
<body>
<main id="report"></main>
<noscript>This report is interactive and needs JavaScript; it loads nothing from the network.</noscript>
<script type="application/json" id="record">{_in_script(record.to_json())}</script>
<script type="application/json" id="explorer">{_in_script(json.dumps(explorer))}</script>
<script type="module">{_BOOT}</script>
</body>
</html>
"""


def _policy() -> str:
    """Nothing but our own script, what it makes itself (blob:), and styles."""
    boot = base64.b64encode(hashlib.sha256(_BOOT.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{boot}' blob: 'wasm-unsafe-eval'; worker-src blob:; "
        "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    )


def _in_script(text: str) -> str:
    """JSON that can stand in a script element: `<` occurs only inside its strings."""
    return text.replace("<", "\\u003c")
