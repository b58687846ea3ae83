"""What happens to a frame, and to the graph that is captured of it, in order.

    the hook sees a frame                    hook/frame_hook.py, pipeline/compiled_region.py
    1 capture it symbolically                capture/interpreter.py, opcodes/, values/ -> capture/graph_builder.py
      (again, up to the break, if there is one: resume/break_points.py)
    2 list its guards                        guards/
    3 compile its graph                      backends/registry.py
      a  trace forward and backward          autograd/joint.py
      b  simplify and partition              autograd/passes/, autograd/partition.py
      c  lower to loops                      loops/lower/
      d  fuse the loops                      loops/fuse/
      e  print kernels and a wrapper         codegen/cpp/, codegen/triton/, codegen/wrapper/
      f  build and load them                 codegen/build/
      g  join both graphs for autograd       autograd/autograd_function.py
    4 generate the code of the frame         resume/frame_codegen.py, resume/resume_functions.py
    5 verify that code and install it        bytecode/verify.py, hook/cache_entries.py

Steps c to f are `compile_kernels` in `backends/kernels.py`.  Whatever fails, the frame runs as plain Python, the record
says what failed, and a warning does (`hook/failures.py`).
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.backends import registry as backends
from compiler_core.bytecode import bytecode_text, disassembled, verify
from compiler_core.bytecode.decompile import decompile
from compiler_core.capture import break_kinds
from compiler_core.capture.bytecode_emitter import graph_outputs
from compiler_core.capture.graph_builder import Capture
from compiler_core.capture.interpreter import Interpreter, Lines, Stop, add_source, user_lines
from compiler_core.capture.step_recorder import RecordingCapture, RecordingInterpreter, StepRecorder
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.user.cells import CellValue
from compiler_core.errors import CompilerBug, FullGraphError, Unsupported, UsageError, came_from
from compiler_core.guards import GuardSpec, GuardTree, cost_of, costs, filtered, guards_text
from compiler_core.guards.lifetimes import on_death
from compiler_core.guards.sources import FreeCell, Local, Scope
from compiler_core.hook import frame_hook
from compiler_core.hook.frame_hook import FrameView
from compiler_core.hook.skip_rules import is_library_file
from compiler_core.pipeline.code_state import CodeState, Installed, Same
from compiler_core.records import Compile, GraphBreak, StackLine
from compiler_core.resume import break_points, eager_fallback, resume_functions
from compiler_core.resume.break_points import MAX_LEVELS, Split, Stopped
from compiler_core.resume.frame_codegen import FrameCode
from compiler_core.resume.resume_functions import Broken, Layout
from compiler_core.support.fx_graphs import record_graph

if TYPE_CHECKING:
    from compiler_core.pipeline.compiled_region import Region

MAX_TRIES = 4
_ANY_CODE = (lambda: None).__code__


@dataclass
class Broke:
    """Why and where a capture ended early: `at` is the frame's instruction, `in_loop` whether that lies in a loop."""

    why: Unsupported
    at: int
    in_loop: bool
    stack: list[StackLine]


@dataclass
class Captured:
    """What there is to compile of a frame: all of it or, with `broke`, what comes before `stopped`."""

    capture: Capture
    tx: Interpreter
    broke: Broke | None = None
    stopped: Stopped | None = None

    @property
    def is_empty(self) -> bool:
        return self.capture.is_empty and not self.capture.effects and not self.capture.changes


