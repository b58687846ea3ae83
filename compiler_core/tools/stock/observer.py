"""Observes stock `torch.compile` while it runs, without changing it.

The sources are PyTorch's structured trace, its hook for bytecode, and the functions in Inductor that get the nodes of
kernels, the reasons against fusions, and the graphs between passes.  PyTorch's options, caches and code stay as they
are.  A failure of the observer is noted in the record and never reaches the program.
"""

from __future__ import annotations

import dis
import functools
import importlib.util
import logging
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from compiler_core.records import Record
from compiler_core.records.capture import STANDARD_LIBRARY, library_of
from compiler_core.records.kernels import CacheLookup
from compiler_core.support.fx_graphs import node_signature, returned_graph
from compiler_core.support.interrupts import deferred_signals, passing_handler_errors, raised_by_handler
from compiler_core.tools.guard_times import measured_checks
from compiler_core.tools.stock.build.record_builder import RecordBuilder
from compiler_core.tools.stock.hooks import deferred_text, torch_internals, torch_logs
from compiler_core.tools.stock.hooks.after_import import call_after_import
from compiler_core.tools.stock.hooks.dynamo_steps import DynamoStepRecorder
from compiler_core.tools.stock.read.trace_event import TraceEvent, parse_event
from compiler_core.tools.triton_lookups import triton_lookups

_TRACE_LOGGER = "torch.__trace"
_PYTEST = "_pytest.logging"
"""The module whose handlers recent versions of pytest add to the logger itself."""
_Start = Callable[["_Observer", ExitStack], None]
LOGGED_PASSES = ("pre_grad_passes", "post_grad_passes")
"""Subsystems whose graph PyTorch itself logs before their first pass, so that it need not be printed again."""


@contextmanager
def observing(record: Record, steps: bool = False, logs: bool = False) -> Iterator[None]:
    """Writes all that stock `torch.compile` compiles inside the context to `record`.

    `steps`: also records every step of its symbolic interpreter; `logs`: also all messages of PyTorch's loggers.
    """
    builder = RecordBuilder(record, time.time_ns() - record.clock())
    stack = ExitStack()
    try:
        with deferred_signals():
            observer = _Observer(record, builder)
            stack.callback(observer.guard(builder.close))
            starts = [
                _pass_handler_errors, _observe_given_up,
                _observe_trace, _observe_bytecode, _observe_kernels, _observe_passes, _observe_backend, _observe_guards,
                _observe_guard_costs,
                _after("torch._inductor.scheduler", _observe_refusals),
                _after("torch._inductor.select_algorithm", _observe_autotuning),
                _after("torch._inductor.output_code", _observe_cudagraphs),
                _after("torch._functorch._aot_autograd.autograd_cache", _observe_aot_keys),
                _after("torch._inductor.runtime.triton_heuristics", _observe_triton),
            ]  # fmt: skip
            if steps:
                starts.append(_observe_steps)
            if logs:
                starts.append(_observe_logs)
            for start in starts:
                observer.guard(start)(observer, stack)
        yield
    finally:
        try:
            with deferred_signals():
                stack.close()
        finally:
            stack.close()  # closes the rest if an interrupt arrived before `deferred_signals` took effect


def _after(module: str, start: _Start) -> _Start:
    """Returns a function that calls `start` once `module` is imported.  A program without Inductor need not load it."""

    def start_then(observer: _Observer, stack: ExitStack) -> None:
        stack.callback(call_after_import(module, functools.partial(observer.guard(start), observer, stack)))

    return start_then


