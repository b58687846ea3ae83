"""Tests of memory planning: buffers reuse the memory of dead ones, results do not, and the record has the savings."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

import compiler_core
from compiler_core.api.compile import record_of
from compiler_core.codegen.wrapper.memory_plan import MAX_RETAINED_BYTES
from compiler_core.config import Options
from compiler_core.pipeline.graph import print_kernels
from compiler_core.records import Compile, PlannedMemory, Record
from tests.cases.kernel_programs import check, trace
from tests.sampling import pairs

X = torch.randn(64, 64)


def reused_memory(compile_: Compile) -> dict[str, str]:
    return {b.name: b.takes for b in compile_.memory[0].buffers if b.takes}


def bytes_of_values(plan: PlannedMemory) -> int:
    """Returns the bytes of all buffers but workspaces, in which others lie."""
    return sum(b.bytes for b in plan.buffers if not b.name.endswith("_workspace"))


def test_a_buffer_lies_where_a_dead_one_did() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = x.sum(1, keepdim=True).exp() * x.cumsum(0) @ x
        return x.sin()

    compile_ = check(program, X, tolerances=[1e-2])
    (plan,) = compile_.memory
    assert plan.peak < plan.peak_before
    assert plan.peak_before == bytes_of_values(plan)
    assert sum(b.last is None for b in plan.buffers) == 1, "the result"


def test_reductions_in_turn_share_two_places() -> None:
    """Each buffer of sums is dead after the next two are computed; memory that a kernel reads is not reused."""

    def program(x: torch.Tensor) -> torch.Tensor:
        for dim in (0, 1, 0, 1, 0):
            x = x.softmax(dim).exp()
        return x

    with compiler_core.record() as record:  # kernels of symbolic sizes are called one by one
        compiled = compiler_core.compile(program, backend="cpp", dynamic=True, strict=True)
        torch.testing.assert_close(compiled(X), program(X))
    (compile_,) = record.compiles
    (plan,) = compile_.memory
    taken = reused_memory(compile_)
    assert taken
    places = {b.name: b for b in plan.buffers}
    for name, dead in taken.items():
        last = places[dead].last
        assert last is not None
        assert last < places[name].first, "what a kernel reads is not where it writes"
    text = compile_.find("forward.wrapper").text
    assert all(f"{name} = {dead}; del {dead}" in text for name, dead in taken.items())


def test_what_a_call_may_keep_a_view_of_is_left_alone() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result = x.exp()
        left, right = torch.ops.aten.split_with_sizes(result, [32, 32])
        for dim in (0, 1, 0):
            x = x.softmax(dim).sin()
        return x, left @ left.t(), right

    compile_ = check(program, X)
    assert "exp" not in reused_memory(compile_).values()


def test_results_of_one_call_are_not_those_of_the_next() -> None:
    from tests.cases.kernel_programs import compiled

    run, _ = compiled(lambda x: (x.softmax(0).exp().softmax(1), x + 1), X)
    first = run([X])
    kept = [t.clone() for t in first]
    run([torch.randn(64, 64)])
    torch.testing.assert_close(first, kept)


def allocated(call: Callable[[], object]) -> int:
    """Returns the peak of bytes allocated by PyTorch during `call`."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        kept = call()
    events: Any = profile.profiler
    changes = sorted((e.start_ns(), e.nbytes()) for e in events.kineto_results.events() if e.name() == "[memory]")
    assert kept is not None
    return int(max(itertools.accumulate(change for _, change in changes)))


PEAKS: dict[str, Callable[[torch.Tensor], object]] = {
    "products": lambda x: ((x @ x).relu() @ x).exp() @ x,
    "rows_and_columns": lambda x: x.softmax(0).cumsum(1).softmax(1).softmax(0),
    "one_of_two_results": lambda x: ((x.sort(1)[0] * 2).cumsum(0).sort(0)[0] - 1).sum(1),
    "both_results": lambda x: (x.sort(1)[0] * x.sort(1)[1]).cumsum(0) @ x,
}


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")  # PyTorch 2.11 always warns
@pytest.mark.parametrize("name", PEAKS)
def test_the_peak_is_the_allocators(name: str) -> None:
    x = torch.randn(300, 300)
    compiled = compiler_core.compile(PEAKS[name], backend="cpp", strict=True)
    compiled(x)
    (plan,) = record_of(compiled).compiles[0].memory
    assert allocated(lambda: compiled(x)) == pytest.approx(plan.peak, rel=0.02)
    assert plan.peak_before == bytes_of_values(plan)


