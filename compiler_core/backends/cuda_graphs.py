"""CUDA graphs: the launches of a program are recorded once and replayed (``mode="reduce-overhead"``).

A recorded launch contains the addresses of its tensors.  So a replay needs its inputs at the recorded addresses, and
writes its results to the recorded addresses:

    an input with the same address as in the call before (a parameter, a saved tensor)   must keep its address
    any other input, and the incoming gradients of a backward                            are copied to a fixed address
    an input that the launches write to                                                  must keep its address
    a result that is still in use at the next replay                                     prevents that replay
    a result for the caller                                                              is copied, or lent
    a gradient                                                                           is returned without a copy
    a saved tensor                                                                       is the same object each time
    the new value of an input, as a running mean                                         is copied to that input

If a condition does not hold, the kernels are launched one by one, which is always correct.  `replay_pool` and
`replay_memory` have the further conditions of graphs that share memory; the latter says when a result is lent, too.
"""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
import torch.fx as fx
from torch.multiprocessing.reductions import StorageWeakRef

from compiler_core.autograd.autograd_function import new_zeros
from compiler_core.backends.replay_memory import GraphMemory, ReplayMemory, SavedTensors
from compiler_core.backends.replay_pool import Pool, Reserved, UseCounts, items_at
from compiler_core.codegen.wrapper.executable import Executable
from compiler_core.errors import Refused
from compiler_core.hook.failures import report_failure
from compiler_core.loops import ir
from compiler_core.loops.schedule.inputs import NumbersInput
from compiler_core.records import Compile, CudaGraph
from compiler_core.support.interrupts import raised_by_handler
from compiler_core.support.node_facts import custom_operator
from compiler_core.support.opaque_ops import opaque_operator
from compiler_core.support.operators import Fact, facts
from compiler_core.support.tensors import MASK_TYPES, is_dense, new_like, storage_id, without_repeats
from compiler_core.torch_private import OpOverload, clear_cublas_workspaces, disable_current_modes

Run = Callable[[list[Any]], list[Any]]

MAX_RECORDINGS = 3
MAX_MISSES = 4
"""After so many successive calls with other addresses of fixed inputs, the graph is recorded again."""
NO_REPLAY = "The compiled kernels run, launched one by one: the results are right, but each call costs more."
SMALL_RESULT = 4096
"""Bytes up to which results are always copied, unless they become gradients: programs keep losses and counts."""
WARM_UP_CALLS = 1
"""The calls before the first recording, in which libraries choose kernels."""


def replay_obstacle(program: ir.Program) -> str:
    """Returns why the launches of `program` cannot be recorded; empty if they can."""
    if not program.steps:
        return "it launches no kernel"
    devices = {b.device for b in program.buffers.values() if b.bytes}
    if any(device.type != "cuda" for device in devices) or not devices:
        others = sorted({device.type for device in devices if device.type != "cuda"})
        return f"CUDA graphs need CUDA tensors, and some are on {', '.join(others) or 'no device'}"
    if len(devices) > 1:
        return "the tensors are on several devices"
    if program.tapes or any(isinstance(result, ir.Result) for result in program.results):
        return "it hands the autograd graph of an operator that is not decomposed from the forward to the backward"
    if program.symbols or not program.buffers.keys() >= set(program.inputs):
        return "sizes are symbolic, and a recorded launch contains its sizes"
    calls = (step for step in program.steps if isinstance(step, ir.Call))
    return next((why for call in calls if (why := _obstacle_of(call, program))), "")


def _obstacle_of(call: ir.Call, program: ir.Program) -> str:
    """Returns why this call cannot be recorded; empty if it can."""
    operator = opaque_operator(call) or call.target
    if operator is not call.target and not isinstance(operator, OpOverload):
        return f"{operator} runs under PyTorch's autograd, and its Python code would not run in a replay"
    if call.ordered and call.barrier:
        return f"{operator} communicates with other ranks"
    if custom_operator(operator) is not None:
        if torch.Tag.cudagraph_unsafe in operator.tags:
            return f"{operator} is tagged as unsafe in CUDA graphs"
    elif call.ordered and not _uses_default_generator(call):
        if Fact.CHECKS_VALUES in facts(operator) and torch.Tag.nondeterministic_seeded not in operator.tags:
            return f"{operator} raises an error for some values, and a replay would not"
        return f"{operator} draws random numbers, and a replay would draw others"
    if call.barrier:
        return f"{operator} changes a tensor in place"
    if _reads_mask(call, program):
        return f"{operator} waits for how many elements a mask picks"
    return ""


