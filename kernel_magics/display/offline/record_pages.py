"""Pages of many records: one HTML file each, which share the explorer's code in one file beside them.

A record is read from its page when the page is opened, so a page that links to hundreds of them is small.  The pages
work without a server and without a network.
"""

from __future__ import annotations

import base64
import hashlib
import html
from pathlib import Path

from kernel_magics.display.assets import asset
from kernel_magics.display.packing import ENCODING, compressed

_SHARED = "explorer.js"
_BOOT_SCRIPT = f"""
const packed = Uint8Array.from(atob(cutawayExplorer), (character) => character.charCodeAt(0));
const script = new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip")));
const url = URL.createObjectURL(new Blob([await script.text()], {{ type: "text/javascript" }}));
const {{ open }} = await import(url);
const data = document.getElementById("record").textContent;
open(document.getElementById("report"), {{ encoding: "{ENCODING}", data }});
"""
_STYLE = """
html { color-scheme: light dark; }
body { margin: 0; background: light-dark(#fff, #16181d); }
#report > .cutaway { height: 100vh; min-height: 400px; border: 0; border-radius: 0; resize: none; }
noscript { display: block; padding: 1em; font: 14px sans-serif; }
"""
_BESIDE_SCRIPT = """
const names = location.hash.slice(1).split(",").slice(0, 2);
for (const name of names.filter((each) => /^[\\w.+-]+$/.test(each))) {
  const frame = document.createElement("iframe");
  frame.src = `${name}.html`;
  frame.title = name;
  document.body.append(frame);
}
"""
_BESIDE_STYLE = "body { margin: 0; display: flex; } iframe { flex: 1; height: 100vh; border: 0; }"
BESIDE = "beside.html"
"""The page that shows two records: ``beside.html#NAME,NAME``."""


class RecordPages:
    """A folder with a page for each record, by name: letters, digits, ``_``, ``.``, ``+`` and ``-``."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        explorer = compressed(asset("explorer.js").read_text(encoding="utf-8"))
        (self.folder / _SHARED).write_text(f'var cutawayExplorer = "{explorer}";\n', encoding="utf-8")
        self._css = asset("explorer.css").read_text(encoding="utf-8")
        beside = _page("Two records", _BESIDE_STYLE, "", f"<script>{_BESIDE_SCRIPT}</script>", _policy(_BESIDE_SCRIPT))
        (self.folder / BESIDE).write_text(beside, encoding="utf-8")

    def write(self, name: str, title: str, record_json: str) -> str:
        """Writes the page of a record, given as JSON; returns the page's address beside the folder."""
        note = "This page needs JavaScript; it loads nothing from the network."
        body = f'<main id="report"></main><noscript>{note}</noscript>'
        scripts = (
            f'<script type="application/gzip" id="record">{compressed(record_json)}</script>'
            f'<script src="{_SHARED}"></script><script type="module">{_BOOT_SCRIPT}</script>'
        )
        text = _page(title, self._css + _STYLE, body, scripts, _policy(_BOOT_SCRIPT))
        (self.folder / f"{name}.html").write_text(text, encoding="utf-8", errors="backslashreplace")
        return f"{self.folder.name}/{name}.html"


def _page(title: str, style: str, body: str, scripts: str, policy: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
{body}
{scripts}
</body>
</html>
"""


def _policy(script: str) -> str:
    """Returns the Content-Security-Policy: our script, the file beside the page, and the blobs that it makes."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}' 'self' file: blob: 'wasm-unsafe-eval'; worker-src blob:; "
        "frame-src 'self' file:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    )
