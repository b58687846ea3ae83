"""When a captured graph fails while it runs: an index out of range, sizes that fake tensors did not check.

Python would have come to the failing operation step by step: with the side effects before it done, inside the
``try`` or ``with`` blocks around it.  So the frame runs again from its start, as plain Python, with the inputs as they
were: what the graph wrote to is put back, from copies made before.  Generated code does this::

    out = graph(x, y)
    if out is None:
        return run_plainly(code, globals, closure, args, kwargs)

If the program raises nothing of the kind then, the failure was the compiler's: see `hook/failures.py`.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from compiler_core.errors import CompileWarning
from compiler_core.hook.failures import heard
from compiler_core.hook.frame_hook import hook_off
from compiler_core.records import Compile
from compiler_core.support import torch_state
from compiler_core.support.fx_graphs import draws, memory_of

_failed = threading.local()
"""``last``: the compile whose graph just failed in this thread, the error, and whether a failure of ours is to be
raised; for `run_plainly`, which comes next."""

RAN_TWICE = "The call ran again as plain PyTorch: the results are right, but such calls are slower than uncompiled."


_RUN = """
def {name}({inputs}):
    {watched}
    {undo}
    try:
        return compiled({inputs})
    except BaseException as error:
        if not failed(error, undo):
            raise
"""


def graph_or_none(
    graph: torch.fx.GraphModule,
    compiled: Callable[..., Any],
    name: str,
    compile_: Compile,
    writes_at_once: bool,
    strict: bool,
) -> Callable[..., Any]:
    """`compiled`, which gives None where it failed and the frame may run again; else the error goes on.  While
    autograd is to detect anomalies, it does not run, and gives None: what is said of them names the user's lines.

    `writes_at_once`: it writes to inputs as it goes, not last of all, when nothing can fail any longer.  `strict`: a
    failure of ours is raised.
    """
    remember = _remembers(graph, writes_at_once)

    def failed(error: BaseException, undo: Undo | None) -> bool:
        again = _is_the_graphs(error)
        if undo:
            again = undo(again)
        if again:
            _failed.last = compile_, error, strict
        return again

    watched = "if is_anomaly_enabled(): return None" if _is_differentiated(graph.graph) else ""
    inputs = "".join(f"a{i}, " for i, node in enumerate(graph.graph.find_nodes(op="placeholder")))
    undo = f"undo = remember(({inputs}))" if remember else "undo = None"
    space: dict[str, Any] = {"compiled": compiled, "remember": remember, "failed": failed}
    space["is_anomaly_enabled"] = torch.is_anomaly_enabled
    text = _RUN.format(name=name, inputs=inputs, watched=watched, undo=undo)
    exec(compile(text, "<cutaway graph>", "exec"), space)
    run: Callable[..., Any] = space.pop(name)
    return run


def _is_differentiated(graph: torch.fx.Graph) -> bool:
    """Whether autograd notes an operation."""
    return any(t.requires_grad for n in graph.nodes if n.op.startswith("call") for t in _tensors(n.meta.get("val")))


Undo = Callable[[bool], bool]


def _remembers(graph: torch.fx.GraphModule, writes_at_once: bool) -> Callable[[Sequence[Any]], Undo] | None:
    """To be called with the inputs before a run of `graph`.  What that gives takes back what the run did before it
    failed, all of it if the frame is to run again, and says whether it can.  None for graphs that change nothing: most
    of them, and it costs time at every call."""
    written, random_numbers, before = _written(graph), draws(graph.graph), torch_state.restorer(graph.graph)
    if not (written or random_numbers or before):
        return None

    def remember(inputs: Sequence[Any]) -> Undo:
        kept = [_Input.kept(inputs[i], writes_at_once) for i in written]
        generators = _generators() if random_numbers else []
        restore = before and before()

        def undo(again: bool) -> bool:
            if restore:
                restore()
            if not again or not _put_back(kept):
                return False
            for put_back, state in generators:
                put_back(state)
            return True

        return undo

    return remember


def _generators() -> list[tuple[Callable[[Any], Any], Any]]:
    """The states of those that a graph may draw from, and what puts each back; a GPU's is where it stands."""
    of_cpu: Any = torch.default_generator
    on_gpus: Any = torch.cuda
    of_gpus = on_gpus.default_generators if on_gpus.is_initialized() else ()
    if of_gpus and on_gpus.is_current_stream_capturing():
        of_gpus = ()  # they say nothing of it then
    return [(of_cpu.set_state, of_cpu.get_state()), *((g.set_offset, g.get_offset()) for g in of_gpus)]


def _is_the_graphs(error: BaseException) -> bool:
    """Whether an operation may have raised it; not Ctrl-C, nor the user's hooks on saved tensors (a checkpoint ends
    its second run that way), nor a warning of ours that the user's filters raise."""
    if isinstance(error, CompileWarning):
        return False
    return isinstance(error, Exception) and torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def _written(graph: torch.fx.GraphModule) -> list[int]:
    """The inputs whose memory operations may change."""
    inputs = [n.meta["val"] for n in graph.graph.nodes if n.op == "placeholder"]
    changed = {memory_of(t) for n in graph.graph.nodes for t in _changed_by(n)}
    return [i for i, value in enumerate(inputs) for t in _tensors(value) if memory_of(t) in changed]


