"""Results of capturing a frame: guards, symbolic sizes and graph breaks, with the lines and whose code they are."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from compiler_core.records.artifacts import ItemId

_FOLDER = re.compile(r".*[\\/](?:site|dist)-packages[\\/](\w+).*")
"""Packages lie in folders of these names: of an environment, of the Python that it builds on, of the user (``pip
install --user``), of Debian."""
STANDARD_LIBRARY, OWN = "the standard library", "Cutaway"
_STANDARD_LIBRARY = re.compile(r".*[\\/](?:lib[\\/]python3\.\d+t?|Python3\d+[\\/]Lib)[\\/].*|<frozen [\w.]+>")
_FOLDERS = tuple(str(Path(__file__).parents[2] / name) + os.sep for name in ("compiler_core", "kernel_magics"))
"""The folders of Cutaway, which is no installed package if it is developed."""


def package_of(filename: str) -> str:
    """Returns the name of the installed package that a file belongs to; empty if it belongs to none."""
    found = _FOLDER.fullmatch(filename)
    return found[1] if found else ""


@functools.lru_cache(4096)
def library_of(filename: str) -> str:
    """Returns whose code a file is: a package, Python's standard library or Cutaway; empty if it is the user's."""
    if package := package_of(filename):
        return package
    if _STANDARD_LIBRARY.fullmatch(filename):
        return STANDARD_LIBRARY
    return OWN if filename.startswith((*_FOLDERS, "<cutaway ")) else ""


AROUND_CALL = "torch/_dynamo/external_utils.py"
"""The end of the path of the file that has the function which Dynamo compiles around the call of a module."""


def is_around_call(filename: str) -> bool:
    """Returns whether a compiled function of this file is the one around the call of a module of PyTorch's own."""
    return filename.replace("\\", "/").endswith(AROUND_CALL)


def is_around_function(filename: str, name: str) -> bool:
    """Returns whether this is the function that `torch.no_grad` and its like put around a function they decorate."""
    return name == "decorate_context" and is_of_contexts(filename)


def is_of_contexts(filename: str) -> bool:
    """Returns whether this is the file that has that function: a frame of it has the name of the function inside."""
    return filename.replace("\\", "/").endswith("torch/utils/_contextlib.py")


@dataclass(slots=True)
class Guard:
    """A condition under which a compile may be reused."""

    key: str
    kind: str
    source: str
    """Python expression of the value that is checked, e.g. ``L['x'].shape``."""
    code: str
    """The whole check as a Python expression."""
    expected: str
    line: ItemId | None = None
    """The user's line for which the value was read."""
    cost_ns: float | None = None
    """Nanoseconds that this guard adds to a call; those of a compile's guards add up to `Compile.guards_ns`.  Guards
    divide the cost of what they share: a path to a value, or one check that stands for several."""
    dropped: bool = False
    """Whether a `guard_filter` removed it, so that it is not checked."""
    sizes: list[int | None] | None = None
    """For a tensor's guard: the required size of each dimension, None where other sizes are allowed."""
    name: str = ""
    """The value in the user's words, e.g. ``x.shape``."""
    meaning: str = ""
    """The check in plain words, where its expression does not say it to a reader."""
    caller: ItemId | None = None
    """If `line` is a library's: the user's line that calls it."""


@dataclass(slots=True)
class Symbol:
    """A size, stride or number that is symbolic, or was until a line of the program specialised it."""

    key: str
    source: str
    """Python expression of the value, e.g. ``L['x'].size()[0]``."""
    value: float
    """Its value when this was compiled."""
    why: str
    """Why it is symbolic."""
    low: float | None = None
    high: float | None = None
    """The range of values for which the compiled code is valid; None: unbounded."""
    line: ItemId | None = None
    """The first line of the user's that used it."""
    became: str | None = None
    """The number that it was specialised to: the compiled code is valid for this value only."""
    equals: str | None = None
    """The expression of other symbols that it must equal, so that it may change only with them."""
    condition: str | None = None
    """The condition that specialised it, or that first narrowed its range."""
    condition_line: ItemId | None = None
    """The user's line that evaluated the condition."""
    name: str = ""
    """The value in the user's words."""


@dataclass(slots=True)
class StackLine:
    """One line of a stack; `line` is its item if its file is among the sources."""

    filename: str
    lineno: int
    function: str
    text: str
    line: ItemId | None = None
    library: str = ""
    """Whose code it is, such as an installed package; empty if it is the user's."""

    def __post_init__(self) -> None:
        self.library = self.library or library_of(self.filename)


def users_line(stack: Sequence[StackLine]) -> StackLine | None:
    """Returns the innermost line of the user's, else the innermost one; of those, one among the sources if possible."""
    own = [line for line in stack if not line.library] or stack
    lines = [line for line in own if line.line is not None] or own
    return lines[-1] if lines else None


