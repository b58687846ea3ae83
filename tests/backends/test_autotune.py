"""Autotuning: candidates have equal results, trials are recorded and cached, and reasons if nothing is tuned."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

import compiler_core
from compiler_core.codegen.triton import module as triton_module
from compiler_core.codegen.triton import printer as triton
from compiler_core.loops import ir
from compiler_core.loops.schedule.block_sizes import choose_blocks, shape_for_triton
from compiler_core.records import Record, Tuning, TuningTrial
from compiler_core.tools.accuracy import check_accuracy
from compiler_core.tools.machine_code import compiled_forms
from compiler_core.tools.measure import measure
from compiler_core.tools.timing.autotune import candidate_blocks
from tests import warm_python
from tests.cases import triton_cases
from tests.codegen.test_triton import softmax
from tests.sampling import sample

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
CASES = ("gelu_of_a_sum", "strided_inputs", "softmax", "softmax_in_sweeps", "values_of_rows", "layer_norm")
f32 = torch.float32


@pytest.mark.parametrize("columns", [5000, 20000, 70000])
def test_candidates_are_distinct_and_start_with_the_default(columns: int) -> None:
    loops = shape_for_triton(softmax(512, columns))
    found = candidate_blocks(loops)
    assert found[0] == choose_blocks(loops)
    assert 4 < len(found) == len(set(found)) <= 24
    assert len({each.text() for each in found}) == len(found)
    assert {each.j >= columns for each in found} == ({True, False} if columns <= 32768 else {False})


def test_every_candidate_compiles_for_a_gpu() -> None:
    loops = softmax(512, 20000)
    cpu = torch.device("cpu")
    buffers = {n: ir.Buffer(n, f32, (512, 20000), (20000, 1), cpu, "input") for n in ("x", "buf0")}
    program = ir.Program("forward", buffers, ("x",), (loops,), ())
    for blocks in candidate_blocks(shape_for_triton(loops))[::3]:
        code = triton.generate(program, {"softmax": blocks})
        (kernel,) = triton_module.load(code.text).values()
        assert kernel.num_warps == blocks.num_warps
        assert ("num_stages=3" in code.text) == (blocks.stages == 3)
        compiled = triton_module.compile_kernel(kernel, compiled_forms.triton_target("sm_90"))
        assert ".entry softmax(" in compiled.asm["ptx"]


@pytest.mark.parametrize("number", sample([3, 7], 2))
def test_candidates_compute_what_eager_does(number: int) -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    environment["PYTHONWARNINGS"] = "ignore"
    command = [str(Path(triton_cases.__file__)), "--candidate", str(number), *CASES]
    done = warm_python.run(command, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys(CASES, "ok")


def tuned(device: str) -> Record:
    x = torch.randn(512, 700, device=device, requires_grad=True)
    state = torch.get_rng_state()
    with compiler_core.record() as result:
        fast = compiler_core.compile(lambda x: torch.softmax(x.sin(), 1) * 2, strict=True, tune=True, dynamic=False)
        value = fast(x)
        value.sum().backward()
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(value, torch.softmax(x.sin(), 1) * 2)
    return result


def test_reason_if_nothing_is_tuned() -> None:
    (result,) = tuned("cpu").compiles
    reason = "C++ kernels have no block sizes to choose; only Triton kernels have"
    assert result.tunings == [Tuning("forward", reason=reason), Tuning("backward", reason=reason)]


def trials(record: Record) -> list[TuningTrial]:
    return [each for c in record.compiles for tuning in c.tunings for each in tuning.tried]


@gpu
@pytest.mark.gpu
def test_trials_are_recorded_and_cached_and_the_best_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(tmp_path))
    result = tuned("cuda")
    found = trials(result)
    assert {t.graph for c in result.compiles for t in c.tunings} == {"forward", "backward"}
    for kernel in {each.kernel for each in found}:
        own = [each for each in found if each.kernel == kernel]
        assert len(own) > 4
        assert all((each.time_ns or 0) > 0 and (each.registers or 0) > 0 for each in own if not each.why_not)
        (best,) = (each for each in own if each.chosen)
        assert best.time_ns == min(each.time_ns for each in own if each.time_ns is not None)
        print(kernel, *(f"{e.how}: {e.time_ns} ns, {e.registers} registers {e.why_not}" for e in own), sep="\n  ")
    again = trials(tuned("cuda"))
    assert all(each.cached for each in again)
    assert [(e.how, e.time_ns, e.chosen) for e in again] == [(e.how, e.time_ns, e.chosen) for e in found]


@gpu
@pytest.mark.gpu
def test_kernels_on_a_gpu_are_timed() -> None:
    result = tuned("cuda")
    allocated, state = torch.cuda.memory_allocated(), torch.cuda.get_rng_state()
    measure(result)
    check_accuracy(result)
    assert result.notes == []
    assert torch.cuda.memory_allocated() == allocated
    assert torch.equal(torch.cuda.get_rng_state(), state)
    kernels = [k for c in result.compiles for k in c.kernels]
    assert all((k.time_ns or 0) > 0 and k.timed_on == result.devices[0].target for k in kernels)
    assert result.devices[0].copy > 100
    assert all((a.error or 1) < 1e-5 for c in result.compiles for a in c.accuracy if a.error != 0)
    print(result.devices, *((k.name, k.time_ns) for k in kernels), sep="\n")


@gpu
@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
def test_measured_times_equal_the_profilers() -> None:
    x = torch.randn(1 << 24, device="cuda")
    with compiler_core.record() as result:
        fast = compiler_core.compile(lambda x: x.sin() + 1, strict=True)
        fast(x)
    measure(result)
    (kernel,) = (k for c in result.compiles for k in c.kernels)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(20):
            fast(x)
    (seen,) = (e for e in profile.key_averages() if kernel.name in e.key)
    assert (kernel.time_ns or 0) / 1000 == pytest.approx(seen.device_time_total / seen.count, rel=0.15)