def _reads_mask(call: ir.Call, program: ir.Program) -> bool:
    """Whether a call indexes by a mask: its kernel copies the number of elements to the CPU."""
    if not facts(call.target) & (Fact.INDEXED_READ | Fact.INDEXED_WRITE):
        return False
    indices = (each.buffer for each in call.args[1] if isinstance(each, ir.TensorView))
    return any(program.buffers[name].dtype in MASK_TYPES for name in indices)


def _uses_default_generator(call: ir.Call) -> bool:
    """Whether a random call draws the next numbers of its device's default generator at each replay.

    `torch.cuda.graph` copies the state of that generator, before each replay, to where PyTorch's kernels read it.  A
    call with `draws` reads that state once, for our kernels, which would draw the same numbers at each replay.
    """
    is_aten = isinstance(call.target, OpOverload) and call.target.namespace == "aten"
    return is_aten and not call.draws and call.kwargs.get("generator") is None


def with_replay(
    run: Run,
    program: ir.Program,
    outputs: Sequence[fx.Node | None],
    note: CudaGraph,
    compile_: Compile,
    memory: GraphMemory,
    numbers: NumbersInput | None = None,
) -> Run:
    """Returns `run` with replay from its second call on, or `run` itself if its launches cannot be recorded.

    Args:
        outputs: the nodes of the graph's outputs.
        note: the entry in the record of `compile_`, to which recordings and obstacles are written.
        memory: what the forward and the backward of a graph share.
        numbers: how the program's last input is made from the floats among the inputs of the graph.
    """
    note.reason = replay_obstacle(program)
    if note.reason and numbers is None:
        return run
    written = [number for number, name in enumerate(program.inputs) if name in program.in_place]
    roles = ["" if node is None else node.meta.get("role", "") for node in outputs]
    places = {name: number for number, name in enumerate(program.inputs) if number not in written}
    updates = [None if node is None else places.get(node.meta.get("new_value_of", "")) for node in outputs]
    gradients = [at for at, n in enumerate(outputs) if n is not None and n.meta.get("is_gradient")]
    device = next((str(buffer.device) for buffer in program.buffers.values() if buffer.bytes), "cuda")
    layout = ReplayLayout(list(program.inputs), roles, written, updates, numbers, gradients, device)
    return ReplayedRunner(run, layout, note, compile_, memory)


@dataclass(frozen=True)
class ReplayLayout:
    """The inputs and results of a program whose launches are replayed."""

    inputs: list[str]
    roles: list[str]
    """For each result, its role in the graph: "output" for the caller, "saved" for the backward, or "gradient"."""
    written: list[int] = field(default_factory=list)
    """The numbers of the inputs that kernels write to."""
    updates: list[int | None] = field(default_factory=list)
    """For each result, the number of the input that it is the new value of, and to which it is copied."""
    numbers: NumbersInput | None = None
    """How the last input is made from the floats among the inputs of the graph, which the others do not have."""

    gradients: list[int] = field(default_factory=list)
    """The numbers of the results that become the ``.grad`` of tensors, which programs drop before the next step."""
    device: str = "cuda"
    """The device of all tensors of a program that can be replayed."""

    @property
    def updated_inputs(self) -> list[int]:
        return [number for number in self.updates if number is not None]

    def may_lend(self, number: int, result: torch.Tensor) -> bool:
        """Whether this result may be returned without a copy."""
        return self.roles[number] == "output" and (result.nbytes > SMALL_RESULT or number in self.gradients)


