"""Makes compiled functions, and finds the region and the record of a compiled function."""

from __future__ import annotations

import functools
import types
import weakref
from typing import Any

from compiler_core.api.recording import new_record, open_record
from compiler_core.config import Options
from compiler_core.errors import UsageError
from compiler_core.hook import cache_entries, failures
from compiler_core.hook.skip_rules import is_generator
from compiler_core.pipeline.compiled_region import Region
from compiler_core.records import Record

_regions: weakref.WeakKeyDictionary[types.FunctionType, Region] = weakref.WeakKeyDictionary()
"""The region of each compiled function."""
_own_records: weakref.WeakKeyDictionary[Region, list[Record]] = weakref.WeakKeyDictionary()
"""The record of each region that is written to while no other is open: one or none."""


def compile_function(fn: types.FunctionType, options: Options) -> Any:
    """Returns a function that behaves as `fn` and runs compiled code."""
    if is_generator(fn.__code__):
        failures.warn_of_generator(fn)
    copy = with_code(fn, fn.__code__.replace())  # cache entries belong to code objects, so this needs its own
    region = _open_region(copy.__code__, options)
    compiled: Any = functools.wraps(fn)(region.hook.wrap_root(copy, fn, region.replace_root))
    compiled._torchdynamo_disable = True  # stock torch.compile does not trace into it
    compiled._cutaway_original = fn  # our own capture inlines the original into its caller
    compiled.__prepare_scriptable__ = lambda: fn  # torch.jit.script scripts the original
    _regions[compiled] = region
    weakref.finalize(compiled, region.close).atexit = False
    return compiled


def with_code(fn: types.FunctionType, code: types.CodeType) -> types.FunctionType:
    """Returns a copy of `fn` that runs `code`."""
    copy = types.FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    copy.__kwdefaults__ = fn.__kwdefaults__
    return copy


def caller_of(function: Any) -> types.FunctionType:
    """Returns a Python function that calls a function of TorchScript or C, which itself cannot be compiled."""
    namespace: dict[str, Any] = {"function": function}
    text = "def call_function(*args, **kwargs):\n    return function(*args, **kwargs)\n"
    exec(compile(text, "<call of a function>", "exec"), namespace)
    caller: types.FunctionType = namespace.pop("call_function")
    return caller


def is_compiled(fn: Any) -> bool:
    """Whether `compile_function` returned `fn`."""
    return isinstance(fn, types.FunctionType) and fn in _regions


def region_of(compiled: Any) -> Region:
    """Returns the region of a compiled function, method, module or partial; UsageError for anything else."""
    fn = compiled
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = getattr(fn, "_compiled_forward", fn)
    region = _regions.get(getattr(fn, "__func__", fn)) if callable(fn) else None
    if region is None:
        raise UsageError(f"{compiled!r} was not made by compiler_core.compile")
    return region


def record_of(compiled: Any) -> Record:
    """Returns the record that a compiled function writes to; UsageError if `compiled` is not one."""
    record: Record = region_of(compiled).record()
    return record


def reset() -> None:
    """Frees all compiled code and the records of compiled functions, except records that you hold.

    Compiled functions compile again at their next call.  Warnings that were shown once may be shown again.
    """
    failures.reset_shown_warnings()
    for region in list(_regions.values()):
        region.forget()
    for records in list(_own_records.values()):
        records.clear()
    cache_entries.remove_invalid_entries()


def _open_region(code: types.CodeType, options: Options) -> Region:
    cache_entries.remove_invalid_entries()
    own_record: list[Record] = []

    def current_record() -> Record:
        opened = open_record()
        if opened is not None:
            return opened
        if not own_record:
            own_record.append(new_record())
        return own_record[0]

    region = Region(code, options, current_record)
    _own_records[region] = own_record
    return region