def _changed_by(node: torch.fx.Node) -> list[torch.Tensor]:
    """Fake tensors count how often they were changed, but ``out=`` and lists of tensors."""
    value = node.meta.get("val")
    if "out" in node.kwargs:
        return _tensors(value)
    if getattr(node.target, "__name__", "").startswith("_foreach_") and isinstance(node.args[0], (list, tuple)):
        return [n.meta["val"] for n in node.args[0] if isinstance(n, torch.fx.Node)]
    return [t for t in _tensors(value) if t._version > 0]


def _tensors(value: Any) -> list[torch.Tensor]:
    items = value if isinstance(value, (tuple, list)) else [value]
    return [item for item in items if isinstance(item, torch.Tensor)]


@dataclass(frozen=True)
class _Input:
    """An input that the graph writes to, and what it was before."""

    tensor: torch.Tensor
    version: int | None
    """How often it was changed in place; of inference tensors nobody knows."""
    place: tuple[Any, ...]
    history: tuple[Any, ...]
    copy: torch.Tensor | None

    @classmethod
    def kept(cls, tensor: torch.Tensor, writes_at_once: bool) -> _Input:
        version = None if tensor.is_inference() else tensor._version
        if not writes_at_once:  # it is unchanged, or cannot be put back
            return cls(tensor, version, (), (), None)
        history = _history(tensor)
        return cls(tensor, version, _place(tensor), history, _copy(tensor, history))

    def is_unchanged(self) -> bool:
        return self.version is not None and self.tensor._version == self.version and self.copy is None

    def can_be_put_back(self) -> bool:
        same_place = self.copy is not None and _place(self.tensor) == self.place
        return same_place and (_history(self.tensor) == self.history or not self.tensor._is_view())

    def put_back(self) -> None:
        assert self.copy is not None
        if _history(self.tensor) != self.history:
            self._put_history_back()
        with torch.inference_mode(self.tensor.is_inference()), torch.no_grad():
            _each_once(self.tensor).copy_(_each_once(self.copy))
        if self.version is not None:
            torch._C._autograd._unsafe_set_version_counter((self.tensor,), (self.version,))

    def _put_history_back(self) -> None:
        """A write that is to be differentiated gave the tensor a history in place of its own."""
        assert self.copy is not None
        self.tensor.detach_()
        if self.history[0] is None:
            self.tensor.requires_grad_(self.history[1])
        else:
            with torch.enable_grad():
                self.tensor.copy_(self.copy)


def _copy(tensor: torch.Tensor, history: tuple[Any, ...]) -> torch.Tensor:
    """Its data, and its history where it has one."""
    if isinstance(history[0], torch.autograd.graph.Node) and not tensor._is_view():
        with torch.enable_grad():
            return tensor.clone()
    return _each_once(tensor).clone()


def _each_once(tensor: torch.Tensor) -> torch.Tensor:
    """Its memory, without the dimensions that only repeat it."""
    part = tensor.detach()
    for dim in range(part.dim()):
        part = part.narrow(dim, 0, 1) if part.stride(dim) == 0 and part.shape[dim] else part
    return part


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.untyped_storage().data_ptr()


def _history(tensor: torch.Tensor) -> tuple[Any, ...]:
    try:
        return tensor.grad_fn, tensor.requires_grad
    except RuntimeError as error:  # of a view that autograd has lost track of
        return str(error), None


def _put_back(kept: Sequence[_Input]) -> bool:
    """Undo what the graph wrote; False where that cannot be."""
    changed = [each for each in kept if not each.is_unchanged()]
    if not all(each.can_be_put_back() for each in changed):
        return False
    for each in changed:
        each.put_back()
    return True


def run_plainly(
    code: types.CodeType, f_globals: Any, closure: tuple[types.CellType, ...], args: tuple[Any, ...], kwargs: Any
) -> Any:
    """The frame from its start, as Python runs it, with nothing below it captured.

    If a graph failed and the program raises no such error, the failure was ours.
    """
    failed = _failed.__dict__.pop("last", None)
    function = types.FunctionType(code, f_globals.value, code.co_name, None, closure)
    if failed is None or _is_known(failed[0]):
        with hook_off():
            return function(*args, **kwargs)
    compile_, error, strict = failed
    with hook_off(), _raised_like(error) as found:
        result = function(*args, **kwargs)
    if not found:
        heard(compile_, "run", error, meaning=RAN_TWICE, strict=strict)
    return result


def _is_known(compile_: Compile) -> bool:
    """Once for a compile is enough: the graph is likely to fail in the same way at every call."""
    return any(f.stage == "run" for f in compile_.failures)


@contextmanager
def _raised_like(error: Exception) -> Iterator[list[type]]:
    """The exceptions of the kind of `error` that Python code raises or lets through inside, caught there or not."""
    found: list[type] = []
    before = sys.gettrace()

    def of_a_frame(theirs: Any) -> Callable[..., Any]:
        def trace(frame: types.FrameType, event: str, arg: Any) -> Any:
            nonlocal theirs
            if event == "exception" and (issubclass(arg[0], type(error)) or isinstance(error, arg[0])):
                found.append(arg[0])
            theirs = theirs and theirs(frame, event, arg)
            return trace

        return trace

    def trace_all(frame: types.FrameType, event: Any, arg: Any) -> Any:
        frame.f_trace_lines = before is not None
        return of_a_frame(before and before(frame, event, arg))

    sys.settrace(trace_all)
    try:
        yield found
    finally:
        sys.settrace(before)