class ReplayedRunner:
    """`run` with replay; what happens is written to `note`, an entry in the record of `compile_`.

    A graph that several modules share, as equal blocks do, is recorded for each of them: `GraphMemory` has what the
    replays of the forward and the backward of one module share.
    """

    def __init__(self, run: Run, layout: ReplayLayout, note: CudaGraph, compile_: Compile, memory: GraphMemory) -> None:
        self.run, self.layout, self.note, self.compile, self._memory = run, layout, note, compile_, memory
        self._pool = memory.pools[layout.device]
        self._zeros: dict[tuple[Any, ...], torch.Tensor] = {}
        """What stands for absent tangents: one zero each, expanded to their shape."""
        self._first_saved = layout.roles.index("saved") if "saved" in layout.roles else None
        self._numbers = None if layout.numbers is None else _NumbersOnDevice(layout.numbers)
        executable: Executable = run.executable  # type: ignore[attr-defined]
        written = [*executable.in_place, *(layout.inputs[number] for number in layout.updated_inputs)]
        self.executable = replace(executable, inline_body=None, only_kernels=False, in_place=written)

    def __call__(self, inputs: list[Any]) -> list[Any]:
        lock, numbers = self._pool.lock, self._numbers
        if self.note.reason or torch.cuda.is_current_stream_capturing() or not lock.acquire(blocking=False):
            return self.launch(inputs if numbers is None else numbers.inputs(inputs, is_shared=True))
        try:
            given = inputs if numbers is None else numbers.inputs(inputs)
            addresses = list(map(torch.Tensor.data_ptr, given))
            if self.note.graph == "backward":
                return self._replays(self._memory.of_backward(self._pool, addresses)).run(given, addresses)
            memory = self._memory.of_forward(self._pool, given, addresses)
            results = self._replays(memory).run(given, addresses)
            if self._first_saved is not None:
                self._memory.note_saved(memory, results[self._first_saved])
            return results
        finally:
            lock.release()

    def _replays(self, memory: ReplayMemory) -> _Replays:
        found: _Replays | None = memory.replays.get(self.note.graph)
        if found is None:
            found = memory.replays[self.note.graph] = _Replays(self, memory)
        return found

    def zeros(self, *layout: Any) -> torch.Tensor:
        """Returns what stands for an absent tangent, the same each time; `layout` has the arguments of `new_zeros`.

        Kernels cannot read it, since its strides are 0: what is launched or recorded makes the zeros (`absent`).
        """
        if layout not in self._zeros:
            shape, _, dtype, device = layout
            with torch.inference_mode(False), disable_current_modes():
                self._zeros[layout] = new_zeros((), (), dtype, device).expand(shape)
        return self._zeros[layout]

    def absent(self, inputs: Sequence[Any]) -> dict[int, tuple[Any, ...]]:
        """Returns which inputs stand for absent tangents, with the arguments of `new_zeros` for each."""
        known = {id(tensor): layout for layout, tensor in self._zeros.items()}
        return {i: known[id(tensor)] for i, tensor in enumerate(inputs) if id(tensor) in known} if known else {}

    def launch(self, inputs: list[Any]) -> list[Any]:
        """Launches the kernels one by one."""
        for number, layout in self.absent(inputs).items():
            inputs[number] = new_zeros(*layout)
        given = {number: inputs[number] for number in self.layout.updated_inputs}
        results = self.run(inputs)
        update_inputs(given, results, self.layout.updates)
        return results


