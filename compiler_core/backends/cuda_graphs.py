"""CUDA graphs: a program's launches recorded once and replayed, where ``mode="reduce-overhead"`` asks for it.

A recorded launch has the addresses of its tensors in it, so a replay must find its inputs where they were and
leaves its results where they were:

    an input at the address of the call before (a parameter, a saved value)   must stay there; else no replay
    any other input, and each gradient that a backward is given               is copied to a place of its own
    a result that somebody still holds when the next replay is due            no replay
    an input that the launches write to                                       must stay there; else no replay
    a result for the caller                                                   is copied out
    a saved value, a gradient, a new value of an input                        is handed out where it lies

"No replay" means that the kernels are launched one by one, which is always right.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from compiler_core.errors import Refused
from compiler_core.hook.failures import heard
from compiler_core.loops import ir
from compiler_core.records import Compile, CudaGraph
from compiler_core.support.opaque_ops import with_tape

Run = Callable[[list[Any]], list[Any]]

MOST_RECORDINGS = 3
MOST_MISSES = 4
"""Calls in a row whose fixed inputs lie elsewhere before it is recorded anew."""
ONE_BY_ONE = "The compiled kernels run, launched one by one: the results are right, but each call costs more."
QUIET_CALLS = {"forward": 1, "backward": 2}
"""Calls before the first recording: what a backward is given lies where the forward's replays leave it."""


def why_not(program: ir.Program) -> str:
    """Why the launches of `program` cannot be recorded; empty where they can."""
    devices = {b.device for b in program.buffers.values() if b.bytes}
    if any(device.type != "cuda" for device in devices) or not devices:
        return "CUDA graphs are of CUDA tensors only, and some here are on " + ", ".join(
            sorted({d.type for d in devices if d.type != "cuda"}) or ["no device"]
        )
    if len(devices) > 1:
        return "the tensors are on several devices"
    if program.tapes or any(s.target is with_tape for s in program.steps if isinstance(s, ir.Call)):
        return "PyTorch's autograd runs in it, for an operator that stays whole"
    if program.symbols or not program.buffers.keys() >= set(program.inputs):
        return "sizes are symbolic, and a recorded launch has its sizes in it"
    for call in (s for s in program.steps if isinstance(s, ir.Call)):
        if call.ordered:
            return f"{call.target} draws random numbers, which a replay would draw otherwise"
        if call.barrier:
            return f"{call.target} changes a tensor in place"
    return ""


def replayed(run: Run, program: ir.Program, stays: Sequence[bool], note: CudaGraph, compile_: Compile) -> Run:
    """`run`, replayed from its second or third call on; `stays`: which results are handed out where they lie.

    `note`, of `compile_`, says what became of it.
    """
    note.reason = why_not(program)
    written = [at for at, name in enumerate(program.inputs) if name in program.in_place]
    return run if note.reason else Replayed(run, Places(list(program.inputs), list(stays), written), note, compile_)


@dataclass(frozen=True)
class Places:
    """What goes in and comes out of a program whose launches are replayed."""

    inputs: list[str]
    stays: list[bool]
    """Which results are handed out where they lie."""
    written: list[int] = field(default_factory=list)
    """The inputs that are written to, by number."""


@dataclass(frozen=True)
class _Window:
    """A result that lies in the memory of an input."""

    input: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    """From where the input begins."""


class Replayed:
    """`run`, replayed; `note`, of `compile_`, says what became of it."""

    def __init__(self, run: Run, of: Places, note: CudaGraph, compile_: Compile) -> None:
        self.run, self.of, self._note, self._compile = run, of, note, compile_
        self._primals = {i for i, name in enumerate(of.inputs) if name.startswith("primals")}
        self._moving = {i for i, name in enumerate(of.inputs) if name.startswith("tangents")}
        self._recording: _Recording | None = None
        self._before: list[int] = []
        self._calls = self._misses = 0
        self._patience = MOST_MISSES
        self._lock = threading.Lock()
        self.recipe = replace(run.recipe, short=None, only_kernels=False)  # type: ignore[attr-defined]

    def __call__(self, inputs: list[Any]) -> list[Any]:
        if self._note.reason or torch.cuda.is_current_stream_capturing() or not self._lock.acquire(blocking=False):
            return self.run(inputs)
        try:
            return self._replay_or_run(inputs)
        finally:
            self._lock.release()

    def _replay_or_run(self, inputs: list[Any]) -> list[Any]:
        addresses = [t.data_ptr() for t in inputs]
        before, self._before = self._before, addresses
        self._calls += 1
        if self._calls <= QUIET_CALLS[self._note.graph]:
            return self.run(inputs)
        if self._recording is None or self._misses >= MOST_MISSES:
            self._record(inputs, {i for i, (now, was) in enumerate(zip(addresses, before, strict=True)) if now != was})
        recording = self._recording
        if recording is None:
            return self.run(inputs)
        if elsewhere := recording.elsewhere(addresses):
            self._misses += 1
            self._moving |= (elsewhere & self._primals).difference(self.of.written)
            return self.run(inputs)
        if not recording.is_free():
            return self.run(inputs)
        self._misses = 0
        return recording.replay(inputs)

    def _record(self, inputs: Sequence[Any], moved: set[int]) -> None:
        """Record a graph, unless what the forward saved is not yet where its replays will leave it."""
        self._recording = None
        if moved - self._primals - self._moving and self._patience:
            self._patience -= 1
            return
        self._misses, self._patience = 0, MOST_MISSES
        if self._note.recorded == MOST_RECORDINGS:
            self._note.reason = f"its inputs moved again after {MOST_RECORDINGS} recordings"
            return
        moved = (moved | self._moving).difference(self.of.written)
        try:
            with torch.cuda.device(inputs[0].device):
                self._recording = _Recording(self.run, inputs, moved, self.of.stays)
        except RuntimeError as error:
            self._note.reason = f"recording failed: {str(error).splitlines()[0]}"
            why = Refused(f"a CUDA graph of the {self._note.graph} cannot be recorded: {error}")
            heard(self._compile, "run", why, meaning=ONE_BY_ONE)
            return
        self._note.recorded += 1
        self._note.copied = len(moved)


