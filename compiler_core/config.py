"""Options of a compile.  This is the only module that reads environment variables."""

from __future__ import annotations

import os
import tempfile
import threading
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from compiler_core.errors import MissingTool, UsageError
from compiler_core.records import Guard

Pairs = tuple[tuple[str, str], ...]
BLOCK_SIZES = ("i", "j", "num_warps", "stages")
"""What `Options.block_sizes` may set: the outer and inner indices of a program, its warps, the blocks loaded ahead."""
MODES = ("default", "reduce-overhead")


PassPoint = Literal["captured", "joint", "forward", "backward", "lowering", "fusion"]
"""Where a graph pass runs: the graph that it changes, or the stage after the graphs for which it is a rule."""


@dataclass(frozen=True)
class GraphPass:
    """A function that changes a graph while it is compiled, or a rule for the stages after the graphs.

    Args:
        function: takes an ``fx.GraphModule`` and changes it in place, or returns another one.  For rules, see below.
        at: the graph that it takes: ``captured`` (the program's calls of PyTorch), ``joint`` (forward and backward as
            one graph of ATen operators), ``forward`` or ``backward`` (each half, before it becomes kernels); or
            ``lowering`` or ``fusion`` for a rule.
        name: its name in the record, an identifier; that of the function if empty.
        operator: for a lowering rule, the operator that it lowers, such as ``aten.tanh.default``.

    A lowering rule takes the body of a loop nest and the operator's arguments, of which each tensor is its element at
    the current index, and returns the element of the result; ``body.op("mul", x, 2)`` applies an operation.  A fusion
    rule takes two loop nests (`tools.changes.user_changes.LoopNest`) and returns ``"keep_apart"``, ``"force_fuse"``
    (where that is possible), or None to leave the decision to the compiler.

    Raises:
        UsageError: `function` cannot be called, `at` is not such a point, `name` is not an identifier, or a lowering
        rule, and
            no other pass, has no operator.

    Example::

        def drop_dropout(gm):
            for node in gm.graph.find_nodes(op="call_function", target=torch.nn.functional.dropout):
                node.replace_all_uses_with(node.args[0])
                gm.graph.erase_node(node)

        compiled = compiler_core.compile(model, passes=[GraphPass(drop_dropout, at="captured")])

        def hard_tanh(body, x):
            return body.op("minimum", body.op("maximum", x, -1.0), 1.0)

        rule = GraphPass(hard_tanh, at="lowering", operator="aten.tanh.default")
    """

    function: Callable[..., Any]
    at: PassPoint = "captured"
    name: str = ""
    operator: str = ""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise UsageError(f"a graph pass is a function that takes a GraphModule, not {self.function!r}")
        if self.at not in typing.get_args(PassPoint):
            raise UsageError(f"a graph pass runs at {', '.join(typing.get_args(PassPoint))}, not {self.at!r}")
        if not self.name:
            name = getattr(self.function, "__name__", type(self.function).__name__)
            object.__setattr__(self, "name", name if name.isidentifier() else "graph_pass")
        if not self.name.isidentifier():
            raise UsageError(f"the name of a graph pass has letters, digits and _ only: {self.name!r}")
        if bool(self.operator) != (self.at == "lowering"):
            raise UsageError("a lowering rule, and no other pass, has an operator, such as aten.tanh.default")


@dataclass(frozen=True)
class CodeEdit:
    """Code written by hand, in place of each generated one whose whole text is `original`.

    Args:
        name: the name of what is edited, as in ids: ``forward_0``, ``forward_0.loops``, ``forward_0.schedule``,
            ``forward.wrapper``.
        original: the generated text; for a schedule, that of the loop nest.
        text: a kernel in C++ or Triton with the same parameters (lines ``LAUNCHES["name"] = {...}`` set the grid and
            the warps of a Triton kernel), a loop nest as `loops.ir` prints it, a schedule
            (`tools.changes.schedule_from_text`), or the Python text of a wrapper, for stock `torch.compile` Inductor's
            whole output code.
        kind: which of these it is.
    """

    name: str
    original: str
    text: str
    kind: Literal["kernel", "loops", "schedule", "wrapper"] = "kernel"


