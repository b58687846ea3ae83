"""Replays of recorded launches, without a GPU: a recording of PyTorch's operators stands for a CUDA graph.

As a CUDA graph does, it reads and writes the tensors that it was recorded with.  `tests/programs/test_cuda.py` has the
same with real ones.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import random
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

import compiler_core
from compiler_core.backends import cuda_graphs, replay_memory, replay_pool
from compiler_core.loops import ir
from compiler_core.records import CudaGraph
from compiler_core.support import opaque_ops
from compiler_core.support.tensors import storage_id, tensors_in
from compiler_core.torch_private import storage_Use_Count
from tests.cases.replayed import Broken, use_several_graphs
from tests.sampling import pairs


class RecordedOperators:
    """Operators that were called while it was active, which `replay` calls again with the same tensors.

    A graph that is recorded into a pool overwrites, at a replay, those tensors of earlier graphs of that pool that
    nothing of the program owned when it had been recorded; and a replay of an earlier one overwrites all its tensors.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self.made: dict[int, list[torch.Tensor]] = {}
        """For each storage that the recording made, the tensors over it that it keeps."""
        self.later: list[RecordedOperators] = []
        """The graphs that were recorded into its pool after it."""
        self.overwrites: list[torch.Tensor] = []

    def add(self, function: Any, args: Any, kwargs: Any, results: Any) -> None:
        given = {storage_id(t) for t in tensors_in([*args, *kwargs.values()])}
        for result in tensors_in(results):
            if storage_id(result) not in given:
                self.made[storage_id(result)] = [result.detach()]
                makers[storage_id(result)] = self
        self.calls.append((function, *tree_map_only(torch.Tensor, self.place, (args, kwargs, results))))

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a tensor over the same memory, which keeps it if this recording made it."""
        if storage_id(tensor) in self.made:
            self.made[storage_id(tensor)].append(tensor.detach())
            return self.made[storage_id(tensor)][-1]
        return replay_memory.without_ownership(tensor, {})

    def end(self, pool: list[weakref.ref[RecordedOperators]]) -> None:
        for earlier in (graph for each in pool if (graph := each()) is not None):
            earlier.later.append(self)
            self.overwrites += [kept[0] for storage, kept in earlier.made.items() if not earlier.is_owned(storage)]
        pool.append(weakref.ref(self))

    def is_owned(self, storage: int) -> bool:
        """Whether anything else keeps this storage, which the recording made."""
        counted_in_calling = 1
        return int(storage_Use_Count(storage)) > len(self.made[storage]) + counted_in_calling

    def replay(self) -> None:
        for graph in self.later:
            overwrite(kept[0] for kept in graph.made.values())
        for function, args, kwargs, results in self.calls:
            given = {storage_id(t) for t in tensors_in([*args, *kwargs.values()])}
            again = function(*args, **kwargs)
            for result, value in zip(tensors_in(results), tensors_in(again), strict=True):
                if storage_id(result) not in given:
                    result.copy_(value)
        overwrite(self.overwrites)


makers: weakref.WeakValueDictionary[int, RecordedOperators] = weakref.WeakValueDictionary()
"""The recording that made each storage."""


class WeakStorage(StorageWeakRef):
    """On a GPU, a recording does not keep what it made."""

    def expired(self) -> bool:
        maker = makers.get(self.cdata)
        return super().expired() or (maker is not None and not maker.is_owned(self.cdata))


def overwrite(tensors: Iterable[torch.Tensor]) -> None:
    for tensor in tensors:
        torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).fill_(0xFF)  # nan


class Recorder(TorchDispatchMode):
    def __init__(self, graph: RecordedOperators) -> None:
        super().__init__()
        self._graph = graph

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = [t.clone() for t in tensors_in(args)] if function._schema.is_mutable else []
        results = function(*args, **(kwargs or {}))
        self._graph.add(function, args, kwargs or {}, results)
        for tensor, before in zip(tensors_in(args) if inputs else [], inputs, strict=True):
            tensor.copy_(before)  # what is recorded does not run
        return results


def on_a_gpu(program: ir.Program) -> ir.Program:
    device = torch.device("cuda", 0)
    return replace(program, buffers={name: replace(b, device=device) for name, b in program.buffers.items()})


@pytest.fixture(autouse=True)
def emulated_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records PyTorch's operators on the CPU where launches on a GPU would be recorded."""

    @contextlib.contextmanager
    def record(graph: RecordedOperators, pool: Any, **_: Any) -> Iterator[None]:
        with Recorder(graph):
            yield
        graph.end(pool)

    def no_device(*_: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    obstacle = cuda_graphs.replay_obstacle
    monkeypatch.setattr(cuda_graphs, "replay_obstacle", lambda program: obstacle(on_a_gpu(program)))
    fakes = {"CUDAGraph": RecordedOperators, "graph": record, "Stream": object, "device": no_device}
    fakes |= {"MemPool": object, "use_mem_pool": no_device, "get_allocator_backend": lambda: "native"}
    fakes |= {"is_current_stream_capturing": lambda: False, "graph_pool_handle": list}
    monkeypatch.setattr(replay_pool, "cuda_getCurrentRawStream", lambda device: device)
    monkeypatch.setattr(replay_pool, "StorageWeakRef", WeakStorage)
    fakes |= {"current_stream": lambda device: device}
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)


