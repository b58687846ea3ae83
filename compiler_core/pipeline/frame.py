"""What happens to a frame, in order.

    1 the hook sees a frame before it runs         hook/frame_hook.py, pipeline/compiled_region.py
      (code that is never compiled                 hook/skip_rules.py)
    2 capture the frame symbolically               capture/interpreter.py -> capture/attempt.py
      instructions                                 capture/opcodes/
      symbolic values                              capture/values/, capture/values/builtin/, capture/values/user/
      calls and operators                          capture/rules/, capture/rules/python/, capture/rules/torch/
      fake tensors, symbolic sizes                 capture/tensors/
      changes of outside objects                   capture/side_effects.py
      the graph, its inputs, what it depends on    capture/graph_builder.py,
                                                   capture/outside_objects.py, capture/guard_collector.py
      (if a graph break is found, capture again up to the break: capture/break_kinds.py, resume/frame_codegen.py)
    3 compile the captured graph                   pipeline/graph.py
    4 generate the code that replaces the frame    resume/: resume/frame_codegen.py, resume/resume_functions.py,
                                                   resume/loop_functions.py
    5 verify the generated code                    bytecode/verify.py
    6 build the guards                             guards/
    7 install the code under its guards            hook/frame_hook.py

If a stage fails, the frame runs as plain Python, the failure is recorded, and a warning is given (`hook/failures.py`).
If the graph fails when it runs, the frame runs again (`resume/eager_fallback.py`).  All stages share what is in
support/ (PyTorch's own warnings: `support/eager_warnings.py`; Ctrl-C: `support/interrupts.py`), use bytecode/, and
write to the record (records/).  The options are in config.py, the errors in errors.py.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.autograd.autograd_function import with_spent_history
from compiler_core.bytecode import bytecode_text, disassemble_cached, verify
from compiler_core.capture import break_kinds
from compiler_core.capture.attempt import Capture
from compiler_core.capture.break_kinds import BreakingCode, Earlier
from compiler_core.capture.bytecode_emitter import graph_outputs
from compiler_core.capture.guard_collector import SourceLines, add_source, format_stack
from compiler_core.capture.interpreter import Interpreter, StopCapture, StopPoint
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.cached_calls import CallLog, known_outcomes
from compiler_core.capture.values.user.functions import CellValue
from compiler_core.errors import CompilerBug, FullGraphError, Unsupported, UsageError, set_error_location
from compiler_core.guards import (
    GuardSpec,
    GuardTree,
    HeldTensors,
    apply_guard_filter,
    guards_text,
)
from compiler_core.guards.lifetimes import on_death
from compiler_core.guards.sources import FreeCellSource, LocalSource, Scope, Source
from compiler_core.hook import frame_hook
from compiler_core.hook.failures import only_recorded
from compiler_core.hook.frame_hook import FrameInfo
from compiler_core.hook.skip_rules import is_library_file
from compiler_core.instruments import tool
from compiler_core.pipeline.code_state import CodeKey, CodeState, InstalledCode
from compiler_core.pipeline.graph import compile_graph, user_changes
from compiler_core.records import Compile, GraphBreak, StackLine, Stage
from compiler_core.records.capture import BODY_IS_COMPILED, BODY_OF_LOOP, STEP_HINTS, is_around_function
from compiler_core.records.recompiles import has_generated_name, readable
from compiler_core.resume import eager_fallback, resume_functions
from compiler_core.resume.break_codegen import MakeResumeCode
from compiler_core.resume.eager_fallback import CachedCalls
from compiler_core.resume.frame_codegen import MAX_LEVEL, FrameCode, active_frames, break_points_for
from compiler_core.resume.loop_functions import LoopCode
from compiler_core.resume.observed_drops import level_that_drops
from compiler_core.resume.resume_functions import BreakingInstruction, ResumeLayout
from compiler_core.support.fx_graphs import record_graph
from compiler_core.support.subgraphs import record_subgraphs
from compiler_core.support.torch_state import for_tracing
from compiler_core.torch_private import EnableTorchFunction

if TYPE_CHECKING:
    from compiler_core.pipeline.compiled_region import Region

MAX_SPLIT_ATTEMPTS = 4
_OF_OBJECTS = frozenset(
    {"unsupported call", "unsupported attribute", "unsupported operation", "unsupported iteration"}
    | {"unsupported mutation", "generator", "print"}
)
"""Kinds of breaks at what an object of Python's does."""
_UNKNOWN_CODE = frozenset({"skipped function", "unsupported call", "asked for", "transform", "checkpoint"})
"""Kinds of breaks at calls of code that may do anything."""
_WRITES = frozenset({"optimizer", "backward", "collective", "unsupported mutation", "in-place autograd.Function"})
"""Kinds of breaks at what changes tensors or objects."""
_ANY_CODE = (lambda: None).__code__


