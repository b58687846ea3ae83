"""Whole programs on a real GPU, through the default backend, against eager."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import compiler_core
from compiler_core.api.compile import record_of
from compiler_core.backends import registry
from compiler_core.records import Record
from compiler_core.tools.measure import measure
from compiler_core.tools.standalone_script import standalone_script
from tests.cases.failing_backend import fails
from tests.cases.replayed import Broken, use_several_graphs
from tests.training_steps import Training

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")]


def walk_through(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    x = inputs["x"].cos().cos()
    if x.mean() > 0.5:
        x = x / 1.1
    return x * inputs["y"]


def gradients(fn: Callable[..., Any], tensors: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """The value of `fn` and the gradients of its inputs."""
    leaves = {k: t.detach().requires_grad_() for k, t in tensors.items()}
    value = fn(leaves)
    value.sum().backward()
    return [value.detach(), *(t.grad for t in leaves.values() if t.grad is not None)]


def no_failure(record: Record) -> None:
    assert [f.message for c in record.compiles for f in c.failures] == []
    assert [(c.outcome, c.reason) for c in record.compiles if c.outcome != "compiled"] == []


def test_walk_through() -> None:
    with compiler_core.record() as record:
        fast = compiler_core.compile(walk_through, strict=True)
        for n in (10, 8, 10):
            tensors = {k: torch.randn(n, device="cuda") for k in "xy"}
            torch.testing.assert_close(gradients(fast, tensors), gradients(walk_through, tensors), atol=1e-6, rtol=1e-6)
    no_failure(record)
    assert [len(f.compiles) for f in record.frames] == [2, 2, 0]
    assert {k.language for c in record.compiles for k in c.kernels} == {"triton"}


def test_training() -> None:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 10)).cuda()
    other = copy.deepcopy(model)
    x, y = torch.randn(128, 32, device="cuda"), torch.randint(10, (128,), device="cuda")
    with compiler_core.record() as record:
        fast = compiler_core.compile(step, strict=True)
        optimizers = [torch.optim.Adam(m.parameters(), lr=1e-2) for m in (model, other)]
        for _ in range(5):
            got, want = fast(model, optimizers[0], x, y), step(other, optimizers[1], x, y)
            torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
    no_failure(record)
    assert any(k.language == "triton" for c in record.compiles for k in c.kernels)


def test_transformer_block() -> None:
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True).cuda()
    x = torch.randn(4, 16, 32, device="cuda")
    with compiler_core.record() as record:
        fast = compiler_core.compile(block, strict=True)
        torch.testing.assert_close(fast(x), block(x), atol=1e-5, rtol=1e-4)
    no_failure(record)


# ---- what dropout draws ----------------------------------------------------------------------


def drawn(fn: Callable[..., Any], tensors: dict[str, torch.Tensor], seed: int = 1) -> tuple[Any, ...]:
    """The value of `fn`, the gradients of its inputs, and where the generator is then."""
    torch.manual_seed(seed)
    torch.rand(5, device="cuda")
    return *gradients(fn, tensors), torch.cuda.get_rng_state()


def calls_in(record: Record) -> list[str]:
    return [k.name for c in record.compiles for k in c.kernels if k.language == "extern"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("size", [(1000,), (7, 11), (6, 333), (2048, 2052), (2047, 2051), (9000, 4098)])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_in_a_kernel_draws_what_eagers_draws(dtype: torch.dtype, size: tuple[int, ...], p: float) -> None:
    def noisy(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return F.dropout(inputs["x"], p) * F.dropout(inputs["x"].abs(), p)

    x = torch.randn(size, device="cuda", dtype=dtype)
    with compiler_core.record() as record:
        fast = compiler_core.compile(noisy, strict=True, dynamic=False)
        for seed in (0, -1):
            got, want = drawn(fast, {"x": x}, seed), drawn(noisy, {"x": x}, seed)
            torch.testing.assert_close([got[0], got[2]], [want[0], want[2]], rtol=0, atol=0)
            torch.testing.assert_close(got[1], want[1])
    no_failure(record)
    assert calls_in(record) == []


@pytest.mark.parametrize("backend", ["eager", "aot_eager", None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mask", [None, torch.bool, torch.float32])
def test_attention_with_dropout_draws_what_eagers_draws(
    backend: str | None, dtype: torch.dtype, mask: torch.dtype | None
) -> None:
    """PyTorch chooses the attention kernel by its arguments, and each kernel advances the generator differently.

    The gradient of the attention's output has the strides of that output here.  With others, as eager PyTorch gives it
    for dropout without the reshape, the gradients by the cuDNN kernel of PyTorch 2.11 are wrong.
    """
    allowed = None if mask is None else torch.ones(2, 1, 8, 8, device="cuda").tril()
    if allowed is not None:
        allowed = allowed.bool() if mask is torch.bool else torch.where(allowed > 0, 0.0, -1e4).to(dtype)

    def attend(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        q, k, v = (inputs[name].view(2, 8, 4, 8).transpose(1, 2) for name in "qkv")
        y = F.scaled_dot_product_attention(q, k, v, allowed, dropout_p=0.1)
        return F.dropout(y.transpose(1, 2).reshape(2, 8, 32), 0.1).cos()

    tensors = {name: torch.randn(2, 8, 32, device="cuda", dtype=dtype) for name in "qkv"}
    fast = compiler_core.compile(attend, backend=backend, strict=True)
    tolerance = 1e-5 if dtype is torch.float32 else 0.02
    torch.testing.assert_close(drawn(fast, tensors), drawn(attend, tensors), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("start", [0, 1, 2, 4])
def test_dropout_of_a_tensor_at_any_address(start: int) -> None:
    """Who draws for an element depends on where eager's tensor lies."""

    def noisy(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return F.dropout(inputs["x"], 0.3) * F.dropout(inputs["x"][4:].cos(), 0.5).sum()

    x = torch.randn(start + 4096, device="cuda", dtype=torch.float64)[start:]
    fast = compiler_core.compile(noisy, strict=True)
    torch.testing.assert_close(drawn(fast, {"x": x}), drawn(noisy, {"x": x}))
    leaves = {"x": x.detach().requires_grad_()}
    torch.testing.assert_close(drawn(lambda _: fast(leaves), {}), drawn(lambda _: noisy(leaves), {}))


def test_dropout_while_the_user_records_a_cuda_graph() -> None:
    x, results = torch.randn(3000, device="cuda"), []
    fast = compiler_core.compile(lambda x: F.dropout(x.sin(), 0.5), strict=True)
    fast(x)
    for fn in (fast, lambda x: F.dropout(x.sin(), 0.5)):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = fn(x)
        torch.manual_seed(7)
        for _ in range(3):
            graph.replay()
            results.append(y.clone())
    torch.testing.assert_close(results[:3], results[3:])
    assert not torch.equal(results[0], results[1])


def test_a_network_with_dropouts_trains_as_eagers() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True).cuda()
    x = torch.randn(4, 16, 64, device="cuda")
    with compiler_core.record() as record:
        fast = compiler_core.compile(model, strict=True)
        torch.testing.assert_close(
            drawn(lambda t: fast(t["x"]), {"x": x}), drawn(lambda t: model(t["x"]), {"x": x}), atol=1e-4, rtol=1e-3
        )
    no_failure(record)


