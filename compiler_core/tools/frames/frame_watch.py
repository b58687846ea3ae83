"""Watches which Python frames run inside a compiled call, and what the frame hook decides for each.

Nothing here runs unless a `FrameWatch` is active.  The hook is asked only about code that is not compiled yet, so
Python's profile function (`sys.setprofile`) reports the frames that run, and the regions report the hook's decisions.
"""

from __future__ import annotations

import contextlib
import random
import sys
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Any

from compiler_core import instruments
from compiler_core.errors import UsageError
from compiler_core.hook.frame_hook import FrameHook, FrameInfo, never_compile, starts_hook
from compiler_core.hook.skip_rules import is_generator, is_graph_code, is_runtime
from compiler_core.pipeline.code_state import CodeKey
from compiler_core.records import Compile, Frame, Record
from compiler_core.records.record import Fate, SeenFrame
from compiler_core.records.steps import Steps
from compiler_core.torch_private import C_eval_frame

if TYPE_CHECKING:
    from compiler_core.pipeline.compiled_region import Region

MAX_NODES = 20_000
"""Functions, each under each caller, that are counted separately."""
NOT_ASKED = "not shown to the hook, which a caller turned off, as compiler_core.disable and torch.compiler.disable do"
RUNS_GRAPH = "runs a compiled graph"
UNDER_GRAPH = "called by the code of a compiled graph"
_CALLBACK = FrameHook.__call__.__code__
_RANDOM_STATE = frozenset({random.Random.getstate.__code__, random.Random.setstate.__code__})
"""PyTorch calls them before and after it asks the hook, which is off meanwhile."""


@dataclass(eq=False)
class _Node:
    """A function under one caller."""

    code: types.CodeType | None
    is_under_graph: bool = False
    calls: int = 0
    children: dict[CodeKey, _Node] = field(default_factory=dict)


