"""Writes each kind of trace event to the record: a function for each, registered under PyTorch's event name."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from typing import Any, Literal

from compiler_core.capture.break_kinds import KINDS, BreakingCode, calls_of_branches, decides_on_round
from compiler_core.records import Compile, CudaGraph, Frame, GraphBreak, StackLine, limits
from compiler_core.records.capture import CALL_OUTSIDE, IF_IT_RAISES, NOTHING_CAPTURED, RECOMPILE_LIMIT, library_of
from compiler_core.records.plain import MAX_SAFE_INT, RecordError, short_repr
from compiler_core.tools.stack_values import statement_of
from compiler_core.tools.stock.build.bytecode import record_bytecode
from compiler_core.tools.stock.build.compile_builder import CompileBuilder
from compiler_core.tools.stock.build.graphs import GRAPHS
from compiler_core.tools.stock.build.guard_costs import set_guard_costs
from compiler_core.tools.stock.build.guard_lines import GuardLines
from compiler_core.tools.stock.build.memory_budget import Cost
from compiler_core.tools.stock.build.partial_record import PartialRecord
from compiler_core.tools.stock.read import cache_keys
from compiler_core.tools.stock.read.breaks.messages import RESUME, ParsedBreak, read_break
from compiler_core.tools.stock.read.breaks.reasons import (
    DATA_DEPENDENT,
    IN_A_LOOP,
    LOOP,
    NOT_REBUILT,
    OF_CONTEXT,
    UNSUPPORTED,
    reason_of,
)
from compiler_core.tools.stock.read.breaks.rest import computes_nothing, formats_by_percent, statement_at
from compiler_core.tools.stock.read.guard_tree import read_guards
from compiler_core.tools.stock.read.recompile_reasons import read_recompile_reasons
from compiler_core.tools.stock.read.trace_event import TraceEvent

Handler = Callable[[PartialRecord, TraceEvent], None]

_HANDLERS: dict[str, Handler] = {}
_MAY_RAISE = "Your code may result in an error when running in eager."
_OF_EARLIER = "This graph break may have been caused by an earlier graph break."
NOT_SPLIT = "What follows in {} runs as plain Python: Dynamo divides no function at an operator."
EXPECTS_ERROR = "Dynamo expects that this line raises {}, and nothing in {} handles that, so it runs as plain Python."
_OPTIONS = {
    "capture_scalar_outputs": "Where the value only takes part in arithmetic of tensors, "
    "`torch._dynamo.config.capture_scalar_outputs = True` before the first call keeps it in the graph.",
    "capture_dynamic_output_shape_ops": "`torch._dynamo.config.capture_dynamic_output_shape_ops = True` before the "
    "first call keeps this operation in the graph, too.",
}
"""What is said of the options that Dynamo names as a hint."""
NOT_KNOWN = "The log does not say whether anything is computed there; if nothing is, nothing needs to change."


def write_event(record: PartialRecord, event: TraceEvent) -> None:
    """Writes an event to the record; one without a handler becomes a text of its compile."""
    _HANDLERS.get(event.name, _write_text)(record, event)


def _handles(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        _HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


def _write_text(record: PartialRecord, event: TraceEvent) -> None:
    text = event.payload
    if not text and event.data:
        text = json.dumps(event.data, indent=1, default=str)
    if text:
        record.compile_of(event).add_text(event.name, record.truncate(text), event.attempt)


# ---- frames, times and outcomes ------------------------------------------------------------


@_handles("str")
def _write_string(record: PartialRecord, event: TraceEvent) -> None:
    """A file name, and the number that stands for it in stacks."""
    if isinstance(event.data, (list, tuple)) and len(event.data) == 2:
        text, number = event.data
        text = limits.truncate(str(text))
        if record.budget.reserve(2 * len(text) + 200):
            record.strings[int(number)] = text
        else:
            record.budget.left_out["names of files"] += 1


@_handles("dynamo_start")
def _write_start(record: PartialRecord, event: TraceEvent) -> None:
    builder, frame = record.compile_of(event), record.frame_of(event)
    stack = event.data.get("stack") if isinstance(event.data, dict) else None
    if not stack:
        return
    builder.compile.caller = _caller(record, stack)
    for at in stack[:-1]:
        if resume := RESUME.match(str(at.get("name"))):
            record.running.add((_file(record, at), int(resume[2])))
    if frame.filename:
        return
    at = stack[-1]
    frame.name, frame.line = limits.truncate(str(at.get("name", "?"))), int(at.get("line") or 0)
    frame.filename = _file(record, at)
    if resume := RESUME.match(frame.name):
        frame.name, frame.kind, frame.line = resume[1], "resume", int(resume[2])
    builder.compile.outcome = "running"
    record.lines.item(frame.filename, frame.line)


def _file(record: PartialRecord, at: dict[str, Any]) -> str:
    """Returns the file of an entry of a stack."""
    return limits.truncate(str(at.get("file") or record.strings.get(at.get("filename", -1), "?")))


def _caller(record: PartialRecord, stack: list[Any]) -> StackLine | None:
    """Returns the innermost line of a stack that is the user's, if the frame itself is a library's."""
    for at in reversed(stack):
        filename = _file(record, at)
        if not library_of(filename):
            text = limits.truncate(str(at.get("loc") or ""))
            line = StackLine(filename, int(at.get("line") or 0), str(at.get("name", "")), text)
            return None if at is stack[-1] else record.lines.link_stack_line(line)
    return None


@_handles("chromium_event")
def _write_time(record: PartialRecord, event: TraceEvent) -> None:
    """A phase begins (B) or ends (E), or something happened at once (i)."""
    moment = json.loads(event.payload) if event.payload else event.data
    if moment.get("ph") != "E" and not record.accepts(event):  # the end of a phase takes no memory
        return
    time_ns = int(moment["ts"] * 1000)
    if not record.start_ns:
        record.start_ns = time_ns
    since_start = time_ns - record.start_ns
    if abs(since_start) > MAX_SAFE_INT:
        raise RecordError(f"the time of {limits.truncate(str(moment['name']))} is {short_repr(moment['ts'])}")
    record.compile_of(event).add_phase(moment, since_start)


@_handles("compilation_metrics", "bwd_compilation_metrics")
def _write_metrics(record: PartialRecord, event: TraceEvent) -> None:
    builder, metrics = record.compile_of(event), event.data
    text = json.dumps(metrics, indent=1, default=str)
    if record.budget.reserve(2 * len(text), Cost().reserve):
        builder.add_text(event.name, record.truncate(text), event.attempt)
    else:
        record.budget.left_out["other texts"] += 1
    if reason := metrics.get("cudagraph_skip_reason"):
        which: Literal["forward", "backward"] = "backward" if event.name.startswith("bwd_") else "forward"
        _note_skipped_cudagraphs(builder.compile, reason, which)
    settings = json.loads(metrics.get("dynamo_config") or "{}")
    if settings.get("assume_static_by_default") and settings.get("automatic_dynamic_shapes") is False:
        builder.compile.no_symbols = "dynamic=False"
    if metrics.get("fail_type"):
        builder.compile.outcome = "failed"
        builder.compile.raised = limits.truncate(str(metrics["fail_type"]))
        why, blank, details = f"{metrics['fail_type']}: {metrics.get('fail_reason')}".partition("\n\n")
        if of_compiler := re.search(r": error: (.+)", details):  # of the C++ that Inductor wrote
            why += f"\nThe C++ compiler says: {of_compiler[1]}"
        builder.compile.reason = limits.truncate(why + blank + details)
        filename, line = metrics.get("fail_user_frame_filename"), metrics.get("fail_user_frame_lineno")
        if filename and line:
            builder.compile.raised_at = record.lines.link_stack_line(StackLine(str(filename), int(line), "", ""))
        if builder.compile.raised == UNSUPPORTED and not builder.compile.breaks:
            _add_raised_break(record, builder, metrics, record.frame_of(event))
    elif builder.compile.outcome == "running":
        builder.compile.outcome, builder.compile.reason = "skipped", NOTHING_CAPTURED


@_handles("torch_version")
def _write_version(record: PartialRecord, event: TraceEvent) -> None:
    record.record.versions["torch"] = str(json.loads(event.payload).get("pytorch_version"))


# ---- Dynamo --------------------------------------------------------------------------------


@_handles("dynamo_graph_break_reason")
def _write_break(record: PartialRecord, event: TraceEvent) -> None:
    if event.payload.startswith("WON'T CONVERT"):  # an error of the whole compile, which its metrics name
        _write_text(record, event)
        return
    builder, parsed = record.compile_of(event), read_break(event.payload)
    break_ = _break(record, builder, parsed, _from_frame(parsed.stack, record.frame_of(event)))
    stack = break_.stack
    identity = (break_.kind, *((line.filename, line.lineno, line.function, line.text) for line in stack))
    if identity not in builder.break_keys:  # an attempt that starts again logs its breaks again
        builder.break_keys.add(identity)
        place = (break_.place.filename, break_.place.lineno) if break_.place else None
        is_repeated = break_.kind == NOT_REBUILT and place in builder.break_places
        break_.is_consequence |= break_.kind.startswith(OF_CONTEXT) or is_repeated
        builder.break_places.add(place)
        builder.compile.breaks.append(break_)
    _write_text(record, event)


def _add_raised_break(record: PartialRecord, builder: CompileBuilder, metrics: dict[str, Any], frame: Frame) -> None:
    """Adds the break of which only the error is logged: with ``fullgraph=True``, and where a frame has reached the
    limit of compiles, which is a break of the whole function."""
    parsed = read_break(f"Graph Break Reason: {metrics.get('fail_reason')}")
    stack = [builder.compile.raised_at] if builder.compile.raised_at else []
    if parsed.kind == RECOMPILE_LIMIT:
        frame.limit_reached, stack = True, [StackLine(frame.filename, frame.line, frame.name, "")]
    builder.compile.breaks.append(_break(record, builder, parsed, stack))


def _break(record: PartialRecord, builder: CompileBuilder, parsed: ParsedBreak, stack: list[StackLine]) -> GraphBreak:
    linked = [record.lines.link_stack_line(line) for line in stack]
    key = f"b{len(builder.compile.breaks)}"
    explanation = "\n".join(parsed.explanation)
    break_ = GraphBreak(key, parsed.kind, explanation, "", linked, link=parsed.link)
    break_.reason = reason_of(parsed.kind, explanation, stack[-1].filename if stack else "")
    is_explicit = not stack or stack[-1].library or stack[-1].text.startswith("raise")
    if break_.reason == "exception" and parsed.raised and not is_explicit:
        break_.reason, break_.hint = "other", IF_IT_RAISES
        break_.explanation = EXPECTS_ERROR.format(parsed.raised, stack[0].function)
    else:
        break_.hint = _hint(record, break_, parsed.hints)
    break_.in_loop = parsed.kind == LOOP or IN_A_LOOP in explanation
    break_.is_consequence = record.is_of_result(builder.compile, break_)
    statement = statement_of(break_.place.text.strip()) if break_.place is not None else None
    at_operator = break_.kind.startswith(DATA_DEPENDENT) and len(stack) == 1 and formats_by_percent(statement)
    if at_operator:
        is_known = record.lines.lines_of_file(stack[0].filename)
        break_.explanation += f"\n{NOT_SPLIT.format(stack[0].function)}{'' if is_known else f'  {NOT_KNOWN}'}"
    break_.is_last = _is_last(record, stack, at_operator)
    if isinstance(statement, ast.For):
        break_.statement = "For"
    return break_


def _hint(record: PartialRecord, break_: GraphBreak, pytorchs: list[str]) -> str:
    """Returns the hint for the reason of a break, which is the same for both engines; without a reason, PyTorch's."""
    if break_.reason == "other":
        is_first = all(not known.compile.breaks for known in record.compiles.values())
        hints = [hint for hint in pytorchs if not (is_first and hint.startswith(_OF_EARLIER))]
        return "\n".join(IF_IT_RAISES if hint.startswith(_MAY_RAISE) else hint for hint in hints)
    kind, at = KINDS[break_.reason], break_.place
    lines = record.lines.lines_of_file(at.filename) if at is not None else []
    statement = statement_at(lines, at.lineno if at is not None else 0)
    guards_calls, has_calls = calls_of_branches(statement)
    code = BreakingCode(
        ends_round=decides_on_round(statement), in_generator=True, guards_calls=guards_calls, has_calls=has_calls
    )  # Dynamo, too, leaves the loop to Python
    hint = kind.hint and (kind.hint_for(code) if lines else kind.hint_unseen or kind.hint)
    options = [text for name, text in _OPTIONS.items() if any(name in each for each in pytorchs)]
    return "  ".join([hint or CALL_OUTSIDE, *options])


