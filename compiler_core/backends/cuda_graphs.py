"""CUDA graphs: the launches of a program are recorded once and replayed (``mode="reduce-overhead"``).

A recorded launch contains the addresses of its tensors.  So a replay needs its inputs at the recorded addresses, and
writes its results to the recorded addresses:

    an input with the same address as in the call before (a parameter, a saved tensor)   must keep its address
    any other input, and the incoming gradients of a backward                            are copied to a fixed address
    an input that the launches write to                                                  must keep its address
    a result that is still in use at the next replay                                     prevents that replay
    a result for the caller                                                              is copied
    a saved tensor, a gradient, a new value of an input                                  is returned without a copy

If a condition does not hold, the kernels are launched one by one, which is always correct.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from compiler_core.errors import Refused
from compiler_core.hook.failures import report_failure
from compiler_core.loops import ir
from compiler_core.records import Compile, CudaGraph
from compiler_core.support.opaque_ops import with_tape
from compiler_core.support.tensors import is_dense, storage_id

Run = Callable[[list[Any]], list[Any]]

MAX_RECORDINGS = 3
MAX_MISSES = 4
"""After so many successive calls with other addresses of fixed inputs, the graph is recorded again."""
NO_REPLAY = "The compiled kernels run, launched one by one: the results are right, but each call costs more."
WARM_UP_CALLS = {"forward": 1, "backward": 2}
"""The calls before the first recording.  A backward records later: its inputs are results of the forward's replays."""


def replay_obstacle(program: ir.Program) -> str:
    """Returns why the launches of `program` cannot be recorded; empty if they can."""
    devices = {b.device for b in program.buffers.values() if b.bytes}
    if any(device.type != "cuda" for device in devices) or not devices:
        others = sorted({device.type for device in devices if device.type != "cuda"})
        return f"CUDA graphs need CUDA tensors, and some are on {', '.join(others) or 'no device'}"
    if len(devices) > 1:
        return "the tensors are on several devices"
    if program.tapes or any(s.target is with_tape for s in program.steps if isinstance(s, ir.Call)):
        return "PyTorch's autograd runs in it, for an operator that is not decomposed"
    if program.symbols or not program.buffers.keys() >= set(program.inputs):
        return "sizes are symbolic, and a recorded launch contains its sizes"
    for call in (s for s in program.steps if isinstance(s, ir.Call)):
        if call.ordered and not _uses_default_generator(call):
            return f"{call.target} draws random numbers, and a replay would draw others"
        if call.barrier:
            return f"{call.target} changes a tensor in place"
    return ""


def _uses_default_generator(call: ir.Call) -> bool:
    """Whether a random call draws the next numbers of its device's default generator at each replay.

    `torch.cuda.graph` copies the state of that generator, before each replay, to where PyTorch's kernels read it.  A
    call with `draws` reads that state once, for our kernels, which would draw the same numbers at each replay.
    """
    is_aten = isinstance(call.target, torch._ops.OpOverload) and call.target.namespace == "aten"
    return is_aten and not call.draws and call.kwargs.get("generator") is None


def with_replay(run: Run, program: ir.Program, no_copy: Sequence[bool], note: CudaGraph, compile_: Compile) -> Run:
    """Returns `run` with replay from its second or third call on, or `run` itself if its launches cannot be recorded.

    Arguments:
        no_copy: for each result, whether it is returned without a copy.
        note: the entry in the record of `compile_`, to which recordings and obstacles are written.
    """
    note.reason = replay_obstacle(program)
    if note.reason:
        return run
    written = [at for at, name in enumerate(program.inputs) if name in program.in_place]
    return ReplayedRunner(run, ReplayLayout(list(program.inputs), list(no_copy), written), note, compile_)


@dataclass(frozen=True)
class ReplayLayout:
    """The inputs and results of a program whose launches are replayed."""

    inputs: list[str]
    no_copy: list[bool]
    """For each result, whether it is returned without a copy."""
    written: list[int] = field(default_factory=list)
    """The numbers of the inputs that are written to."""


@dataclass(frozen=True)
class _InputView:
    """A result that is a view of an input."""

    input: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    """In elements, from the first element of the input."""