def attention_weights(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    scores = x @ w
    return (scores.softmax(1) * 2) @ w.t()


OVERWRITES: dict[str, tuple[Callable[..., object], str]] = {
    "rows of a product": (attention_weights, "mm"),
    "elements": (lambda x, w: ((x @ w).tanh() * w[0]) @ w.t(), "mm"),
    "another order": (lambda x, w: (x @ w).reshape(1024, 512).t().contiguous().sin() @ w[:, :1024].t(), ""),
    "a product reads it": (lambda x, w: (lambda y: (y.tanh() @ w.t(), y @ w.t()))(x @ w), ""),
    "a neighbour is read": (lambda x, w: (lambda y: (y + y.roll(1, 0)) @ w.t())(x @ w), ""),
    "one value for a row": (lambda x, w: (x @ w[:, :1]).expand(512, 1024).cumsum(1) @ w[:, :1024].t(), ""),
    "a result": (lambda x, w: (lambda y: (y, y.tanh() @ w.t()))(x @ w), ""),
    "an input": (lambda x, w: w.tanh() @ w.t(), ""),
    "small": (lambda x, w: ((x @ w[:, :64]).tanh() * 2) @ w[:, :64].t(), ""),
}


@pytest.mark.parametrize("name", OVERWRITES)
def test_the_last_reader_of_a_large_buffer_overwrites_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Triton kernels; here only their text is made, and the program runs in plain PyTorch."""
    program, overwritten = OVERWRITES[name]
    gm = trace(program, torch.randn(512, 64), torch.randn(64, 1024))
    compile_ = Record().compile(Record().frame("f", "f.py", 1, "root"))
    printed = print_kernels(gm, "forward", compile_, Options(backend="triton"), {"cpu": "triton"})
    lines = printed.wrapper.text.split("\n")
    found = [m for line in lines if (m := re.fullmatch(r"    (\w+) = (\w+)", line))]
    assert [m[2] for m in found] == ([overwritten] if overwritten else []), printed.wrapper.text
    for m in found:
        at = lines.index(m[0])
        assert lines[at + 1].startswith(f"    forward_0({m[2]}, ")
        assert lines[at + 1].endswith(f"{m[1]})")
        assert lines[at + 2] == f"    del {m[2]}"


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="a system without huge pages")
def test_large_buffers_of_the_cpu_lie_in_huge_pages() -> None:
    x = torch.randn(1200, 1000)
    compiled = compiler_core.compile(lambda x: x * 2 + 1, backend="cpp", strict=True)
    result = compiled(x)
    torch.testing.assert_close(result, x * 2 + 1)
    assert "hg" in flags_of_memory(result.data_ptr() + result.nbytes // 2)
    small = compiled(x[:8])
    assert torch.equal(small, x[:8] * 2 + 1)


def flags_of_memory(address: int) -> list[str]:
    """Returns the flags of the memory mapping that contains `address`."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return line.split()[1:]
    raise AssertionError("no mapping holds the address")


def test_what_is_taken_in_one_way_is_made_so() -> None:
    """A gradient with another shape than its loops, and a transposed argument of a call."""

    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = x.exp().sum(0, keepdim=True)
        twice = x.sin()
        return total.view(-1), (x + 1).t() @ w, twice.view(-1), twice, (x * 2)[1:]

    x, w = torch.randn(6, 8), torch.randn(6, 5)
    text = check(program, x, w).find("forward.wrapper").text
    assert re.findall(r"window\((\w+)", text) == ["mul"], text
    result = compiler_core.compile(program)(x, w)
    assert [t.stride() for t in result] == [t.stride() for t in program(x, w)]


def summed_and_sorted(x: torch.Tensor) -> torch.Tensor:
    total = (x - x.mean(1, keepdim=True)).exp()
    return (total.sum(0) + total.sort(0).values).softmax(0)  # PyTorch sorts


def test_small_buffers_are_kept_for_the_next_run() -> None:
    from tests.cases.kernel_programs import compiled

    run, compile_ = compiled(summed_and_sorted, X)
    text = compile_.find("forward.wrapper").text
    (names,) = re.findall(r"^    forward_kept\.append\(\((.*?),?\)\)$", text, re.MULTILINE)
    kept = {b.name: b.bytes for b in compile_.memory[0].buffers if b.kept}
    assert set(names.split(", ")) == kept.keys()
    assert sum(kept.values()) <= MAX_RETAINED_BYTES
    (first,) = run([X])
    (second,) = run([-X])
    torch.testing.assert_close(first, summed_and_sorted(X))
    torch.testing.assert_close(second, summed_and_sorted(-X))
    (left,) = run.__globals__["forward_kept"]
    results = {t.untyped_storage().data_ptr() for t in (first, second)}
    assert not results & {t.untyped_storage().data_ptr() for t in left}


def test_runs_at_the_same_time_share_no_buffers() -> None:
    inputs = [torch.randn(200, 50) for _ in range(4)]
    compiled = compiler_core.compile(summed_and_sorted, backend="cpp", strict=True)
    expected = [compiled(x) for x in inputs]

    def works(at: int) -> bool:
        return all(torch.equal(compiled(inputs[at]), expected[at]) for _ in range(2000))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(works, range(4)))