def _is_last(record: PartialRecord, stack: list[StackLine], at_operator: bool) -> bool | None:
    """Returns whether nothing is computed after a break in the functions of its stack; None if it is not known.

    `at_operator`: Python runs the rest of the function in any case, and local variables may be tensors there.  What is
    not known is then False.
    """
    called = [*(line.function for line in stack[1:]), ""]
    files = [record.lines.lines_of_file(line.filename) for line in stack]
    if not stack or not all(files):
        return False if at_operator else None
    return all(
        computes_nothing(lines, line.lineno, function, at_operator)
        for lines, line, function in zip(files, stack, called, strict=True)
        if lines is not None
    )


def _from_frame(stack: list[StackLine], frame: Frame) -> list[StackLine]:
    """Returns a stack without what called the frame: some messages have the whole thread's."""
    name = frame.name.rpartition(".")[2]
    starts = [i for i, at in enumerate(stack) if (at.filename, at.function) == (frame.filename, name)]
    return stack[starts[-1] :] if starts else stack


@_handles("dynamo_cpp_guards_str")
def _write_guards(record: PartialRecord, event: TraceEvent) -> None:
    builder, parsed = record.compile_of(event), read_guards(event.payload)
    compile_ = builder.compile
    artifact = compile_.artifact("guards", "guards", "text", event.payload, parsed.spans)
    frame = record.frame_of(event)
    lines = GuardLines(record.lines, frame, builder.guard_lines)
    record.name_arguments(frame, parsed.guards)
    compile_.guards, compile_.outcome, builder.empty_dicts = parsed.guards, "compiled", parsed.empty_dicts
    names = record.names(compile_)
    for guard in parsed.guards:
        guard.name, guard.meaning = names(guard.name), names(guard.meaning)
        guard.line = lines.of(guard, parsed.locations.get(guard.key))
        guard.caller = lines.caller_of(guard)
        if guard.line is not None:
            compile_.link(artifact.item(guard.key), [guard.line], "guard")
    compile_.guards_ns = set_guard_costs(parsed.guards, builder.guard_costs, parsed.cost_ns)