# ---- CUDA graphs -----------------------------------------------------------------------------


def graphs_of(record: Record) -> dict[str, Any]:
    """The last compile's CUDA graphs, by the graph that they replay."""
    return {g.graph: g for g in record.compiles[-1].cuda_graphs}


def test_replays_follow_changing_addresses_and_keep_what_was_returned() -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)).cuda()
    with compiler_core.record() as record, torch.no_grad():
        fast = compiler_core.compile(model, mode="reduce-overhead", strict=True)
        batches = [torch.randn(16, 32, device="cuda") for _ in range(10)]
        results = [fast(batch) for batch in batches]
        torch.testing.assert_close(results, [model(batch) for batch in batches], atol=1e-4, rtol=1e-4)
        next(model.parameters()).add_(1)  # in place: where it lies does not change
        torch.testing.assert_close(fast(batches[0]), model(batches[0]), atol=1e-4, rtol=1e-4)
    no_failure(record)
    forward = graphs_of(record)["forward"]
    assert (forward.reason, forward.copied) == ("", 1)
    assert forward.recorded >= 1


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("parts", [1, 3])
def test_training_with_replays_equals_training_without(set_to_none: bool, parts: int) -> None:
    """With gradients that are kept or summed over parts of a batch, and every loss held on to."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10)).cuda()
    other = copy.deepcopy(model)
    with compiler_core.record() as record:
        fast = compiler_core.compile(model, mode="reduce-overhead", strict=True)
        steps = [(run, torch.optim.SGD(m.parameters(), 0.1)) for run, m in ((fast, model), (other, other))]
        losses: list[list[torch.Tensor]] = [[], []]
        for _ in range(8):
            batches = [(torch.randn(64, 32, device="cuda"), torch.randint(10, (64,), device="cuda"))] * parts
            for (run, optimizer), kept in zip(steps, losses, strict=True):
                optimizer.zero_grad(set_to_none=set_to_none)
                for x, target in batches:
                    kept.append(F.cross_entropy(run(x), target))
                    kept[-1].backward()
                optimizer.step()
    torch.testing.assert_close(*losses, atol=1e-4, rtol=1e-4)
    state, wanted = model.state_dict(), other.state_dict()
    torch.testing.assert_close(list(state.values()), list(wanted.values()), atol=1e-4, rtol=1e-4)
    no_failure(record)
    assert graphs_of(record)["forward"].recorded >= 1
    assert {g.reason for g in graphs_of(record).values()} == {""}


def pools() -> set[tuple[int, ...]]:
    return {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()}


def test_the_graphs_of_a_function_share_one_pool() -> None:
    torch.manual_seed(0)
    model = Broken(6).cuda()
    other = copy.deepcopy(model)
    before = pools()
    with compiler_core.record() as record:
        fast = compiler_core.compile(model, mode="reduce-overhead", strict=True)
        for _ in range(5):
            x = torch.randn(24, 48, device="cuda")
            for module, run in ((model, fast), (other, other)):
                module.zero_grad()
                run(x, [*range(6)])[0].backward()
            found, wanted = ([p.grad for p in module.parameters()] for module in (model, other))
            torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    no_failure(record)
    assert {(g.recorded, g.reason) for c in record.compiles for g in c.cuda_graphs} == {(1, "")}
    assert len(pools() - before) == 1


@pytest.mark.parametrize("seed", range(8))
def test_whatever_a_program_does_with_a_function_of_several_graphs(seed: int) -> None:
    use_several_graphs(seed, lambda m: compiler_core.compile(m, mode="reduce-overhead", strict=True), "cuda")


def test_replays_on_two_streams_follow_each_other() -> None:
    """They use the same memory."""
    weight = torch.randn(2048, 2048, device="cuda") / 45

    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = (x @ weight).sin()
        return x

    fast = compiler_core.compile(program, mode="reduce-overhead", strict=True)
    streams = [torch.cuda.Stream() for _ in range(2)]
    with torch.no_grad():
        batches = [torch.randn(2048, 2048, device="cuda") for _ in range(8)]
        wanted = [program(batch) for batch in batches]
        for _ in range(3):
            fast(batches[0])
        torch.cuda.synchronize()
        found = []
        for number, batch in enumerate(batches):
            with torch.cuda.stream(streams[number % 2]):
                found.append(fast(batch))
        torch.cuda.synchronize()
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-3)


def whole_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), target)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "AdamW, capturable": lambda p: torch.optim.AdamW(p, 0.01, capturable=True),
    "AdamW": lambda p: torch.optim.AdamW(p, 0.01),
    "AdamW, fused": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    "Adam, fused, rate in a tensor": lambda p: torch.optim.Adam(p, torch.tensor(0.01, device="cuda"), fused=True),
    "SGD, fused": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_whole_step_whose_rate_changes(name: str, mode: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 10)).cuda()
    other = copy.deepcopy(model)
    with compiler_core.record() as record:
        fast = compiler_core.compile(whole_step, mode=mode, capture_backward=True)
        runs = [(run, m, OPTIMIZERS[name](m.parameters())) for run, m in ((fast, model), (whole_step, other))]
        losses: list[list[torch.Tensor]] = [[], []]
        for _ in range(12):
            batch = torch.randn(64, 32, device="cuda"), torch.randint(10, (64,), device="cuda")
            for (run, m, optimizer), kept in zip(runs, losses, strict=True):
                kept.append(run(m, optimizer, *batch))
                optimizer.param_groups[0]["lr"] *= 0.9
    torch.testing.assert_close(*losses, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(list(model.parameters()), list(other.parameters()), atol=1e-3, rtol=1e-3)
    no_failure(record)
    assert [len(c.breaks) for c in record.compiles] == [0]
    if mode != "default":
        assert graphs_of(record)["forward"].recorded == 1


@pytest.mark.parametrize("name", ["ResNet", "GRU tagger", "diffusion U-Net", "mixed precision"])
def test_a_whole_step_is_recorded_as_one_graph(name: str) -> None:
    """Convolutions whose learning rate is a symbol, PyTorch's own kernels with their backward, averaged weights."""
    training, other = (Training(name, device="cuda") for _ in range(2))
    batch = training.batch()
    with compiler_core.record() as record:
        fast = compiler_core.compile(training.program.step, mode="reduce-overhead", capture_backward=True)
        losses: list[list[torch.Tensor]] = [[], []]
        for run, trained, kept in zip((fast, training.program.step), (training, other), losses, strict=True):
            torch.manual_seed(1)
            kept.extend(run(trained, *batch).clone() for _ in range(6))
    torch.testing.assert_close(*losses, atol=1e-3, rtol=1e-2)
    no_failure(record)
    last = record.compiles[-1]
    assert [(g.recorded, g.reason) for g in last.cuda_graphs] == [(1, "")]
    if name == "ResNet":
        forward = next(each.text for each in last.artifacts if each.name == "forward")
        assert "permute" in forward, "its images are in channels_last"


