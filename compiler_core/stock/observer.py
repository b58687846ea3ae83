"""Watches stock `torch.compile` while it runs, and leaves it as it was.

What is watched: PyTorch's structured events, its hook for bytecode, and three places in Inductor that tell of
kernels, of loops that stay apart and of passes over graphs.  Options, caches and code are PyTorch's own, untouched.
A failure in here is noted in the record and never reaches the program.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from compiler_core.records import Record
from compiler_core.stock import torch_logs, versions
from compiler_core.stock.deferred_text import symbolic
from compiler_core.stock.dynamo_steps import Stepping
from compiler_core.stock.read.trace_event import Happened, happened
from compiler_core.stock.record_builder import Filler
from compiler_core.support.interrupts import held

_TRACE = "torch.__trace"
TOLD = ("pre_grad_passes", "post_grad_passes")
"""Passes whose graph PyTorch itself tells before the first of them; to print it once more would take its time."""


@contextmanager
def observing(record: Record, steps: bool = False, logs: bool = False) -> Iterator[None]:
    """Everything that stock `torch.compile` compiles inside is written to `record`; `steps`: also every step of its
    symbolic interpreter; `logs`: also all that its loggers say."""
    filler = Filler(record, time.time_ns() - record.clock())
    stack = ExitStack()
    try:
        with held():
            watch = _Watch(record, filler)
            stack.callback(watch.guard(filler.close))
            asked = [*([_steps] if steps else []), *([_logs] if logs else [])]
            for start in (_events, _bytecode, _kernels, _refusals, _passes, _autotuning, _cudagraphs, *asked):
                watch.guard(start)(watch, stack)
        yield
    finally:
        try:
            with held():
                stack.close()
        finally:
            stack.close()  # does nothing, unless an interrupt came before they were held


class _Watch:
    """Hands on what happened; keeps its own failures."""

    def __init__(self, record: Record, filler: Filler) -> None:
        self.filler = filler
        self._record = record

    def guard(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, whose exceptions become a note of the record, said once."""

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                note = f"The observer of torch.compile: {function.__name__}: {type(error).__name__}: {error}"
                if note not in self._record.notes:
                    self._record.notes.append(note)
                return None

        return guarded

    def tell(self, name: str, about: Any, payload: str = "") -> None:
        frame, number, autograd = versions.running_compile()
        self.filler.hear(Happened(name, about, payload, time.time_ns(), frame, number, autograd))

    def without(self, thing: str) -> None:
        self._record.notes.append(f"This PyTorch tells nothing of {thing}, so the record has nothing of it.")


def _events(watch: _Watch, stack: ExitStack) -> None:
    watch.filler.strings.update(versions.strings())

    def hear(record: logging.LogRecord) -> None:
        metadata, payload = getattr(record, "metadata", {}), getattr(record, "payload", None)
        watch.filler.hear(happened(metadata, payload, time.time_ns()))

    handler, logger = torch_logs.Listener(watch.guard(hear)), logging.getLogger(_TRACE)
    stack.callback(logger.removeHandler, handler)
    logger.addHandler(handler)
    watch.filler.later.install(stack, lambda: logger.handlers == [handler])


def _bytecode(watch: _Watch, stack: ExitStack) -> None:
    register = versions.bytecode_hooks()
    if register is None:
        watch.without("bytecode")
        return

    def hook(old: Any, new: Any) -> None:
        watch.tell("cutaway.bytecode", (old, new))

    stack.callback(register(watch.guard(hook)).remove)


def _kernels(watch: _Watch, stack: ExitStack) -> None:
    def hear(schedule: Any, kernel_name: Any, is_extern: bool = False) -> None:
        watch.tell("cutaway.kernel", (str(kernel_name), _node_names(schedule, is_extern)))

    found = list(versions.kernel_tellers())
    for module, name in found:
        _before(stack, module, name, watch.guard(hear))
    if not found:
        watch.without("the nodes of each kernel")


def _node_names(schedule: Any, is_extern: bool) -> dict[str, list[str]]:
    """The scheduler's operations of a kernel, and the graph nodes that went into each."""
    if is_extern:
        return {str(schedule.get_operation_name()): _origins(schedule)}
    return {str(each.get_name()): _origins(each.node) for each in schedule if hasattr(each, "get_name")}