class ReplayedRunner:
    """`run` with replay; what happens is written to `note`, an entry in the record of `compile_`."""

    def __init__(self, run: Run, layout: ReplayLayout, note: CudaGraph, compile_: Compile) -> None:
        self.run, self.layout, self._note, self._compile = run, layout, note, compile_
        self._primals = {i for i, name in enumerate(layout.inputs) if name.startswith("primals")}
        self._copied = {i for i, name in enumerate(layout.inputs) if name.startswith("tangents")}
        """The numbers of the inputs that the next recording copies."""
        self._recording: _Recording | None = None
        self._before: list[int] = []
        """The addresses of the inputs in the call before."""
        self._calls = self._misses = 0
        self._postponements = MAX_MISSES
        """How often a recording may still be postponed because saved tensors have moved."""
        self._lock = threading.Lock()
        self.executable = replace(run.executable, inline_body=None, only_kernels=False)  # type: ignore[attr-defined]

    def __call__(self, inputs: list[Any]) -> list[Any]:
        if self._note.reason or torch.cuda.is_current_stream_capturing() or not self._lock.acquire(blocking=False):
            return self.run(inputs)
        try:
            return self._replay_or_run(inputs)
        finally:
            self._lock.release()

    def _replay_or_run(self, inputs: list[Any]) -> list[Any]:
        addresses = list(map(torch.Tensor.data_ptr, inputs))
        before, self._before = self._before, addresses
        self._calls += 1
        if self._calls <= WARM_UP_CALLS[self._note.graph]:
            return self.run(inputs)
        if self._recording is None or self._misses >= MAX_MISSES:
            self._record(inputs, {i for i, (now, was) in enumerate(zip(addresses, before, strict=True)) if now != was})
        recording = self._recording
        if recording is None:
            return self.run(inputs)
        moved = recording.moved_inputs(addresses)
        if moved:
            self._misses += 1
            self._copied |= (moved & self._primals).difference(self.layout.written)
            return self.run(inputs)
        if not recording.results_are_unused():
            return self.run(inputs)
        self._misses = 0
        return recording.replay(inputs)

    def _record(self, inputs: Sequence[Any], moved: set[int]) -> None:
        """Records a graph, unless the saved tensors are not yet at the addresses of the forward's replays."""
        self._recording = None
        if moved - self._primals - self._copied and self._postponements:
            self._postponements -= 1
            return
        self._misses, self._postponements = 0, MAX_MISSES
        if self._note.recorded == MAX_RECORDINGS:
            self._note.reason = f"its inputs moved again after {MAX_RECORDINGS} recordings"
            return
        moved = (moved | self._copied).difference(self.layout.written)
        try:
            with torch.cuda.device(inputs[0].device):
                self._recording = _Recording(self.run, inputs, moved, self.layout.no_copy)
        except RuntimeError as error:
            self._note.reason = f"recording failed: {str(error).splitlines()[0]}"
            why = Refused(f"a CUDA graph of the {self._note.graph} cannot be recorded: {error}")
            report_failure(self._compile, "run", why, meaning=NO_REPLAY)
            return
        self._note.recorded += 1
        self._note.copied = len(moved)


class _Recording:
    """One CUDA graph; `input_copies` has the tensors that inputs are copied to, by the number of the input."""

    def __init__(self, run: Run, inputs: Sequence[Any], moved: set[int], no_copy: Sequence[bool]) -> None:
        self.input_copies = {i: _clone_with_strides(inputs[i]) for i in moved}
        self._fixed = [(i, t.data_ptr()) for i, t in enumerate(inputs) if i not in moved]
        self._addresses = tuple(address for _, address in self._fixed)
        # the two extra items make the result a tuple, whatever the number of fixed inputs
        self._fixed_items = operator.itemgetter(*(i for i, _ in self._fixed), 0, 0)
        self._graph = torch.cuda.CUDAGraph()
        recorded_inputs = [self.input_copies.get(i, t) for i, t in enumerate(inputs)]
        results = self._capture(run, recorded_inputs)
        given = {storage_id(t): (i, t) for i, t in enumerate(recorded_inputs)}
        self._results = [_as_input_view(r, given) for r in results]
        # a result with gaps in memory is not copied either, because a clone would have other strides
        self._no_copy = [
            isinstance(result, torch.Tensor) and (keep or not is_dense(result))
            for result, keep in zip(self._results, no_copy, strict=True)
        ]
        held = {storage_id(r): r for r in self._results if isinstance(r, torch.Tensor)}
        del results
        self._storages = list(held)
        self._use_counts = list(map(torch._C._storage_Use_Count, self._storages))

    def _capture(self, run: Run, inputs: list[Any]) -> list[Any]:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        # In a first run, libraries allocate memory and choose kernels.  It must not advance the generator, because the
        # first replay draws the same numbers.
        with torch.cuda.stream(stream), torch.random.fork_rng([inputs[0].device]):
            run([*inputs])
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            return run([*inputs])

    def moved_inputs(self, addresses: Sequence[int]) -> set[int]:
        """Returns the inputs that are not copied and whose address has changed."""
        if self._fixed_items(addresses)[:-2] == self._addresses:
            return set()
        return {i for i, address in self._fixed if addresses[i] != address}

    def results_are_unused(self) -> bool:
        """Whether no result of the last replay is in use any more."""
        return list(map(torch._C._storage_Use_Count, self._storages)) == self._use_counts

    def replay(self, inputs: Sequence[Any]) -> list[Any]:
        if self.input_copies:
            torch._foreach_copy_(list(self.input_copies.values()), [inputs[i] for i in self.input_copies])
        self._graph.replay()
        return [
            result.detach() if keep else self._copy_result(result, inputs)
            for result, keep in zip(self._results, self._no_copy, strict=True)
        ]

    def _copy_result(self, result: Any, inputs: Sequence[Any]) -> Any:
        if isinstance(result, _InputView):
            base = inputs[result.input]
            if (base.shape, base.stride(), 0) == (result.size, result.stride, result.offset):
                return base
            return base.as_strided(result.size, result.stride, base.storage_offset() + result.offset)
        return result.clone() if isinstance(result, torch.Tensor) else result


def _clone_with_strides(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy of `tensor` with the same strides."""
    buffer = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return buffer.copy_(tensor)


def _as_input_view(result: Any, given: dict[int, tuple[int, torch.Tensor]]) -> Any:
    """Returns `result`, or the view to make if it is in the memory of an input."""
    if not isinstance(result, torch.Tensor) or storage_id(result) not in given:
        return result
    number, base = given[storage_id(result)]
    return _InputView(
        number, tuple(result.shape), result.stride(), int(result.storage_offset() - base.storage_offset())
    )