def scaled_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, x: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.float16):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@pytest.mark.parametrize("name", ["AdamW, fused", "AdamW, capturable", "SGD"])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_scaled_step_with_infinite_gradients(name: str, mode: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 10)).cuda()
    other = copy.deepcopy(model)
    with compiler_core.record() as record:
        fast = compiler_core.compile(scaled_step, mode=mode, capture_backward=True)
        runs = [
            (run, m, OPTIMIZERS[name](m.parameters()), torch.amp.GradScaler("cuda", growth_interval=3))
            for run, m in ((fast, model), (scaled_step, other))
        ]
        for step in range(14):
            x, target = torch.randn(64, 32, device="cuda"), torch.randint(10, (64,), device="cuda")
            x[0] = float("inf") if step in (5, 9) else x[0]
            losses = [run(m, optimizer, scaler, x, target) for run, m, optimizer, scaler in runs]
            torch.testing.assert_close(*losses, atol=1e-2, rtol=1e-2, equal_nan=True)
    torch.testing.assert_close(list(model.parameters()), list(other.parameters()), atol=1e-2, rtol=1e-2)
    assert runs[0][3].state_dict() == runs[1][3].state_dict()
    no_failure(record)
    assert not record.compiles[-1].breaks
    if mode != "default":
        assert any(graph.recorded for each in record.compiles for graph in each.cuda_graphs)


def layers() -> nn.Module:
    blocks = (nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.LayerNorm(1024)) for _ in range(6))
    return nn.Sequential(*blocks, nn.Linear(1024, 8)).cuda()


@pytest.mark.parametrize("gradients", ["freed before", "freed between", "kept", "summed", "of a retained graph"])
def test_replays_that_share_memory_leave_eagers_gradients(gradients: str) -> None:
    torch.manual_seed(0)
    model = layers()
    other = copy.deepcopy(model)
    kept: list[Any] = []
    with compiler_core.record() as record:
        fast = compiler_core.compile(model, mode="reduce-overhead", strict=True)
        for step in range(14):
            x = torch.randn(256, 1024, device="cuda")
            for module, run in ((model, fast), (other, other)):
                if gradients in ("freed before", "of a retained graph"):
                    module.zero_grad()
                loss = run(x).square().mean()
                if gradients in ("freed between", "kept"):
                    module.zero_grad()
                loss.backward(retain_graph=gradients == "of a retained graph" and step % 3 == 0)
                if gradients == "of a retained graph" and step % 3 == 0:
                    loss.backward()
                torch.empty(1 << 26, device="cuda").fill_(float("nan"))  # shows memory that was freed too early
            ours, wanted = ([p.grad for p in m.parameters()] for m in (model, other))
            torch.testing.assert_close(ours, wanted, atol=1e-4, rtol=1e-3)
            if gradients == "kept":
                kept = [*kept, (ours, [g.clone() for g in ours if g is not None])][-3:]
            del ours, wanted
            for values, before in kept:
                torch.testing.assert_close(values, before, atol=0, rtol=0)
    no_failure(record)
    assert {g.reason for g in graphs_of(record).values()} == {""}
    assert all(g.recorded for g in graphs_of(record).values())


MEMORY = """
import torch, compiler_core
from tests.programs.test_cuda import layers
model = layers()
run = compiler_core.compile(model, mode="MODE")
x = torch.randn(1 << 16, 1024, device="cuda")  # the same in each call: a replay copies inputs that move
for _ in range(6):
    model.zero_grad()
    run(x).square().mean().backward()
print(torch.cuda.max_memory_reserved())
"""


def test_replays_reserve_as_much_memory_as_launches() -> None:
    def reserved(mode: str) -> int:
        command = [sys.executable, "-c", MEMORY.replace("MODE", mode)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert reserved("reduce-overhead") < 1.05 * reserved("default")


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_the_gradient_of_logits_is_written_over_them(mode: str) -> None:
    x, weight = torch.randn(1024, 64, device="cuda"), torch.randn(64, 40000, device="cuda").requires_grad_()
    target = torch.randint(40000, (1024,), device="cuda")
    logits = 1024 * 40000 * 4

    def step() -> torch.Tensor:
        weight.grad = None
        loss = F.cross_entropy(x @ weight, target)
        loss.backward()
        return loss.detach()

    wanted = step(), weight.grad
    with compiler_core.record() as record:
        fast = compiler_core.compile(step, mode=mode, capture_backward=True, strict=True)
        for _ in range(4):
            loss = fast()
            torch.testing.assert_close((loss, weight.grad), wanted, atol=1e-5, rtol=1e-4)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        fast()
        if mode == "default":
            assert torch.cuda.max_memory_allocated() - before < 1.2 * logits
    no_failure(record)
    compile_ = record.compiles[-1]
    assert {b.takes for plan in compile_.memory for b in plan.buffers} >= {"mm"}
    compiler_core.check_accuracy(record)
    assert compile_.accuracy
    assert max(a.error or 0 for a in compile_.accuracy) < 1e-3, compile_.accuracy


def test_what_was_kept_is_replayed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(tmp_path))
    for did in ("made now", "found"):
        with compiler_core.record() as record:
            fast = compiler_core.compile(lambda x: x.cos().sum(0), mode="reduce-overhead", strict=True)
            for _ in range(5):
                x = torch.randn(4, 5, device="cuda")
                torch.testing.assert_close(fast(x), x.cos().sum(0))
        (compile_,) = record.compiles
        assert next(e.detail for e in compile_.events if e.name == "cache").startswith(did)
        assert graphs_of(record)["forward"].recorded == 1


