"""What a compile knows and assumes about symbolic numbers, as text that can be stored and replayed.

A compile asks PyTorch's ShapeEnv about sizes.  Two ShapeEnvs with the same facts give the same answers, and each answer
that depends on the current values of sizes becomes a guard.  So a stored graph may be used where the same facts are
known as when it was compiled, once its guards have been added again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from compiler_core.errors import NotCacheable
from compiler_core.records import ItemId
from compiler_core.support import fx_symbols


@dataclass(frozen=True)
class Assumption:
    """A guard on sizes that a compile added."""

    text: str
    """A sympy expression that was assumed to be true."""
    node: str | None
    """The name of a captured node on the line that asked, if there was one."""


@dataclass(frozen=True)
class ShapeAssumptions:
    """All that one compile assumed about sizes."""

    guards: list[Assumption]
    known: list[str]
    """The facts of the ShapeEnv after that."""


def shape_env_of(values: Sequence[Any]) -> Any:
    """Returns the ShapeEnv of the symbolic numbers in `values` (fake tensors and numbers); None if all numbers are
    plain."""
    return next((number.node.shape_env for number in _numbers(values) if fx_symbols.is_symbolic(number)), None)


def _numbers(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        yield from (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)


def expr_text(expr: Any) -> str:
    """Returns an expression as text that identifies it exactly, including the assumptions about its symbols."""
    import sympy

    return str(sympy.srepr(expr))


def shape_env_facts(env: Any) -> list[str]:
    """Returns all that determines the answers of `env`, as texts.  Raises `NotCacheable` if sizes depend on data."""
    if env.var_to_range.keys() != env.backed_var_to_val.keys() or env.deferred_runtime_asserts:
        raise NotCacheable("some sizes depend on data")
    settings = f"{env.settings} {env.frozen} {env._suppress_guards_tls()}"
    divisible = sorted(map(expr_text, env.divisible))
    guards = dict.fromkeys(map(_guard_text, env.guards))
    return [settings, *divisible, *(_symbol_facts(env, s) for s in env.var_to_range), *guards]


def _guard_text(guard: Any) -> str:
    text = expr_text(guard.expr)
    return f"{text} size-oblivious" if guard.size_oblivious else text


def _symbol_facts(env: Any, symbol: Any) -> str:
    span, was = env.var_to_range[symbol], env.backed_var_to_val[symbol]
    numbers = (env.replace(symbol), span.lower, span.upper, was)
    passing = [source.is_ephemeral() for source in env.var_to_sources.get(symbol, ())]
    return " ".join([expr_text(symbol), *map(expr_text, numbers), f"{symbol in env.size_like} {passing}"])


def set_asking_node(env: Any, node: fx.Node | None) -> None:
    """Has guards that are added from now on attributed to `node`: our ShapeEnv stores its source line with each
    guard."""
    vars(env)["line"] = _source_line(node) if node else None


def _source_line(node: fx.Node) -> ItemId | None:
    return next(reversed(node.meta.get("origin", ())), None)


def collect_assumptions(env: Any, before: int, captured: fx.Graph) -> ShapeAssumptions:
    """Returns what `env` has assumed since it had `before` guards.  Raises `NotCacheable` if a guard has no exact
    text."""
    asking = {_source_line(node): node.name for node in reversed(captured.nodes)} | {None: None}
    guards, lines = env.guards[before:], getattr(env, "lines", [None] * len(env.guards))[before:]
    for guard in guards:
        if guard.size_oblivious or _parse_expr(env, expr_text(guard.expr)) != guard.expr:
            raise NotCacheable(f"a guard of sizes has no exact text: {guard.expr}")
    noted = zip(guards, lines, strict=True)
    return ShapeAssumptions(
        [Assumption(expr_text(guard.expr), asking.get(line)) for guard, line in noted], shape_env_facts(env)
    )


def replay_assumptions(env: Any, what: ShapeAssumptions, captured: fx.Graph) -> bool:
    """Has `env` assume the same, and returns whether its facts are then the same."""
    nodes = {node.name: node for node in captured.nodes}
    for assumption in what.guards:
        set_asking_node(env, nodes.get(assumption.node or ""))
        env.evaluate_expr(_parse_expr(env, assumption.text))
    return shape_env_facts(env) == what.known


def _parse_expr(env: Any, text: str) -> Any:
    """Returns the expression with this text, over the symbols of `env`."""
    import sympy

    from compiler_core.torch_private import sympy_functions

    symbols = {symbol.name: symbol for symbol in env.var_to_range}
    return eval(text, vars(sympy) | vars(sympy_functions) | {"Symbol": lambda name, **assumptions: symbols[name]})