class FrameCompile:
    """The steps of one compile of one frame."""

    def __init__(self, region: Region, state: CodeState, view: FrameView, scope: Scope, compile_: Compile) -> None:
        self.region = region
        self.state = state
        self.view = view
        self.scope = scope
        self.compile = compile_
        self.lines = Lines(state.record, compile_)

    def run(self) -> Any:
        self._record_bytecode()
        with self.compile.step("capture"):
            captured = self._captured()
        capture, broke = captured.capture, captured.broke
        if captured.is_empty and captured.stopped is not None and not captured.stopped.run:
            return self._skip(captured)
        if broke is None and captured.is_empty:
            self.compile.reason = "no tensor operations: it runs as it is while its guards hold"
            return self._install(self.view.code, capture)
        code = FrameCode(capture, captured.tx, captured.stopped, self._resume_code, self._alone_code)
        outputs = graph_outputs(code.live())
        compiled = None if capture.is_empty else self._compile_graph(capture, outputs)
        with self.compile.step("bytecode"):
            new = code.generate(compiled, outputs)
            verify(new)
            self._record_generated(new)
        return self._install(new, capture)

    # ------------------------------------------------------------ 1 capture

    def _captured(self) -> Captured:
        """Capture the whole frame or, after a first attempt that met a break, the part before it."""
        capture, tx = self._attempt()
        try:
            _run(capture, tx)
            capture.working = None  # else the user's objects live until Python looks for cycles
            return Captured(capture, tx)
        except Unsupported as error:
            why = _without_frames(error)
        mark = tx.mark
        broke = Broke(why, mark.at, mark.in_loop, capture.working.user_stack())
        self._record_break(broke)
        if self.region.options.fullgraph:
            capture.working = None
            raise FullGraphError(break_text(broke), broke.stack)
        places = break_points.splits(capture.working, why)
        capture.working = None
        found = self._stopped(broke, places)
        if found is None:
            raise why
        return found

    def _stopped(self, broke: Broke, splits: Sequence[Split]) -> Captured | None:
        """Capture again up to the best place at which all that is alive can be carried on."""
        tries, level = 0, MAX_LEVELS
        for at in splits:
            if at.level > level or tries == MAX_TRIES:
                continue
            tries += 1
            found = self._capture_before(at, broke)
            failed = self._cannot_carry(found)
            if failed is None:
                return found
            level = failed
        return None

    def _capture_before(self, at: Split, broke: Broke) -> Captured:
        capture, tx = self._attempt()
        capture.stop_at = at.step
        try:
            _run(capture, tx)
        except Stop:
            frames, capture.working = break_points.at_work(capture.working), None
            return Captured(capture, tx, broke, Stopped(frames, at.run))
        except Unsupported as why:
            raise CompilerBug(f"capture broke at another place the second time: {why}") from why
        raise CompilerBug("capture did not break the second time")

    def _cannot_carry(self, captured: Captured) -> int | None:
        """Which of the frames at work holds something that cannot be carried across the break."""
        code = FrameCode(captured.capture, captured.tx, captured.stopped, lambda *_: _ANY_CODE, lambda *_: _ANY_CODE)
        try:
            code.generate(None, graph_outputs(code.live()))
        except Unsupported:
            return code.level
        return None

    def _attempt(self) -> tuple[Capture, Interpreter]:
        policy = self.region.policy(self.view.code)
        interpreter, capture = Interpreter, Capture(self.scope, policy)
        if self.region.options.steps:
            recorder = StepRecorder(self.compile)
            interpreter, capture = RecordingInterpreter, RecordingCapture(self.scope, policy, recorder=recorder)
        view = self.view
        arguments = {n: v for n, v in view.f_locals.items() if n not in view.code.co_freevars}
        local: dict[str, Value] = {n: capture.wrap(v, Local(n)) for n, v in arguments.items()}
        closure: list[CellValue] = [capture.cell(view.closure[n], FreeCell(n)) for n in view.code.co_freevars]
        tx = interpreter(capture, self.lines, view.code, view.f_globals, view.f_builtins, local, closure)
        return capture, tx

    # ------------------------------------------------------------ 3, 4 graph and code

    def _compile_graph(self, capture: Capture, outputs: dict[torch.fx.Node, int]) -> Callable[..., Any]:
        graph = capture.finish(outputs)
        record_graph(self.compile, "captured", "captured", graph)
        inputs = capture.examples()
        with _state_kept():
            compiled = backends.compile_graph(graph, inputs, self.compile, self.region.options)
        name = f"graph_{self.compile.id.replace('/', '_')}"
        writes_at_once = compiled == graph.forward or callable(self.region.options.backend)
        return eager_fallback.graph_or_none(
            graph, compiled, name, self.compile, writes_at_once, self.region.options.strict
        )

    def _resume_code(self, tx: Interpreter, layout: Layout) -> types.CodeType:
        """The code with which a frame at work goes on; the same for every compile."""
        code = self.region.code((Same(tx.code), layout), lambda: resume_functions.resume_code(tx.code, layout))
        known = self.region.states.get(Same(code))
        if known is None or known.record is not self.state.record:
            line = tx.instructions[layout.target].lineno or tx.code.co_firstlineno
            frame = self.region.add_resume(code, self.view.code, line, self.compile, self.state.record)
        else:
            frame = known.frame.id
        if frame not in self.compile.breaks[-1].resumes:
            self.compile.breaks[-1].resumes.append(frame)
        return code

    def _alone_code(self, tx: Interpreter, what: Broken, stack: Sequence[str]) -> types.CodeType:
        """A function that runs just the instruction that broke, at work in `tx`."""
        key = (Same(tx.code), tx.pc, tx.kw_names, tuple(stack))
        code = self.region.code(key, lambda: resume_functions.alone_code(tx.code, what, stack))
        self.region.add_alone(code)
        return code

    # ------------------------------------------------------------ 5 install

    def _install(self, code: types.CodeType, capture: Capture) -> Any:
        guards = self._record_guards(capture)  # now that compiling the graph has asked what it asks of sizes
        with self.compile.step("guards", "build the guard tree"):
            manager = GuardTree(self.scope, self.view.code).build(guards)
            if not manager.root.check(self.view.f_locals):
                failing = manager.root.check_verbose(self.view.f_locals).verbose_code_parts
                raise CompilerBug(f"a guard does not hold for the frame it was made from: {failing}")
            self._record_costs(guards, manager)
        refers_to = on_death(capture.mortals(), self.region.dropper(self.state, self.compile.id))
        self.state.entries.append(
            Installed(self.compile.id, self.view.code, code, bool(self.compile.breaks), guards, manager, refers_to)
        )
        self.compile.outcome = "compiled"
        if self.view.code is self.region.root and not self.compile.breaks:
            self.region.hook.go_straight_to(code, self.view.f_globals, manager)
        return frame_hook.use(code, manager, self.compile.id)

    def _skip(self, captured: Captured) -> Any:
        broke = captured.broke
        assert broke is not None
        where = "inside a loop" if broke.in_loop else "where the frame begins"
        self.compile.outcome = "skipped"
        self.compile.reason = f"{broke.why.kind} {where}: the frame runs as plain Python"
        self.state.frame.skipped = self.compile.reason
        return self.region.leave_alone(self.state)

    # ------------------------------------------------------------ the record

    def _record_bytecode(self) -> None:
        code = self.view.code
        if is_library_file(code.co_filename):
            add_source(self.state.record, code)
        else:
            self.lines.add(code)
        self._instructions = disassembled(code)[0]
        text, spans = bytecode_text(code)
        artifact = self.compile.artifact("bytecode", "bytecode", "bytecode", text, spans)
        for i, instruction in enumerate(self._instructions):
            line = self.lines.item(code.co_filename, instruction.lineno) if instruction.lineno else None
            self.compile.link(artifact.item(str(i)), [line] if line else [], "compiled by Python")

    def _record_break(self, broke: Broke) -> None:
        kind = break_kinds.KINDS[broke.why.kind]
        explanation = f"{kind.explanation}" + (f" ({broke.why.context})" if broke.why.context else "")
        if broke.in_loop:
            explanation += f"  {break_kinds.IN_A_LOOP}"
        made = GraphBreak(f"b{len(self.compile.breaks)}", broke.why.kind, explanation, kind.hint, broke.stack)
        made.instruction = f"{self.compile.id}:bytecode#{broke.at}"
        self.compile.breaks.append(made)

    def _record_guards(self, capture: Capture) -> list[GuardSpec]:
        with self.compile.step("guards"):
            self.compile.symbols = capture.symbols.records()
            guards = capture.all_guards()
            kept = filtered(guards, self.region.options.guard_filter)
            text, spans, self.compile.guards = guards_text(guards, kept, self.compile.symbols)
            artifact = self.compile.artifact("guards", "guards", "python", text, spans)
            for guard in self.compile.guards:
                self.compile.link(artifact.item(guard.key), [guard.line] if guard.line else [], "guard")
            for symbol in self.compile.symbols:
                lines = [line for line in (symbol.line, symbol.condition_line) if line]
                self.compile.link(artifact.item(symbol.key), lines, "symbol")
        return list(itertools.compress(guards, kept))

    def _record_costs(self, guards: list[GuardSpec], manager: Any) -> None:
        self.compile.guards_ns = cost_of(manager.root, self.scope)
        kept = [guard for guard in self.compile.guards if not guard.dropped]
        for guard, cost in zip(kept, costs(guards, self.scope, self.view.code), strict=True):
            guard.cost_ns = cost

    def _record_generated(self, code: types.CodeType) -> None:
        text, spans = bytecode_text(code)
        artifact = self.compile.artifact("generated", "generated", "bytecode", text, spans)
        broke = self.compile.breaks[-1].instruction if self.compile.breaks else None
        for span in spans:
            self.compile.link(artifact.item(span.key), [broke] if broke else [], "replaces")
        statements, places = decompile(code)
        shown = self.compile.artifact("decompiled", "decompiled", "python", statements, places)
        for span in places:
            self.compile.link(shown.item(span.key), [artifact.item(span.key)], "decompile")