def _no_code(*_: object) -> types.CodeType:
    return _ANY_CODE


@dataclass
class CaptureBreak:
    """Why and where a capture ended early: `stop` is where the frame itself was."""

    reason: Unsupported
    stop: StopPoint
    stack: list[StackLine]
    code: BreakingCode
    captures_backward: bool
    """Whether backwards and steps of optimizers may be in a graph."""

    @property
    def about(self) -> str:
        """What the break is about in parentheses: in the compiler's words, or the user's if these name no value."""
        about = readable(self.reason.context)
        if not about or has_generated_name(self.reason.context):
            is_users = self.code.expression and self.stack and not self.stack[0].library
            about = f"`{self.code.expression}`" if is_users else ""
        return f" ({about.removesuffix('.')})" if about else ""

    @property
    def explanation(self) -> str:
        return break_kinds.KINDS[self.reason.kind].explanation

    @property
    def hint(self) -> str:
        hint = break_kinds.KINDS[self.reason.kind].hint_for(self.code)
        return hint if self.captures_backward else STEP_HINTS.get(self.reason.kind, hint)


@dataclass
class CapturedFrame:
    """The captured part of a frame: all of it or, after a break, the part before `stop`."""

    capture: Capture
    active: list[Interpreter]
    """The active frames where it ended, outermost first."""
    break_: CaptureBreak | None = None
    stop: StopPoint | None = None

    @property
    def is_empty(self) -> bool:
        return self.capture.graph.is_empty and not self.capture.effects and not self.capture.graph.state_changes