class FrameWatch:
    """Context manager that watches the frames of the calling thread.

    Not seen: other threads, frames that were active already, and what runs after the program itself sets a profile
    function.  Cutaway's own frames are left out.  A profile function of the program is set aside meanwhile.  Inlined
    calls are known for compiles that recorded their steps (the option `steps`).
    """

    def __init__(self) -> None:
        self._root = _Node(None)
        self._stack: list[tuple[types.FrameType, _Node | None, bool]] = []
        """The active frames of compiled calls, and whether each is Cutaway's; the node is None in the compiler."""
        self._nodes = 0
        self._left_out = 0
        self._thread = 0
        self._plain: dict[CodeKey, tuple[Fate, str]] = {}
        """Why code that the hook was asked about was not compiled."""
        self._compiles: dict[CodeKey, tuple[Frame, Compile]] = {}
        """The compile that made a code object."""

    def __enter__(self) -> FrameWatch:
        if instruments.frame_watch is not None:
            raise UsageError("the frames of a call are being watched already")
        self._thread, self._before = get_ident(), sys.getprofile()
        self._earlier = _installed()
        instruments.frame_watch = self
        sys.setprofile(self._event)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(self._before)
        instruments.frame_watch = None
        self._stack.clear()

    def decide(self, region: Region, info: FrameInfo) -> Any:
        """Returns the decision of `region` for a frame, and notes it; the compiler itself is not watched."""
        if get_ident() != self._thread:
            return region.decide(info)
        profile = sys.getprofile()
        sys.setprofile(None)
        try:
            decision = region.decide(info)
            if decision.guarded_code is not None:
                self._note_compile(region, info.code, decision.guarded_code)
            elif reason := region.refusal(info.code):
                self._plain[CodeKey(info.code)] = "skipped", reason
            else:
                self._plain[CodeKey(info.code)] = "plain", region.why_plain(info.code)
            return decision
        finally:
            sys.setprofile(profile)

    def _note_compile(self, region: Region, code: types.CodeType, installed: Any) -> None:
        state = region.states[CodeKey(code)]
        at = next(entry.id for entry in state.entries if entry.replacement is installed.code)
        self._compiles[CodeKey(installed.code)] = state.frame, next(c for c in state.record.compiles if c.id == at)

    # ------------------------------------------------------------ what a code object is

    def _starts(self, code: types.CodeType) -> bool:
        """Whether a compiled call starts here."""
        return starts_hook(code)

    def _is_own(self, code: types.CodeType) -> bool:
        """Whether the code is a part of the engine, which is left out."""
        return is_runtime(code) and not is_graph_code(code)

    def _runs_graph(self, code: types.CodeType) -> bool:
        return is_graph_code(code)

    def _earlier_compile(self, code: types.CodeType) -> str:
        """Returns which compile before this call made the code; an empty string if none did."""
        found = self._earlier.get(CodeKey(code))
        return f"{found} of another record" if found else ""

    def _why_not_asked(self, code: types.CodeType) -> str:
        """Returns why the hook was not asked about code that runs under no graph."""
        return NOT_ASKED

    def _why_inlined(self, filename: str, name: str) -> str:
        return ""

    # ------------------------------------------------------------ the profile function

    def _event(self, frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self._enter(frame)
        elif event == "return" and self._stack and self._stack[-1][0] is frame:
            self._stack.pop()

    def _enter(self, frame: types.FrameType) -> None:
        code = frame.f_code
        if not self._return_to_caller(frame):
            if self._starts(code):
                self._stack.append((frame, self._root, True))
            return
        _, node, is_own = self._stack[-1]
        if code.co_filename != contextlib.__file__:  # Cutaway's frames enter context managers
            is_own = self._is_own(code)
        if code is _CALLBACK or (code in _RANDOM_STATE and C_eval_frame.get_eval_frame_callback() is None):
            node = None
        elif node is not None and not is_own:
            node = self._child(node, code)
            if node is not None and _begins(frame):
                node.calls += 1
        self._stack.append((frame, node, is_own))

    def _return_to_caller(self, frame: types.FrameType) -> bool:
        """Removes what ended without an event from the stack; whether a caller of `frame` is on it."""
        caller = frame.f_back
        while self._stack and caller is not None:
            at = next((i for i in range(len(self._stack) - 1, -1, -1) if self._stack[i][0] is caller), None)
            if at is not None:
                del self._stack[at + 1 :]
                return True
            caller = caller.f_back
        self._stack.clear()
        return False

    def _child(self, node: _Node, code: types.CodeType) -> _Node | None:
        child = node.children.get(CodeKey(code))
        if child is None:
            if self._nodes == MAX_NODES:
                self._left_out += 1
                return None
            self._nodes += 1
            is_under_graph = node.is_under_graph or (node.code is not None and self._runs_graph(node.code))
            child = node.children[CodeKey(code)] = _Node(code, is_under_graph)
        return child

    # ------------------------------------------------------------ the result

    def write(self, record: Record) -> None:
        """Writes what was seen to `record.seen`."""
        record.seen = self.frames()
        if self._left_out:
            record.notes.append(
                f"{self._left_out:,} calls of further functions are not among the frames that were seen."
            )

    def frames(self) -> list[SeenFrame]:
        """Returns the frames that ran, and the calls that were inlined into them; callers come first."""
        found: list[SeenFrame] = []
        waiting: list[tuple[_Node, int | None]] = [(node, None) for node in reversed(self._root.children.values())]
        while waiting:
            node, caller = waiting.pop()
            assert node.code is not None
            frame = self._seen(node, node.code, caller)
            found.append(frame)
            at = len(found) - 1
            if frame.fate == "compiled" and frame.compile is not None:
                found += self._inlined(self._compiles[CodeKey(node.code)][1], frame.calls, at)
            waiting += [(child, at) for child in reversed(node.children.values())]
        return found

    def _seen(self, node: _Node, code: types.CodeType, caller: int | None) -> SeenFrame:
        name = _short(code.co_qualname)
        frame = SeenFrame(name, code.co_filename, code.co_firstlineno, node.calls, "skipped", caller=caller)
        if CodeKey(code) in self._compiles:
            recorded, compile_ = self._compiles[CodeKey(code)]
            frame.fate = "plain" if compile_.reason else "compiled"
            frame.line, frame.compile = recorded.line, compile_.id
            frame.reason = compile_.reason or (
                f"the rest after a graph break of {recorded.resumes}" if recorded.resumes else ""
            )
        elif earlier := self._earlier_compile(code):
            frame.fate, frame.reason = "compiled", f"before this call, as {earlier}"
        elif self._runs_graph(code):
            frame.reason = RUNS_GRAPH
        elif CodeKey(code) in self._plain:
            frame.fate, frame.reason = self._plain[CodeKey(code)]
        else:
            frame.reason = UNDER_GRAPH if node.is_under_graph else self._why_not_asked(code)
        return frame

    def _inlined(self, compile_: Compile, runs: int, at: int) -> Iterator[SeenFrame]:
        """Yields the calls that were inlined into a compile, which ran so many times; `at` is the index of its
        frame."""
        if not compile_.steps:
            return
        steps: Steps = compile_.steps[-1]
        paths: list[tuple[int, ...]] = []
        """For each call, the code objects of the calls that led to it."""
        for call in steps.calls:
            paths.append((*(paths[call.caller] if call.caller is not None else ()), call.code))
        counts = Counter(path for path in paths if len(path) > 1)
        index = {paths[0]: at} | {path: at + 1 + i for i, path in enumerate(counts)}
        for path, count in counts.items():
            code = steps.codes[path[-1]]
            line = next((line for line in code.lines if line), 0)
            caller, name = index[path[:-1]], _short(code.name)
            reason = self._why_inlined(code.filename, code.name)
            yield SeenFrame(name, code.filename, line, count * runs, "inlined", compile_.id, reason, caller)


never_compile(FrameWatch._event.__code__)
never_compile(FrameWatch._enter.__code__)


def _installed() -> dict[CodeKey, str]:
    """Returns the compile ids of all code that is installed."""
    from compiler_core.pipeline.compiled_region import regions

    entries = [entry for region in regions() for state in region.states.values() for entry in state.entries]
    return {CodeKey(entry.replacement): entry.id for entry in entries}


def _begins(frame: types.FrameType) -> bool:
    """Whether a frame starts; a generator's frame is also reported each time that it is resumed."""
    return not is_generator(frame.f_code) or not frame.f_code.co_code[frame.f_lasti + 1] & 3


def _short(qualname: str) -> str:
    return qualname.rpartition("<locals>.")[2]