def _without_frames(why: Unsupported) -> Unsupported:
    """A kept exception keeps the frames that it passed, and with them the user's objects."""
    why.__context__ = why.__cause__ = None
    return why.with_traceback(None)


def _run(capture: Capture, tx: Interpreter) -> None:
    """Interpret the frame; an error of ours knows at which of the user's lines it came up."""
    try:
        with _state_kept(capture.restore):
            tx.run()
    except (Unsupported, Stop, UsageError):
        raise
    except Exception as error:
        stack = capture.working.user_stack() if capture.working else []
        came_from(error, place=(stack[-1].filename, stack[-1].lineno) if stack else None)
        capture.working = None
        raise


@contextmanager
def _state_kept(restore: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Compiling leaves the user's grad mode and random stream as they were, and what `restore` takes back.  The user's
    hooks on saved tensors are not for what is saved while it traces."""
    grad_enabled, random = torch.is_grad_enabled(), torch.get_rng_state()
    hooks_rest = torch._C._autograd._saved_tensors_hooks_set_tracing(True)
    try:
        # inference mode has gradients off, and is otherwise the business of the run
        with torch.inference_mode(False), torch.set_grad_enabled(grad_enabled):
            yield
    finally:
        torch._C._autograd._saved_tensors_hooks_set_tracing(hooks_rest)
        restore()
        torch._C._set_grad_enabled(grad_enabled)
        torch.set_rng_state(random)


def break_text(broke: Broke) -> str:
    """A break as an error message: what, where, why, and what to do."""
    kind = break_kinds.KINDS[broke.why.kind]
    lines = [
        f"fullgraph=True, but the graph must break: {broke.why.kind}"
        + (f" ({broke.why.context})" if broke.why.context else ""),
        *user_lines(broke.stack),
        kind.explanation,
        f"Hint: {kind.hint}",
    ]
    return "\n".join(lines)