class FrameCompile:
    """One compile of one frame; `run` has the steps in order."""

    def __init__(self, region: Region, state: CodeState, info: FrameInfo, scope: Scope, compile_: Compile) -> None:
        self.region = region
        self.state = state
        self.info = info
        self.scope = scope
        self.compile = compile_
        self.lines = SourceLines(state.record, compile_)
        self._attempts: list[Capture] = []
        self._loop_break: CaptureBreak | None = None
        self._loop: LoopCode | None = None
        """The functions for the loop in which capture stopped, if Python runs the loop and its body is a function."""
        self._may_make_leaves = True
        self._callee_names: dict[str, str] = {}
        """The expressions of what the last resume function gets, by the parameters that its caller's has for it."""
        self._outcomes, cause = known_outcomes.take(info.code)
        self._awaited: list[tuple[str, Source, Any]] = []
        compile_.cause = cause or compile_.cause

    def run(self) -> Any:
        """Compiles the frame and installs the code; returns the decision for the frame hook."""
        try:
            return self._run()
        finally:
            for capture in self._attempts:
                capture.graph.forget_real_tensors()
                if self.compile.outcome != "compiled":
                    capture.made_state.drop()

    def _run(self) -> Any:
        with self._only_recorded("capture", "the bytecode"):
            self._record_bytecode()
        with self.compile.step("capture"):
            try:
                captured = self._capture()
            finally:
                self._record_line_times()
        capture = captured.capture
        self.state.has_operations |= not capture.graph.is_empty
        self._loop = self._loop_functions(captured)
        if captured.is_empty and captured.stop is not None and not captured.stop.runs_instruction and not self._loop:
            break_ = captured.break_
            assert break_ is not None
            where = "inside a loop" if break_.stop.in_loop else "where the frame begins"
            reason = f"{break_.reason.kind} {where}: the frame runs as plain Python"
            return self.region.skip_frame(self.state, self.info, self.compile, reason)
        only_reads = capture.graph.only_reads and not capture.effects
        if captured.break_ is None and (captured.is_empty or only_reads) and not capture.cached_calls.calls:
            self.compile.reason = "no tensor operations: it runs as it is while its guards hold"
            return self._install(self.info.code, capture, lambda held: self.info.code)
        make_code = partial(
            FrameCode,
            capture,
            captured.active,
            captured.stop,
            self._resume_code,
            self._single_instruction_code,
            self._cached_calls(capture),
            self._loop is not None,
        )
        is_plain_loop = captured.break_ is not None and captured.break_.stop.in_loop and self._loop is None
        self._loop_break = captured.break_ if is_plain_loop else None
        code = make_code()
        outputs = graph_outputs(capture, code.live())
        compiled = None if capture.graph.is_empty else self._compile_graph(capture, outputs)
        is_replayed = any(each.graph == "forward" and not each.reason for each in self.compile.cuda_graphs)
        with self.compile.step("bytecode"):
            new = code.generate(compiled, outputs, is_replayed)
            verify(new)
            with self._only_recorded("bytecode", "the generated bytecode"):
                self._record_generated(new)

        def with_held_tensors(held: HeldTensors) -> types.CodeType:
            code = make_code()
            code.emit.held_tensors = held
            return code.generate(compiled, outputs, is_replayed)

        return self._install(new, capture, with_held_tensors)

    # ------------------------------------------------------------ 2 capture

    def _capture(self) -> CapturedFrame:
        """Captures the whole frame, or the part before a graph break."""
        before = len(self.compile.breaks)
        captured = self._capture_frame()
        graph = captured.capture.graph
        if graph.new_leaves and graph.loses_leaf(
            graph_outputs(captured.capture, self._code_to_try(captured, _no_code).live())
        ):
            self._may_make_leaves = False
            del self.compile.breaks[before:]
            captured = self._capture_frame()
        return captured

    def _capture_frame(self) -> CapturedFrame:
        """Captures the whole frame or, if the first attempt finds a graph break, the part before it."""
        capture, tx = self._new_attempt()
        try:
            _interpret(capture, tx)
            capture.graph.current_tx = None  # otherwise the user's objects live until the next garbage collection
            return CapturedFrame(capture, [tx])
        except Unsupported as error:
            reason = _without_traceback(error)
        stack, code = list[StackLine](), BreakingCode()
        with self._only_recorded("capture", "the code at a graph break"):
            stack = capture.graph.current_tx.full_stack()
            if breaking_code := tool("breaking_code"):
                kind = self.state.frame.kind
                earlier = self.state.earlier | Earlier(kind == "called", kind == "called")
                code = breaking_code(capture.graph.current_tx, kind == "root", earlier)
        if reason.kind == "data-dependent branch" and code.statement == "Assert":
            reason = Unsupported("assertion", reason.context)
        reason.context = capture.guards.symbols.with_values(reason.context)  # it may be an exception of the program
        break_ = CaptureBreak(reason, tx.stop_point, stack, code, self.region.options.capture_backward)
        break_ = self._break_of_loop(break_)
        self._record_break(break_)
        if self.region.options.fullgraph:
            users = capture.graph.current_tx.user_stack()
            capture.graph.current_tx = None
            raise FullGraphError(break_message(replace(break_, stack=users)), users)
        if reason.kind == "exception" and capture.asked_if_compiling:
            capture.graph.current_tx = None
            raise reason  # code that is not compiled may take another way, on which nothing raises
        stops = break_points_for(capture.graph.current_tx, reason)
        capture.graph.current_tx = None
        captured = self._capture_up_to_break(break_, stops)
        if captured is None:
            raise reason
        return captured

    def _break_of_loop(self, break_: CaptureBreak) -> CaptureBreak:
        """Returns the break in a loop because of which Python runs the whole loop, if that is why a frame breaks.

        Such a frame is a resume function that gets the loop's iterator, which cannot be captured.
        """
        known = self.state.loop_break
        if known is None or break_.reason.kind != "unsupported iteration":
            return break_
        return replace(known, stop=replace(known.stop, at=break_.stop.at))

    def _capture_up_to_break(self, break_: CaptureBreak, stops: Sequence[StopPoint]) -> CapturedFrame | None:
        """Captures again, up to the first break point after which every live value can be reconstructed.

        Returns None if there is none.
        """
        attempts, level = 0, MAX_LEVEL
        for stop in stops:
            if stop.level > level or attempts == MAX_SPLIT_ATTEMPTS:
                continue
            attempts += 1
            captured = self._capture_before(stop, break_)
            if stop.runs_instruction and (dropping := level_that_drops(captured.active)) is not None:
                level = min(level, dropping - 1)
            if captured.capture.unfinished or stop.level > level:
                continue
            unsupported = self._unsupported_level(captured)
            if unsupported is None:
                return captured
            level = unsupported
        return None

    def _capture_before(self, stop: StopPoint, break_: CaptureBreak) -> CapturedFrame:
        capture, tx = self._new_attempt()
        capture.stop_at = stop.step
        try:
            _interpret(capture, tx)
        except StopCapture:
            for kind, source, value in self._awaited:
                capture.guards.add(kind, source, value)
            active, capture.graph.current_tx = active_frames(capture.graph.current_tx), None
            return CapturedFrame(capture, active, break_, stop)
        except Unsupported as error:
            raise CompilerBug(f"capture broke at another instruction the second time: {error}") from error
        raise CompilerBug("capture did not break the second time")

    def _record_line_times(self) -> None:
        with self._only_recorded("capture", "the times of lines"):
            for capture in self._attempts:
                capture.guards.line_clock.add_to(self.compile.line_times, "capture")

    def _unsupported_level(self, captured: CapturedFrame) -> int | None:
        """Returns the index of the active frame whose state cannot be reconstructed after the break, or None."""
        code = self._code_to_try(captured, _no_code)
        try:
            code.generate(None, graph_outputs(captured.capture, code.live()))
        except Unsupported:
            return code.level
        return None

    def _code_to_try(self, captured: CapturedFrame, resume_code: MakeResumeCode) -> FrameCode:
        capture = captured.capture
        return FrameCode(capture, captured.active, captured.stop, resume_code, _no_code, self._cached_calls(capture))

    def _new_attempt(self) -> tuple[Capture, Interpreter]:
        self._record_line_times()
        for earlier in self._attempts:
            earlier.made_state.drop()
        policy = self.region.policy(self.info.code)
        recorder, interpreter = None, Interpreter
        if self.region.options.steps and (record_steps := tool("record_steps")):
            recorder, interpreter = record_steps(self.compile)
        capture = Capture(self.scope, policy, recorder)
        capture.graph.captures_backward = self.region.options.capture_backward
        capture.graph.may_make_leaves = self._may_make_leaves
        capture.cached_calls = CallLog(self._outcomes, self.state.cache_changes)
        capture.awaited = self._awaited
        self._attempts.append(capture)
        info, outside = self.info, capture.outside
        arguments = {n: v for n, v in info.f_locals.items() if n not in info.code.co_freevars}
        names, parameters = self.state.stack_names, self._parameters_around()
        local: dict[str, Value] = {
            n: outside.wrap(v, LocalSource(n, names.get(n, ""), parameters.get(n))) for n, v in arguments.items()
        }
        closure: list[CellValue] = [outside.cell(info.closure[n], FreeCellSource(n)) for n in info.code.co_freevars]
        tx = interpreter(capture, self.lines, info.code, info.f_globals, info.f_builtins, local, closure)
        return capture, tx

    def _parameters_around(self) -> dict[str, tuple[str, ...]]:
        """Returns, for ``*args`` and ``**kwargs`` of the function that `torch.no_grad` and its like put around another,
        the parameters of the latter, which is called with them as they are."""
        inner = self._function_inside()
        if inner is None:
            return {}
        return {"args": inner.__code__.co_varnames[: inner.__code__.co_argcount], "kwargs": ()}

    def _function_inside(self) -> types.FunctionType | None:
        """Returns the function around which `torch.no_grad` and its like have put this one; None if it is another."""
        code = self.info.code
        around = self.info.closure.get("func") if is_around_function(code.co_filename, code.co_name) else None
        inside = around.cell_contents if around is not None else None
        return inside if isinstance(inside, types.FunctionType) else None

    # ------------------------------------------------------------ 3, 4 graph and generated code

    def _compile_graph(self, capture: Capture, outputs: dict[torch.fx.Node, int]) -> Callable[..., Any]:
        for place, values in capture.effects.places():
            for node in graph_outputs(capture, values):
                node.meta.setdefault("place", place)
        for node in graph_outputs(capture, capture.effects.gradients()):
            node.meta["is_gradient"] = True
        spent = capture.graph.spent_outputs(list(outputs))
        graph = capture.graph.finish(outputs, spent)
        with self._only_recorded("capture", "the captured graph"):
            record_graph(self.compile, "captured", "captured", graph)
            record_subgraphs(self.compile, graph)
        inputs, options = capture.graph.example_inputs(), self.region.options
        # FX traces patterns of passes by torch functions
        with self.region.replay_pools.used(), for_tracing(), EnableTorchFunction():
            if changes := user_changes(self.compile, options):
                graph = changes.graph(graph, "captured")
            compiled = compile_graph(graph, inputs, self.compile, options)
        name = f"graph_{self.compile.id.replace('/', '_')}"
        function = eager_fallback.none_on_failure(graph, compiled, name, self.compile, options)
        return with_spent_history(function, spent) if spent else function

    def _loop_functions(self, captured: CapturedFrame) -> LoopCode | None:
        """Returns the functions with which Python runs the loop in which capture stopped.

        Returns None if it did not stop in one, or if all of the loop runs as plain Python, such as that of a library,
        which mostly is over different objects.
        """
        stop, tx = captured.stop, captured.active[0]
        if (
            stop is None
            or captured.break_ is None
            or not stop.in_loop
            or stop.runs_instruction
            or is_library_file(tx.code.co_filename)
        ):
            return None
        layouts: list[ResumeLayout] = []

        def note_layout(_: Interpreter, layout: ResumeLayout) -> types.CodeType:
            layouts.append(layout)
            return _ANY_CODE

        code = self._code_to_try(captured, note_layout)
        code.generate(None, graph_outputs(captured.capture, code.live()))
        found = self.region.loop(tx.code, layouts[0], stop.at)
        if found is not None:
            self._explain_break(captured.break_, is_split=True)
        return found

    def _resume_code(self, tx: Interpreter, layout: ResumeLayout) -> types.CodeType:
        """Returns the code of the function that continues an active frame; it is the same for every compile."""
        if self._loop is None:
            made = self.region.code((CodeKey(tx.code), layout), lambda: resume_functions.resume_code(tx.code, layout))
            # branches that meet continue in one function, if it also has the same globals
            origin = CodeKey(resume_functions.original_code(tx.code) or tx.code), id(tx.f_globals)
            code = self.region.code((origin, made), lambda: made)
            line = tx.instructions[layout.target].lineno or tx.code.co_firstlineno
            return self._add_resume(tx, code, layout, line)
        for part in self._loop.parts:
            self._add_resume(tx, *part)
        self.region.exclude(self._loop.code, "runs a loop whose body is compiled by itself")
        return self._loop.code

    def _add_resume(
        self, tx: Interpreter, code: types.CodeType, layout: ResumeLayout, line: int, carried: Sequence[str] = ()
    ) -> types.CodeType:
        """Adds the frame of a function that continues one of the active frames after the break, and returns `code`."""
        known = self.region.states.get(CodeKey(code))
        if known is None or known.record is not self.state.record:
            frame = self.region.add_resume(code, self.info.code, line, self.compile, self.state.record)
            self.region.states[CodeKey(code)].loop_break = self._loop_break
            self.region.states[CodeKey(code)].frame.carried = list(dict.fromkeys([*carried, *self.state.frame.carried]))
            with self._only_recorded("bytecode", "what was done before a graph break"):
                self.region.states[CodeKey(code)].earlier = self._done_before_break(tx)
            if tx.code is self.info.code:
                self.region.states[CodeKey(code)].frame.name = self.state.frame.name
            with self._only_recorded("bytecode", "the expressions of stack values"):
                if stack_names := tool("stack_names"):
                    self.region.states[CodeKey(code)].stack_names = {
                        **stack_names(tx, layout),
                        **(self._callee_names if layout.callee_args is not None else {}),
                    }
        else:
            frame = known.frame.id
            known.earlier |= self._done_before_break(tx)
        self._callee_names = {}
        with self._only_recorded("bytecode", "the expressions of a caller's values"):
            if callee_names := tool("callee_names"):
                self._callee_names = callee_names(tx, layout, self.region.states[CodeKey(code)].stack_names)
        if frame not in self.compile.breaks[-1].resumes:
            self.compile.breaks[-1].resumes.append(frame)
        return code

    def _done_before_break(self, tx: Interpreter) -> Earlier:
        """Returns what the frame may do up to its graph break, other than by what can be moved before the call."""
        break_ = self.compile.breaks[-1]
        is_unknown = break_.reason in _UNKNOWN_CODE and break_.needs_graph is not False
        done = Earlier(tx.capture.graph.mode.has_drawn, bool(tx.capture.changes()))
        return self.state.earlier | done | Earlier(is_unknown, is_unknown or break_.reason in _WRITES)

    def _cached_calls(self, capture: Capture) -> CachedCalls:
        state, drop = self.state, self.region.make_dropper(self.state, self.compile.id)
        changes, hook = state.cache_changes, self.region.hook
        expected = [call.expected for call in capture.cached_calls.calls]
        return CachedCalls(self.info.code, self.compile.id, expected, changes, drop, hook)

    def _single_instruction_code(
        self, tx: Interpreter, what: BreakingInstruction, stack: Sequence[str]
    ) -> types.CodeType:
        """Returns the code of a function that runs only the instruction of `tx` that broke the graph."""
        key = (CodeKey(tx.code), tx.pc, tx.kw_names, tuple(stack))
        code = self.region.code(key, lambda: resume_functions.instruction_code(tx.code, what, stack))
        self.region.exclude(code, "runs the instruction that broke the graph")
        return code

    # ------------------------------------------------------------ 6, 7 guards and installation

    def _install(
        self, code: types.CodeType, capture: Capture, with_held_tensors: Callable[[HeldTensors], types.CodeType]
    ) -> Any:
        """Installs `code` under its guards.

        `with_held_tensors` makes the same code with tensors that are loaded from lists.
        """
        guards = self._record_guards(capture)  # only now, because compiling the graph adds guards on sizes
        with self.compile.step("guards", "build the guard tree"):
            tree = GuardTree(self.scope, self.info.code)
            manager = tree.build(guards)
            with EnableTorchFunction():  # as where the frame was entered
                holds = manager.root.check(self.info.f_locals)
                failing = [] if holds else manager.root.check_verbose(self.info.f_locals).verbose_code_parts
            if not holds:
                raise CompilerBug(f"a guard does not hold for the frame it was made from: {failing}")
            with self._only_recorded("guards", "the costs of guards"), EnableTorchFunction():
                if record_guard_costs := tool("record_guard_costs"):
                    record_guard_costs(self.compile, guards, tree, self.info.f_locals)
        refers_to = on_death(capture.guards.mortals(), self.region.make_dropper(self.state, self.compile.id))
        makes = capture.effects.written_sources() if capture.graph.captures_backward else frozenset[str]()
        breaks, own = bool(self.compile.breaks), self.info.code
        makers = tuple(capture.state_makers)
        self.state.entries.append(
            InstalledCode(self.compile.id, own, code, breaks, guards, manager, refers_to, makes=makes, makers=makers)
        )
        self.compile.outcome, self.state.frame.skipped = "compiled", ""
        if self.info.code is self.region.root and not self.compile.breaks:
            direct = with_held_tensors(tree.held_tensors) if tree.held_tensors else code
            self.region.hook.set_direct_call(direct, self.info.f_globals, manager)
        if capture.cached_calls.calls:  # the run that begins now makes none of them again
            self.state.makes_cached_calls = True
            known_outcomes.put(self.info.code, capture.cached_calls.made())
        if made := capture.cached_calls.made_after_break():
            known_outcomes.put_after_break(self.info.code, made)
        return frame_hook.run_code(code, manager, self.compile.id)

    # ------------------------------------------------------------ the record

    def _only_recorded(self, stage: Stage, what: str) -> AbstractContextManager[None]:
        return only_recorded(self.compile, stage, what, self.region.options.strict)

    def _record_bytecode(self) -> None:
        code = self.info.code
        if inside := self._function_inside():
            self.state.frame.name = inside.__name__
        if is_library_file(code.co_filename):
            add_source(self.state.record, code)
        else:
            self.lines.add(code)
        self._instructions = disassemble_cached(code)[0]
        text, spans = bytecode_text(code)
        artifact = self.compile.artifact("bytecode", "bytecode", "bytecode", text, spans)
        for i, instruction in enumerate(self._instructions):
            line = self.lines.item(code.co_filename, instruction.lineno) if instruction.lineno else None
            self.compile.link(artifact.item(str(i)), [line] if line else [], "compiled by Python")

    def _record_break(self, break_: CaptureBreak) -> None:
        key, code = f"b{len(self.compile.breaks)}", break_.code
        recorded = GraphBreak(key, break_.reason.kind, "", "", break_.stack)
        recorded.expression, recorded.statement = code.expression, code.statement
        recorded.needs_graph = code.needs_graph if code.expression else None
        recorded.reason = break_.reason.kind
        recorded.instruction = f"{self.compile.id}:bytecode#{break_.stop.at}"
        self.compile.breaks.append(recorded)
        with self._only_recorded("capture", "the explanation of a graph break"):
            recorded.is_consequence = break_.reason.kind in _OF_OBJECTS and has_generated_name(break_.reason.context)
            self._explain_break(break_, is_split=False)

    def _explain_break(self, break_: CaptureBreak, *, is_split: bool) -> None:
        """Records what the last break means; `is_split`: if it is in a loop, whether the loop's body is compiled."""
        recorded = self.compile.breaks[-1]
        recorded.in_loop = break_.stop.in_loop and not is_split
        recorded.hint = BODY_OF_LOOP if recorded.in_loop and break_.hint == BODY_IS_COMPILED else break_.hint
        recorded.explanation = break_.explanation.removesuffix(".") + f"{break_.about}."
        if break_.stop.in_loop:
            outer = break_.stack[break_.stop.level : -1]
            recorded.explanation += f"  {break_kinds.in_a_loop(outer[0] if outer else None, is_split=is_split)}"

    def _record_guards(self, capture: Capture) -> list[GuardSpec]:
        with self.compile.step("guards"):
            guards = capture.all_guards()
            kept = apply_guard_filter(guards, self.region.options.guard_filter)
            capture.guards.symbols.check_marked()
            with self._only_recorded("guards", "the guards"):
                self.compile.symbols = capture.guards.symbols.records()
                text, spans, self.compile.guards = guards_text(guards, kept, self.compile.symbols)
                artifact = self.compile.artifact("guards", "guards", "python", text, spans)
                for guard in self.compile.guards:
                    self.compile.link(artifact.item(guard.key), [guard.line] if guard.line else [], "guard")
                for symbol in self.compile.symbols:
                    lines = [line for line in (symbol.line, symbol.condition_line) if line]
                    self.compile.link(artifact.item(symbol.key), lines, "symbol")
        return list(itertools.compress(guards, kept))

    def _record_generated(self, code: types.CodeType) -> None:
        text, spans = bytecode_text(code)
        artifact = self.compile.artifact("generated", "generated", "bytecode", text, spans)
        breaking = self.compile.breaks[-1].instruction if self.compile.breaks else None
        for span in spans:
            self.compile.link(artifact.item(span.key), [breaking] if breaking else [], "replaces")
        decompile = tool("decompile")
        if decompile is None:
            return
        statements, places = decompile(code)
        shown = self.compile.artifact("decompiled", "decompiled", "python", statements, places)
        for span in places:
            self.compile.link(shown.item(span.key), [artifact.item(span.key)], "decompile")


def _without_traceback(error: Unsupported) -> Unsupported:
    """Removes the frames from an exception that is stored, which would keep the user's objects alive."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


def _interpret(capture: Capture, tx: Interpreter) -> None:
    """Interprets the frame; notes the user's line in an error of the compiler."""
    try:
        with for_tracing(capture.graph.restore_state):
            tx.run()
    except (Unsupported, StopCapture, UsageError):
        raise
    except Exception as error:
        stack = capture.graph.current_tx.user_stack() if capture.graph.current_tx else []
        set_error_location(error, line=(stack[-1].filename, stack[-1].lineno) if stack else None)
        capture.graph.current_tx = None
        raise


def break_message(break_: CaptureBreak) -> str:
    """Returns a break as an error message: what, where, why, and what to do."""
    reason = break_.reason
    lines = [
        f"fullgraph=True, but the graph must break: {reason.kind}" + (f" ({reason.context})" if reason.context else ""),
        *format_stack(break_.stack),
        break_.explanation,
        f"Hint: {break_.hint}",
    ]
    return "\n".join(lines)
