"""Compiles a call again with something changed, and compares both compiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from compiler_core.api.compile import compile as compile_
from compiler_core.api.recording import record
from compiler_core.api.testing import difference
from compiler_core.errors import UsageError
from compiler_core.records import Guard, Record
from compiler_core.records.compare import compare
from compiler_core.records.differences import Comparison

TOLERANCE = 1e-5


def what_if(
    fn: Callable[..., Any],
    *args: Any,
    before: Mapping[str, Any] | None = None,
    drop_guard: str | None = None,
    mark_dynamic: Sequence[tuple[torch.Tensor, int]] = (),
    **changes: Any,
) -> Comparison:
    """Compiles a call, compiles it again with something changed, and returns the comparison of both.

    `Comparison.changes()` has what changed, line by line; `Comparison.values` says whether the results differ.  The
    call runs twice.

    Args:
        fn: the function or module.
        args: its arguments.
        before: the options of the first compile, as for `compile`.
        drop_guard: the source whose guards are left out, such as ``L['x']``.
        mark_dynamic: tensors and dimensions whose size is symbolic.
        changes: the options that change: ``memory_budget=0.5``, ``keep_apart=[("mul", "tanh")]``, ``dynamic=True``,
            ``backend="aot_eager"``, ``target="sm_90"``, ``tune=True`` ...

    Raises:
        UsageError: an option is wrong, or there is no guard of that source.

    Example::

        print(compiler_core.what_if(f, x, memory_budget=0.5).changes())
    """
    options = dict(before or {})
    first, right = _compiled("before", fn, args, options)
    options |= changes
    if drop_guard is not None:
        sources = {guard.source for each in first.compiles for guard in each.guards}
        if drop_guard not in sources:
            raise UsageError(f"there is no guard of {drop_guard}; there are those of {', '.join(sorted(sources))}")
        options["guard_filter"] = without_guards_of(drop_guard)
    try:
        for tensor, dim in mark_dynamic:
            torch._dynamo.mark_dynamic(tensor, dim)
        second, found = _compiled("after", fn, args, options)
    finally:
        for tensor, _ in mark_dynamic:
            remove_marks(tensor)
    comparison = compare(first, second)
    how = difference(found, right, TOLERANCE)
    comparison.values = {"the result": how.removeprefix(": ")} if how else {}
    return comparison


def without_guards_of(source: str) -> Callable[[list[Guard]], list[bool]]:
    """Returns a filter that leaves out the guards of a source."""
    return lambda guards: [guard.source != source for guard in guards]


def remove_marks(tensor: torch.Tensor) -> None:
    """Makes a tensor one whose sizes were never marked as symbolic."""
    for name in [name for name in vars(tensor) if name.startswith(("_dynamo_", "_specialize_on", "_has_dynamo"))]:
        delattr(tensor, name)


def _compiled(title: str, fn: Any, args: Sequence[Any], options: Mapping[str, Any]) -> tuple[Record, Any]:
    with record(title) as found:
        return found, compile_(fn, **options)(*args)