def replayed(program: Any) -> Any:
    return compiler_core.compile(program, backend="triton", mode="reduce-overhead", strict=True)


def graphs(record: compiler_core.Record) -> list[CudaGraph]:
    return [graph for compile_ in record.compiles for graph in compile_.cuda_graphs]


class Counting(nn.Module):
    """Has buffers of several types, one of which another one's new value depends on."""

    total: torch.Tensor
    calls: torch.Tensor
    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6))
        self.register_buffer("total", torch.zeros(6, dtype=torch.float64))
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("seen", torch.zeros(3, 6).t())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.total += x.detach().sum(0) * self.calls
        self.seen[:, 1] = self.total
        return (x * self.weight + self.seen.sum(1)).sin()


MODULES: dict[str, Callable[[], nn.Module]] = {
    "batch norm": lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.BatchNorm1d(5)),
    "instance norm": lambda: nn.Sequential(nn.Unflatten(1, (2, 3)), nn.InstanceNorm1d(2, track_running_stats=True)),
    "buffers": Counting,
    "no state": lambda: nn.Sequential(nn.Linear(6, 5), nn.GELU()),
}


@pytest.mark.parametrize(
    ("name", "how"),
    pairs(MODULES, ["trains", "infers", "trains in evaluation", "accumulates", "moves its buffers"], 2),
)
def test_replays_leave_what_eager_leaves(name: str, how: str) -> None:
    torch.manual_seed(0)
    original = MODULES[name]().double().train(how != "trains in evaluation")
    model, plain = copy.deepcopy(original), copy.deepcopy(original)
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (model, plain) if [*m.parameters()]]
    with compiler_core.record() as record, torch.set_grad_enabled(how != "infers"):
        run = replayed(model)
        kept: list[Any] = []
        for step in range(9):
            x = torch.randn(4, 6, dtype=torch.float64)
            results = [run(x), plain(x)]
            kept.append(results)
            if results[0].requires_grad:
                for result in results:
                    result.square().sum().backward()
            if how != "accumulates" or step % 3 == 2:
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
            if how == "moves its buffers" and step % 4 == 3:
                for buffer in model.buffers():
                    buffer.data = buffer.data.clone()
            torch.testing.assert_close(dict(model.state_dict()), dict(plain.state_dict()))
            versions = [[b._version for b in m.buffers()] for m in (model, plain)]
            if "norm" not in name:  # PyTorch's batch norm does not count its writes
                assert versions[0] == versions[1]
    for ours, eagers in kept:
        torch.testing.assert_close(ours, eagers)
    assert {graph.reason for graph in graphs(record)} == {""}
    assert all(graph.recorded >= 1 for graph in graphs(record))