class _Replays:
    """The replays of a graph for one set of parameters."""

    def __init__(self, runner: ReplayedRunner, memory: ReplayMemory) -> None:
        # `memory` has this object, and the runner has `memory`: GPU memory is freed without a garbage collection
        self._runner = cast("ReplayedRunner", weakref.proxy(runner))
        self._memory = cast("ReplayMemory", weakref.proxy(memory))
        self._layout = runner.layout
        self._is_forward = runner.note.graph == "forward"
        self._primals = {i for i, name in enumerate(self._layout.inputs) if name.startswith("primals")}
        self._copied = {i for i, name in enumerate(self._layout.inputs) if name.startswith("tangents")}
        """The numbers of the inputs that the next recording copies."""
        self._recording: _Recording | None = None
        self._recorded_for = 0
        """The number of the forward's recording when this backward was recorded."""
        self._before: list[int] = []
        """The addresses of the inputs in the call before."""
        self._calls = self._misses = self._recordings = 0
        self._postponements = MAX_MISSES
        """How often a recording may still be postponed because saved tensors have moved."""

    def run(self, inputs: list[Any], addresses: list[int]) -> list[Any]:
        """Replays a recording, records one, or launches the kernels one by one."""
        before, self._before = self._before, addresses
        if self._is_forward:
            self._memory.copies, self._memory.lent = {}, frozenset()
            self._memory.lending.begin_call()
        self._calls += 1
        if self._calls <= WARM_UP_CALLS:
            return self._warm_up(inputs)
        has_moved = self._recording is None or self._misses >= MAX_MISSES
        if has_moved or self._has_other_memory():
            self._copied |= self._copies_for_caller(inputs).keys()
            moved = {i for i, (now, was) in enumerate(zip(addresses, before, strict=True)) if now != was}
            self._record(inputs, moved, has_moved)
        recording = self._recording
        if recording is None:
            return self._runner.launch(inputs)
        moved = recording.moved_inputs(addresses)
        if moved:
            self._misses += 1
            may_move = moved & self._primals | self._copies_for_caller(inputs).keys()
            self._copied |= may_move.difference(self._layout.written)
            return self._runner.launch(inputs)
        if not recording.results_are_unused() or not self._may_overwrite(recording, inputs):
            return self._runner.launch(inputs)
        self._misses = 0
        results = recording.replay(inputs)
        if self._is_forward:
            self._memory.copies, self._memory.lent = recording.copies(), recording.lent()
        return results

    def _has_other_memory(self) -> bool:
        """Whether the next recording has to use other memory than the last one."""
        is_crowded = self._memory.is_crowded and (self._is_forward or self._memory.saved is None)
        return is_crowded or self._is_outdated() or self._must_take_back()

    def _must_take_back(self) -> bool:
        """Whether the program has kept a lent result.  It stays where it is, and a recording elsewhere replaces this
        one."""
        recording = self._recording
        if recording is None or not self._is_forward or not (kept := recording.lent_in_use()):
            return False
        self._memory.lending.take_back(kept)
        return True

    def _warm_up(self, inputs: list[Any]) -> list[Any]:
        given = set(map(storage_id, inputs))
        torch.cuda.empty_cache()  # blocks that nothing uses may be too small for what follows, and stay reserved
        with _no_workspaces_left():
            is_alone = self._is_forward and "saved" not in self._layout.roles
            apart = is_alone and torch.cuda.get_allocator_backend() == "native"  # the others have no pools
            results = self._launch_apart(inputs, given) if apart else self._runner.launch(inputs)
        if self._is_forward:
            made = {at: result for at, result in enumerate(results) if _is_made(result, given)}
            self._memory.lending.watch({at: t for at, t in made.items() if self._layout.may_lend(at, t)})
        return results

    def _launch_apart(self, inputs: list[Any], given: set[int]) -> list[Any]:
        """Launches the kernels with memory that is freed after them, except for results that cannot be copied.

        Results that the program keeps, such as the states of an optimizer, would otherwise lie between what only the
        kernels need, and PyTorch frees no block of which a part is in use.
        """
        with torch.cuda.device(self._layout.device):
            with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
                results = self._runner.launch(inputs)
            return [r.clone() if _is_made(r, given) and is_dense(r) else r for r in results]

    def _copies_for_caller(self, inputs: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
        """Returns the inputs of a backward that the caller has got as results, too, with the forward's own tensors, to
        which each replay copies them."""
        if self._is_forward or not self._memory.copies:
            return {}
        # the others may lie where a result was that the caller has freed
        saved = (i for i, name in enumerate(self._layout.inputs) if not name.startswith(("primals", "tangents")))
        found = {i: self._memory.copies.get(inputs[i].data_ptr()) for i in saved}
        return {i: own for i, own in found.items() if own is not None and _are_alike(own, inputs[i])}

    def _may_overwrite(self, recording: _Recording, inputs: Sequence[Any]) -> bool:
        """Whether nothing needs what a replay overwrites of other graphs' memory."""
        saved = None if self._is_forward else self._memory.saved
        if saved is not None and recording.freed is saved.reserved and not saved.uses.are_used_only_in(inputs):
            return False
        in_use = recording.pool.overwritten_by(recording.number)
        if in_use:
            self._memory.note_refusal(in_use)
        return not in_use

    def _is_outdated(self) -> bool:
        """Whether the forward has been recorded again since this backward was."""
        return not self._is_forward and self._recorded_for != self._memory.forwards

    def _record(self, inputs: list[Any], moved: set[int], counts: bool) -> None:
        """Records a graph, unless the saved tensors are not yet at the addresses of the forward's replays.

        `counts`: it is the first recording, or its inputs have moved.
        """
        self._recording, memory = None, self._memory
        saved = None if self._is_forward else memory.saved
        moved = moved.difference(saved.positions(inputs) if saved else ())
        moved -= {i for i in moved if inputs[i].data_ptr() in memory.lent}
        if moved - self._primals - self._copied and self._postponements:
            self._postponements -= 1
            return
        self._misses, self._postponements = 0, MAX_MISSES
        if counts and self._recordings == MAX_RECORDINGS:
            self._runner.note.reason = f"its inputs moved again after {MAX_RECORDINGS} recordings"
            return
        absent = self._runner.absent(inputs)
        # a flag that stands for an absent gradient has another shape
        flags = {id(inputs[i]) for i, name in enumerate(self._layout.inputs) if name.startswith("given")}
        fixed = [i for i, each in enumerate(inputs) if id(each) in flags]
        moved = (moved | self._copied).difference(absent, self._layout.written, fixed)
        try:
            with torch.cuda.device(self._layout.device):
                if self._is_forward:
                    memory.saved = None
                pool = saved.pool if saved is not None and saved.are_owned else memory.own_pool()
                places = self._copies_for_caller(inputs)
                lent = memory.lending.results if self._is_forward else frozenset()
                self._recording = _Recording(
                    self._runner.run, inputs, moved, absent, self._layout, saved, places, lent, pool
                )
                if self._is_forward and memory.is_shared:
                    memory.saved = self._recording.share_saved(memory.owner)
                self._recording.reserve(memory.owner)
                memory.is_crowded &= not self._is_forward and memory.saved is not None
                memory.forwards += self._is_forward
                self._recorded_for = memory.forwards
        except RuntimeError as error:
            if raised_by_handler(error):
                raise
            self._runner.note.reason = f"recording failed: {str(error).splitlines()[0]}"
            why = Refused(f"a CUDA graph of the {self._runner.note.graph} cannot be recorded: {error}")
            report_failure(self._runner.compile, "run", why, meaning=NO_REPLAY)
            return
        self._recordings += counts
        self._runner.note.recorded += 1
        self._runner.note.copied = len(moved)


class _NumbersOnDevice:
    """The floats among the inputs of a graph in a tensor, which changes only where they do."""

    def __init__(self, layout: NumbersInput) -> None:
        scope: dict[str, Any] = {"operator": operator, "math": math, "torch": torch}
        exec(compile(layout.source, "<cutaway numbers>", "exec"), scope)
        self._layout, self._read = layout, scope["numbers"]
        self._values: list[float] | None = None
        self._tensor: torch.Tensor | None = None

    def inputs(self, given: list[Any], is_shared: bool = False) -> list[Any]:
        """Returns the tensors among `given`, which is emptied, and that of the numbers.

        It is a new one if another call may read the last one now (`is_shared`).
        """
        values = self._read(given)
        found = [given[i] for i in self._layout.tensors]
        given.clear()
        if is_shared:
            return [*found, torch.tensor(values, dtype=torch.float64, device=self._layout.device)]
        if self._tensor is None:
            self._tensor = torch.empty(len(values), dtype=torch.float64, device=self._layout.device)
        if values != self._values:
            self._tensor.copy_(torch.tensor(values, dtype=torch.float64), non_blocking=True)
            self._values = values
        return [*found, self._tensor]


class _Recording:
    """One CUDA graph; `input_copies` has the tensors that inputs are copied to, by the number of the input.

    A backward whose `saved` tensors nothing else uses is recorded into the memory of the forward, and frees them.
    `places` has tensors of the forward's recording to which inputs can be copied.  `absent` has the zeros that the
    recording makes for inputs: they take memory of the pool, and only until their last use.
    """

    def __init__(
        self,
        run: Run,
        inputs: list[Any],
        moved: set[int],
        absent: Mapping[int, tuple[Any, ...]],
        layout: ReplayLayout,
        saved: SavedTensors | None,
        places: Mapping[int, torch.Tensor],
        lent: frozenset[int],
        pool: Pool,
    ) -> None:
        self.input_copies = {i: places[i] if i in places else new_like(inputs[i]) for i in moved}
        self._repeated = any(0 in inputs[i].stride() for i in moved)
        self._copy_inputs(inputs, moved - places.keys())
        self._lent_places = places.keys() & moved
        """The inputs that are copied to a result of the forward, unless they are that result."""
        self._fixed = [(i, t.data_ptr()) for i, t in enumerate(inputs) if i not in moved]
        self._addresses = tuple(address for _, address in self._fixed)
        self._fixed_items = items_at([i for i, _ in self._fixed])
        late = [number if number in moved else None for number in layout.updates]
        self._late_updates = late if any(number is not None for number in late) else []
        """The updates of inputs that the graph reads copies of."""
        self._graph = torch.cuda.CUDAGraph()
        self.pool, self.number = pool, pool.begin(self._graph)
        self.freed: Reserved | None = None
        """What the saved tensors had, if it frees them."""
        # asked before another list has the inputs
        freed = saved if saved is not None and saved.can_be_freed_by(inputs) else None
        recorded_inputs = [self.input_copies.get(i, t) for i, t in enumerate(inputs)]
        if freed is not None:
            owned, self.freed = freed.take_owned(self.number), freed.reserved
            for at, number in freed.positions(inputs).items():
                recorded_inputs[at] = owned[number]
            del owned
        memory = _InputMemory(recorded_inputs)
        fixed = [None if number in moved else number for number in layout.updates]
        results = self._capture(run, recorded_inputs, absent, fixed)
        self._results = _ReplayedResults(results, memory, layout.roles, lent)
        self._reserved: list[Reserved] = []

    def share_saved(self, owner: object) -> SavedTensors | None:
        """Gives up the saved tensors, so that a backward can be recorded that frees them."""
        shared = self._results.share_saved(self._graph, self.pool, self.number, owner)
        self._reserved += [shared.reserved] if shared else []
        return shared

    def reserve(self, owner: object) -> None:
        """Finds out what is reserved for the results, of which `share_saved` has taken the saved ones."""
        self._reserved.append(Reserved(owner, self.number, self._results.own_uses))

    def _capture(
        self,
        run: Run,
        inputs: list[Any],
        absent: Mapping[int, tuple[Any, ...]],
        updates: Sequence[int | None],
    ) -> list[Any]:
        """Records the launches and the updates of inputs; returns the results, None for those of updates."""
        given = {number: inputs[number] for number in updates if number is not None}
        pool, stream = self.pool.handle, self.pool.stream
        graph = torch.cuda.graph(self._graph, pool=pool, stream=stream, capture_error_mode="thread_local")
        try:
            with _no_workspaces_left(), graph:
                for at, layout in absent.items():
                    inputs[at] = new_zeros(*layout)
                results = run(inputs)  # which may empty the list, and free the inputs one by one
                update_inputs(given, results, updates)
        except RuntimeError:  # PyTorch leaves its generator as it is during a recording
            generator: Any = torch.cuda.default_generators[torch.cuda.current_device()]
            generator.graphsafe_set_state(generator.clone_state())
            raise
        for at, number in enumerate(updates):
            if number is not None:
                results[at] = None
        return results

    def _copy_inputs(self, inputs: Sequence[Any], numbers: Collection[int]) -> None:
        """Copies inputs to where the graph reads them."""
        if not numbers:
            return
        targets, sources = [self.input_copies[i] for i in numbers], [inputs[i] for i in numbers]
        if self._repeated:
            targets, sources = [[without_repeats(t) for t in tensors] for tensors in (targets, sources)]
        torch._foreach_copy_(targets, sources)

    def moved_inputs(self, addresses: Sequence[int]) -> set[int]:
        """Returns the inputs that are not copied and whose address has changed."""
        if self._fixed_items(addresses) == self._addresses:
            return set()
        return {i for i, address in self._fixed if addresses[i] != address}

    def results_are_unused(self) -> bool:
        """Whether no result of the last replay is in use any more."""
        return self._results.are_unused()

    def lent_in_use(self) -> list[int]:
        """Returns the numbers of the results that the program got without a copy and still uses."""
        return self._results.lent_in_use()

    def copies(self) -> dict[int, torch.Tensor]:
        """Returns the results of the last replay that were copied for the caller, by the addresses of the copies."""
        return self._results.copies

    def lent(self) -> frozenset[int]:
        """Returns the addresses of the results of the last replay that the caller got without a copy."""
        return self._results.lent_places

    def replay(self, inputs: Sequence[Any]) -> list[Any]:
        self.pool.wait_for_last_replay()
        there = {i for i in self._lent_places if inputs[i].data_ptr() == self.input_copies[i].data_ptr()}
        self._copy_inputs(inputs, self.input_copies.keys() - there if there else self.input_copies.keys())
        self._graph.replay()
        self.pool.note_replay(self._reserved)
        results = self._results.after_replay(inputs)
        if self._late_updates:
            update_inputs(inputs, results, self._late_updates)
        return results


@contextmanager
def _no_workspaces_left() -> Iterator[None]:
    """Context manager that frees the workspaces of cuBLAS before and after the block.

    cuBLAS keeps one for each thread and stream, of 32 MB on an H100.  A recording takes those that it needs from its
    own pool, where the recording of the backward can use the memory again.
    """
    clear: Callable[[], None] = clear_cublas_workspaces or (lambda: None)  # PyTorch for a CPU has none
    clear()
    try:
        yield
    finally:
        clear()


class _InputMemory:
    """Where the recorded inputs lie, without keeping them."""

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        self._places = [(tuple(t.shape), t.stride(), int(t.storage_offset())) for t in inputs]
        self._numbers = {storage_id(t): number for number, t in enumerate(inputs)}
        # while there is a weak reference to a storage, no other one gets its id
        self._references = [StorageWeakRef(t.untyped_storage()) for t in inputs]  # type: ignore[no-untyped-call]

    def view(self, result: torch.Tensor) -> _InputView | None:
        """Returns what `result` is of an input, if it lies in the memory of one."""
        number = self._numbers.get(storage_id(result))
        if number is None:
            return None
        shape, stride, start = self._places[number]
        offset = int(result.storage_offset()) - start
        is_input = (tuple(result.shape), result.stride(), offset) == (shape, stride, 0)
        return _InputView(number, is_input, tuple(result.shape), result.stride(), offset)


class _ReplayedResults:
    """Makes the results of a replay.  How each is made is decided once, because a network has hundreds.

    Args:
        results: the recorded results.
        inputs: the memory of the recorded inputs; those of every call have their shapes and strides.
        roles: for each result, its role in the graph.
        lent: the numbers of the results for the caller that are not copied.
    """

    def __init__(
        self, results: Sequence[Any], inputs: _InputMemory, roles: Sequence[str], lent: frozenset[int]
    ) -> None:
        saved, kept, constants = [], [], []
        copied: list[int] = []
        not_copied: list[int] = []
        views: dict[int, _InputView] = {}
        first: dict[int, int] = {}
        """For each tensor that the caller gets, where it is first in the results; a saved one may be there twice."""
        for at, (result, role) in enumerate(zip(results, roles, strict=True)):
            if not isinstance(result, torch.Tensor):
                constants.append(at)
            elif (view := inputs.view(result)) is not None:
                views[at] = view
            elif role == "saved":
                saved.append(at)
            # a result with gaps in memory is not copied either, because a clone would have other strides
            elif role != "output" or not is_dense(result):
                kept.append(at)
            elif first.setdefault(id(result), at) == at:
                (not_copied if at in lent else copied).append(at)
        parts = saved, kept, copied
        self._saved, self._kept, self._copied = ([results[at] for at in part] for part in parts)
        self._lent = {at: results[at] for at in not_copied}
        self._views = [*views.values()]
        self._constants = [results[at] for at in constants]
        made = {at: number for number, at in enumerate([*saved, *kept, *copied, *self._lent, *views, *constants])}
        sources = [at if at in made else first[id(result)] for at, result in enumerate(results)]
        self._in_order = items_at([made[at] for at in sources])
        self._lent_uses = UseCounts([*self._lent.values()])
        self.uses = [
            UseCounts([*self._kept, *self._copied]), self._lent_uses, UseCounts(self._saved, are_given_out=True)
        ]  # fmt: skip
        self.own_uses = [*self.uses]
        """The uses of those that own their memory."""
        self.copies: dict[int, torch.Tensor] = {}
        """The results that were copied for the caller, by the addresses of the copies."""
        self.lent_places = frozenset(map(torch.Tensor.data_ptr, self._lent.values()))
        """The addresses of the results that the caller gets without a copy."""

    def share_saved(self, graph: torch.cuda.CUDAGraph, pool: Pool, number: int, owner: object) -> SavedTensors | None:
        """Replaces the saved tensors by those of a `SavedTensors`, which it returns; None if nothing is saved."""
        if not self._saved:
            return None
        shared = SavedTensors(graph, pool, number, owner, self._saved)
        self._saved = shared.tensors
        self.uses[-1] = shared.uses
        del self.own_uses[-1]
        return shared

    def are_unused(self) -> bool:
        """Whether no result of the last replay is in use any more."""
        return all(uses.are_unused() for uses in self.uses)

    def lent_in_use(self) -> list[int]:
        """Returns the numbers of the results that the caller got without a copy and still uses."""
        if self._lent_uses.are_unused():
            return []
        return self._lent_uses.used(self._lent)

    def after_replay(self, inputs: Sequence[torch.Tensor]) -> list[Any]:
        """Returns the results, given the inputs of the call."""
        for uses in self.uses:
            uses.set_unused()
        kept, lent = map(torch.Tensor.detach, self._kept), map(torch.Tensor.detach, self._lent.values())
        copied = [*map(torch.clone, self._copied)]
        self.copies = dict(zip(map(torch.Tensor.data_ptr, copied), self._copied, strict=True))
        views = [view.in_input(inputs[view.number]) for view in self._views]
        return [*self._in_order([*self._saved, *kept, *copied, *lent, *views, *self._constants])]


@dataclass(frozen=True)
class _InputView:
    """A result in the memory of an input."""

    number: int
    """The number of the input."""
    is_input: bool
    """Whether it is the whole input, and not another view of its memory."""
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    """In elements, from the first element of the input."""

    def in_input(self, base: torch.Tensor) -> torch.Tensor:
        """Returns the view of the input `base` of this call."""
        if self.is_input:
            return base
        return base.as_strided(self.size, self.stride, base.storage_offset() + self.offset)


def _is_made(result: Any, given: set[int]) -> bool:
    """Whether a result is a tensor that has not the memory of an input, of which `given` has the storages."""
    return isinstance(result, torch.Tensor) and storage_id(result) not in given


def _are_alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (a.shape, a.stride(), a.dtype, a.device) == (b.shape, b.stride(), b.dtype, b.device)


def update_inputs(inputs: Any, results: Sequence[Any], updates: Sequence[int | None]) -> None:
    """Copies new values to their inputs, those of one dtype and device in one call.

    Args:
        inputs: the inputs by number.
        results: the results of the graph.
        updates: for each result, the number of the input that it is the new value of, if it is one.
    """
    groups: dict[Any, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
    for number, value in zip(updates, results, strict=False):
        if number is not None:
            targets, values = groups.setdefault((inputs[number].dtype, inputs[number].device), ([], []))
            targets.append(inputs[number])
            values.append(value)
    for targets, values in groups.values():
        torch._foreach_copy_(targets, values)
