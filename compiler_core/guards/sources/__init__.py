"""Sources: where a value comes from, as a path from the frame: a local or global name, then attributes and items.

A source has five members: `text` (for readers), `shown` (as the user would write it), `fetch` (its value in a frame),
`load` (emits bytecode that pushes the value, with `capture/bytecode_emitter.py`) and `manager` (its node in the C++
guard tree).  The kinds are in `variables`, `attributes`, `items` and `tensors`, and derive from `base`.  The names are
those of ``torch/_dynamo/source.py``.
"""

from __future__ import annotations

from compiler_core.guards.sources.attributes import (
    AttrSource,
    CellContentsSource,
    ClassEntrySource,
    ClosureCellSource,
    InstanceDictSource,
    WeakRefCallSource,
    call_weakref,
    class_entry,
)
from compiler_core.guards.sources.base import VERSIONS_ARE_STALE, Scope, Source, path, root_source
from compiler_core.guards.sources.items import BuiltinItemSource, GetItemSource
from compiler_core.guards.sources.tensors import (
    ComputedSource,
    NumpyTensorSource,
    PlainTensorSource,
    TensorPropertySource,
)
from compiler_core.guards.sources.variables import (
    UNSET,
    Box,
    ConstantSource,
    ContextVarSource,
    FreeCellSource,
    GlobalSource,
    LocalSource,
    read_context_var,
)

__all__ = [
    "UNSET",
    "VERSIONS_ARE_STALE",
    "AttrSource",
    "Box",
    "BuiltinItemSource",
    "CellContentsSource",
    "ClassEntrySource",
    "ClosureCellSource",
    "ComputedSource",
    "ConstantSource",
    "ContextVarSource",
    "FreeCellSource",
    "GetItemSource",
    "GlobalSource",
    "InstanceDictSource",
    "LocalSource",
    "NumpyTensorSource",
    "PlainTensorSource",
    "Scope",
    "Source",
    "TensorPropertySource",
    "WeakRefCallSource",
    "call_weakref",
    "class_entry",
    "path",
    "read_context_var",
    "root_source",
]
