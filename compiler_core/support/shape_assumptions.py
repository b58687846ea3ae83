"""What is known of symbolic numbers, as text; and what a compile has assumed of them, noted and assumed again.

A compile asks PyTorch's ShapeEnv about sizes.  Two that know the same answer alike, and each answer that only the
sizes of the moment decide becomes a guard.  So a graph that was compiled before may be used where as much is known
as was known then, once its guards are made anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from compiler_core.errors import NotKeyed
from compiler_core.records import ItemId
from compiler_core.support import fx_symbols


@dataclass(frozen=True)
class Assumption:
    text: str
    """An expression of sympy's that was taken to be true."""
    node: str | None
    """A captured node of the line that asked, if one did."""


@dataclass(frozen=True)
class Assumed:
    """What one compile has assumed."""

    guards: list[Assumption]
    known: list[str]
    """What was known after that."""


def environment(values: Sequence[Any]) -> Any:
    """The ShapeEnv of the symbolic numbers in fake tensors and numbers `values`; None where all are plain."""
    return next((number.node.shape_env for number in _numbers(values) if fx_symbols.is_symbolic(number)), None)


def _numbers(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        yield from (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)


def exact(expr: Any) -> str:
    """An expression as text that no other has, down to what is taken for granted of its symbols."""
    import sympy

    return str(sympy.srepr(expr))


def known(env: Any) -> list[str]:
    """All that decides what `env` answers; NotKeyed of numbers that only the data can tell."""
    if env.var_to_range.keys() != env.backed_var_to_val.keys() or env.deferred_runtime_asserts:
        raise NotKeyed("some sizes depend on data")
    settings = f"{env.settings} {env.frozen} {env._suppress_guards_tls()}"
    divisible = sorted(map(exact, env.divisible))
    guards = dict.fromkeys(exact(guard.expr) + " size-oblivious" * guard.size_oblivious for guard in env.guards)
    return [settings, *divisible, *(_symbol(env, s) for s in env.var_to_range), *guards]


def _symbol(env: Any, symbol: Any) -> str:
    span, was = env.var_to_range[symbol], env.backed_var_to_val[symbol]
    numbers = (env.replace(symbol), span.lower, span.upper, was)
    passing = [source.is_ephemeral() for source in env.var_to_sources.get(symbol, ())]
    return " ".join([exact(symbol), *map(exact, numbers), f"{symbol in env.size_like} {passing}"])


def asked_by(env: Any, node: fx.Node | None) -> None:
    """From now on `node` asks: our ShapeEnv notes its line of the user's with each guard."""
    vars(env)["line"] = _line(node) if node else None


def _line(node: fx.Node) -> ItemId | None:
    return next(reversed(node.meta.get("origin", ())), None)


def assumed(env: Any, before: int, captured: fx.Graph) -> Assumed:
    """What `env` has assumed since it had `before` guards; NotKeyed where no text says it."""
    asking = {_line(node): node.name for node in reversed(captured.nodes)} | {None: None}
    guards, lines = env.guards[before:], getattr(env, "lines", [None] * len(env.guards))[before:]
    for guard in guards:
        if guard.size_oblivious or _read(env, exact(guard.expr)) != guard.expr:
            raise NotKeyed(f"a guard of sizes has no exact text: {guard.expr}")
    noted = zip(guards, lines, strict=True)
    return Assumed([Assumption(exact(guard.expr), asking.get(line)) for guard, line in noted], known(env))


def assume(env: Any, what: Assumed, captured: fx.Graph) -> bool:
    """Have `env` assume the same; whether it then knows the same."""
    nodes = {node.name: node for node in captured.nodes}
    for assumption in what.guards:
        asked_by(env, nodes.get(assumption.node or ""))
        env.evaluate_expr(_read(env, assumption.text))
    return known(env) == what.known


def _read(env: Any, text: str) -> Any:
    """An expression, of the symbols that `env` has."""
    import sympy
    from torch.utils._sympy import functions

    own = {symbol.name: symbol for symbol in env.var_to_range}
    return eval(text, vars(sympy) | vars(functions) | {"Symbol": lambda name, **assumptions: own[name]})
