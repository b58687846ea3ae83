"""``cutaway first-difference``: where compiled code first computes otherwise than plain PyTorch in a script.

The script runs once, and its compiled functions as plain PyTorch, by a backend that keeps the captured graphs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compiler_core.tools.stock.hooks.after_import import call_after_import
from kernel_magics.command.run_script import Engine, Script, run_unrecorded

if TYPE_CHECKING:
    from compiler_core.tools.reproduce.first_difference import FirstDifference, KeptGraphs


@dataclass(frozen=True)
class Compared:
    """What came of comparing the graphs of a script."""

    first: FirstDifference | None
    graphs: int
    """How many graphs were captured."""

    def __str__(self) -> str:
        if self.first is not None:
            return str(self.first)
        if not self.graphs:
            return "The script compiled nothing."
        graphs = "1 graph" if self.graphs == 1 else f"{self.graphs:,} graphs"
        return f"No operation of {graphs} differs from plain PyTorch by more than rounding."


class ScriptGraphs:
    """The graphs that are captured while a script runs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._graphs: KeptGraphs | None = None
        self._restore: Callable[[], None] = lambda: None

    def run(self, script: Script) -> None:
        """Runs the script; what it compiles runs as plain PyTorch, and is kept."""
        call_after_import("torch", self._replace_compile)
        run_unrecorded(script)

    def compare(self) -> Compared:
        """Compiles each graph, and compares it with plain PyTorch on its first inputs."""
        from compiler_core.tools.reproduce.first_difference import first_difference_of

        self._restore()
        if self._graphs is None:
            return Compared(None, 0)
        return Compared(first_difference_of(self._graphs, self._engine), len(self._graphs.found))

    def _replace_compile(self) -> None:
        import torch

        original = torch.compile

        def compile_keeping_graphs(
            model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: Any = "inductor",
            disable: bool = False, **_: Any,
        ) -> Any:  # fmt: skip
            if model is None:  # a decorator
                given: dict[str, Any] = {"fullgraph": fullgraph, "dynamic": dynamic, "backend": backend}
                return functools.partial(compile_keeping_graphs, disable=disable, **given)
            if disable:
                return model
            from compiler_core.api.compile import compile as compile_by_core
            from compiler_core.tools.reproduce.first_difference import KeptGraphs

            self._graphs = self._graphs or KeptGraphs()
            keeping = self._graphs.backend(None if backend == "inductor" else backend)
            make: Any = compile_by_core if self._engine == "core" else original
            return make(model, fullgraph=fullgraph, dynamic=dynamic, backend=keeping)

        torch.compile = compile_keeping_graphs
        self._restore = lambda: setattr(torch, "compile", original)