def _origins(node: Any) -> list[str]:
    return [origin.name for origin in getattr(node, "origins", None) or ()]


def _refusals(watch: _Watch, stack: ExitStack) -> None:
    cls = versions.refusal_class()
    if cls is None:
        watch.without("the reasons for not fusing")
        return

    def hear(why: Any, reason: str, *args: Any) -> None:
        text = reason % args if args else reason
        watch.tell("cutaway.refusal", (str(why.name1), str(why.name2), reason.split("%")[0].strip(" :(,"), text))

    _before(stack, cls, "__call__", watch.guard(hear))


def _passes(watch: _Watch, stack: ExitStack) -> None:
    cls = versions.pass_observer()
    if cls is None:
        watch.without("its passes over graphs")
        return
    seen = _Seen(watch)
    _before(stack, cls, "__enter__", watch.guard(seen.before))
    _before(stack, cls, "__exit__", watch.guard(seen.after))


def _autotuning(watch: _Watch, stack: ExitStack) -> None:
    savers = versions.feedback_savers()
    if savers is None:
        watch.without("autotuning")
        return

    def hear(times: Any, name: str, inputs: Any, *_: Any) -> None:
        shapes = ", ".join("x".join(str(size) for size in each.get_size()) for each in inputs)
        tried = sorted((float(time), choice.name) for choice, time in times.items())
        watch.tell("cutaway.autotuning", (f"{name}({shapes})", tried))

    saver = watch.guard(hear)
    stack.callback(savers.remove, saver)
    savers.append(saver)


def _cudagraphs(watch: _Watch, stack: ExitStack) -> None:
    """They may be given up long after the compile, at a later call."""
    log = versions.cudagraphs_log()
    if log is None:
        watch.without("CUDA graphs that it does without")
        return

    def hear(record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            watch.tell("cutaway.cudagraphs", record.getMessage())

    handler = torch_logs.Listener(watch.guard(hear))
    stack.callback(log.removeHandler, handler)
    log.addHandler(handler)


def _steps(watch: _Watch, stack: ExitStack) -> None:
    stepping = Stepping(lambda steps: watch.tell("cutaway.steps", steps))
    if not stepping.install(stack, watch.guard):
        watch.without("its symbolic interpreter's steps")


def _logs(watch: _Watch, stack: ExitStack) -> None:
    def hear(name: str, text: str) -> None:
        watch.tell("cutaway.message", name, text)

    if not torch_logs.install(stack, watch.guard(hear)):
        watch.without("its loggers")


class _Seen:
    """The graph that passes go over: its last known shape, so that only a pass that changed it prints it."""

    def __init__(self, watch: _Watch) -> None:
        self._watch = watch
        self._graph: Any = None
        self._shape = 0

    def before(self, observer: Any) -> None:
        graph = observer.gm.graph
        if graph is not self._graph:
            self._graph, self._shape = graph, _shape(graph)
            if getattr(observer, "subsystem", None) not in TOLD:
                self._tell(observer, before=True)

    def after(self, observer: Any, *_: Any) -> None:
        graph = observer.gm.graph
        shape = _shape(graph)
        if (graph, shape) != (self._graph, self._shape):
            self._graph, self._shape = graph, shape
            self._tell(observer, before=False)

    def _tell(self, observer: Any, before: bool) -> None:
        name = ".".join(filter(None, (getattr(observer, "subsystem", None), observer.passname)))
        options = {"print_output": False, "include_stride": True, "include_device": True}
        if symbolic(observer.gm.graph):
            text = observer.gm.print_readable(**options)
        else:
            text = self._watch.filler.later.graph(observer.gm, **options)
        self._watch.tell("cutaway.pass", (name, before), text)


def _shape(graph: Any) -> int:
    """Changes where a node is added, removed, moved or gets another operation or other inputs."""
    return hash(tuple((n.name, id(n.target), *map(id, n.all_input_nodes)) for n in graph.nodes))


def _before(stack: ExitStack, owner: Any, name: str, hear: Callable[..., Any]) -> None:
    """Call `hear` with the same arguments before `owner.name`, until the record closes."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def heard(*args: Any, **kwargs: Any) -> Any:
        hear(*args, **kwargs)
        return original(*args, **kwargs)

    stack.callback(setattr, owner, name, original)
    setattr(owner, name, heard)