class _Recording:
    """One CUDA graph: `places` are the tensors that inputs are copied to, by the input's number."""

    def __init__(self, run: Run, inputs: Sequence[Any], moved: set[int], stays: Sequence[bool]) -> None:
        self.places = {i: _like(inputs[i]) for i in moved}
        self._fixed = [(i, t.data_ptr()) for i, t in enumerate(inputs) if i not in moved]
        self._addresses = tuple(address for _, address in self._fixed)
        self._of_fixed = operator.itemgetter(*(i for i, _ in self._fixed), 0, 0)  # at least two make a tuple
        self._graph = torch.cuda.CUDAGraph()
        results = self._capture(run, [self.places.get(i, t) for i, t in enumerate(inputs)])
        given = {_memory(t): (i, t) for i, t in enumerate(self.places.get(i, t) for i, t in enumerate(inputs))}
        self._results = [_window(r, given) for r in results]
        # of what is handed out where it lies; a clone of what has gaps would lie otherwise
        self._lie = [
            isinstance(r, torch.Tensor) and (s or not _is_dense(r)) for r, s in zip(self._results, stays, strict=True)
        ]
        held = {_memory(r): r for r in self._results if isinstance(r, torch.Tensor)}
        del results
        self._held = [(memory, torch._C._storage_Use_Count(memory)) for memory in held]

    def _capture(self, run: Run, inputs: list[Any]) -> list[Any]:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # libraries get their memory and choose their kernels
            run([*inputs])
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            return run([*inputs])

    def elsewhere(self, addresses: Sequence[int]) -> set[int]:
        """The inputs that are not copied and lie no longer where they did."""
        if self._of_fixed(addresses)[:-2] == self._addresses:
            return set()
        return {i for i, address in self._fixed if addresses[i] != address}

    def is_free(self) -> bool:
        """Whether nobody holds a result of the last replay any more."""
        count = torch._C._storage_Use_Count
        return all(count(memory) == alone for memory, alone in self._held)

    def replay(self, inputs: Sequence[Any]) -> list[Any]:
        if self.places:
            torch._foreach_copy_(list(self.places.values()), [inputs[i] for i in self.places])
        self._graph.replay()
        return [
            r.detach() if lies else self._handed_out(r, inputs)
            for r, lies in zip(self._results, self._lie, strict=True)
        ]

    def _handed_out(self, result: Any, inputs: Sequence[Any]) -> Any:
        if isinstance(result, _Window):
            base = inputs[result.input]
            if (base.shape, base.stride(), 0) == (result.size, result.stride, result.offset):
                return base
            return base.as_strided(result.size, result.stride, base.storage_offset() + result.offset)
        return result.clone() if isinstance(result, torch.Tensor) else result


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor like it that holds its values."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)


def _is_dense(tensor: torch.Tensor) -> bool:
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return bool(extent == tensor.numel())


def _memory(tensor: torch.Tensor) -> int:
    storage: Any = tensor.untyped_storage()
    return int(storage._cdata)


def _window(result: Any, given: dict[int, tuple[int, torch.Tensor]]) -> Any:
    """`result`, or how to make it from an input in whose memory it lies."""
    if not isinstance(result, torch.Tensor) or _memory(result) not in given:
        return result
    number, base = given[_memory(result)]
    return _Window(number, tuple(result.shape), result.stride(), int(result.storage_offset() - base.storage_offset()))
