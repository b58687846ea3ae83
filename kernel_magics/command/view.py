"""``kernel_magics.view``: opens the view that an address names, as the button *Link* of an explorer copies it.

An address is ``RECORD#VIEW``, as in ``Cell In[3]#compile=0/1&pane=source&pane=kernel&pinned=src:0%2312``.  The view is
that of a report's address (``report.html#compile=...``), which extension/src/view/model/address.ts reads.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qs

from compiler_core.errors import UsageError
from compiler_core.records import Record, RecordError
from kernel_magics.command.read import read_records
from kernel_magics.display.explorer import Explorer
from kernel_magics.display.storage import shown_records

_VIEW = re.compile(r"#((?:compile|pane|pinned)=.*)")


def open_view(address: str) -> Explorer:
    """Returns an explorer of the record of `address` that shows its view."""
    name, view = split_address(address)
    explorer = Explorer(shown_records.find(name) or _read(name))
    fields = parse_qs(view)
    explorer.show(*fields.get("pane", ()), compile=fields["compile"][0] if "compile" in fields else None)
    explorer.selection = fields.get("pinned", [])
    return explorer


def split_address(address: str) -> tuple[str, str]:
    """Returns the name of the record and the view, which is empty if `address` has none."""
    found = _VIEW.search(address)
    return (address[: found.start()], found[1]) if found else (address, "")


def _read(name: str) -> Record:
    try:
        found = read_records(name)
    except RecordError as error:
        raise UsageError(f"no explorer of this kernel shows {name!r}, and no file can be read: {error}") from None
    if len(found) > 1:
        raise UsageError(f"{name} has {len(found)} records; kernel_magics.view opens one")
    return found[0]
