"""Options of a compile, and the only place that reads the environment."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler_core.errors import UsageError
from compiler_core.record import Guard

Pairs = tuple[tuple[str, str], ...]
MODES = ("default", "reduce-overhead")


@dataclass(frozen=True)
class Options:
    """What `compiler_core.compile` was asked for.

    `backend` is a name in `compiler_core.backends`, a callable ``(GraphModule, example_inputs)
    -> callable``, or None: ``cpp`` for CPU tensors and ``triton`` for CUDA tensors.  `target`
    names a device for machine code that need not be present (``sm_90``, ``gfx942``, ``cpu``).
    `memory_budget` is the share (0 to 1) of the saved bytes that the backward may keep;
    `memory_curve` records what other shares would give.
    `steps` records every step of the symbolic interpreter.  `guard_filter` is given a compile's
    guards (`record.Guard`) and says of each whether it is kept.  `mode`: ``reduce-overhead`` replays launches
    by CUDA graphs where that is possible.  `keep_apart` and `force_fuse`: pairs of names of nodes of the forward
    or backward graph that must not become one kernel, or must where that is possible.  `tune` tries several block
    sizes for each Triton kernel on the GPU that is here, and takes the fastest.
    """

    backend: str | Callable[..., Any] | None = None
    fullgraph: bool = False
    dynamic: bool | None = None
    target: str | None = None
    strict: bool = False
    recompile_limit: int = 8
    memory_budget: float = 1.0
    steps: bool = False
    guard_filter: Callable[[list[Guard]], Sequence[bool]] | None = None
    memory_curve: bool = False
    mode: str = "default"
    keep_apart: Pairs = ()
    force_fuse: Pairs = ()
    tune: bool = False

    def __post_init__(self) -> None:
        if self.dynamic is not None and not isinstance(self.dynamic, bool):
            raise UsageError(f"dynamic is True, False or None, not {self.dynamic!r}")
        for name in ("fullgraph", "strict", "steps", "memory_curve", "tune"):
            if not isinstance(getattr(self, name), bool):
                raise UsageError(f"{name} is True or False, not {getattr(self, name)!r}")
        if not isinstance(self.recompile_limit, int) or self.recompile_limit < 1:
            raise UsageError(f"recompile_limit is a whole number from 1 on, not {self.recompile_limit!r}")
        if self.mode not in MODES:
            raise UsageError(f"mode is one of {', '.join(MODES)}, not {self.mode!r}")
        for name in ("keep_apart", "force_fuse"):
            if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in getattr(self, name)):
                raise UsageError(f"{name} is a sequence of pairs of names, not {getattr(self, name)!r}")
        if self.guard_filter is not None and not callable(self.guard_filter):
            raise UsageError(f"guard_filter is a function of a list of guards, not {self.guard_filter!r}")
        if not isinstance(self.memory_budget, (int, float)) or not 0 <= self.memory_budget <= 1:
            raise UsageError(f"memory_budget is a share from 0 to 1, not {self.memory_budget!r}")


def cache_dir() -> Path:
    """Where built kernels lie: ``$CUTAWAY_CACHE_DIR``, else under the XDG cache directory."""
    own = os.environ.get("CUTAWAY_CACHE_DIR")
    if own:
        return Path(own).expanduser()
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))  # a relative one is to be ignored
    try:
        return (named if named.is_absolute() else Path.home() / ".cache") / "cutaway"
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()) / f"cutaway-{os.geteuid()}"


def cxx() -> str | None:
    """The C++ compiler: ``$CXX``, else the first of g++, clang++, c++ on the path."""
    import shutil

    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    return next((found for name in wanted if (found := shutil.which(name))), None)
