"""Whether a cell takes a step of training: whether it calls a backward, and an optimizer's step."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def takes_training_step(codes: Iterable[types.CodeType], namespace: Mapping[str, Any]) -> bool:
    """Returns whether the code of a cell, or a function of its namespace that it names, reads an attribute
    ``backward`` and an attribute ``step``.

    Only names are looked at.  A step that is hidden in a method of an object is not found.
    """
    seen: set[types.CodeType] = set()
    return {"backward", "step"}.issubset(name for code in codes for name in _attributes(code, namespace, seen))


def _attributes(code: types.CodeType, namespace: Mapping[str, Any], seen: set[types.CodeType]) -> Iterator[str]:
    """Yields the names of the attributes that `code` reads, those in what is defined in it, and in the functions that
    it names."""
    if code in seen:
        return
    seen.add(code)
    named = [namespace.get(name) for name in code.co_names]
    functions = [f.__code__ for f in named if isinstance(f, types.FunctionType) and f.__globals__ is namespace]
    yield from (i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_ATTR", "LOAD_METHOD"))
    for inner in (*(each for each in code.co_consts if isinstance(each, types.CodeType)), *functions):
        yield from _attributes(inner, namespace, seen)
