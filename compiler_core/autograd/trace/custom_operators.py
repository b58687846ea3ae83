"""Custom operators that write to their arguments, in functional form: they return the new values instead of writing.

The joint graph is functional.  For each custom operator that writes, an operator is registered that copies the
arguments that are written to, calls the custom operator on the copies, and returns them after its results.  The graph
calls that one, and the new values are written in order afterwards.  Autograd does not see the writes, as in eager: such
operators have no formula for gradients.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import torch

from compiler_core.support.operator_facts import FUNCTIONAL, custom_operator

library: Any = torch.library
_LIBRARY = library.Library(FUNCTIONAL, "DEF")
_ANNOTATION = re.compile(r"Tensor\([^)]*\)")


def mutating_operator(target: Any) -> Any:
    """Returns the operator of `target` if it is a custom operator that writes to arguments, else None."""
    operator = custom_operator(target)
    return operator if operator is not None and operator._schema.is_mutable else None


def call_functionally(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Does what ``operator(*args, **kwargs)`` does: calls its functional form, then writes the new values."""
    given = _bind_arguments(operator, args, kwargs)
    written = _written_arguments(operator)
    with torch.no_grad():
        functional = functional_operator(operator)
        returned = functional(**given)
        returned = [returned] if len(functional._schema.returns) == 1 else list(returned)
        count = len(returned) - len(written)
        results, values = returned[:count], returned[count:]
        for name, value in zip(written, values, strict=True):
            _write(given[name], value)
    returns = operator._schema.returns
    found = [given[_aliased_argument(operator, r)] if r.alias_info else results.pop(0) for r in returns]
    if not found:
        return None
    return found[0] if len(found) == 1 else tuple(found)


def returns_new_tensors(operator: Any) -> bool:
    """Returns whether it returns tensors that are not arguments."""
    return any(r.alias_info is None for r in operator._schema.returns)


def _write(target: Any, value: Any) -> None:
    if isinstance(target, torch.Tensor):
        target.copy_(value)
    elif isinstance(target, (list, tuple)):
        for each, new in zip(target, value, strict=True):
            each.copy_(new)


def _bind_arguments(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    arguments = operator._schema.arguments
    given = {a.name: value for a, value in zip(arguments, args, strict=False)}
    return {a.name: a.default_value for a in arguments if a.has_default_value()} | given | kwargs


def _written_arguments(operator: Any) -> list[str]:
    return [a.name for a in operator._schema.arguments if a.alias_info is not None and a.alias_info.is_write]


def _aliased_argument(operator: Any, result: Any) -> str:
    """Returns the name of the argument that this result is."""
    sets = result.alias_info.before_set
    names = (a.name for a in operator._schema.arguments if a.alias_info and a.alias_info.before_set == sets)
    return str(next(names))


@functools.cache
def functional_operator(operator: Any) -> Any:
    """Returns the operator that returns what `operator` returns, followed by the arguments that it writes to."""
    schema, written = operator._schema, _written_arguments(operator)
    arguments = _ANNOTATION.sub("Tensor", str(schema)).partition("(")[2].rpartition(" -> ")[0].removesuffix(")")
    types = {a.name: str(a.type) for a in schema.arguments}
    returned = [_schema_type(str(r.type)) for r in schema.returns if r.alias_info is None] + [
        _schema_type(types[name]) for name in written
    ]
    name = f"{schema.name.replace('::', '_')}_{schema.overload_name}".rstrip("_")
    _LIBRARY.define(f"{name}({arguments}) -> ({', '.join(returned)})")

    def run(*args: Any, **kwargs: Any) -> Any:
        given = _bind_arguments(operator, args, kwargs)
        given |= {name: _copy(given[name]) for name in written}
        result = operator(**given)
        results = result if isinstance(result, tuple) else [result] * len(schema.returns)
        new = [each for each, r in zip(results, schema.returns, strict=True) if r.alias_info is None]
        everything = (*new, *(given[name] for name in written))
        return everything[0] if len(everything) == 1 else everything

    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    library.register_fake(f"{FUNCTIONAL}::{name}", run, lib=_LIBRARY)
    return getattr(getattr(torch.ops, FUNCTIONAL), name).default


def _schema_type(annotated: str) -> str:
    """Returns a type as schemas have it: ``Tensor[]`` for ``List[Tensor]``."""
    for name, sign in (("Optional", "?"), ("List", "[]")):
        if annotated.startswith(f"{name}["):
            return _schema_type(annotated[len(name) + 1 : -1]) + sign
    return annotated


def _copy(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [each.clone() for each in value]
    return None if value is None else value.clone()