def test_two_forwards_before_their_backwards() -> None:
    weight = torch.randn(32, 32, device="cuda", requires_grad=True)
    fast = compiler_core.compile(lambda x: (x @ weight).sin().exp(), mode="reduce-overhead", strict=True)
    for _ in range(6):
        a, b = torch.randn(8, 32, device="cuda"), torch.randn(8, 32, device="cuda")
        (got,) = torch.autograd.grad(fast(a).sum() + fast(b).sum(), weight)
        (want,) = torch.autograd.grad(((a @ weight).sin().exp()).sum() + ((b @ weight).sin().exp()).sum(), weight)
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)


def test_replays_draw_what_eager_draws() -> None:
    """Each replay draws the generator's next numbers, and leaves it where eager leaves it."""

    def noisy(x: torch.Tensor) -> torch.Tensor:
        kept = x.new_empty(x.shape[0], 1).bernoulli_(0.8)
        return F.dropout(x.cos() * kept, 0.5) + torch.rand_like(x) + torch.randn(100, device="cuda")

    weight = torch.randn(8, 100, device="cuda", requires_grad=True)
    runs: dict[str, list[torch.Tensor]] = {}
    for mode in ("eager", "reduce-overhead"):
        with compiler_core.record() as record:
            run = compiler_core.compile(noisy, mode=mode, strict=True) if mode != "eager" else noisy
            torch.manual_seed(5)
            runs[mode] = []
            for step in range(8):
                if step == 6:
                    torch.manual_seed(7)
                result = run(weight * 2)
                runs[mode] += [result, *torch.autograd.grad(result.sum(), weight), torch.rand(3, device="cuda")]
    torch.testing.assert_close(runs["reduce-overhead"], runs["eager"], atol=1e-5, rtol=1e-5)
    assert graphs_of(record)["forward"].recorded, graphs_of(record)["forward"].reason


def test_what_is_not_replayed_says_why() -> None:
    with compiler_core.record() as record:
        fast = compiler_core.compile(lambda x: x.cos().cos(), mode="reduce-overhead", dynamic=True, strict=True)
        for n in (3, 4, 5):
            x = torch.randn(n, device="cuda")
            torch.testing.assert_close(fast(x), x.cos().cos())
    assert "symbolic" in graphs_of(record)["forward"].reason


def test_replays_for_each_shape() -> None:
    fast = compiler_core.compile(lambda x: x.cos().sum(0), mode="reduce-overhead", dynamic=False, strict=True)
    for n in (3, 4, 3, 4, 3, 4, 3, 4):
        x = torch.randn(n, 5, device="cuda")
        torch.testing.assert_close(fast(x), x.cos().sum(0))


