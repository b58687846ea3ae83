"""Warnings are eager's: each call of compiled code gives those that eager PyTorch would give.

What an operation says depends on shapes, types and flags, which guards check, so it is noted where the operation is
captured, on tensors without values.  Some kernels warn of what these do not show: `KERNELS` has a small program for
each that makes PyTorch give the same warning.  Both run again when a graph is first called: PyTorch knows which
warnings it gives once in a process, and whether it has given them.
"""

from __future__ import annotations

import contextlib
import math
import types
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx

from compiler_core.errors import Unsupported
from compiler_core.support.silenced_warnings import every_warning, unheard

aten = torch.ops.aten
Message = warnings.WarningMessage
Program = Callable[[], Any]


@dataclass(frozen=True)
class Place:
    """The instruction that calls an operation."""

    filename: str
    lineno: int
    f_globals: dict[str, Any]


@dataclass
class Said:
    """What one operation says: each time, this time and later ones."""

    run: Program
    """The operation on tensors without values, and the programs of its kernels."""
    always: list[Message]
    """Where `torch.set_warn_always` is on."""
    function: Any
    at: Place
    later: list[Message] | None = None

    def __call__(self) -> None:
        """Give the warnings."""
        if torch.is_warn_always_enabled():
            messages = self.always
        elif self.later is None:
            messages, self.later = self._now(), self._now()
        else:
            messages = self.later
        for message in messages:
            self._give(message)

    def _now(self) -> list[Message]:
        with unheard() as said, contextlib.suppress(Exception):  # it was run before
            self.run()
        return different(said)

    def _give(self, message: Message) -> None:
        filename, lineno, registry = self.at.filename, self.at.lineno, self._registry()
        code = getattr(self.function, "__code__", None)
        if isinstance(code, types.CodeType) and code.co_filename == message.filename:
            filename, lineno = message.filename, message.lineno
            registry = self.function.__globals__.setdefault("__warningregistry__", {})
        warnings.warn_explicit(message.message, message.category, filename, lineno, registry=registry)

    def _registry(self) -> dict[Any, Any]:
        """Of what was shown already at lines of the user's file."""
        registry: dict[Any, Any] = self.at.f_globals.setdefault("__warningregistry__", {})
        return registry


def different(said: Iterable[Message]) -> list[Message]:
    """Each text once: tensors without values are made by operations that may warn, too."""
    return list({(m.category, str(m.message)): m for m in said}.values())


def says(graph: fx.Graph) -> Program | None:
    """Gives the warnings of all operations; None where there are none."""
    said = [node.meta["said"] for node in graph.nodes if "said" in node.meta]
    if not said:
        return None

    def say() -> None:
        for each in said:
            each()

    return say


@dataclass
class Heard:
    """What the operation at work says."""

    programs: list[Program] = field(default_factory=list)
    """Of its kernels."""

    def kernel(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Note what the kernel of an operator will say of these arguments."""
        if (rule := KERNELS.get(func)) is not None and (program := rule(func, args, kwargs)) is not None:
            self.programs.append(program)

    def said(self, fn: Any, run: Program, messages: Sequence[Message], place: Callable[[], Place]) -> Said | None:
        programs, self.programs = self.programs, []
        if not (messages or programs):
            return None

        def again() -> None:
            run()
            for program in programs:
                program()

        with unheard() as of_kernels, every_warning():
            for program in programs:
                program()
        return Said(again, [*different(messages), *of_kernels], fn, place())


# ---------------------------------------------------------------- what kernels say

Rule = Callable[[Any, Sequence[Any], Mapping[str, Any]], Program | None]
"""Of an operator, its arguments and keyword arguments."""


def _spread(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program | None:
    """A variance over no more elements than its correction."""
    x, dim = args[0], kwargs.get("dim", args[1] if len(args) > 1 else None)
    correction = kwargs.get("correction")
    count = math.prod(x.shape[at] for at in dim or range(x.dim())) if x.dim() else 1
    count = count if x.numel() else 0
    if count - (1 if correction is None else correction) > 0:
        return None
    if x.is_complex():
        return _break(func, args, kwargs)
    function = getattr(torch, func._schema.name.partition("::")[2])
    return lambda: function(torch.zeros(1))


def _cast(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program | None:
    """A complex tensor that becomes a real one."""
    source, dtype = (args[1], args[0].dtype) if func is aten.copy_.default else (args[0], kwargs.get("dtype"))
    if dtype is None or not source.is_complex() or dtype.is_complex or dtype is torch.bool:
        return None
    return lambda: torch.zeros(1, dtype=torch.complex64).to(torch.float32)


def _search(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program | None:
    given = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
    return None if all(t.is_contiguous() for t in given) else _break(func, args, kwargs)


def _break(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program | None:
    raise Unsupported("unsupported operation", f"{func}, whose kernel warns")


KERNELS: dict[Any, Rule] = {
    **{getattr(aten, name).correction: _spread for name in ("std", "var", "std_mean", "var_mean")},
    **dict.fromkeys((aten._to_copy.default, aten.copy_.default), _cast),
    **{getattr(aten, name).Tensor: _search for name in ("searchsorted", "bucketize")},
    **{getattr(aten, name).Scalar: _search for name in ("searchsorted", "bucketize")},
    **dict.fromkeys((aten.cholesky.default, aten.triangular_solve.default), _break),
    **dict.fromkeys((aten.index_reduce.default, aten.index_reduce_.default), _break),
    **dict.fromkeys((aten.scatter.reduce, aten.scatter_.reduce), _break),
}