class _Observer:
    """Passes events to the record builder, and keeps exceptions of the observer away from PyTorch."""

    def __init__(self, record: Record, builder: RecordBuilder) -> None:
        self.builder = builder
        self._record = record

    def guard(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps `function`: an exception becomes a note of the record, the same one once, and the result is None."""

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                if raised_by_handler(error):
                    raise
                note = f"The observer of torch.compile: {function.__name__}: {type(error).__name__}: {error}"
                if note not in self._record.notes:
                    self._record.notes.append(note)
                return None

        return guarded

    def emit(self, name: str, data: Any, payload: str = "") -> None:
        """Adds an event of the compile that runs in this thread."""
        ids = torch_internals.running_compile()
        self.builder.add(TraceEvent(name, data, payload, time.time_ns(), *ids))

    def note_missing(self, thing: str) -> None:
        """Notes that the record cannot have `thing`, since this version of PyTorch does not report it."""
        self._record.notes.append(f"This version of PyTorch does not report {thing}, so the record lacks it.")


def _pass_handler_errors(observer: _Observer, stack: ExitStack) -> None:
    """Lets what signal handlers raise while `torch.compile` compiles reach the program."""
    callback = torch_internals.frame_callback()
    if callback is not None:
        stack.callback(setattr, callback, "__call__", callback.__call__)
        callback.__call__ = passing_handler_errors(callback.__call__)


def _observe_given_up(observer: _Observer, stack: ExitStack) -> None:
    """Notes the functions that were given to `torch.compile` and of which it captures nothing, without a compile or in
    their first one."""
    callback = torch_internals.frame_callback()
    if callback is None:
        return

    def before(*_: Any, **__: Any) -> str:
        return observer.builder.latest_compile

    def after(latest: str | None, result: Any, _: Any, frame: Any, *__: Any) -> None:
        is_unseen = result.guarded_code is None and observer.builder.latest_compile == latest
        # functions of PyTorch call the user's, as a module's __call__ does; Python's run between them, as finalizers do
        is_unseen = is_unseen and library_of(frame.f_code.co_filename) not in ("torch", STANDARD_LIBRARY)
        is_direct = torch_internals.is_called_by_compiled_function(sys._getframe(3))
        if is_unseen and is_direct:
            reason = torch_internals.reason_of_skip(result, frame.f_code)
            observer.emit("cutaway.given_up", (frame.f_code, reason))
        is_compiled = observer.builder.latest_compile != latest
        if is_compiled and is_direct and result.guarded_code is None and _may_do_other_things(frame.f_code):
            observer.emit("cutaway.given_up_at_first", None)
        if is_compiled and (name := torch_internals.wrapped_name(frame)):
            observer.emit("cutaway.frame_name", (observer.builder.latest_compile, name))  # the compile has ended

    _call_after(stack, callback, "__call__", observer.guard(before), observer.guard(after))


def _may_do_other_things(code: types.CodeType) -> bool:
    """Whether a later call of a function may run other code: it branches, or calls something.  A cell runs once."""
    names = {instruction.opname for instruction in dis.get_instructions(code)}
    return code.co_name != "<module>" and any("JUMP" in name or name in ("FOR_ITER", "CALL") for name in names)


def _observe_trace(observer: _Observer, stack: ExitStack) -> None:
    observer.builder.add_strings(torch_internals.interned_strings())

    def on_event(record: logging.LogRecord) -> None:
        metadata, payload = getattr(record, "metadata", {}), getattr(record, "payload", None)
        observer.builder.add(parse_event(metadata, payload, time.time_ns()))

    handler = torch_logs.CallbackHandler(observer.guard(on_event))
    logger = logging.getLogger(_TRACE_LOGGER)
    stack.callback(logger.removeHandler, handler)
    stack.callback(setattr, logger, "propagate", logger.propagate)
    for other in reversed([each for each in logger.handlers if type(each).__module__ == _PYTEST]):
        logger.removeHandler(other)
        stack.callback(logger.addHandler, other)
    logger.addHandler(handler)
    logger.propagate = False  # a handler of the program's, such as pytest's, would show entries as empty messages
    deferred_text.install(observer.builder.deferred, stack, lambda: logger.handlers == [handler])


def _observe_bytecode(observer: _Observer, stack: ExitStack) -> None:
    register = torch_internals.bytecode_hook_registration()
    if register is None:
        observer.note_missing("bytecode")
        return

    def on_bytecode(before: Any, after: Any) -> None:
        observer.emit("cutaway.bytecode", (before, after))

    stack.callback(register(observer.guard(on_bytecode)).remove)


def _observe_kernels(observer: _Observer, stack: ExitStack) -> None:
    def on_kernel(schedule: Any, kernel_name: Any, is_extern: bool = False) -> None:
        observer.emit("cutaway.kernel", (str(kernel_name), _node_names(schedule, is_extern)))

    def observe_module(module: str, observer: _Observer, stack: ExitStack) -> None:
        owner, name = torch_internals.kernel_provenance_function(module)
        if name:
            _call_before(stack, owner, name, observer.guard(on_kernel))
        elif module == torch_internals.KERNEL_MODULES[0]:
            observer.note_missing("the nodes of each kernel")

    for module in torch_internals.KERNEL_MODULES:
        _after(module, functools.partial(observe_module, module))(observer, stack)


def _node_names(schedule: Any, is_extern: bool) -> dict[str, list[str]]:
    """Returns the scheduler's operations in a kernel, with the graph nodes of each."""
    if is_extern:
        return {str(schedule.get_operation_name()): _origin_names(schedule)}
    return {str(each.get_name()): _origin_names(each.node) for each in schedule if hasattr(each, "get_name")}


def _origin_names(node: Any) -> list[str]:
    return [origin.name for origin in getattr(node, "origins", None) or ()]


def _observe_refusals(observer: _Observer, stack: ExitStack) -> None:
    cls = torch_internals.fusion_refusal_class()
    if cls is None:
        observer.note_missing("the reasons for not fusing")
        return

    def on_refusal(why: Any, reason: str, *args: Any) -> None:
        text = reason % args if args else reason
        kind = reason.split("%")[0].strip(" :(,")
        observer.emit("cutaway.refusal", (str(why.name1), str(why.name2), kind, text))

    _call_before(stack, cls, "__call__", observer.guard(on_refusal))


def _observe_triton(observer: _Observer, stack: ExitStack) -> None:
    if importlib.util.find_spec("triton") is None:
        return

    def note(lookup: CacheLookup) -> None:
        if torch_internals.running_compile()[0] is not None:  # else a kernel that the program launches itself
            observer.emit("cutaway.triton_lookup", lookup)

    stack.enter_context(triton_lookups(note, observer.guard))


def _observe_passes(observer: _Observer, stack: ExitStack) -> None:
    cls = torch_internals.pass_observer()
    if cls is None:
        observer.note_missing("its passes over graphs")
        return
    passes = _PassObserver(observer)
    _call_before(stack, cls, "__enter__", observer.guard(passes.before_pass))
    _call_before(stack, cls, "__exit__", observer.guard(passes.after_pass))


def _observe_autotuning(observer: _Observer, stack: ExitStack) -> None:
    cls, existing = torch_internals.autotune_cache()
    if cls is None:
        observer.note_missing("autotuning")
        return

    def on_autotuning(times: Any, name: str, inputs: Any, *_: Any) -> None:
        shapes = ", ".join("x".join(str(size) for size in each.get_size()) for each in inputs)
        choices = sorted((float(time), choice.name) for choice, time in times.items())
        observer.emit("cutaway.autotuning", (f"{name}({shapes})", choices))

    callback = observer.guard(on_autotuning)

    def observe(cache: Any) -> None:
        cache.feedback_saver_fns.append(callback)
        stack.callback(cache.feedback_saver_fns.remove, callback)

    if existing is not None:
        observe(existing)
    _call_after(stack, cls, "__init__", lambda *_: None, observer.guard(lambda _, __, cache, *___: observe(cache)))


def _observe_cudagraphs(observer: _Observer, stack: ExitStack) -> None:
    """CUDA graphs may be given up long after the compile, in a later call.  For graphs without a GPU, PyTorch logs
    nothing."""
    logger, cls = torch_internals.cudagraphs_log(), torch_internals.compiled_graph_class()
    if logger is None or cls is None:
        observer.note_missing("skipped CUDA graphs")
        return

    def on_message(record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            observer.emit("cutaway.cudagraphs", (record.getMessage(), "forward"))

    def on_compiled(graph: Any, _: Any, __: Any, options: Any) -> None:
        if torch_internals.cuda_graphs_wanted() and "cuda" not in graph.device_types:
            devices = ", ".join(sorted(graph.device_types)) or "no device"
            which = "backward" if options.get("is_backward") else "forward"
            observer.emit("cutaway.cudagraphs", (f"CUDA graphs need CUDA tensors, and some are on {devices}", which))

    _call_before(stack, cls, "post_compile", observer.guard(on_compiled))
    handler = torch_logs.CallbackHandler(observer.guard(on_message))
    stack.callback(logger.removeHandler, handler)
    stack.callback(setattr, logger, "propagate", logger.propagate)
    logger.addHandler(handler)
    logger.propagate = False  # a handler of the program's, such as pytest's, would show entries as empty messages


def _observe_aot_keys(observer: _Observer, stack: ExitStack) -> None:
    """Has the AOTAutograd cache report the fields of its keys, which it does only when its logger is at DEBUG."""
    owner, name = torch_internals.aot_key_fields()
    if not name:
        return  # before PyTorch 2.13 it always reports them
    original = getattr(owner, name)
    described = observer.guard(torch_internals.described_aot_key)

    @functools.wraps(original)
    def fields(pickler: Any, details: Any, key: str) -> Any:
        return original(pickler, details, key) or described(pickler, details) or []

    stack.callback(setattr, owner, name, original)
    setattr(owner, name, fields)


def _observe_backend(observer: _Observer, stack: ExitStack) -> None:
    cls = torch_internals.output_graph()
    if cls is None:
        observer.note_missing("the backend")
        return

    def on_backend(graph: Any, *_: Any) -> None:
        observer.emit("cutaway.backend", _backend_name(graph))

    def on_graph_of_backend(before: list[str], result: Any, graph: Any, gm: Any, *_: Any) -> None:
        name = _backend_name(graph)
        gm = returned_graph(torch_internals.inner_function(result)) or gm
        if name not in torch_internals.registered_backends() and _nodes(gm) != before:
            text = gm.print_readable(print_output=False, include_stride=True, include_device=True)
            observer.emit("cutaway.pass", (f"backend.{name}", False), text)

    structure = observer.guard(lambda _, gm, *__: _nodes(gm))
    _call_before(stack, cls, "call_user_compiler", observer.guard(on_backend))
    _call_after(stack, cls, "call_user_compiler", structure, observer.guard(on_graph_of_backend))


def _nodes(gm: Any) -> list[str]:
    return list(map(node_signature, gm.graph.nodes))


def _observe_guards(observer: _Observer, stack: ExitStack) -> None:
    """Notes the user's line for which each source is guarded; the guard tree has only the innermost line."""
    cls = torch_internals.guards_set()
    if not hasattr(cls, "add"):
        observer.note_missing("the lines of guards")
        return
    _call_after(stack, cls, "add", lambda *_, **__: None, observer.guard(_GuardObserver(observer).after_guard))


def _observe_guard_costs(observer: _Observer, stack: ExitStack) -> None:
    """Measures the guards of each compile as ours are.  PyTorch measures the whole tree once, with empty caches."""
    module = torch_internals.guards_module()
    if module is None:
        observer.note_missing("the costs of guards")
        return

    def on_guards(root: Any, f_locals: dict[str, Any], *_: Any) -> None:
        checks = measured_checks(root, f_locals)
        if checks is not None:
            lines = [line for check in checks for line in check.printed_ns()]
            observer.emit("cutaway.guard_costs", lines)

    _call_before(stack, module, "profile_guard_manager", observer.guard(on_guards))


def _backend_name(graph: Any) -> str:
    backend = graph.compiler_fn
    names = (getattr(backend, name, None) for name in ("compiler_name", "_compiler_name", "__name__"))
    return str(next(filter(None, names), type(backend).__name__))


def _observe_steps(observer: _Observer, stack: ExitStack) -> None:
    recorder = DynamoStepRecorder(lambda steps: observer.emit("cutaway.steps", steps))
    if not recorder.install(stack, observer.guard):
        observer.note_missing("the steps of its symbolic interpreter")


def _observe_logs(observer: _Observer, stack: ExitStack) -> None:
    def on_message(name: str, text: str) -> None:
        observer.emit("cutaway.message", name, text)

    if not torch_logs.install(stack, observer.guard(on_message)):
        observer.note_missing("its loggers")


class _GuardObserver:
    """Notes the user's line for which each source of a compile is guarded."""

    def __init__(self, observer: _Observer) -> None:
        self._observer = observer
        self._compile = ""
        self._lines: dict[str, tuple[str, int]] = {}

    def after_guard(self, _: None, __: None, ___: Any, guard: Any, *____: Any, **_____: Any) -> None:
        builder = self._observer.builder
        if not self._compile or builder.latest_compile != self._compile:
            self._lines = {}
            self._observer.emit("cutaway.guard_lines", self._lines)  # it is read when the record is closed
            self._compile = builder.latest_compile
        at = next((line for line in reversed(guard.user_stack or ()) if not library_of(line.filename)), None)
        if at is not None:
            self._lines.setdefault(str(guard.name), (at.filename, at.lineno))


class _PassObserver:
    """Prints the graph after each pass that changed it.  A hash of the nodes tells whether a pass did."""

    def __init__(self, observer: _Observer) -> None:
        self._observer = observer
        self._graph: Any = None
        self._hash = 0

    def before_pass(self, transform: Any) -> None:
        graph = transform.gm.graph
        if graph is not self._graph:
            self._graph, self._hash = graph, _structure_hash(graph)
            if getattr(transform, "subsystem", None) not in LOGGED_PASSES:
                self._emit(transform, is_before=True)

    def after_pass(self, transform: Any, *_: Any) -> None:
        graph = transform.gm.graph
        new_hash = _structure_hash(graph)
        if (graph, new_hash) != (self._graph, self._hash):
            self._graph, self._hash = graph, new_hash
            self._emit(transform, is_before=False)

    def _emit(self, transform: Any, is_before: bool) -> None:
        name = ".".join(filter(None, (getattr(transform, "subsystem", None), transform.passname)))
        options = {"print_output": False, "include_stride": True, "include_device": True}
        if deferred_text.has_symbolic_sizes(transform.gm.graph):
            text = transform.gm.print_readable(**options)
        else:
            text = deferred_text.defer_graph(self._observer.builder.deferred, transform.gm, **options)
        self._observer.emit("cutaway.pass", (name, is_before), text)


def _structure_hash(graph: Any) -> int:
    """Changes when a node is added, removed or moved, or gets another operation, other inputs or another constant."""
    return hash(tuple((n.name, id(n.target), *map(id, n.all_input_nodes), _constants(n)) for n in graph.nodes))


def _constants(node: Any) -> str:
    """Returns the text of the arguments that are no nodes."""
    return repr([each for each in (*node.args, *node.kwargs.values()) if not hasattr(each, "all_input_nodes")])


def _call_after(
    stack: ExitStack, owner: Any, name: str, before: Callable[..., Any], callback: Callable[..., Any]
) -> None:
    """Calls `before` with the arguments of each call of ``owner.name``, and after it `callback` with the result of
    `before`, the result of the call and the arguments, until `stack` closes."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def call_all(*args: Any, **kwargs: Any) -> Any:
        state = before(*args, **kwargs)
        result = original(*args, **kwargs)
        callback(state, result, *args, **kwargs)
        return result

    stack.callback(setattr, owner, name, original)
    setattr(owner, name, call_all)


def _call_before(stack: ExitStack, owner: Any, name: str, callback: Callable[..., Any]) -> None:
    """Calls `callback` with the same arguments before each call of ``owner.name``, until `stack` closes."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def call_both(*args: Any, **kwargs: Any) -> Any:
        callback(*args, **kwargs)
        return original(*args, **kwargs)

    stack.callback(setattr, owner, name, original)
    setattr(owner, name, call_both)