@_handles("cutaway.guard_costs")
def _keep_guard_costs(record: PartialRecord, event: TraceEvent) -> None:
    record.compile_of(event).guard_costs = event.data


@_handles("cutaway.guard_lines")
def _write_guard_lines(record: PartialRecord, event: TraceEvent) -> None:
    record.compile_of(event).guard_lines |= event.data


@_handles("recompile_reasons")
def _write_recompile_reasons(record: PartialRecord, event: TraceEvent) -> None:
    builder = record.compile_of(event)
    builder.reasons = builder.reasons or read_recompile_reasons(event.payload)
    for reason in builder.reasons:  # of compiles of this frame, which may have another number than PyTorch's
        reason.compile = re.sub(r"\d+(?=/\d+$)", str(event.frame_id), reason.compile)
    if builder.reasons:  # completed at the end, from the guards of this compile
        builder.compile.cause = record.recompile_of(builder)
    _write_text(record, event)


@_handles("symbolic_shape_specialization")
def _write_specialization(record: PartialRecord, event: TraceEvent) -> None:
    """A symbol that became a number, or an expression of others."""
    if isinstance(event.data, dict):
        builder = record.compile_of(event)
        builder.specialised[str(event.data.get("symbol"))] = limits.truncate(str(event.data.get("value")))
    _write_text(record, event)