def test_an_input_that_moves_is_updated_too() -> None:
    """Its address is not in the recording, which updates a copy of it only."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        old = x.clone()
        x.copy_(y)
        y.mul_(2)
        return old + y

    with compiler_core.record() as record:
        run = replayed(program)
        for _ in range(8):
            x, y = torch.randn(3), torch.randn(3)
            ours, eagers = (x.clone(), y.clone()), (x, y)
            torch.testing.assert_close(run(*ours), program(*eagers))
            torch.testing.assert_close(ours, eagers)
    (graph,) = graphs(record)
    assert (graph.reason, graph.copied) == ("", 2)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_recurrent_layer_is_replayed_where_forward_and_backward_are_one_graph(
    dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's autograd runs in its kernels: its graph, which no replay makes, must not leave the program."""
    torch.manual_seed(0)
    model = nn.GRU(3, 4, num_layers=2, dropout=dropout, bidirectional=True)
    monkeypatch.setattr(opaque_ops, "MAX_CELLS", 0)
    other = copy.deepcopy(model)

    def step(model: nn.GRU, x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(x)[0].square().mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, gradient in zip(model.parameters(), gradients, strict=True):
                p.sub_(gradient, alpha=0.1)
        return loss.detach()

    fast = compiler_core.compile(step, capture_backward=True, backend="triton", mode="reduce-overhead", strict=True)
    with compiler_core.record() as record:
        for number in range(8):
            x = torch.randn(5, 2, 3)
            torch.manual_seed(number)
            loss = fast(model, x)
            torch.manual_seed(number)
            torch.testing.assert_close(loss, step(other, x))
    torch.testing.assert_close(list(model.parameters()), list(other.parameters()))
    *_, last = graphs(record)
    draws = "aten.gru.input draws random numbers, and a replay would draw others"
    assert (last.reason, last.recorded) == ((draws, 0) if dropout else ("", 1))
    if not dropout:
        with compiler_core.record() as apart:
            replayed(model)(x)[0].sum().backward()
        assert {g.reason.partition(" of an operator")[0] for g in graphs(apart)} == {"it hands the autograd graph"}


def test_two_inputs_swapped_in_place() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> None:
        old = x.clone()
        x.copy_(y)
        y.copy_(old)

    x, y = torch.randn(3), torch.randn(3)
    run = replayed(program)
    for _ in range(6):
        before = x.clone(), y.clone()
        run(x, y)
        torch.testing.assert_close((y, x), before)


def test_results_that_are_inputs_views_or_nothing() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[Any, ...]:
        return x[1:], x, y.t(), (x * 2).sum(), x + y, (x + y)[:1]

    run = replayed(program)
    for _ in range(6):
        x, y = torch.randn(3, 3), torch.randn(3, 3)
        results, wanted = run(x, y), program(x, y)
        torch.testing.assert_close(results, wanted)
        assert [r.stride() for r in results] == [w.stride() for w in wanted]
        assert [storage_id(r) == storage_id(x) for r in results] == [storage_id(w) == storage_id(x) for w in wanted]


def test_results_that_are_kept_prevent_the_next_replay() -> None:
    weight = torch.randn(4, 4, requires_grad=True)
    run = replayed(lambda x: (x @ weight).sin().exp())
    for _ in range(6):
        a, b = torch.randn(2, 4), torch.randn(2, 4)
        (ours,) = torch.autograd.grad(run(a).sum() + run(b).sum(), weight)
        (eagers,) = torch.autograd.grad(torch.cat((a, b)).matmul(weight).sin().exp().sum(), weight)
        torch.testing.assert_close(ours, eagers)


def test_saved_tensors_that_a_hook_or_a_caller_keeps_prevent_the_next_replay() -> None:
    weight = torch.randn(4, 4, requires_grad=True)
    run = replayed(lambda x: (x @ weight).sin().exp())
    kept: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    for number in range(9):
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            result = run(torch.randn(2, 4))
        values = [t.clone() for t in kept]
        result.sum().backward()
        if number % 3:
            result = run(torch.randn(2, 4))
            assert result.grad_fn is not None
            kept += result.grad_fn.saved_tensors
            values = [t.clone() for t in kept]
            result.sum().backward()
        run(torch.randn(2, 4)).sum().backward()
        torch.testing.assert_close(kept, values)
        if number % 3 == 2:
            kept.clear()


def counted_replays(monkeypatch: pytest.MonkeyPatch) -> list[RecordedOperators]:
    replays: list[RecordedOperators] = []
    replay = RecordedOperators.replay

    def counted(graph: RecordedOperators) -> None:
        replays.append(graph)
        replay(graph)

    monkeypatch.setattr(RecordedOperators, "replay", counted)
    return replays


def deep() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 3))