@dataclass(frozen=True)
class Options:
    """The options of `compiler_core.compile`.

    Args:
        backend: a name in `compiler_core.backends.registry`, a callable ``(GraphModule, example_inputs) -> callable``,
            or None: ``cpp`` for CPU tensors and ``triton`` for CUDA tensors.
        fullgraph: raise `FullGraphError` at a graph break.
        dynamic: True makes all sizes symbolic, False none, None those that have changed between calls.
        target: a device for machine code, which need not be present (``sm_90``, ``gfx942``, ``cpu``).
        strict: raise failures of the compiler, which are warnings otherwise.
        recompile_limit: the most compiles of one function.
        memory_budget: the share (0 to 1) of the saved bytes that may be kept for the backward.
        steps: record every step of the symbolic interpreter.
        guard_filter: a function that gets a compile's guards (`records.Guard`) and returns for each whether to keep it.
        memory_curve: record what other memory budgets would give.
        mode: ``default``, or ``reduce-overhead``, which replays launches by CUDA graphs where that is possible.
        keep_apart: pairs of names of nodes of the forward or backward graph that must not become one kernel.
        force_fuse: pairs that must become one kernel where that is possible.
        tune: time several block sizes of each Triton kernel on the GPU of this machine, and use the fastest.
        passes: the user's graph passes (`GraphPass`), in the order in which they run.
        edits: kernels, loops and wrappers that the user wrote by hand (`CodeEdit`).
        capture_backward: keep ``loss.backward()``, ``torch.autograd.grad`` and the steps of optimizers in the graph.
        block_sizes: (kernel, name, value) of block sizes of Triton kernels, with a name of `BLOCK_SIZES`.

    Raises:
        UsageError: an option has a wrong type or value.
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
    passes: tuple[GraphPass, ...] = ()
    edits: tuple[CodeEdit, ...] = ()
    block_sizes: tuple[tuple[str, str, int], ...] = ()
    capture_backward: bool = False

    def __post_init__(self) -> None:
        if self.dynamic is not None and not isinstance(self.dynamic, bool):
            raise UsageError(f"dynamic must be True, False or None, not {self.dynamic!r}")
        for name in ("fullgraph", "strict", "steps", "memory_curve", "tune", "capture_backward"):
            if not isinstance(getattr(self, name), bool):
                raise UsageError(f"{name} must be True or False, not {getattr(self, name)!r}")
        if not isinstance(self.recompile_limit, int) or self.recompile_limit < 1:
            raise UsageError(f"recompile_limit must be an integer of at least 1, not {self.recompile_limit!r}")
        if self.mode not in MODES:
            raise UsageError(f"mode must be one of {', '.join(MODES)}, not {self.mode!r}")
        for name in ("keep_apart", "force_fuse"):
            if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in getattr(self, name)):
                raise UsageError(f"{name} must be a sequence of pairs of node names, not {getattr(self, name)!r}")
        if not all(isinstance(each, GraphPass) for each in self.passes):
            raise UsageError(f"passes must be a sequence of compiler_core.GraphPass, not {self.passes!r}")
        if len({each.name for each in self.passes}) < len(self.passes):
            raise UsageError(f"each graph pass needs another name: {', '.join(each.name for each in self.passes)}")
        for kernel, name, value in self.block_sizes:
            is_power = isinstance(value, int) and value > 0 and (name == "stages" or value & (value - 1) == 0)
            if name not in BLOCK_SIZES or not is_power:
                raise UsageError(
                    f"block sizes are {', '.join(BLOCK_SIZES)}, powers of 2, not {name}={value!r} of {kernel}"
                )
        if self.guard_filter is not None and not callable(self.guard_filter):
            raise UsageError(f"guard_filter must be a function that takes a list of guards, not {self.guard_filter!r}")
        if not isinstance(self.memory_budget, (int, float)) or not 0 <= self.memory_budget <= 1:
            raise UsageError(f"memory_budget must be a number from 0 to 1, not {self.memory_budget!r}")


OWN_FOLDER = "cutaway"
"""The name of the folder of the kernel cache."""


def cache_dir() -> Path:
    """Returns the folder of the kernel cache: in ``$CUTAWAY_CACHE_DIR``, else in the XDG cache directory."""
    if folder := os.environ.get("CUTAWAY_CACHE_DIR"):
        return _expand(folder, "CUTAWAY_CACHE_DIR") / OWN_FOLDER
    xdg_folder = Path(os.environ.get("XDG_CACHE_HOME", ""))  # the XDG specification says to ignore relative paths
    try:
        return (xdg_folder if xdg_folder.is_absolute() else Path.home() / ".cache") / OWN_FOLDER
    except RuntimeError:  # the user has no home directory
        return Path(tempfile.gettempdir()) / f"{OWN_FOLDER}-{os.geteuid()}"


def cache_read_from() -> list[Path]:
    """Returns other kernel caches, which are only read: those in the folders that ``$CUTAWAY_CACHE_READ_FROM``
    lists."""
    folders = os.environ.get("CUTAWAY_CACHE_READ_FROM", "").split(os.pathsep)
    return [_expand(folder, "CUTAWAY_CACHE_READ_FROM") / OWN_FOLDER for folder in folders if folder]


def _expand(path: str, variable: str) -> Path:
    """Returns `path`, the value of an environment variable, as an absolute path, with ``~`` replaced."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError:
        user = path.split("/")[0]
        why = "you have no home directory" if user == "~" else f"there is no user {user[1:]!r}"
        raise MissingTool(f"{variable} is {path!r}, but {why}; set it to another folder") from None


def ranks_folder() -> Path | None:
    """Returns the folder in which each rank of a job writes its file: ``$CUTAWAY_RANKS``; None if it is not set."""
    folder = os.environ.get("CUTAWAY_RANKS")
    return _expand(folder, "CUTAWAY_RANKS") if folder else None


def rank() -> int | None:
    """Returns this process's rank as ``torchrun``, Slurm or MPI set it; None if none of them did."""
    values = map(os.environ.get, ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"))
    return next((int(value) for value in values if value and value.isdigit()), None)


def compile_timeout() -> float:
    """Returns the most seconds that a C++ or GPU compiler may take: ``$CUTAWAY_COMPILE_TIMEOUT``, else 300.

    Raises MissingTool if the variable is not a number above 0.
    """
    value = os.environ.get("CUTAWAY_COMPILE_TIMEOUT") or "300"
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        raise MissingTool(f"CUTAWAY_COMPILE_TIMEOUT must be a number of seconds above 0, such as 300, not {value!r}")
    return seconds


def cxx() -> tuple[str, ...]:
    """Returns the command of the C++ compiler: ``$CXX``, else the first of g++, clang++ and c++ that is installed;
    empty if there is none."""
    import shutil

    user_command = os.environ.get("CXX", "").strip()
    for name in [user_command] if user_command else ["g++", "clang++", "c++"]:
        if path := shutil.which(name):
            return (path,)
    name, *arguments = _split_command(user_command)  # such as "ccache g++"
    path = shutil.which(name) if name else None
    return (path, *arguments) if path else ()


def _split_command(command: str) -> list[str]:
    import shlex

    try:
        return shlex.split(command) or [""]
    except ValueError:  # an unclosed quote
        return [""]