@_handles("cutaway.backend")
def _write_backend(record: PartialRecord, event: TraceEvent) -> None:
    compile_ = record.compile_of(event).compile
    compile_.backend = compile_.backend or limits.truncate(str(event.data))


@_handles("create_symbol")
def _write_symbol(record: PartialRecord, event: TraceEvent) -> None:
    record.compile_of(event).add_symbol(event.data)


@_handles("describe_source", "describe_tensor", "describe_storage")
def _write_input(record: PartialRecord, event: TraceEvent) -> None:
    """A source, tensor or storage of the inputs."""
    data = {event.name.removeprefix("describe_"): event.data}
    record.compile_of(event).append_text("inputs", json.dumps(data, default=str))


@_handles("cutaway.bytecode")
def _write_bytecode(record: PartialRecord, event: TraceEvent) -> None:
    before, after = event.data
    record_bytecode(record.compile_of(event).compile, record.lines, before, after)


@_handles("cutaway.frame_name")
def _write_frame_name(record: PartialRecord, event: TraceEvent) -> None:
    id_, name = event.data
    if id_ in record.compiles:
        record.name_wrapped(record.compiles[id_].compile.frame, limits.truncate(name))


@_handles("cutaway.given_up")
def _write_given_up(record: PartialRecord, event: TraceEvent) -> None:
    code, reason = event.data
    record.add_skipped_frame(code, f"{reason}: it runs as plain Python")


