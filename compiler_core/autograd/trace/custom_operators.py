"""Operators of the user's that write to their arguments, as functions: they give the new values in place of writing.

The joint graph is functional.  For each operator that writes, one is registered that takes copies of what is written,
calls it on them and returns them after its own results; the graph calls that one, and the new values are written after
it, in order.  Autograd does not see the write, as in eager: such operators have no formula for gradients.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import torch

library: Any = torch.library
_LIBRARY = library.Library("cutaway_functional", "DEF")
_ANNOTATION = re.compile(r"Tensor\([^)]*\)")


def mutating_operator(target: Any) -> Any:
    """The operator of the user's that `target` is, if it writes to arguments and is no mere chain of PyTorch's."""
    if isinstance(target, library.CustomOpDef):
        target = target._opoverload
    if isinstance(target, torch._ops.OpOverloadPacket):
        packet: Any = target
        overloads = packet.overloads()
        target = getattr(packet, overloads[0]) if len(overloads) == 1 else packet
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return None
    composite = target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    return None if target.namespace in ("aten", "prims", "prim") or composite else target


def call(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``operator(*args, **kwargs)`` does and gives."""
    given = _bound(operator, args, kwargs)
    written = _written(operator)
    with torch.no_grad():
        made = functional(operator)(**given)
        made = list(made) if isinstance(made, (tuple, list)) else [made]
        results, values = made[: len(made) - len(written)], made[len(made) - len(written) :]
        for name, value in zip(written, values, strict=True):
            _write(given[name], value)
    returns = operator._schema.returns
    found = [given[_aliased(operator, r)] if r.alias_info else results.pop(0) for r in returns]
    return None if not found else found[0] if len(found) == 1 else tuple(found)


def returns_new(operator: Any) -> bool:
    """Whether it makes tensors besides writing."""
    return any(r.alias_info is None for r in operator._schema.returns)


def _write(target: Any, value: Any) -> None:
    if isinstance(target, torch.Tensor):
        target.copy_(value)
    for each, new in zip(target, value, strict=True) if isinstance(target, (list, tuple)) else ():
        each.copy_(new)


def _bound(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    arguments = operator._schema.arguments
    given = {a.name: value for a, value in zip(arguments, args, strict=False)}
    return {a.name: a.default_value for a in arguments if a.has_default_value()} | given | kwargs


def _written(operator: Any) -> list[str]:
    return [a.name for a in operator._schema.arguments if a.alias_info is not None and a.alias_info.is_write]


def _aliased(operator: Any, result: Any) -> str:
    """The argument that this result is."""
    sets = result.alias_info.before_set
    names = (a.name for a in operator._schema.arguments if a.alias_info and a.alias_info.before_set == sets)
    return str(next(names))


@functools.cache
def functional(operator: Any) -> Any:
    """The operator that returns what `operator` returns and then what it writes."""
    schema, written = operator._schema, _written(operator)
    arguments = _ANNOTATION.sub("Tensor", str(schema)).partition("(")[2].rpartition(" -> ")[0].removesuffix(")")
    types = {a.name: str(a.type) for a in schema.arguments}
    returned = [str(r.type) for r in schema.returns if r.alias_info is None] + [_type(types[name]) for name in written]
    name = f"{schema.name.replace('::', '_')}_{schema.overload_name}".rstrip("_")
    _LIBRARY.define(f"{name}({arguments}) -> ({', '.join(returned)})")

    def run(*args: Any, **kwargs: Any) -> Any:
        given = _bound(operator, args, kwargs)
        given |= {name: _copy(given[name]) for name in written}
        made = operator(**given)
        results = made if isinstance(made, tuple) else [made] * len(schema.returns)
        new = [each for each, r in zip(results, schema.returns, strict=True) if r.alias_info is None]
        everything = (*new, *(given[name] for name in written))
        return everything[0] if len(everything) == 1 else everything

    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    library.register_fake(f"cutaway_functional::{name}", run, lib=_LIBRARY)
    return getattr(torch.ops.cutaway_functional, name).default


def _type(annotated: str) -> str:
    return {"Optional[Tensor]": "Tensor?", "List[Tensor]": "Tensor[]"}.get(annotated, annotated)


def _copy(value: Any) -> Any:
    return (
        [each.clone() for each in value]
        if isinstance(value, (list, tuple))
        else None
        if value is None
        else value.clone()
    )