# -- saved tensors ---------------------------------------------------------------------------------


class SavedMemory(TorchDispatchMode):
    """Notes how much memory of `tensors` is still allocated at each matrix product."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._memory = [StorageWeakRef(t.untyped_storage()) for t in tensors]
        self.at_products: list[int] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if op is torch.ops.aten.mm.default:
            self.at_products.append(sum(not m.expired() for m in self._memory))
        return op(*args, **(kwargs or {}))


def layers(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    for w in weights:
        x = (x @ w).sin()
    return x


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("outputs", ["loss", "loss and what it is of"])
def test_what_was_saved_is_freed_as_the_backward_goes_on(outputs: str, retain: bool) -> None:
    def program(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = layers(x, *weights)
        return (y.sum(),) if outputs == "loss" else (y.sum(), y)

    weights = [torch.randn(8, 8, requires_grad=True) for _ in range(6)]
    loss, *_others = compiler_core.compile(program)(torch.randn(4, 8), *weights)
    assert loss.grad_fn is not None
    given = {w.data_ptr() for w in weights}
    with SavedMemory([t for t in loss.grad_fn.saved_tensors if t.data_ptr() not in given]) as alive:
        loss.backward(retain_graph=retain)
    first, last = alive.at_products[0], alive.at_products[-1]
    assert last == first if retain else last <= first // 3
    if retain:
        loss.backward()
    else:
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


OUTPUTS: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "one of the other": lambda x: ((y := x.exp()), y.sin()),
    "apart": lambda x: (x.sin(), x.cos()),
    "of the same": lambda x: ((y := x.exp()).sin(), y.cos()),
    "linear": lambda x: (x * 2, (x * 2).sin()),
    "product": lambda x: ((y := x @ x.t()), y.softmax(-1), x.tanh()),
}


@pytest.mark.parametrize(
    ("name", "order"), pairs(OUTPUTS, [(0, 1), (1, 0), (0, 0), (0, 1, 2), (2, 1, 0), (1, 2, 1)], 2)
)
def test_backwards_through_one_output_at_a_time(name: str, order: Sequence[int]) -> None:
    """Results equal eager mode's, and so does the error if an earlier backward freed the saved tensors."""
    program, start = OUTPUTS[name], torch.randn(3, 3)
    gradients = torch.randn(3, 3, 3)
    found: list[list[Any]] = []
    for each in (program, compiler_core.compile(program)):
        x = start.clone().requires_grad_()
        outputs = each(x)
        found.append([])
        for i in order:
            try:
                found[-1] += torch.autograd.grad(outputs[i % len(outputs)], x, gradients[i])
            except RuntimeError as error:
                found[-1].append(str(error))
    for eager, ours in zip(*found, strict=True):
        if isinstance(eager, str):
            assert ours == eager
        else:
            torch.testing.assert_close(ours, eager)