def test_reads_and_writes_at_indices() -> None:
    def program(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> Any:
        rows = F.embedding(i, x) * 2, x[i - 50].sum(0), x.index_select(1, i), torch.softmax(x[i], -1)
        added = x.index_add(0, i, s), x.index_put((i, i), s[:, 0], accumulate=True), x.scatter_add(0, i[:, None], s)
        return *rows, *added, F.cross_entropy(x, i), torch.cat([x.relu(), x[:, :9] * 2, s[:50]], 1) + 1

    for dtype in (torch.float32, torch.bfloat16):
        x, s = (torch.randn(n, 640, device="cuda", dtype=dtype) for n in (50, 50))
        i = torch.randint(50, (50,), device="cuda")
        with compiler_core.record() as record:
            got = compiler_core.compile(program, strict=True)(x, i, s)
        no_failure(record)
        assert {k.language for c in record.compiles for k in c.kernels} == {"triton"}
        tolerance = 1e-4 if dtype is torch.float32 else 5e-2
        torch.testing.assert_close(got, program(x, i, s), rtol=tolerance, atol=tolerance)


def test_division_by_what_a_row_shares_is_rounded_as_eager_ones() -> None:
    def program(x: torch.Tensor, by: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x / by[:, None], x / 3 + x.sum(1, keepdim=True), x.sum(1)

    powers = torch.randint(-140, 127, (2, 300, 700), device="cuda").double()
    x = (torch.randn(300, 700, device="cuda") * 2 ** powers[0]).float()
    by = (torch.randn(300, device="cuda") * 2 ** powers[1, :, 0]).float()
    special = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-45, 3e38]
    by[: len(special)] = torch.tensor(special)
    x[:, : len(special)] = torch.tensor(special)
    got, expected = compiler_core.compile(program, strict=True)(x, by), program(x, by)
    plain = (expected[0].abs() >= 2**-100) & (x.abs() >= 2**-100)  # what is left over is no denormal
    assert plain.sum() > 50_000
    torch.testing.assert_close(got[0][plain], expected[0][plain], rtol=0, atol=0)
    torch.testing.assert_close(got[0], expected[0], rtol=2.0**-23, atol=2.0**-148, equal_nan=True)
    known = ~expected[0].isnan()
    assert torch.equal(torch.signbit(got[0])[known], torch.signbit(expected[0])[known])
    y = torch.randn(300, 700, device="cuda")
    torch.testing.assert_close(compiler_core.compile(lambda y: y / 3)(y), y / 3, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_relu_goes_into_the_product_before_it(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    w, v = (torch.randn(s, device="cuda", dtype=dtype) * 0.05 for s in ((512, 256), (128, 512)))
    inputs = {"x": torch.randn(64, 32, 256, device="cuda", dtype=dtype), "w": w, "v": v}
    inputs |= {"b": torch.randn(512, device="cuda", dtype=dtype)}

    def program(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return F.linear(F.linear(inputs["x"], inputs["w"], inputs["b"]).relu(), inputs["v"]).float().square()

    with compiler_core.record() as record:
        fast = compiler_core.compile(program, strict=True)
        tolerance = 1e-4 if dtype is torch.float32 else 3e-2
        found, expected = gradients(fast, inputs), gradients(program, inputs)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    no_failure(record)
    assert any("_addmm_activation" in k.name for c in record.compiles for k in c.kernels)
    inputs["x"][0, 0, 0] = torch.nan
    assert torch.equal(fast(inputs).isnan(), program(inputs).isnan())


def test_gradients_under_autocast_are_more_exact_than_eagers() -> None:
    """Weights' gradients are products in float32, and the patches of the image a product."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 64, 8, stride=8), nn.Flatten(2), nn.Linear(16, 96), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, 8)
    ).cuda()
    x = torch.randn(16, 3, 32, 32, device="cuda")

    def step(model: Any, given: torch.Tensor, cast: bool) -> list[torch.Tensor]:
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=cast):
            loss = model(given).float().square().mean()
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in model.parameters())]

    exact = step(copy.deepcopy(net).double(), x.double(), cast=False)
    eager = step(net, x, cast=True)
    compiled = compiler_core.compile(net, fullgraph=True)
    found = step(compiled, x, cast=True)

    def distance(tensors: list[torch.Tensor]) -> float:
        return sum(float((a - b).norm() / b.norm()) for a, b in zip(tensors, exact, strict=True))

    assert [(t.dtype, t.stride()) for t in found] == [(t.dtype, t.stride()) for t in eager]
    assert distance(found) <= 1.1 * distance(eager)
    text = record_of(compiled).compiles[0].find("joint").text
    assert (text.count("aten.mm.dtype"), text.count("convolution")) == (3, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transposed_convolutions(dtype: torch.dtype) -> None:
    """The first and second of a decoder, whose images are channels_last between them."""
    torch.manual_seed(0)
    inputs = {"x": torch.randn(2, 16, 8, 8), "w": torch.randn(16, 8, 4, 4), "v": torch.randn(8, 6, 2, 2)}
    inputs = {name: t.cuda().to(dtype) for name, t in inputs.items()}

    def program(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        y = F.conv_transpose2d(inputs["x"], inputs["w"], stride=2, padding=1).relu()
        return F.conv_transpose2d(y, inputs["v"], stride=2)

    with compiler_core.record() as record:
        fast = compiler_core.compile(program, strict=True)
        found, expected = gradients(fast, inputs), gradients(program, inputs)
    assert [t.stride() for t in found] == [t.stride() for t in expected]
    tolerance = 1e-2 if dtype is torch.float32 else 1e-1
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * 10)
    assert "aten.permute" in record.compiles[0].find("joint").text
    no_failure(record)


class ImageNorm(nn.LayerNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def test_gradients_of_an_image_decoder_with_transposed_convolutions() -> None:
    """In the sizes of SAM: tokens of an encoder become an image, which is made larger twice.

    The gradient of the encoder's bias is a sum of bfloat16 numbers, which autocast computes in float32 in eager mode's
    forward, and not in its backward.
    """
    torch.manual_seed(0)
    encoder = nn.Linear(768, 768, device="cuda")
    neck = nn.Conv2d(768, 256, 1, bias=False), ImageNorm(256), nn.Conv2d(256, 256, 3, padding=1), ImageNorm(256)
    larger = nn.ConvTranspose2d(256, 64, 2, stride=2), ImageNorm(64), nn.GELU(), nn.ConvTranspose2d(64, 32, 2, stride=2)
    model = nn.Sequential(*neck, *larger, nn.GELU()).cuda()
    tokens = torch.randn(1, 64, 64, 768, device="cuda", requires_grad=True)

    def gradients_of(run: Any) -> list[torch.Tensor]:
        with torch.autocast("cuda", torch.bfloat16):
            masks = run(tokens).flatten(2).sum(1)
        return list(
            torch.autograd.grad(masks.float().square().mean(), [tokens, *encoder.parameters(), *model.parameters()])
        )

    def program(tokens: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = model(encoder(tokens).permute(0, 3, 1, 2))
        return found

    found, eager = gradients_of(compiler_core.compile(program, strict=True)), gradients_of(program)
    for got, want in zip(found, eager, strict=True):
        assert (got - want).norm() <= 0.05 * want.norm()


def test_replays_of_a_graph_without_inputs() -> None:
    def program() -> torch.Tensor:
        return torch.arange(8, device="cuda").float().cos()

    with compiler_core.record() as record:
        fast = compiler_core.compile(program, mode="reduce-overhead", strict=True)
        for _ in range(4):
            torch.testing.assert_close(fast(), program())
    assert graphs_of(record)["forward"].recorded, graphs_of(record)["forward"].reason
    no_failure(record)


def test_replays_read_inputs_whose_elements_share_memory() -> None:
    with compiler_core.record() as record:
        fast = compiler_core.compile(lambda x, y: (x * y).sum(0), mode="reduce-overhead", dynamic=False, strict=True)
        for _ in range(6):
            x, y = torch.randn(1, 7, device="cuda").expand(5, 7), torch.randn(5, 7, device="cuda")
            torch.testing.assert_close(fast(x, y), (x * y).sum(0))
    assert graphs_of(record)["forward"].recorded, graphs_of(record)["forward"].reason
    no_failure(record)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_caches_are_written_in_place(mode: str) -> None:
    """Decoding token by token: values, the caches' memory and versions are eager's, and so after the caches move."""

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.keys: torch.Tensor
            self.register_buffer("keys", torch.zeros(1, 2, 16, 8, device="cuda"))
            self.project = torch.nn.Linear(16, 16, device="cuda")

        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            rows = self.project(x).view(1, -1, 2, 8).transpose(1, 2)
            self.keys.index_copy_(2, at, rows)
            return F.scaled_dot_product_attention(rows, self.keys, self.keys).sum(2)

    eager = Attention()
    compiled = copy.deepcopy(eager)
    fast = compiler_core.compile(compiled, mode=mode, strict=True)
    with torch.no_grad(), compiler_core.record() as record:
        for step in range(8):
            x, at = torch.randn(1, 1, 16, device="cuda"), torch.tensor([step], device="cuda")
            if step == 5:
                for each in (eager, compiled):
                    each.keys = each.keys.clone()
            before = compiled.keys.data_ptr(), compiled.keys._version
            torch.testing.assert_close(fast(x, at), eager(x, at))
            torch.testing.assert_close(compiled.keys, eager.keys)
            assert (compiled.keys.data_ptr(), compiled.keys._version) == (before[0], before[1] + 1)
    no_failure(record)
    assert not [k for c in record.compiles for k in c.kernels if "index_copy" in k.name or "copy_" in k.name]
    if mode == "reduce-overhead":
        assert graphs_of(record)["forward"].recorded, graphs_of(record)["forward"].reason


def test_gradient_of_an_embedding() -> None:
    def program(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        i = torch.arange(5000, device="cuda") % 70
        joined = torch.cat([F.embedding(i, inputs["w"]), inputs["x"]], 1)
        return F.cross_entropy(joined, i, reduction="none")

    tensors = {"w": torch.randn(70, 300, device="cuda"), "x": torch.randn(5000, 20, device="cuda")}
    with compiler_core.record() as record:
        fast = compiler_core.compile(program, strict=True)
        torch.testing.assert_close(gradients(fast, tensors), gradients(program, tensors), atol=1e-4, rtol=1e-4)
    no_failure(record)


def test_an_index_out_of_range_stops_the_device() -> None:
    code = """
import torch, compiler_core
fast = compiler_core.compile(lambda x, i: x[i] * 2, strict=True)
x = torch.randn(5, 600, device="cuda")
print(fast(x, torch.tensor([0, 4], device="cuda")).shape)
fast(x, torch.tensor([0, 5], device="cuda"))
torch.cuda.synchronize()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "torch.Size([2, 600])" in done.stdout
    assert "device-side assert" in done.stderr
    assert done.returncode != 0


@pytest.mark.skipif(not hasattr(torch._C, "_StaticCudaLauncher"), reason="this PyTorch cannot load kernels")
def test_no_c_compiler_is_called_for_kernels_on_a_gpu(tmp_path: Path) -> None:
    """Triton would call one for the kernels of each list of types, which took most of the time of a first call."""
    code = """
import torch, compiler_core
x = torch.randn(3, 600, device="cuda")
f = lambda x: (x.softmax(-1) * 2, x.sum(-1).cos(), (x > 0).to(torch.int8))
for a, b in zip(compiler_core.compile(f, strict=True)(x), f(x)):
    torch.testing.assert_close(a, b)
"""
    environment = os.environ | {
        "CC": "/no/compiler",
        "CUTAWAY_CACHE_DIR": f"{tmp_path}",
        "TRITON_CACHE_DIR": f"{tmp_path}",
    }
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_a_graph_that_fails_leaves_the_random_numbers_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.3)

    monkeypatch.setitem(registry._EXTERNAL, "fails", fails)
    x = torch.randn(1000, device="cuda")
    torch.manual_seed(5)
    want = program(x), torch.rand(3, device="cuda"), torch.rand(3)
    torch.manual_seed(5)
    with pytest.warns(compiler_core.CompileWarning, match="made wrong"):
        result = compiler_core.compile(program, backend="fails")(x)
    got = result, torch.rand(3, device="cuda"), torch.rand(3)
    assert all(map(torch.equal, got, want))


# ---- graphs over several devices -------------------------------------------------------------


def alike(got: Any, want: Any) -> None:
    """Values, devices, types and strides, of one tensor or several."""
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5, check_device=True, check_stride=True, equal_nan=True)


def languages_of(record: Record) -> set[str]:
    return {str(k.language) for c in record.compiles for k in c.kernels} - {"extern"}


def filled(x: torch.Tensor) -> Any:
    there, here = torch.empty(6, 5, device="cuda"), torch.zeros(6, 5)
    there.copy_(x * 2)
    here.copy_(there + 1)
    return there.sin(), here.cos()


def masked(x: torch.Tensor) -> Any:
    there, of = x.cuda(), torch.masked  # each defines a class, which is a graph break
    mask = there > -1
    return (
        of.mean(there, -1, mask=mask),
        of.sum(there, -1, mask=mask),
        of.std(there, -1, mask=mask),
        of.var(there, -1, mask=mask),
    )


MIXED: dict[str, tuple[Callable[[torch.Tensor], Any], set[str]]] = {
    "made on the GPU": (lambda x: torch.zeros(4, device="cuda") + 1, {"triton"}),
    "moved there": (lambda x: x.cuda() * 2 + 1, {"triton"}),
    "there and back": (lambda x: ((x + 1).cuda().sin() * 2).cpu().softmax(-1) + x, {"cpp", "triton"}),
    "without waiting": (lambda x: x.to("cuda", non_blocking=True).sin().cos(), {"triton"}),
    "a mask": (lambda x: torch.where(torch.arange(5, device="cuda") < 3, x.cuda() * 2, torch.inf), {"triton"}),
    "indices": (lambda x: x.cuda()[torch.tensor([4, 0], device="cuda")] + 1, {"triton"}),
    "results of both": (lambda x: (x.exp(), x.cuda().exp(), x.cuda().sum(0).cpu() + x), {"cpp", "triton"}),
    "a number of the CPU's": (lambda x: (x.cuda() * torch.tensor(2.5)).sin() + x.sum().cuda(), {"cpp", "triton"}),
    "written": (filled, {"cpp", "triton"}),
    "without memory": (lambda x: (x.cuda().sin(), (x.to("meta") * 2).shape, x.cos()), {"cpp", "triton"}),
    "views": (lambda x: (x.cuda().t()[1:] * 2, x.t()[1:] * 2, x.cuda()[2:]), {"cpp", "triton"}),
    "reductions": (lambda x: (x.cuda().std(0), x.std(0), torch.softmax(x.cuda(), -1).cpu()), {"cpp", "triton"}),
    "masked": (masked, {"triton"}),
}


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("name", MIXED)
def test_what_a_graph_makes_and_moves(name: str, pinned: bool) -> None:
    program, languages = MIXED[name]
    x = torch.randn(6, 5)
    x = x.pin_memory() if pinned else x
    with compiler_core.record() as record:
        fast = compiler_core.compile(program, strict=True)
        for _ in range(3):
            alike(fast(x), program(x))
    no_failure(record)
    assert languages_of(record) == languages
    if not any(c.breaks for c in record.compiles):
        assert [c.backend for c in record.compiles] == [" + ".join(sorted(languages))]


@pytest.mark.parametrize("backend", ["cpp", "triton"])
@pytest.mark.parametrize("name", MIXED)
def test_one_kind_of_kernels_alone(name: str, backend: str) -> None:
    """What lies elsewhere is left to PyTorch, and the record says why."""
    program, x = MIXED[name][0], torch.randn(6, 5)
    with compiler_core.record() as record:
        alike(compiler_core.compile(program, backend=backend, strict=True)(x), program(x))
    no_failure(record)
    assert languages_of(record) <= {backend}


def test_tensors_are_made_on_the_default_device() -> None:
    def program() -> torch.Tensor:
        return torch.arange(5) * 2 + torch.ones(5)

    torch.set_default_device("cuda")
    try:
        with compiler_core.record() as record:
            alike(compiler_core.compile(program, strict=True)(), program())
    finally:
        torch.set_default_device(None)
    no_failure(record)
    assert languages_of(record) == {"triton"}
    with torch.device("cuda"):
        alike(compiler_core.compile(program, strict=True)(), program())


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(kind: Any) -> None:
    torch.manual_seed(0)
    layer, x = kind(8, 16, 2, batch_first=True).cuda(), torch.randn(3, 7, 8, device="cuda")
    fast = compiler_core.compile(lambda x: layer(x)[0] * 2, strict=True)
    torch.testing.assert_close(fast(x), layer(x)[0] * 2, atol=1e-5, rtol=1e-4)


def through_both(inputs: dict[str, torch.Tensor]) -> Any:
    a, w, scale = inputs["a"], inputs["w"], inputs["scale"]
    there = (a.sin().cuda() * w).exp() * scale
    return there.sum(0), (there.cpu() * a).cos(), a.exp() * 2


def backward_of(fn: Callable[..., Any], which: Sequence[int]) -> list[Any]:
    """The values of `fn`, and all gradients of some of them."""
    torch.manual_seed(3)
    leaves = {"a": torch.randn(4, 5), "w": torch.randn(4, 5, device="cuda"), "scale": torch.tensor(1.5)}
    leaves = {name: t.requires_grad_() for name, t in leaves.items()}
    values = fn(leaves)
    sum(values[i].sum().cpu() for i in which).backward()
    return [*(v.detach() for v in values), *(t.grad for t in leaves.values())]


@pytest.mark.parametrize("which", [(0,), (1,), (2,), (0, 1), (0, 1, 2)])
def test_gradients_of_results_on_two_devices(which: tuple[int, ...]) -> None:
    with compiler_core.record() as record:
        fast = compiler_core.compile(through_both, strict=True)
        for _ in range(2):
            for got, want in zip(backward_of(fast, which), backward_of(through_both, which), strict=True):
                assert (got is None) == (want is None)
                if got is not None:
                    alike(got, want)
    no_failure(record)
    assert languages_of(record) == {"cpp", "triton"}


def test_streams_of_the_caller_are_those_of_the_kernels() -> None:
    """Forward and backward in another stream than the current one, the backward after the stream's context was left."""
    a, w = torch.randn(1 << 20), torch.randn(1 << 20, device="cuda", requires_grad=True)

    def program(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        there = a.cuda(non_blocking=True) * w
        return there.sin(), there.sum().cpu() + a.sum()

    def run(fn: Any) -> torch.Tensor:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(10_000_000)
            there, here = fn(a)
            loss = there.sum() + here.cuda()
        w.grad = None
        loss.backward()
        torch.cuda.synchronize()
        assert w.grad is not None
        return w.grad.clone()

    fast = compiler_core.compile(program, strict=True)
    for _ in range(3):
        torch.testing.assert_close(run(fast), run(program))


def test_a_tensor_of_the_cpu_is_written_from_the_gpu() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.copy_(y.sin() * 2)
        y.add_(x.to(y.device))
        return x + 1

    fast = compiler_core.compile(program, strict=True)
    for _ in range(2):
        given = torch.randn(5), torch.randn(5, device="cuda")
        other = tuple(t.clone() for t in given)
        alike(fast(*given), program(*other))
        alike(given, other)


def test_dropout_on_both_devices_draws_what_eagers_draws() -> None:
    def noisy(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return F.dropout(inputs["x"], 0.4).cuda() + F.dropout(inputs["x"].cuda(), 0.3) * torch.rand(50, device="cuda")

    x = torch.randn(40, 50)
    with compiler_core.record() as record:
        fast = compiler_core.compile(noisy, strict=True)
        for seed in (1, 2):
            got, want = (*drawn(fast, {"x": x}, seed), torch.get_rng_state()), drawn(noisy, {"x": x}, seed)
            torch.testing.assert_close(got, (*want, torch.get_rng_state()))
    no_failure(record)


def test_no_replay_of_work_on_the_cpu() -> None:
    with compiler_core.record() as record:
        fast = compiler_core.compile(MIXED["there and back"][0], mode="reduce-overhead", strict=True)
        x = torch.randn(6, 5)
        for _ in range(4):
            alike(fast(x), MIXED["there and back"][0](x))
    no_failure(record)
    assert graphs_of(record)["forward"].reason.endswith("some are on cpu")


class SkippingLayers(nn.Module):
    """Skips layers by random numbers of the CPU, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.dropped, self.scale = 0.3, torch.tensor(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            if torch.rand([]) < self.dropped:
                continue
            x = x + torch.relu(layer(x)) * self.scale
        return x


def test_replays_beside_random_numbers_of_the_cpu() -> None:
    model = SkippingLayers().cuda()
    plain = copy.deepcopy(model)
    with compiler_core.record() as record:
        fast = compiler_core.compile(model, mode="reduce-overhead", strict=True)
        for seed in range(24):
            x = torch.randn(4, 8, device="cuda")
            states = []
            for each, run in ((model, fast), (plain, plain)):
                torch.manual_seed(seed)
                each.zero_grad()
                run(x.requires_grad_()).square().sum().backward()
                states.append(([p.grad for p in each.parameters()], torch.get_rng_state()))
            torch.testing.assert_close(*states)
    no_failure(record)
    on_gpu = [compile_ for compile_ in record.compiles if any(kernel.device != "cpu" for kernel in compile_.kernels)]
    graphs = [graph for compile_ in on_gpu for graph in compile_.cuda_graphs]
    assert {graph.reason for graph in graphs} <= {"", "it launches no kernel"}
    assert sum(graph.recorded for graph in graphs) >= 6


@pytest.mark.parametrize("trains", [False, True])
def test_blocks_that_share_code_have_a_recording_each(trains: bool) -> None:
    blocks: Any = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Tanh()) for _ in range(4))
    blocks = blocks.cuda()
    plain = copy.deepcopy(blocks)
    with compiler_core.record() as record, torch.set_grad_enabled(trains):
        fast = compiler_core.compile(nn.Sequential.forward, mode="reduce-overhead", strict=True)
        for step in range(10):
            x = torch.randn(16, 64, device="cuda")
            states: list[Any] = []
            for net, call in ((blocks, fast), (plain, nn.Sequential.forward)):
                y = x
                for block in net:
                    y = call(block, y)
                if trains:
                    net.zero_grad()
                    y.square().sum().backward()
                states.append((y.detach().clone(), [p.grad for p in net.parameters()], dict(net.state_dict())))
            torch.testing.assert_close(*states, rtol=1e-4, atol=1e-4)
            if step == 5:
                for parameter in blocks.parameters():
                    parameter.data = parameter.data.clone()
    no_failure(record)
    graphs = [graph for compile_ in record.compiles for graph in compile_.cuda_graphs]
    assert {graph.reason for graph in graphs} == {""}
    assert sum(graph.recorded for graph in graphs) == 2 * 4 * (2 if trains else 1)


def test_times_and_scripts_of_both_kinds_of_kernels(tmp_path: Path) -> None:
    with compiler_core.record() as record:
        compiler_core.compile(MIXED["there and back"][0], strict=True, tune=True)(torch.randn(300, 500))
    measure(record)
    assert record.notes == []
    (compile_,) = record.compiles
    timed = {(k.language, k.device, k.timed_on == "cpu", k.time_ns is not None) for k in compile_.kernels}
    assert {("cpp", "cpu", True, True), ("triton", "cuda:0", False, True), ("extern", "cuda:0", False, True)} <= timed
    file = tmp_path / "run_forward.py"
    file.write_text(standalone_script(compile_, "forward"))
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[300, 500] torch.float32" in done.stdout


def test_a_graph_of_both_devices_is_found_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(tmp_path))
    program, x = MIXED["there and back"][0], torch.randn(6, 5)
    for did in ("made now", "found"):
        with compiler_core.record() as record:
            alike(compiler_core.compile(program, strict=True)(x), program(x))
        (compile_,) = record.compiles
        assert next(e.detail for e in compile_.events if e.name == "cache").startswith(did)
        assert compile_.backend == "cpp + triton"


two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two CUDA devices")


@two_gpus
@pytest.mark.parametrize("current", [0, 1])
def test_kernels_on_two_gpus(current: int) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        there = (x.sin() * 2).to("cuda:1", non_blocking=True)
        result = torch.arange(5, device="cuda") * 2.0
        return there * y, (there + y).to("cuda:0").softmax(-1) + x, result + 1, x.cpu() + 1

    leaves = [torch.randn(6, 5, device=f"cuda:{i}", requires_grad=True) for i in (0, 1)]
    with torch.cuda.device(current), compiler_core.record() as record:
        fast = compiler_core.compile(program, strict=True)
        got, want = fast(*leaves), program(*leaves)
        alike(got, want)
        total = [sum(v.to("cuda:0").sum() for v in values) for values in (got, want)]
        alike(torch.autograd.grad(total[0], leaves), torch.autograd.grad(total[1], leaves))
    no_failure(record)
    assert languages_of(record) == {"cpp", "triton"}


@two_gpus
def test_a_device_without_a_number_is_the_current_one() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.cuda() * 2 + torch.ones(5, device="cuda")

    fast, x = compiler_core.compile(program, strict=True), torch.randn(5)
    for current in (0, 1, 0):
        with torch.cuda.device(current):
            got = fast(x)
            assert got.device.index == current
            alike(got, program(x))


def test_rows_of_a_mask_with_replays() -> None:
    """The operation that waits is not recorded; the parts are, and random numbers are eager's."""

    def f(x: torch.Tensor, m: torch.Tensor) -> Any:
        y = (x * 2).sin()
        y[m] = y[m] * 2 + 1
        return F.dropout(y, 0.5) + torch.unique(m).sum()

    fast = compiler_core.compile(f, mode="reduce-overhead", fullgraph=True, strict=True)
    rows = torch.arange(64, device="cuda")
    for m in (rows < 9, rows < 30, rows < 0, rows == 3, rows < 30) * 3:
        x = torch.randn(64, 5, device="cuda", requires_grad=True)
        results: list[Any] = []
        for fn in (f, fast):
            torch.manual_seed(4)
            x.grad = None
            y = fn(x * 1, m)
            y.sum().backward()
            assert x.grad is not None
            results.append((y.detach().clone(), x.grad.clone(), torch.cuda.get_rng_state()))
        torch.testing.assert_close(*results)


def test_random_numbers_after_a_recording_that_failed() -> None:
    def f(x: torch.Tensor) -> Any:
        return waiting(x.sin())

    fast = compiler_core.compile(f, mode="reduce-overhead")
    x = torch.randn(8, device="cuda")
    for _ in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", compiler_core.RefusalWarning)
            torch.testing.assert_close(fast(x), f(x))
        assert torch.rand(3, device="cuda").shape == (3,)


@torch.library.custom_op("cutaway_test::waiting", mutates_args=())
def waiting(x: torch.Tensor) -> torch.Tensor:
    """Waits for the GPU, which a recording does not allow."""
    return x * x.sum().item()


@waiting.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_absent_gradients_of_large_outputs(mode: str) -> None:
    """Logits beside a loss: their gradient takes no memory while it is absent, and counts where it is there."""

    def program(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = x @ weight
        return F.cross_entropy(logits, target), logits

    x, weight = torch.randn(512, 64, device="cuda"), torch.randn(64, 40000, device="cuda")
    target = torch.randint(40000, (512,), device="cuda")
    fast = compiler_core.compile(program, mode=mode, strict=True)

    def step(function: Any, way: str) -> list[Any]:
        leaves = [t.detach().requires_grad_() for t in (x, weight)]
        loss, logits = function(*leaves, target)
        if way == "loss":
            loss.backward()
        elif way == "both":
            (loss + (logits * logits).mean()).backward()
        elif way == "logits":
            logits.cos().sum().backward()
        elif way == "twice":
            loss.backward(retain_graph=True)
            (logits * logits).mean().backward()
        else:  # a batch of gradients, for which PyTorch's operators run
            seeds = torch.arange(3.0, device="cuda")
            return [*torch.autograd.grad(loss, leaves, seeds, is_grads_batched=True)]
        return [leaf.grad for leaf in leaves]

    for way in ("loss", "loss", "loss", "both", "loss", "logits", "twice", "batch", "loss", "both", "both", "both"):
        found, expected = step(fast, way), step(program, way)
        torch.testing.assert_close(found, expected, atol=2e-4, rtol=2e-4)
        del found, expected
    if mode == "default":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step(fast, "loss")
        logits_bytes = 512 * 40000 * 4
        assert torch.cuda.max_memory_allocated() - before < 3.6 * logits_bytes
