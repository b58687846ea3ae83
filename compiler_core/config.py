"""Options of a compile, and the only place that reads the environment."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler_core.errors import MissingTool, UsageError
from compiler_core.records import Guard

Pairs = tuple[tuple[str, str], ...]
MODES = ("default", "reduce-overhead")


@dataclass(frozen=True)
class Options:
    """What `compiler_core.compile` was asked for.

    `backend` is a name in `compiler_core.backends.registry`, a callable ``(GraphModule, example_inputs)
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


OWN_FOLDER = "cutaway"
"""The name of the kernel cache's own folder."""


def cache_dir() -> Path:
    """The kernel cache's own folder: in ``$CUTAWAY_CACHE_DIR``, else in the XDG cache directory."""
    if own := os.environ.get("CUTAWAY_CACHE_DIR"):
        return _expanded(own, "CUTAWAY_CACHE_DIR") / OWN_FOLDER
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))  # a relative one is to be ignored
    try:
        return (named if named.is_absolute() else Path.home() / ".cache") / OWN_FOLDER
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()) / f"{OWN_FOLDER}-{os.geteuid()}"


def cache_read_from() -> list[Path]:
    """Other kernel caches, which are only read: those in the folders that ``$CUTAWAY_CACHE_READ_FROM`` names."""
    named = os.environ.get("CUTAWAY_CACHE_READ_FROM", "").split(os.pathsep)
    return [_expanded(each, "CUTAWAY_CACHE_READ_FROM") / OWN_FOLDER for each in named if each]


def _expanded(named: str, variable: str) -> Path:
    try:
        return Path(named).expanduser().absolute()
    except RuntimeError:
        user = named.split("/")[0]
        why = "you have no home folder" if user == "~" else f"no user {user[1:]!r} is known here"
        raise MissingTool(f"{variable} is {named!r}, but {why}: let it name another folder") from None


def compile_timeout() -> float:
    """How many seconds a compiler may take: ``$CUTAWAY_COMPILE_TIMEOUT``, else 300."""
    said = os.environ.get("CUTAWAY_COMPILE_TIMEOUT") or "300"
    try:
        seconds = float(said)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        raise MissingTool(f"CUTAWAY_COMPILE_TIMEOUT is a number of seconds above 0, such as 300, not {said!r}")
    return seconds


def cxx() -> tuple[str, ...]:
    """The C++ compiler, as a command: ``$CXX``, else the first of g++, clang++, c++ on the path; empty where there
    is none."""
    import shutil

    own = os.environ.get("CXX", "").strip()
    wanted = [own] if own else ["g++", "clang++", "c++"]
    if found := next((found for name in wanted if (found := shutil.which(name))), None):
        return (found,)
    name, *arguments = _words(own)  # such as "ccache g++"
    found = shutil.which(name) if name else None
    return (found, *arguments) if found else ()


def _words(command: str) -> list[str]:
    import shlex

    try:
        return shlex.split(command) or [""]
    except ValueError:  # a quote without its other half
        return [""]
