"""Packs a record for notebooks and reports: its JSON text, compressed, in base64.

A record repeats its names, so that this is a fifth (a small network) to a ninth (12 layers) of its JSON.  A record of
many compiles is packed in parts: an index, and the details of each compile, which the page reads when it shows that
compile.  The browser side is `extension/src/view/model/record/unpack.ts`.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import zlib
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any

from compiler_core.records import Compile, ItemId, Record, RecordError, limits
from compiler_core.records.plain import json_text, to_plain, without_gc
from compiler_core.records.user_lines import ItemLines

ENCODING = "gzip+base64"
BY_COMPILE = "gzip+base64 by compile"
MANY_COMPILES = 30
"""From this number of compiles on, a record is packed in parts."""
MAX_OUTPUT = 32 * 2**20
"""The characters of a packed record that an output contains at most: editors load a notebook as a whole."""
DETAILS = frozenset({"artifacts", "guards", "edges", "partition", "expansions"})
"""The fields of a compile that are in its own part; the index has the others."""
_MAX_BYTES = 4 * limits.JSON
"""A character of the JSON text has at most 4 bytes."""
_LEVEL = 8
"""Level 6, zlib's default, makes a record 6 % larger and takes a third of the time: 0.05 s for a step of 12 layers."""
_GZIP = 16 + zlib.MAX_WBITS
"""Makes zlib read the header of gzip."""


def pack(record: Record) -> dict[str, Any]:
    """Returns `record` as a JSON object with the name of the encoding and the data."""
    if len(record.compiles) >= MANY_COMPILES:
        return without_gc(lambda: _by_compile(record))
    return {"encoding": ENCODING, "data": compressed(record.to_json())}


def packed_size(packed: dict[str, Any]) -> int:
    """Returns the number of characters of a packed record."""
    return len(packed["data"]) + sum(map(len, packed.get("details", ())))


def _by_compile(record: Record) -> dict[str, Any]:
    plain = to_plain(record)
    details = []
    for compile_ in _compiles(plain):
        details.append(compressed(json_text({name: compile_.pop(name) for name in sorted(DETAILS)})))
    lines = _kernel_lines(record)
    index = {"record": plain, "summaries": [_summary(compile_, lines) for compile_ in record.compiles]}
    return {"encoding": BY_COMPILE, "data": compressed(json_text(index)), "details": details}


def _compiles(plain: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the compiles of a record that is plain data; raises RecordError if it is not of that form."""
    try:
        found = [compile_ for frame in plain["frames"] for compile_ in frame["compiles"]]
    except (TypeError, KeyError):
        raise RecordError("the record has no frames and compiles") from None
    if not all(isinstance(compile_, dict) for compile_ in found):
        raise RecordError("a compile of the record is not an object")
    return found


def _kernel_lines(record: Record) -> Iterator[list[ItemId]]:
    """Yields the user's lines of each kernel of each compile."""
    item_of = cache(record.line)
    for _, lines in ItemLines(record).kernel_lines():
        yield [item for file, number in lines if (item := item_of(file, number))]


def _summary(compile_: Compile, kernel_lines: Iterator[list[ItemId]]) -> dict[str, Any]:
    """Returns what the page shows of a compile before it reads the details: the number of its graphs that compute
    something, the number of nodes of the captured graph (None without one), what is saved for the backward, the user's
    lines that something was made from, and those of each kernel."""
    captured = next((each for each in compile_.artifacts if each.pane == "captured"), None)
    saved = compile_.partition
    made = {line for edge in compile_.edges for line in edge.sources if line.startswith("src:")}
    made |= {guard.line for guard in compile_.guards if guard.line}
    return {
        "graphs": len(compile_.captured_graphs),
        "nodes": (len(captured.graph.nodes) if captured.graph else 0) if captured else None,
        "saved_count": saved.saved_count if saved else 0,
        "saved_bytes": saved.saved_bytes if saved else 0,
        "lines": sorted(made),
        "kernel_lines": list(islice(kernel_lines, len(compile_.kernels))),
    }


def unpack(packed: Any, most: int | None = None) -> Record:
    """Returns the record that `pack` packed, or that an earlier version of Cutaway saved as plain JSON.

    Raises RecordError for anything else, and for a record whose JSON text has more than `most` bytes, by
    default `_MAX_BYTES`.
    """
    most = _MAX_BYTES if most is None else most
    if not isinstance(packed, dict) or "encoding" not in packed:
        return Record.from_json(json.dumps(packed))
    encoding, data = packed["encoding"], packed.get("data")
    if encoding not in (ENCODING, BY_COMPILE) or not isinstance(data, str):
        raise RecordError(f"the record is not encoded as {ENCODING}: a newer Cutaway may have written it")
    if encoding == ENCODING:
        return without_gc(lambda: Record.from_plain(_parsed(data, most)[0]))
    return without_gc(lambda: Record.from_plain(_joined(data, packed.get("details"), most)))


def _joined(index: str, details: Any, most: int) -> Any:
    """Returns the plain record of an index and the details of its compiles."""
    whole, left = _parsed(index, most)
    record = whole.get("record") if isinstance(whole, dict) else None
    if not isinstance(record, dict) or not isinstance(details, list):
        raise RecordError("the record has no index, or no details of its compiles")
    compiles = _compiles(record)
    if len(compiles) != len(details) or not all(isinstance(each, str) for each in details):
        raise RecordError("the record does not have the details of each compile")
    for compile_, each in zip(compiles, details, strict=True):
        fields, left = _parsed(each, left)
        if not isinstance(fields, dict) or not set(fields) <= DETAILS or set(fields) & set(compile_):
            raise RecordError("the details of a compile have other fields")
        compile_.update(fields)
    return record


def _parsed(data: str, most: int) -> tuple[Any, int]:
    """Returns the data of a packed JSON text of at most `most` bytes, and how many bytes are left of them."""
    text = _decompressed(data, most)
    try:
        return json.loads(text), most - len(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"the record is not JSON: {error}") from None


def _decompressed(data: str, most: int) -> str:
    try:
        decompressor = zlib.decompressobj(_GZIP)
        text = decompressor.decompress(base64.b64decode(data, validate=True), max(most, 1))
    except (zlib.error, binascii.Error) as error:
        raise RecordError(f"the record cannot be decompressed: {error}") from None
    if not decompressor.eof:
        why = f"has more than {most:,} bytes" if decompressor.unconsumed_tail else "is truncated"
        raise RecordError(f"the record {why}")
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise RecordError(f"not UTF-8: {error}") from None


def compressed(text: str) -> str:
    """Returns `text` as gzip in base64, which cannot contain the start or end of a script element."""
    return base64.b64encode(gzip.compress(text.encode(), _LEVEL, mtime=0)).decode()
