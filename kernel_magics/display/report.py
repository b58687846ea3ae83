"""A record as one HTML file: the explorer with the record in it, no kernel, no network."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
from pathlib import Path

from compiler_core.records import Record
from kernel_magics.display.assets import asset

# The only script that the page's policy lets start.  The explorer and the record lie beside it, packed: a record
# says the same names again and again, so that its file is a tenth as large and is read the sooner.
_BOOT = """
function unpack(id) {
  const packed = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}
const url = URL.createObjectURL(new Blob([await unpack("explorer").text()], { type: "text/javascript" }));
const [{ open }, record] = await Promise.all([import(url), unpack("record").json()]);
open(document.getElementById("report"), record);
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
    path.write_text(report_html(record), encoding="utf-8", errors="backslashreplace")
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
<script type="application/gzip" id="record">{_packed(record.to_json())}</script>
<script type="application/gzip" id="explorer">{_packed(explorer)}</script>
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


def _packed(text: str) -> str:
    """Gzip in base64, of which nothing can end a script element or begin one."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