RECOMPILE_LIMIT = "Dynamo recompile limit exceeded"
"""What stock calls the break of a function that it has compiled too often, which then runs as plain Python."""
NOTHING_CAPTURED = "nothing was captured"
"""Why a compile of stock was skipped that had no operation to capture."""
BreakReason = Literal[
    "data-dependent branch", "assertion", "distribution check", "tensor value read", "NumPy", "print", "inference mode",
    "backward", "gradient hook", "optimizer", "collective", "distributed tensor", "transform", "packed sequence",
    "checkpoint", "control flow", "custom operator", "sparse tensor", "tensor subclass", "clock", "lock",
    "new parameter", "new optimizer", "skipped function", "asked for", "exception", "unsupported call",
    "unsupported attribute", "unsupported operation", "overlapping write", "unsupported iteration",
    "unsupported mutation", "unsupported instruction", "class statement", "requires_grad",
    "in-place autograd.Function", "generator", "unroll limit", "other",
]  # fmt: skip
"""Why a graph breaks, in the same words for both engines: the kinds of breaks of Cutaway's own compiler, which
docs/graph_breaks.md describes.  ``other`` is what stock has besides."""


NO_CHANGE: dict[BreakReason, str] = {
    "backward": "Nothing to change: the forward before it and the backward itself are both compiled.",
    "gradient hook": "Nothing to change: both graphs are compiled. For one graph, return the tensor, and ask for its "
    "gradient outside if only later code outside uses it.",
    "optimizer": "Nothing to change here: the step runs as without the compiler, which does not change how the forward "
    "and the backward run.",
    "exception": "Nothing to change if the exception is intended.",
    "new parameter": "Nothing to change if it is made once. For one graph, make the module or parameter before the "
    "compiled function, and pass it in.",
    "new optimizer": "Nothing to change if it is made once. For one graph, make it before the compiled function.",
}
"""Of graph breaks after which nothing needs to change: why, by their reasons."""

WHOLE_STEP = (
    "For one graph of the whole step: capture_backward=True (%%compile --capture-backward), which keeps backwards and "
    "most optimizers in the graph."
)
"""What our engine adds to the hint for a graph break of a step of training, unless the option is on."""
STEP_HINTS: dict[BreakReason, str] = {each: f"{NO_CHANGE[each]}  {WHOLE_STEP}" for each in ("backward", "optimizer")}
"""The hints for the graph breaks of a step of training, with that addition, by their reasons."""
BODY_OF_LOOP = "Move the body of the loop into a function: it is compiled by itself."
"""The hint for a graph break that decides on a round of a loop, and a part of the advice on others in a loop."""
BODY_IS_COMPILED = "Nothing to change here: Python runs the loop, and the body of the loop is compiled as a function."
"""The hint of our engine for the same in a loop whose body it compiles."""
IF_IT_RAISES = (
    "Nothing to change if the line raises without torch.compile, too.  If it does not, Dynamo cannot trace it: do it "
    "before the compiled function, or after it has returned."
)
"""The hint for a graph break of stock where it expects an error."""
CALL_OUTSIDE = "Call it outside of the compiled function, or call something else."
"""The hint for a graph break in a call that cannot be captured, if what it needs is not known."""
NO_CHANGE_KNOWN = (
    "No change is known that keeps it in the graph.  If what follows does not need its result, do it after the "
    "compiled function has returned."
)
"""The hint for a graph break of our engine where none is known."""


@dataclass(slots=True)
class GraphBreak:
    """A graph break: where and why a graph ended before its frame.  `resumes`: ids of the resume functions' frames."""

    key: str
    kind: str
    """What the engine calls it; `reason` is the same for both engines."""
    explanation: str
    hint: str
    stack: list[StackLine]
    instruction: ItemId | None = None
    resumes: list[int] = field(default_factory=list)
    expression: str = ""
    """The user's expression or statement at which the graph ends, as source on one line; empty if it is not known."""
    statement: str = ""
    """The class of its statement in Python's `ast`: ``Assert``, ``While``; empty if it is not known."""
    needs_graph: bool | None = None
    """Whether it may use a tensor that is computed before it in the graph; None if that is not known."""
    reason: BreakReason = "other"
    in_loop: bool = False
    """Whether it is in a loop because of which its frame runs as plain Python."""
    link: str = ""
    """Of stock: the page of PyTorch's documentation about it."""
    is_last: bool | None = None
    """Of stock: whether the code after it only reads, formats and keeps values, as far as its text says; None if it is
    not known."""
    is_consequence: bool = False
    """Whether it is about a value that an earlier break of the same code left, such as the object whose method it
    calls, or what a ``with`` block has entered: there is no such value without that break."""

    @property
    def place(self) -> StackLine | None:
        """The line to show, as `users_line` chooses it; None without a stack."""
        return users_line(self.stack)
