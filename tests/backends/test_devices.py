"""Graphs with several devices: each kernel is in the language of the device of its buffers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import compiler_core
from compiler_core.autograd.trace import decompositions
from compiler_core.backends import registry as backends
from compiler_core.backends.cuda_graphs import replay_obstacle
from compiler_core.codegen.cpp import launch as cpp_module
from compiler_core.codegen.triton import module as triton_module
from compiler_core.codegen.wrapper import memory_plan
from compiler_core.config import Options
from compiler_core.errors import BuildError, CompilerBug
from compiler_core.guards import current_gpu_guard
from compiler_core.guards.sources import Scope
from compiler_core.loops import ir
from compiler_core.loops.fuse.rewriter import FusionRequests
from compiler_core.loops.lower import lower
from compiler_core.pipeline import graph as graph_stages
from compiler_core.records import Compile
from compiler_core.support import torch_state
from compiler_core.tools.machine_code import compiled_forms
from compiler_core.tools.standalone_script import standalone_script
from tests.cases import device_cases, triton_cases
from tests.cases.device_cases import printed, scattered
from tests.cases.interpreter import verdicts_of
from tests.sampling import sample

pytestmark = pytest.mark.skipif(torch.cuda.device_count() == 1, reason="the second GPU here is a fake one")
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="here the kernels can be built")


def graph_of(program: Callable[..., Any], *shapes: tuple[int, ...]) -> fx.GraphModule:
    """Returns the graph of `program`, whose inputs are on the CPU; its other devices need not exist."""
    with FakeTensorMode():
        inputs = [torch.empty(shape) for shape in shapes]
        return make_fx(program, decomposition_table=decompositions.decomposition_table())(*inputs)


def loops_of(program: ir.Program) -> list[ir.Loops]:
    return [s for s in program.steps if isinstance(s, ir.Loops)]


# ---- the law -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sample(triton_cases.CASES, 12))
def test_each_kernel_has_one_device_and_its_language(name: str) -> None:
    for seed in range(3):
        program, codes = printed(scattered(name, seed)[0])
        texts = {code.language: code.text for code in codes}
        for loops in loops_of(program):
            (device,) = {program.buffers[b].device for b in loops.arguments}
            language = {"cpu": "cpp", "cuda": "triton"}[device.type]
            assert {each for each, text in texts.items() if re.search(rf"\b{loops.name}\b", text)} == {language}
        takes = memory_plan.plan(program).reuses
        assert all(program.buffers[new].device == program.buffers[old].device for new, old in takes.items())


def test_device_programs_use_several_devices() -> None:
    """Makes sure that the test above is not about kernels of a single device."""
    found: set[Any] = set()
    for name in triton_cases.CASES:
        program, _ = printed(scattered(name, 0)[0])
        found |= {program.device(loops) for loops in loops_of(program)}
    assert found == set(device_cases.DEVICES)


@pytest.mark.parametrize("elsewhere", ["cuda:0", "meta"])
def test_the_checker_refuses_a_buffer_on_another_device(elsewhere: str) -> None:
    program = lower(graph_of(lambda x, y: x * 2 + y, (3, 4), (3, 4)), "forward")
    ir.check_devices(program)
    moved = {n: replace(b, device=torch.device(elsewhere)) for n, b in program.buffers.items()}
    name = program.inputs[1]
    with pytest.raises(CompilerBug, match=rf"must be on one device.*{name} on {elsewhere}"):
        ir.check_devices(replace(program, buffers={**program.buffers, name: moved[name]}))
    if elsewhere not in ("cuda:0",):
        with pytest.raises(CompilerBug, match="this program has kernels for cpu and cuda"):
            ir.check_devices(replace(program, buffers=moved))


def test_a_cpp_kernel_refuses_tensors_on_other_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        'using i64 = __INT64_TYPE__; using f32 = float; using f64 = double;\nextern "C" void run(f32* x) noexcept {}'
    )
    for launch in (cpp_module._launcher_factory, lambda: None):
        monkeypatch.setattr(cpp_module, "_launcher_factory", launch)
        run = cpp_module.launchers(source)["run"]
        run(torch.empty(3))
        with pytest.raises(TypeError, match="a tensor that is not on the CPU"):
            run(torch.empty(3, device="meta"))


@pytest.fixture(scope="module")
def verdicts() -> dict[str, str]:
    return verdicts_of(device_cases)


@pytest.mark.parametrize("name", device_cases.INTERPRETED)
def test_same_values_as_eager(name: str, verdicts: dict[str, str]) -> None:
    assert verdicts[name] == "ok"


# ---- programs ------------------------------------------------------------------------------

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "made": lambda x: torch.zeros(4, device="cuda") + 1,
    "moved": lambda x: x.to("cuda:0") * 2 + 1,
    "there and back": lambda x: ((x + 1).to("cuda:0").sin() * 2).cpu().softmax(-1) + x,
    "mask": lambda x: torch.where(torch.arange(5, device="cuda") < 3, x.to("cuda:0") * 2, torch.inf),
    "two GPUs": lambda x: (x.to("cuda:0") * 2).to("cuda:1").relu() + 1,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_of_a_program_with_inputs_on_the_cpu(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    _, codes = printed(graph_of(PROGRAMS[name], (3, 5)))
    texts = {code.language: code.text for code in codes}
    assert texts.keys() == ({"cpp", "triton"} if name == "there and back" else {"triton"})
    for kernel in triton_module.load(texts["triton"]).values():
        compiled = triton_module.compile_kernel(kernel, compiled_forms.triton_target("sm_90"))
        assert ".entry" in compiled.asm["ptx"]


def test_a_number_on_the_cpu_beside_a_gpu_is_a_call() -> None:
    program = lower(graph_of(lambda x, y: x.to("cuda:0") * y, (3, 5), ()), "forward")
    assert [getattr(s, "reason", "") for s in program.steps][1:] == ["its tensors are on several devices: cuda:0, cpu"]


def test_a_number_on_the_cpu_needs_no_cpp_compiler() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.to("cuda:0").sin(), torch.full((), 3.0) * 2

    result, codes = printed(graph_of(program, (3, 5)))
    assert [code.language for code in codes] == ["triton"]
    reasons = [s.reason for s in result.steps if isinstance(s, ir.Call)]
    assert (
        reasons[1:] == ["it is a single number on the CPU in a graph for a GPU, so no C++ kernel is built for it"] * 2
    )


def compiled_for(program: Callable[..., Any], **options: Any) -> tuple[ir.Program, Compile]:
    """Returns the lowered program and the record of its compile; without a GPU, nothing is built."""
    compile_ = triton_cases.new_compile()
    gm = graph_of(program, (64, 5))
    for node in gm.graph.nodes:
        node.meta["item"] = f"0/0:forward#{node.name}"
    with pytest.raises(BuildError, match="Triton kernels need a GPU"):
        graph_stages.compile_kernels(gm, "forward", compile_, Options(**options))()
    return graph_stages.schedule_loops(
        graph_stages.fuse_loops(lower(gm, "forward"), FusionRequests(), Compile("0/0", 0)).program
    ), compile_


@without_gpu
def test_the_record_of_two_devices() -> None:
    program, compile_ = compiled_for(PROGRAMS["there and back"], tune=True)
    assert [(k.language, k.device) for k in compile_.kernels] == [
        *(("cpp", "cpu"), ("extern", "cuda:0"), ("triton", "cuda:0"), ("extern", "cuda:0"), ("cpp", "cpu")),
    ]
    for kernel in compile_.kernels:
        assert kernel.item is not None
        assert kernel.reason.startswith("its tensors are on several devices") == (kernel.language == "extern")
        artifact = compile_.find(kernel.item.partition("#")[0].partition(":")[2])
        assert artifact.language == {"extern": "python"}.get(kernel.language, kernel.language)
    text = standalone_script(compile_, "forward")
    compile(text, "program.py", "exec")
    assert "cpp_launcher(" in text
    assert "triton_launcher(" in text
    assert [t.reason for t in compile_.tunings] == ["tuning measures time on a GPU, and PyTorch finds none"]
    assert replay_obstacle(program) == "CUDA graphs need CUDA tensors, and some are on cpu"


def test_operators_on_devices_without_kernels_are_calls() -> None:
    gm = graph_of(PROGRAMS["there and back"], (64, 5))
    for only, wanted in (({"cpu": "cpp"}, "cuda"), ({"cuda": "triton"}, "cpu")):
        lowered = lower(gm, "forward", only)  # type: ignore[arg-type]
        program = graph_stages.schedule_loops(
            graph_stages.fuse_loops(lowered, FusionRequests(), Compile("0/0", 0)).program
        )
        assert {program.device(s).type for s in loops_of(program)} == only.keys()
        reasons = {s.reason for s in program.steps if isinstance(s, ir.Call)}
        assert f"there are no kernels for {wanted}, only for {next(iter(only))}" in reasons


def test_name_of_the_default_backend() -> None:
    names = {name: backends.backend_name(None, graph_of(program, (3, 5))) for name, program in PROGRAMS.items()}
    assert names["there and back"] == "cpp + triton"
    assert backends.backend_name(None, graph_of(lambda x: x + 1, (3,))) == "cpp"
    assert backends.backend_name("cpp", graph_of(PROGRAMS["moved"], (3,))) == "cpp"


def test_triton_alone_runs_pytorchs_operators_on_the_cpu() -> None:
    with compiler_core.record() as record:
        x = torch.randn(5)
        fast = compiler_core.compile(lambda x: x.sin() + 1, backend="triton", strict=True)
        torch.testing.assert_close(fast(x), x.sin() + 1)
    (compile_,) = record.compiles
    assert {k.language for k in compile_.kernels} == {"extern"}
    assert {k.reason for k in compile_.kernels} == {"there are no kernels for cpu, only for cuda"}


def test_the_current_gpu_is_guarded_if_tensors_are_created_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def captured(*call: Any, **given: Any) -> fx.Graph:
        graph = fx.Graph()
        x = graph.placeholder("x")
        x.meta["val"] = torch.empty(3)
        result = graph.call_function(torch.ones, (3,), given) if given else graph.call_method("cuda", (x, *call))
        with FakeTensorMode():
            result.meta["val"] = torch.empty(3, device="cuda:1")
        return graph

    assert torch_state.index_of_current_gpu(captured()) is None, "there is no other"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert torch_state.index_of_current_gpu(captured()) == 1
    assert torch_state.index_of_current_gpu(captured(device=torch.device("cuda"))) == 1
    for explanations in (captured(1), captured("cuda:1"), captured(device=torch.device("cuda:1"))):
        assert torch_state.index_of_current_gpu(explanations) is None
    spec = current_gpu_guard(1)
    current = iter((1, 0))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: next(current))
    assert spec.failures(Scope({}, {}, {})) == []
    (failed,) = spec.failures(Scope({}, {}, {}))
    assert (failed.item, failed.expected, failed.got) == ("current GPU", "1", "0")
