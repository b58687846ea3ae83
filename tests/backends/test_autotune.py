"""Autotuning: the candidates compute the same, tries are recorded and remembered, and why nothing is tuned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import compiler_core
from compiler_core.api.accuracy import check_accuracy
from compiler_core.api.measure import measure
from compiler_core.codegen.machine_code import stages
from compiler_core.codegen.triton import module as triton_module
from compiler_core.codegen.triton import printer as triton
from compiler_core.loops import ir
from compiler_core.loops.schedule.block_sizes import as_printed, candidates, choose_blocks
from compiler_core.records import Record, Tried, Tuning
from tests.cases import triton_cases
from tests.codegen.test_triton import softmax

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
CASES = ("gelu_of_a_sum", "strided_inputs", "softmax", "softmax_in_sweeps", "values_of_rows", "layer_norm")
f32 = torch.float32


@pytest.mark.parametrize("columns", [5000, 20000])
def test_candidates_are_few_different_and_begin_with_the_usual_one(columns: int) -> None:
    loops = as_printed(softmax(512, columns))
    found = candidates(loops)
    assert found[0] == choose_blocks(loops)
    assert 4 < len(found) == len(set(found)) <= 24
    assert len({each.text() for each in found}) == len(found)
    assert {each.j >= columns for each in found} == ({True, False} if columns < 16384 else {False})


def test_every_candidate_compiles_for_a_gpu() -> None:
    loops = softmax(512, 20000)
    cpu = torch.device("cpu")
    buffers = {n: ir.Buffer(n, f32, (512, 20000), (20000, 1), cpu, "input") for n in ("x", "buf0")}
    program = ir.Program("forward", buffers, ("x",), (loops,), ())
    for blocks in candidates(as_printed(loops)):
        code = triton.generate(program, {"softmax": blocks})
        (kernel,) = triton_module.load(code.text).values()
        assert kernel.num_warps == blocks.num_warps
        assert ("num_stages=3" in code.text) == (blocks.stages == 3)
        compiled = triton_module.compile_kernel(kernel, stages.triton_target("sm_90"))
        assert ".entry softmax(" in compiled.asm["ptx"]


@pytest.mark.parametrize("number", [3, 7])
def test_candidates_compute_what_eager_does(number: int) -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-W", "ignore", str(Path(triton_cases.__file__)), "--candidate", str(number), *CASES]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=250)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys(CASES, "ok")


def tuned(device: str) -> Record:
    x = torch.randn(512, 700, device=device, requires_grad=True)
    state = torch.get_rng_state()
    with compiler_core.record() as made:
        fast = compiler_core.compile(lambda x: torch.softmax(x.sin(), 1) * 2, strict=True, tune=True, dynamic=False)
        value = fast(x)
        value.sum().backward()
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(value, torch.softmax(x.sin(), 1) * 2)
    return made


def test_what_cannot_be_tuned_says_why() -> None:
    (made,) = tuned("cpu").compiles
    reason = "C++ kernels have no block sizes to choose; Triton kernels, on a GPU, have"
    assert made.tunings == [Tuning("forward", reason=reason), Tuning("backward", reason=reason)]


def tries(record: Record) -> list[Tried]:
    return [each for c in record.compiles for tuning in c.tunings for each in tuning.tried]


@gpu
@pytest.mark.gpu
def test_every_try_is_recorded_and_the_best_taken_and_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(tmp_path))
    made = tuned("cuda")
    found = tries(made)
    assert {t.graph for c in made.compiles for t in c.tunings} == {"forward", "backward"}
    for kernel in {each.kernel for each in found}:
        own = [each for each in found if each.kernel == kernel]
        assert len(own) > 4
        assert all((each.time_ns or 0) > 0 and (each.registers or 0) > 0 for each in own if not each.why_not)
        (best,) = (each for each in own if each.chosen)
        assert best.time_ns == min(each.time_ns for each in own if each.time_ns is not None)
        print(kernel, *(f"{e.how}: {e.time_ns} ns, {e.registers} registers {e.why_not}" for e in own), sep="\n  ")
    again = tries(tuned("cuda"))
    assert all(each.cached for each in again)
    assert [(e.how, e.time_ns, e.chosen) for e in again] == [(e.how, e.time_ns, e.chosen) for e in found]


@gpu
@pytest.mark.gpu
def test_kernels_on_a_gpu_are_timed() -> None:
    made = tuned("cuda")
    allocated, state = torch.cuda.memory_allocated(), torch.cuda.get_rng_state()
    measure(made)
    check_accuracy(made)
    assert made.notes == []
    assert torch.cuda.memory_allocated() == allocated
    assert torch.equal(torch.cuda.get_rng_state(), state)
    kernels = [k for c in made.compiles for k in c.kernels]
    assert all((k.time_ns or 0) > 0 and k.timed_on == made.devices[0].target for k in kernels)
    assert made.devices[0].copy > 100
    assert all((a.error or 1) < 1e-5 for c in made.compiles for a in c.accuracy if a.error != 0)
    print(made.devices, *((k.name, k.time_ns) for k in kernels), sep="\n")


@gpu
@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
def test_measured_times_are_those_of_the_profiler() -> None:
    x = torch.randn(1 << 24, device="cuda")
    with compiler_core.record() as made:
        fast = compiler_core.compile(lambda x: x.sin() + 1, strict=True)
        fast(x)
    measure(made)
    (kernel,) = (k for c in made.compiles for k in c.kernels)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(20):
            fast(x)
    (seen,) = (e for e in profile.key_averages() if kernel.name in e.key)
    assert (kernel.time_ns or 0) / 1000 == pytest.approx(seen.device_time_total / seen.count, rel=0.15)
