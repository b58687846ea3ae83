"""``cutaway open``: serves the reports of records to a browser on this machine.

The server listens on the loopback address only, answers GET and HEAD only, and only under a random path, so that other
users of the machine and other pages in the browser cannot read the records.  A report is made when it is asked for.
"""

from __future__ import annotations

import html
import secrets
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from compiler_core.records import Record
from compiler_core.tools.questions.counts import count
from kernel_magics.display.report import report_html

HOST = "127.0.0.1"
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_INDEX_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


class PageServer(ThreadingHTTPServer):
    """Serves the reports of some records; `url` is the address of the first page.

    With several records the first page lists them.
    """

    daemon_threads = True

    def __init__(self, records: Sequence[Record], port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.records = list(records)
        self.token = secrets.token_urlsafe(16)
        self.url = f"http://{HOST}:{self.server_address[1]}/{self.token}/"

    def page(self, path: str) -> str | None:
        """Returns the page at `path`; None if there is none."""
        base = f"/{self.token}/"
        if not secrets.compare_digest(path[: len(base)].encode(), base.encode()):
            return None
        rest = path[len(base) :]
        if not rest:
            return report_html(self.records[0]) if len(self.records) == 1 else self._index()
        if rest.isascii() and rest.isdigit() and int(rest[:9]) < len(self.records):
            return report_html(self.records[int(rest)])
        return None

    def _index(self) -> str:
        rows = "\n".join(
            f'<li><a href="{number}">{html.escape(record.title or record.engine)}</a>: '
            f"{html.escape(count(record).line())}</li>"
            for number, record in enumerate(self.records)
        )
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Cutaway</title>'
            f'<meta http-equiv="Content-Security-Policy" content="{_INDEX_POLICY}">'
            "<style>html { color-scheme: light dark; font: 15px sans-serif; }</style></head>"
            f"<body><h1>{len(self.records):,} records</h1><ol>{rows}</ol></body></html>"
        )


class _Handler(BaseHTTPRequestHandler):
    server: PageServer

    def do_GET(self) -> None:
        page = self.server.page(self.path) if self._is_for_us() else None
        if page is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        body = page.encode("utf-8", "backslashreplace")
        self.send_response(HTTPStatus.OK)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def _is_for_us(self) -> bool:
        """Whether the Host header names this machine, and not a page's domain that resolves to it (DNS rebinding)."""
        port = self.server.server_address[1]
        return self.headers.get("Host") in (f"{HOST}:{port}", f"localhost:{port}")

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing."""
