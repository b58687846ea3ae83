"""The ways through the code: which files a reader passes from one place to another, as the calls of a real compile.

A way begins at a function and ends at others; its files are those on the stack between them.
"""

from __future__ import annotations

import contextlib
import io
import random
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

import compiler_core
from kernel_magics.display import packing
from tests.docs.imports import ROOT

Ends = Callable[[types.FrameType, str, object], bool]
"""Says whether a way ends here: a frame, the event of its profile function, and what is returned."""


@dataclass(frozen=True)
class Way:
    """From a function (file and qualified name) to each of some ends."""

    title: str
    most: int
    """The number of files that this way has at most."""
    begin: tuple[str, str]
    ends: Sequence[Ends]
    run: Callable[[], None]


def called(file: str, name: str) -> Ends:
    """An end that is a call of a function, by the end of its file's path and its qualified name."""
    return lambda frame, event, value: event == "call" and _place(frame) == (file, name)


def printed(text: str, folder: str) -> Ends:
    """An end where a line with `text` is returned in `folder`."""

    def ends(frame: types.FrameType, event: str, value: object) -> bool:
        here = event == "return" and isinstance(value, str) and text in value and "\n" not in value
        return here and _place(frame)[0].startswith(folder)

    return ends


def _node_of_sin(frame: types.FrameType, event: str, value: object) -> bool:
    is_new = event == "call" and frame.f_code.co_name == "create_node" and "target" in frame.f_locals
    return is_new and "sin" in str(frame.f_locals["target"])


def _sine() -> None:
    factor = random.random()  # no graph of an earlier run fits

    def program(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * factor

    compiler_core.compile(program)(torch.ones(3))


def _print() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        print("a")
        return y + 1

    with compiler_core.record() as record, contextlib.redirect_stdout(io.StringIO()):
        compiler_core.compile(program)(torch.ones(3))
    packing.pack(record)


WAYS = [
    Way("`x.sin()` to its node", 10, ("capture/interpreter.py", "Interpreter.step"), [_node_of_sin], _sine),
    Way(
        "A frame to its installed code", 10, ("hook/frame_hook.py", "FrameHook.__call__"),
        [
            called("capture/interpreter.py", "Interpreter.run"),
            called("pipeline/graph.py", "compile_graph"),
            called("resume/frame_codegen.py", "FrameCode.generate"),
            called("guards/tree.py", "GuardTree.build"),
            called("hook/frame_hook.py", "run_code"),
        ],
        _sine,
    ),
    Way(
        "`aten.sin` to its line of C++", 12, ("pipeline/graph.py", "compile_kernels"),
        [
            called("loops/lower/pointwise.py", "_unary"),
            called("loops/fuse/rules.py", "fuse"),
            printed("::sinf(", "codegen/cpp/"),
        ],
        _sine,
    ),
    Way(
        "`print` to the text in the explorer", 12, ("capture/interpreter.py", "Interpreter.run"),
        [
            called("errors.py", "Unsupported.__init__"),
            called("tools/questions/problems.py", "_graph_break"),
            called("kernel_magics/display/packing.py", "pack"),
        ],
        _print,
    ),
]  # fmt: skip


def _place(frame: types.FrameType) -> tuple[str, str]:
    """Returns the file of a frame, from the folder of `compiler_core` or of the project, and the function's name."""
    file = frame.f_code.co_filename.removeprefix(f"{ROOT}/").removeprefix("compiler_core/")
    return file, frame.f_code.co_qualname


def files_of(way: Way) -> list[str]:
    """Returns the files that a way passes, in their order."""
    found: dict[str, None] = {}
    met: set[int] = set()

    def note(frame: types.FrameType | None, event: str, value: object) -> None:
        assert frame is not None
        reached = [at for at, ends in enumerate(way.ends) if at not in met and ends(frame, event, value)]
        met.update(reached)
        if reached:
            stack = list(_stack(frame))
            begin = max((at for at, place in enumerate(stack) if place == way.begin), default=0)
            found.update(dict.fromkeys(file for file, _ in stack[begin:]))

    way.run()  # what is set up once is not on the way
    compiler_core.reset()
    sys.setprofile(note)
    try:
        way.run()
    finally:
        sys.setprofile(None)
    assert len(met) == len(way.ends), f"{way.title}: not all ends were reached"
    return list(found)


def _stack(frame: types.FrameType | None) -> Iterator[tuple[str, str]]:
    """Yields the project's frames, the outermost first."""
    frames = []
    while frame is not None:
        if frame.f_code.co_filename.startswith((f"{ROOT}/compiler_core", f"{ROOT}/kernel_magics")):
            frames.append(_place(frame))
        frame = frame.f_back
    yield from reversed(frames)


def table() -> Iterator[str]:
    """Yields the lines of a table of all ways."""
    yield "| way | files | in this order |"
    yield "|---|---|---|"
    for way in WAYS:
        files = files_of(way)
        assert len(files) <= way.most, f"{way.title}: {len(files)} files: {files}"
        yield f"| {way.title} | {len(files)} | {', '.join(f'`{file}`' for file in files)} |"
