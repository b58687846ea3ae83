"""Writes a record as one HTML file that contains the explorer and the record and needs neither kernel nor network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from pathlib import Path

from compiler_core.records import Record
from kernel_magics.display.assets import asset
from kernel_magics.display.packing import compressed, pack

# The only script that the page's Content-Security-Policy allows.  The explorer and the record are in the same file,
# compressed.
_BOOT_SCRIPT = """
const data = (id) => document.getElementById(id).textContent;
const packed = Uint8Array.from(atob(data("explorer")), (character) => character.charCodeAt(0));
const script = new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip")));
const url = URL.createObjectURL(new Blob([await script.text()], { type: "text/javascript" }));
const { open } = await import(url);
open(document.getElementById("report"), JSON.parse(data("record")));
"""

_STYLE = """
html { color-scheme: light dark; }
body { margin: 0; background: light-dark(#fff, #16181d); }
#report > .cutaway { height: 100vh; min-height: 400px; border: 0; border-radius: 0; resize: none; }
noscript { display: block; padding: 1em; font: 14px sans-serif; }
"""


def write_report(record: Record, path: str | Path) -> Path:
    """Writes the report of `record` to `path` and returns the path; a browser opens the file without a network.

    Raises BuildError if the explorer's browser code is not built, OSError if the file cannot be written.
    """
    path = Path(path)
    path.write_text(report_html(record), encoding="utf-8", errors="backslashreplace")
    return path


def report_html(record: Record) -> str:
    """Returns the report as HTML."""
    title = html.escape(record.title or "Cutaway")
    css = asset("explorer.css").read_text(encoding="utf-8")
    explorer = asset("explorer.js").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_content_security_policy()}">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{css}{_STYLE}</style>
</head>
<body>
<main id="report"></main>
<noscript>This report is interactive and needs JavaScript; it loads nothing from the network.</noscript>
<script type="application/json" id="record">{json.dumps(pack(record))}</script>
<script type="application/gzip" id="explorer">{compressed(explorer)}</script>
<script type="module">{_BOOT_SCRIPT}</script>
</body>
</html>
"""


def _content_security_policy() -> str:
    """Returns the Content-Security-Policy: it allows only the boot script, the blobs that it creates, and styles."""
    boot = base64.b64encode(hashlib.sha256(_BOOT_SCRIPT.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{boot}' blob: 'wasm-unsafe-eval'; worker-src blob:; "
        "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    )