@pytest.mark.parametrize("gradients", ["freed before", "freed between", "kept", "summed"])
def test_a_backward_reuses_the_memory_of_its_forward(gradients: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless gradients are still in use at the next forward."""
    replays = counted_replays(monkeypatch)
    torch.manual_seed(0)
    model = deep()
    plain = copy.deepcopy(model)
    run = replayed(model)
    kept: list[Any] = []
    for _ in range(14):
        x = torch.randn(4, 6)
        for module, call in ((model, run), (plain, plain)):
            if gradients == "freed before":
                module.zero_grad()
            result = call(x)
            if gradients in ("freed between", "kept"):
                module.zero_grad()
            result.square().sum().backward()
        ours, eagers = ([p.grad for p in m.parameters()] for m in (model, plain))
        torch.testing.assert_close(ours, eagers)
        if gradients == "kept":
            kept.append((ours, [g.clone() for g in eagers if g is not None]))
            kept = kept[-3:]
        del ours, eagers
        for values, wanted in kept:
            torch.testing.assert_close(values, wanted)
    assert any(graph.overwrites for graph in replays)
    if gradients in ("freed before", "summed"):
        assert len(replays) == 26  # all but the first forward and backward
        forward, backward = dict.fromkeys(replays)
        saved = [storage for storage, kept in forward.made.items() if any(kept[0] is t for t in backward.overwrites)]
        assert len(saved) == len(forward.made) - 1  # all but the result
    else:
        assert not replays[-1].overwrites  # it has memory for itself


@pytest.mark.parametrize("keeps_hidden", [False, True])
def test_a_backward_that_reads_a_lent_result(keeps_hidden: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is recorded in the call of the forward's recording: the result is where it will be in each replay."""
    replays = counted_replays(monkeypatch)
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    plain = copy.deepcopy(model)

    def function(x: torch.Tensor, layer: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = layer(x)  # which the derivative of the sine reads
        return hidden, hidden.sin().sum()

    run = replayed(function)
    kept: list[Any] = []
    elsewhere = []
    for step in range(8):
        x = torch.randn(64, 64)
        for module, call in ((model, run), (plain, function)):
            module.zero_grad()
            hidden, loss = call(x, module)
            loss.backward()
            if keeps_hidden and step > 2:
                kept.append((hidden, hidden.clone()))
            del hidden, loss
        elsewhere.append(torch.empty(64, 64))  # where the result of this call was
        torch.testing.assert_close(model.weight.grad, plain.weight.grad)
    for hidden, wanted in kept:
        torch.testing.assert_close(hidden, wanted, atol=0, rtol=0)
    if not keeps_hidden:
        assert len(replays) == 14  # all but the first forward and backward


@pytest.mark.parametrize("program", ["two outputs", "retained", "twice", "reads what was saved"])
def test_saved_tensors_that_are_needed_again_are_not_overwritten(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replays = counted_replays(monkeypatch)
    torch.manual_seed(0)
    weight, other = (torch.randn(6, 6, requires_grad=True) for _ in range(2))

    def function(x: torch.Tensor) -> Any:
        y = (x @ weight).sin().exp() @ other
        return (y.tanh(), (y * 2).exp().sin()) if program == "two outputs" else y.tanh()

    def gradients(call: Callable[..., Any], x: torch.Tensor, step: int) -> list[torch.Tensor]:
        found = call(x)
        if program == "two outputs" and step % 2:
            first = torch.autograd.grad(found[0].sum(), (weight, other), retain_graph=step % 4 == 1)
            return [*first, *torch.autograd.grad(found[1].sum(), (weight, other))] if step % 4 == 1 else [*first]
        result = (found[0] + found[1] if program == "two outputs" else found).sum()
        if program == "retained" and step % 3 == 0:
            torch.autograd.grad(result, (weight, other), retain_graph=True)
        if program == "twice" and step % 3 == 0:
            first = torch.autograd.grad(result, (weight, other), create_graph=True)
            return [*torch.autograd.grad(first[0].square().sum() + first[1].square().sum(), (weight, other))]
        if program == "reads what was saved" and step % 3 == 0 and call is not function:
            saved = [t for t in result.grad_fn.next_functions[0][0].saved_tensors if t.is_floating_point()]
            before = [t.clone() for t in saved]
            found = [*torch.autograd.grad(result, (weight, other))]
            torch.testing.assert_close(saved, before)
            return found
        return [*torch.autograd.grad(result, (weight, other))]

    run = replayed(function)
    for step in range(16):
        x = torch.randn(4, 6)
        torch.testing.assert_close(gradients(run, x, step), gradients(function, x, step))
    assert replays


def test_a_result_that_the_backward_reads_may_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program gets a copy, which is at another place whenever the program still has the one before."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).exp()

    replays, replay = [], RecordedOperators.replay

    def counted(graph: RecordedOperators) -> None:
        replays.append(graph)
        replay(graph)

    monkeypatch.setattr(RecordedOperators, "replay", counted)
    x, kept = torch.randn(7, requires_grad=True), []
    with compiler_core.record() as record:
        fast = replayed(program)
        for call in range(12):
            result = fast(x)
            (gradient,) = torch.autograd.grad(result.sum(), x)
            torch.testing.assert_close((result, gradient), (program(x), 2 * program(x)))
            kept += [result] if call > 4 else []
            del gradient  # with it, forward and backward would not share memory
    assert [(g.recorded, g.reason) for g in graphs(record)] == [(1, ""), (1, "")]
    assert len(replays) == 2 * 11


def large(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A loss, which is copied for the program, and a result of 8 KB, which is lent.  The backward reads both."""
    result = torch.tanh(x @ weight)
    return result.square().mean(), result


KEEP: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "nothing": lambda loss, result: None,
    "the loss": lambda loss, result: loss.detach(),
    "the result": lambda loss, result: result,
    "a part of the result": lambda loss, result: result.detach()[1:, 2],
    "its memory": lambda loss, result: result.untyped_storage(),
    "the graph": lambda loss, result: (loss, loss.grad_fn),
}


def values_of(kept: Any) -> Any:
    if isinstance(kept, torch.UntypedStorage):
        return torch.empty(0, dtype=torch.uint8).set_(kept).clone()
    return [t.clone() for t in tensors_in(kept)]


@pytest.mark.parametrize("what", KEEP)
def test_a_large_result_is_lent_until_the_program_keeps_one(what: str) -> None:
    weight = torch.randn(32, 64, requires_grad=True)
    all_kept: list[tuple[Any, Any]] = []
    addresses = []
    with compiler_core.record() as record:
        run = replayed(large)
        for call in range(20):
            x = torch.randn(32, 32)
            loss, result = run(x, weight)
            torch.testing.assert_close((loss, result), large(x, weight))
            (gradient,) = torch.autograd.grad(loss, weight, retain_graph=what == "the graph")
            torch.testing.assert_close(gradient, torch.autograd.grad(large(x, weight)[0], weight)[0])
            addresses.append(result.data_ptr())
            if call in (8, 12, 13):
                kept = KEEP[what](loss, result)
                all_kept.append((kept, values_of(kept)))
            del loss, result, gradient
            for kept, values in all_kept:
                torch.testing.assert_close(values_of(kept), values)
    assert len(set(addresses[1:9])) == 1
    is_lent = what in ("nothing", "the loss")
    assert [g.recorded for g in graphs(record)] == [1, 1] if is_lent else [2, 2]
    assert (len(set(addresses[1:])) == 1) == is_lent


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_program_does_with_results(seed: int) -> None:
    """It keeps some for a while, writes to them, runs the backward late, twice or never, and through either result."""
    rng, weight = random.Random(seed), torch.randn(32, 64, requires_grad=True)
    run = replayed(large)
    late: list[Any] = []
    for call in range(60):
        x = torch.randn(32, 32)
        ours, eagers = run(x, weight), large(x, weight)
        torch.testing.assert_close(ours, eagers)
        actions = rng.sample(("keep", "write", "backward", "through both", "forget"), rng.randint(1, 3))
        for action in actions if call > 5 else ["backward"]:  # results are lent by then
            if action in ("keep", "forget"):
                late = [*late[-2:], (ours, eagers)] if action == "keep" else []
            elif action == "write":
                for loss, result in (ours, eagers):
                    loss.detach().add_(1)
                    result.data.mul_(2)
            elif ours[0].grad_fn is not None:
                several = action == "through both"
                ours_got: list[torch.Tensor] = []
                eagers_got: list[torch.Tensor] = []
                for (loss, result), gradients in ((ours, ours_got), (eagers, eagers_got)):
                    total = loss + result.sum() if several else loss
                    try:
                        gradients += torch.autograd.grad(total, weight, retain_graph=several)
                    except RuntimeError as error:
                        gradients.append(torch.tensor([*str(error)[:60].encode()]))
                torch.testing.assert_close(ours_got, eagers_got)
        torch.testing.assert_close(ours, eagers)
        del ours, eagers
        for kept, wanted in late:
            torch.testing.assert_close(kept, wanted)


def test_absent_tangents_are_not_copied() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sin(), x.exp()

    x = torch.randn(7, requires_grad=True)
    with compiler_core.record() as record:
        run = replayed(program)
        for call in range(12):
            ours, eagers = run(x), program(x)
            used = slice(2 if call == 9 else 1)
            got, wanted = (torch.autograd.grad(torch.stack([*both[used]]).sum(), x)[0] for both in (ours, eagers))
            torch.testing.assert_close(got, wanted)
            del got  # with it, forward and backward would not share memory
    assert [(g.graph, g.recorded, g.copied) for g in graphs(record)] == [("forward", 1, 0), ("backward", 1, 1)]


@pytest.mark.parametrize("drops", ["first", "before the backward"])
@pytest.mark.parametrize("keeps", [False, True])
def test_gradients_that_a_step_drops_are_lent(keeps: bool, drops: str) -> None:
    """However small they are; the loss, which is small and no gradient, is copied."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    plain = copy.deepcopy(model)

    def step(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if drops == "first":
            layer.zero_grad()
        loss = layer(x).square().mean()
        if drops != "first":
            layer.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.sub_(0.1 * cast(torch.Tensor, parameter.grad))
        return cast(torch.Tensor, loss.detach())

    places, all_kept, losses = [], [], []
    with compiler_core.record() as record:
        run = compiler_core.compile(step, backend="triton", mode="reduce-overhead", strict=True, capture_backward=True)
        for call in range(10):
            x = torch.randn(5, 4)
            losses.append((run(model, x), step(plain, x)))
            gradients = [(a.grad, b.grad) for a, b in zip(model.parameters(), plain.parameters(), strict=True)]
            torch.testing.assert_close(*map(list, zip(*gradients, strict=True)))
            places.append(gradients[1][0].data_ptr())  # type: ignore[union-attr]
            all_kept += [gradients] if keeps and call > 5 else []
            del gradients
    torch.testing.assert_close(*map(list, zip(*losses, strict=True)))
    for kept in all_kept:
        torch.testing.assert_close(*map(list, zip(*kept, strict=True)))
    assert (len({*places[3:]}) == 1) == (not keeps)
    assert [g.recorded for g in graphs(record)][-1] == (2 if keeps else 1)


def test_zeros_for_absent_gradients_take_no_memory_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a model that returns its loss and its logits; at times the logits have a gradient, too."""
    model = nn.Linear(6, 5).double()
    plain = copy.deepcopy(model)

    def step(net: nn.Module, run: Any, x: torch.Tensor, uses_logits: bool) -> list[Any]:
        net.zero_grad()
        loss, logits = run(x)
        (loss + logits.sum() if uses_logits else loss).backward()
        return [loss.detach().clone(), *(p.grad for p in net.parameters())]

    kept: list[torch.Tensor] = []
    zeros = cuda_graphs.ReplayedRunner.zeros

    def keep(self: cuda_graphs.ReplayedRunner, *layout: Any) -> torch.Tensor:
        kept.append(zeros(self, *layout))
        return kept[-1]

    monkeypatch.setattr(cuda_graphs.ReplayedRunner, "zeros", keep)
    with compiler_core.record() as record:
        run = replayed(with_loss(model))
        for number in range(24):
            x, uses_logits = torch.randn(4, 6, dtype=torch.float64), number % 12 in (5, 9, 10)
            torch.testing.assert_close(step(model, run, x, uses_logits), step(plain, with_loss(plain), x, uses_logits))
    assert {graph.reason for graph in graphs(record)} == {""}
    assert all(graph.recorded >= 1 for graph in graphs(record))
    assert len(kept) >= 18
    assert {t.untyped_storage().nbytes() for t in kept} == {8}


def with_loss(model: nn.Module) -> Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = model(x).tanh()
        return logits.square().mean(), logits

    return f


@pytest.mark.parametrize("trains", [False, True])
def test_blocks_that_share_code_have_a_recording_each(trains: bool) -> None:
    """As in a loop over equal blocks, whose code is compiled once; a block whose parameters move is recorded again."""
    made = [nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh()) for _ in range(3)]
    blocks: Any = nn.ModuleList(made).double()
    plain = copy.deepcopy(blocks)
    optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in (blocks, plain)]
    discarded: list[weakref.ref[Any]] = []
    of_others = all_recordings()
    with compiler_core.record() as record, torch.set_grad_enabled(trains):
        run = replayed(nn.Sequential.forward)
        for step in range(12):
            x = torch.randn(4, 6, dtype=torch.float64)
            states: list[Any] = []
            for net, call in ((blocks, run), (plain, nn.Sequential.forward)):
                y = x
                for block in net:
                    y = call(block, y)
                if trains:
                    y.square().sum().backward()
                states.append((y.detach().clone(), [p.grad for p in net.parameters()], dict(net.state_dict())))
            torch.testing.assert_close(*states)
            if trains:
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
            if step == 5:
                discarded = [weakref.ref(each) for each in all_recordings() if each not in of_others]
                for parameter in blocks.parameters():
                    parameter.data = parameter.data.clone()
    assert {graph.reason for graph in graphs(record)} == {""}
    assert len(graphs(record)) <= 4  # not one for each block
    assert sum(graph.recorded for graph in graphs(record)) == 2 * 3 * (2 if trains else 1)
    assert len(discarded) >= 3
    assert all(recording() is None for recording in discarded)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_a_program_does_with_blocks_that_share_code(seed: int) -> None:
    """Blocks are called in any order and repeatedly, and their backwards in any order, or not at all."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    made = [nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Tanh()) for _ in range(3)]
    blocks: Any = nn.ModuleList(made).double()
    plain = copy.deepcopy(blocks)
    optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in (blocks, plain)]
    run = replayed(nn.Sequential.forward)
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    for step in range(16):
        order = [(choose.randrange(3), choose.random() < 0.7) for _ in range(choose.randint(1, 5))]
        x, way, keeps, moves = torch.randn(4, 6, dtype=torch.float64), choose.random(), choose.random() < 0.3, step == 9
        states: list[Any] = []
        for net, call in ((blocks, run), (plain, nn.Sequential.forward)):
            results, y = [], x
            for number, goes_on in order:
                y = call(net[number], y if goes_on else x * 2)
                results.append(y)
            if way < 0.6:
                sum(v.square().sum() for v in results).backward()
            elif way < 0.9:
                for each in results:
                    each.sum().backward(retain_graph=True)
            if keeps and call is run:
                kept.append((y, y.detach().clone()))
            states.append(([v.detach() for v in results], [p.grad for p in net.parameters()], dict(net.state_dict())))
        torch.testing.assert_close(*states)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        for parameter in blocks.parameters() if moves else ():
            parameter.data = parameter.data.clone()
        for result, value in kept:
            torch.testing.assert_close(result.detach(), value)


def test_the_graphs_of_a_function_share_one_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    replays = counted_replays(monkeypatch)
    torch.manual_seed(0)
    model = Broken(4)
    plain = copy.deepcopy(model)
    with compiler_core.record() as record:
        run = replayed(model)
        for _ in range(6):
            x = torch.randn(24, 48)
            for module, call in ((model, run), (plain, plain)):
                module.zero_grad()
                call(x, [0, 1, 2, 3])[0].backward()
            torch.testing.assert_close([p.grad for p in model.parameters()], [p.grad for p in plain.parameters()])
    counts = {(g.graph, g.recorded, g.reason) for g in graphs(record)}
    assert counts == {("forward", 1, ""), ("backward", 1, "")}
    assert len(replays) == 5 * len(set(replays)) == 5 * len(graphs(record))  # all but the first call's
    first, *others = dict.fromkeys(replays)
    assert len(others) >= 8
    assert set(first.later) == set(others)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_program_does_with_a_function_of_several_graphs(seed: int) -> None:
    use_several_graphs(seed, replayed, "cpu")


def all_recordings() -> list[cuda_graphs._Recording]:
    return [each for each in gc.get_objects() if type(each) is cuda_graphs._Recording]