_DEFINES = re.compile(r"\s*(async\s+)?def\b")


@_handles("cutaway.given_up_at_first")
def _write_given_up_at_first(record: PartialRecord, event: TraceEvent) -> None:
    """A compile of the function that was given to `torch.compile` made no code, and a later call may compute."""
    compile_ = record.compile_of(event).compile
    frame = next(each for each in record.record.frames if each.id == compile_.frame)
    lines = record.lines.lines_of_file(frame.filename) or []
    # the line of a function with decorators is that of the first one
    start = next((i for i, text in enumerate(lines, 1) if i >= frame.line and _DEFINES.match(text)), 0)
    if start and computes_nothing(lines, start, has_tensors=True):
        return
    if compile_.outcome == "skipped" and compile_ is frame.compiles[0]:
        frame.skipped = (
            "its first call computes nothing with tensors, and PyTorch does not try again: all calls run as plain "
            "Python; whether later ones compute with tensors is not measured"
        )


@_handles("cutaway.steps")
def _write_steps(record: PartialRecord, event: TraceEvent) -> None:
    record.compile_of(event).compile.steps.append(event.data)


@_handles("cutaway.message")
def _write_message(record: PartialRecord, event: TraceEvent) -> None:
    record.compile_of(event).append_text(f"log.{event.data}", event.payload)


# ---- graphs and kernels --------------------------------------------------------------------


@_handles(*GRAPHS)
def _write_graph(record: PartialRecord, event: TraceEvent) -> None:
    record.compile_of(event).graphs.add_graph(event)


@_handles("cutaway.pass")
def _write_pass(record: PartialRecord, event: TraceEvent) -> None:
    pass_name, is_before = event.data
    record.compile_of(event).graphs.add_pass_graph(pass_name, is_before, event.payload)


@_handles("inductor_output_code")
def _write_output_code(record: PartialRecord, event: TraceEvent) -> None:
    record.compile_of(event).add_output_code(event.payload)


@_handles("cutaway.kernel")
def _write_kernel(record: PartialRecord, event: TraceEvent) -> None:
    kernel, operations = event.data
    record.compile_of(event).kernels.add_kernel(kernel, operations)


@_handles("cutaway.refusal")
def _write_refusal(record: PartialRecord, event: TraceEvent) -> None:
    first, second, kind, reason = event.data
    record.compile_of(event).kernels.add_refusal(first, second, kind, reason)


@_handles(*cache_keys.EVENTS)
def _write_cache_lookup(record: PartialRecord, event: TraceEvent) -> None:
    lookup = cache_keys.read_lookup(event.name, event.payload)
    record.compile_of(event).compile.cache_lookups.append(lookup)


@_handles("cutaway.triton_lookup")
def _write_triton_lookup(record: PartialRecord, event: TraceEvent) -> None:
    record.compile_of(event).compile.cache_lookups.append(event.data)


@_handles("cutaway.autotuning")
def _write_autotuning(record: PartialRecord, event: TraceEvent) -> None:
    """The choices for one operation with their times in milliseconds, the fastest first."""
    name, choices = event.data
    rows = [f"{time:>12.4f} ms  {choice}" for time, choice in choices]
    record.compile_of(event).append_text("autotuning", "\n".join([name, *rows]))


@_handles("cutaway.cudagraphs")
def _write_skipped_cudagraphs(record: PartialRecord, event: TraceEvent) -> None:
    _note_skipped_cudagraphs(record.compile_of(event).compile, *event.data)


def _note_skipped_cudagraphs(compile_: Compile, reason: Any, which: Literal["forward", "backward"]) -> None:
    text = limits.truncate(str(reason))
    if all(known.reason != text for known in compile_.cuda_graphs) and len(compile_.cuda_graphs) < limits.NOTES:
        compile_.cuda_graphs.append(CudaGraph(which, text))
