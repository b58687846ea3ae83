"""Watches which Python frames run inside a call of stock `torch.compile`, and what Dynamo decides for each."""

from __future__ import annotations

import os
import re
import sys
import types
from contextlib import ExitStack
from threading import get_ident
from typing import Any

import torch

from compiler_core.hook.skip_rules import is_generator
from compiler_core.pipeline.code_state import CodeKey
from compiler_core.records import Record
from compiler_core.records.record import Fate
from compiler_core.tools.frames.frame_watch import FrameWatch
from compiler_core.tools.stock.hooks import torch_internals

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_EVAL_FRAME = _TORCH + os.path.join("_dynamo", "eval_frame.py")
_OWN_FILES = tuple(
    _TORCH + part.replace("/", os.sep)
    for part in (
        "_dynamo/", "_functorch/", "_inductor/", "_logging/", "_guards.py", "_compile.py", "_utils_internal.py",
        "_higher_order_ops/", "_ops.py", "compiler/__init__.py", "fx/_symbolic_trace.py", "_library/", "_subclasses/",
        "utils/_config_module.py", "utils/_python_dispatch.py", "utils/_ordered_set.py", "utils/_pytree.py",
    )
)  # fmt: skip
"""Stock's own parts that run around and under compiled code; they are left out, as Cutaway's are."""
NOT_ASKED = "not shown to Dynamo, which a caller turned off, as torch.compiler.disable does"
GIVEN_UP = "Dynamo gave it up in an earlier call, and does not look at it again"
GENERATOR = "a generator or coroutine"
_PLAIN_REASONS = ("no tensor-related", "an error was suppressed", "Dynamo decided to skip", "compilation failed")
"""How Dynamo's reasons begin for code that it compiles in other calls."""
_FILES = re.compile(r"(?:file|function) .*\(([^()]*)\)$")
_PACKAGES = re.compile(r".*[\\/](?:(?:site|dist)-packages|python3\.\d+)[\\/]")


class StockFrameWatch(FrameWatch):
    """As `FrameWatch`, for stock `torch.compile`; Dynamo's reasons are passed on as they are.

    Where a PyTorch does not say why it gave a frame up, its rules for code and the graph break are what is known.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ids: dict[CodeKey, str] = {}
        """The id of the compile that made a code object."""
        self._inline_rules: dict[tuple[str, str], str] = {}
        """By the file and the name of a function: the rule by which Dynamo inlines it."""
        self._stack_of_hooks = ExitStack()

    def __enter__(self) -> StockFrameWatch:
        super().__enter__()
        self._observe_decisions()
        self._observe_inlining()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack_of_hooks.close()
        super().__exit__(*error)

    def _observe_decisions(self) -> None:
        cls = torch_internals.frame_callback()
        if cls is None:
            return
        original = cls.__call__

        def decide(callback: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
            if get_ident() != self._thread:
                return original(callback, frame, *args, **kwargs)
            profile = sys.getprofile()
            sys.setprofile(None)
            try:
                result = original(callback, frame, *args, **kwargs)
                self._note(frame.f_code, result)
                return result
            finally:
                sys.setprofile(profile)

        self._stack_of_hooks.callback(setattr, cls, "__call__", original)
        cls.__call__ = decide

    def _observe_inlining(self) -> None:
        cls = torch_internals.inlining_interpreter()
        if cls is None:
            return
        original = cls.check_inlineable

        def check(function: Any, *args: Any) -> Any:
            result = original(function, *args)
            code = function.get_code()
            self._inline_rules[code.co_filename, code.co_name] = getattr(result, "reason", None) or ""
            return result

        self._stack_of_hooks.callback(setattr, cls, "check_inlineable", staticmethod(original))
        cls.check_inlineable = staticmethod(check)

    def _note(self, code: types.CodeType, result: Any) -> None:
        compiled = getattr(result, "guarded_code", None)
        if compiled is not None:
            self._ids[CodeKey(compiled.code)] = str(compiled.compile_id)
        else:
            reason = getattr(result, "skip_reason", None) or ""
            rule = _rule_text(torch_internals.skip_rule(code), "skips")
            fate: Fate = "plain" if reason.startswith(_PLAIN_REASONS) or not (rule or reason) else "skipped"
            self._plain[CodeKey(code)] = fate, reason if fate == "plain" or not rule else rule

    # ------------------------------------------------------------ which frames there are

    def _starts(self, code: types.CodeType) -> bool:
        return code.co_filename == _EVAL_FRAME and code.co_qualname.startswith("_TorchDynamoContext.__call__.<locals>.")

    def _is_own(self, code: types.CodeType) -> bool:
        return super()._is_own(code) or code.co_filename.startswith(_OWN_FILES)

    def _runs_graph(self, code: types.CodeType) -> bool:
        return super()._runs_graph(code) or code.co_filename.startswith(torch_internals.output_code_folder())

    def _earlier_compile(self, code: types.CodeType) -> str:
        return "an earlier compile of stock torch.compile" if torch_internals.was_compiled_to(code) else ""

    def _why_not_asked(self, code: types.CodeType) -> str:
        if rule := torch_internals.skip_rule(code):
            return _rule_text(rule, "skips")
        if is_generator(code):
            return GENERATOR
        is_given_up = torch_internals.was_asked_about(code) and not torch_internals.cache_entries(code)
        return GIVEN_UP if is_given_up else NOT_ASKED

    def _why_inlined(self, filename: str, name: str) -> str:
        return _rule_text(self._inline_rules.get((filename, name), ""), "inlines")

    # ------------------------------------------------------------ the result

    def write(self, record: Record) -> None:
        by_id = {compile_.id: (frame, compile_) for frame in record.frames for compile_ in frame.compiles}
        self._compiles |= {key: by_id[id_] for key, id_ in self._ids.items() if id_ in by_id}
        super().write(record)
        tried = {(f.filename, f.line): f.compiles[-1] for f in record.frames if f.compiles}
        for frame in record.seen:
            compile_ = tried.get((frame.filename, frame.line))
            if frame.fate == "plain" and compile_ is not None and compile_.breaks:
                frame.compile = compile_.id
                frame.reason = f"Dynamo cannot go on after its graph break: {compile_.breaks[-1].kind}"


def _rule_text(rule: str, verb: str) -> str:
    """Returns one of Dynamo's rules for code as a sentence; rules without a file or function stay as they are."""
    if rule == "inlined by default":
        return ""
    found = _FILES.match(rule)
    return f"Dynamo {verb} code of {_PACKAGES.sub('', found[1])}" if found else rule
