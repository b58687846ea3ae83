"""Parses what PyTorch logs of a lookup in its caches of compiled graphs: the outcome, and the key, field by field."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Literal

from compiler_core.records import limits
from compiler_core.records.kernels import CacheLookup, CacheName, KeyField

CACHES: dict[str, CacheName] = {"fx_graph_cache": "FX graph cache", "aotautograd_cache": "AOTAutograd cache"}
STATES: dict[str, Literal["hit", "miss", "not cached"]] = {
    "hit": "hit", "miss": "miss", "bypass": "not cached", "disabled": "not cached",
}  # fmt: skip
EVENTS = tuple(f"{cache}_{state}" for cache in CACHES for state in STATES)
"""The names of the events that report a lookup."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_COMPONENT = re.compile(r"\[(\w+)\] ([^:]+): (.*)", re.DOTALL)
"""One field: what the key holds of it, its name, its text."""


def read_lookup(event: str, payload: str) -> CacheLookup:
    """Makes the lookup that an event of `EVENTS` reports; ValueError for a payload that is not JSON."""
    data = json.loads(payload) if payload else {}
    cache, _, state = event.rpartition("_")
    fields = [field for text in data.get("components") or () if (field := _field(text))]
    is_backward = any(each.name == "fx_kwargs[is_backward]" and each.text == "True" for each in fields)
    which = "" if not fields or cache != "fx_graph_cache" else "backward" if is_backward else "forward"
    key = limits.truncate(str(data.get("key") or ""))
    return CacheLookup(CACHES[cache], which, STATES[state], key, fields, _reason(state, data))


def _field(text: Any) -> KeyField | None:
    parts = _COMPONENT.match(str(text))
    if parts is None:
        return None
    digest, name, value = (limits.truncate(part.strip("\n"), limits.TEXT) for part in parts.groups())
    if "\ufffd" in value:  # a pickle, which PyTorch logs as text
        value = f"bytes with the digest {digest[:_DIGEST]}"
    # most fields are the same in all keys of a record
    return KeyField(sys.intern(_NAMES.get(name, name)), sys.intern(value), sys.intern(digest))


_DIGEST = 12
_NAMES = {"gm": "graph"}
"""Names of fields that mean nothing to a reader."""


def _reason(state: str, data: dict[str, Any]) -> str:
    if state == "disabled":
        return "the cache is turned off"
    detail = data.get("cache_bypass_reason") or ""
    if data.get("cache_status_detailed") == "guard_miss":
        detail = "entries with this key were found, but their guards on sizes do not hold"
    return limits.truncate(" ".join(_ADDRESS.sub("", str(detail)).split()))
