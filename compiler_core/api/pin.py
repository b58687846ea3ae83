"""Pins a compile: a function that runs it without checking guards."""

from __future__ import annotations

import functools
import types
from typing import Any

from compiler_core.api.compiled_function import region_of, with_code
from compiler_core.api.compiled_module import CompiledModule
from compiler_core.errors import UsageError
from compiler_core.pipeline.code_state import InstalledCode


def pin(compiled: Any, compile_id: str | None = None) -> Any:
    """Returns a function that runs one compile of `compiled` and checks no guards.

    You promise that all later calls are like the ones that the compile was made for: the same types, shapes, attributes
    and globals.  Otherwise the result is wrong or the process crashes.  Code after a graph break still checks its
    guards.  Later compiles and `reset` do not affect the result.

    Args:
        compiled: a function, method, module or partial that `compile` returned, after its first call.
        compile_id: the compile to pin, such as ``0/1``; required if there are several.

    Raises:
        UsageError: there is no such compile, or there are several and `compile_id` is not given.

    Example::

        compiled = compiler_core.compile(f)
        compiled(x)
        fast = compiler_core.pin(compiled)
        fast(x)
    """
    if isinstance(compiled, functools.partial):
        return functools.partial(pin(compiled.func, compile_id), *compiled.args, **compiled.keywords)
    if isinstance(compiled, CompiledModule):
        return functools.partial(pin(compiled._compiled_forward, compile_id), compiled._orig_mod)
    if isinstance(compiled, types.MethodType):
        return types.MethodType(pin(compiled.__func__, compile_id), compiled.__self__)
    region = region_of(compiled)
    chosen = _chosen(region.installed(), compile_id, getattr(compiled, "__name__", "the function"))
    fn = compiled.__wrapped__
    if chosen.breaks:
        return functools.wraps(compiled)(region.wrap_pinned(with_code(fn, chosen.replacement)))
    # The file name tells other compiled functions that call this one not to capture it.
    code = chosen.replacement.replace(co_filename=f"<cutaway {fn.__name__} {chosen.id}>")
    return functools.wraps(compiled)(with_code(fn, code))


def _chosen(found: list[InstalledCode], compile_id: str | None, name: str) -> InstalledCode:
    if not found:
        raise UsageError(f"{name} has no compile to pin: call it first, with arguments like those to come")
    ids = ", ".join(each.id for each in found)
    if compile_id is None and len(found) > 1:
        raise UsageError(f"{name} has the compiles {ids}: say which, as in pin({name}, {found[-1].id!r})")
    chosen = [each for each in found if compile_id in (None, each.id)]
    if not chosen:
        raise UsageError(f"{name} has no compile {compile_id!r}; it has {ids}")
    return chosen[0]
