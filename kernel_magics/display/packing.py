"""Packs a record for notebooks and reports: its JSON text, compressed, in base64.

A record repeats its names, so that this is a fifth (a small network) to a ninth (12 layers) of its JSON.  The browser
side unpacks it in `extension/src/view/model/record/unpack.ts`.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import zlib
from typing import Any

from compiler_core.records import Record, RecordError, limits

ENCODING = "gzip+base64"
_MAX_BYTES = 4 * limits.JSON
"""A character of the JSON text has at most 4 bytes."""
_LEVEL = 6
"""Level 9, zlib's highest, makes a record 8 % smaller and takes six times as long."""
_GZIP = 16 + zlib.MAX_WBITS
"""Makes zlib read the header of gzip."""


def pack(record: Record) -> dict[str, str]:
    """Returns `record` as a JSON object with the name of the encoding and the data."""
    return {"encoding": ENCODING, "data": compressed(record.to_json())}


def unpack(packed: Any) -> Record:
    """Returns the record that `pack` packed, or that an earlier version of Cutaway saved as plain JSON.

    Raises RecordError for anything else.
    """
    if not isinstance(packed, dict) or "encoding" not in packed:
        return Record.from_json(json.dumps(packed))
    if packed["encoding"] != ENCODING or not isinstance(packed.get("data"), str):
        raise RecordError(f"the record is not encoded as {ENCODING}: a newer Cutaway may have written it")
    try:
        decompressor = zlib.decompressobj(_GZIP)
        text = decompressor.decompress(base64.b64decode(packed["data"], validate=True), _MAX_BYTES)
    except (zlib.error, binascii.Error) as error:
        raise RecordError(f"the record cannot be decompressed: {error}") from None
    if not decompressor.eof:
        why = f"has more than {_MAX_BYTES:,} bytes" if decompressor.unconsumed_tail else "is truncated"
        raise RecordError(f"the record {why}")
    try:
        return Record.from_json(text.decode())
    except UnicodeDecodeError as error:
        raise RecordError(f"not UTF-8: {error}") from None


def compressed(text: str) -> str:
    """Returns `text` as gzip in base64, which cannot contain the start or end of a script element."""
    return base64.b64encode(gzip.compress(text.encode(), _LEVEL, mtime=0)).decode()
