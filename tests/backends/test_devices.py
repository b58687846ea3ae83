"""Graphs over several devices: each kernel is in the language of the one device that its buffers lie on."""

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
from compiler_core.api.standalone_script import script
from compiler_core.autograd.trace import decompositions
from compiler_core.backends import kernels
from compiler_core.backends import registry as backends
from compiler_core.backends.cuda_graphs import why_not
from compiler_core.codegen.cpp import module as cpp_module
from compiler_core.codegen.machine_code import stages
from compiler_core.codegen.triton import module as triton_module
from compiler_core.codegen.wrapper import memory_plan
from compiler_core.config import Options
from compiler_core.errors import BuildError, CompilerBug
from compiler_core.guards import current_gpu_guard
from compiler_core.loops import ir
from compiler_core.loops.fuse.rewriter import Wishes
from compiler_core.loops.lower import lower
from compiler_core.records import Compile
from compiler_core.support import torch_state
from tests.cases import device_cases, triton_cases
from tests.cases.device_cases import printed, scattered
from tests.cases.interpreter import verdicts_of

pytestmark = pytest.mark.skipif(torch.cuda.device_count() == 1, reason="the second GPU here is a fake one")
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="here the kernels can be built")


def graph_of(program: Callable[..., Any], *shapes: tuple[int, ...]) -> fx.GraphModule:
    """A graph of `program`, whose inputs lie on the CPU; its other devices need not be here."""
    with FakeTensorMode():
        inputs = [torch.empty(shape) for shape in shapes]
        return make_fx(program, decomposition_table=decompositions.table())(*inputs)


def loops_of(program: ir.Program) -> list[ir.Loops]:
    return [s for s in program.steps if isinstance(s, ir.Loops)]


# ---- the law -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", triton_cases.CASES)
def test_each_kernel_has_one_device_and_its_language(name: str) -> None:
    for seed in range(3):
        program, codes = printed(scattered(name, seed)[0])
        texts = {code.language: code.text for code in codes}
        for loops in loops_of(program):
            (device,) = {program.buffers[b].device for b in loops.arguments}
            language = {"cpu": "cpp", "cuda": "triton"}[device.type]
            assert {each for each, text in texts.items() if re.search(rf"\b{loops.name}\b", text)} == {language}
        takes = memory_plan.plan(program).takes
        assert all(program.buffers[new].device == program.buffers[old].device for new, old in takes.items())


def test_what_is_scattered_is_scattered() -> None:
    """The test above would hold for kernels of one device too."""
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
    with pytest.raises(CompilerBug, match=rf"lie on one device.*{name} on {elsewhere}"):
        ir.check_devices(replace(program, buffers={**program.buffers, name: moved[name]}))
    if elsewhere not in ("cuda:0",):
        with pytest.raises(CompilerBug, match="kernels here are for cpu and cuda"):
            ir.check_devices(replace(program, buffers=moved))


def test_a_kernel_in_cpp_refuses_what_lies_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        'using i64 = __INT64_TYPE__; using f32 = float; using f64 = double;\nextern "C" void run(f32* x) noexcept {}'
    )
    for launch in (cpp_module._launch, lambda: None):
        monkeypatch.setattr(cpp_module, "_launch", launch)
        run = cpp_module.launchers(source)["run"]
        run(torch.empty(3))
        with pytest.raises(TypeError, match="takes tensors on the CPU"):
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
def test_kernels_of_a_program_whose_inputs_lie_on_the_cpu(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    _, codes = printed(graph_of(PROGRAMS[name], (3, 5)))
    texts = {code.language: code.text for code in codes}
    assert texts.keys() == ({"cpp", "triton"} if name == "there and back" else {"triton"})
    for kernel in triton_module.load(texts["triton"]).values():
        compiled = triton_module.compile_kernel(kernel, stages.triton_target("sm_90"))
        assert ".entry" in compiled.asm["ptx"]


def test_a_number_on_the_cpu_goes_into_pytorchs_kernel() -> None:
    program = lower(graph_of(lambda x, y: x.to("cuda:0") * y, (3, 5), ()), "forward")
    assert [getattr(s, "reason", "") for s in program.steps][1:] == ["its tensors are on several devices: cuda:0, cpu"]


def test_one_number_on_the_cpu_needs_no_compiler() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.to("cuda:0").sin(), torch.full((), 3.0) * 2

    made, codes = printed(graph_of(program, (3, 5)))
    assert [code.language for code in codes] == ["triton"]
    reasons = [s.reason for s in made.steps if isinstance(s, ir.Call)]
    assert reasons[1:] == ["it is one number on the CPU beside a GPU, for which no C++ compiler is started"] * 2


def compiled_for(program: Callable[..., Any], **options: Any) -> tuple[ir.Program, Compile]:
    """The program of `program`, and what the record tells of the compile, which builds nothing where no GPU is."""
    compile_ = triton_cases.new_compile()
    gm = graph_of(program, (64, 5))
    for node in gm.graph.nodes:
        node.meta["item"] = f"0/0:forward#{node.name}"
    with pytest.raises(BuildError, match="Triton kernels run on a GPU"):
        kernels.compile_kernels(gm, "forward", compile_, Options(**options))
    return kernels.as_printed(kernels.joined(lower(gm, "forward"), Wishes()).program), compile_


@without_gpu
def test_what_the_record_tells_of_two_devices() -> None:
    program, compile_ = compiled_for(PROGRAMS["there and back"], tune=True)
    assert [(k.language, k.device) for k in compile_.kernels] == [
        *(("cpp", "cpu"), ("extern", "cuda:0"), ("triton", "cuda:0"), ("extern", "cuda:0"), ("cpp", "cpu")),
    ]
    for kernel in compile_.kernels:
        assert kernel.item is not None
        assert kernel.reason.startswith("its tensors are on several devices") == (kernel.language == "extern")
        artifact = compile_.find(kernel.item.partition("#")[0].partition(":")[2])
        assert artifact.language == {"extern": "python"}.get(kernel.language, kernel.language)
    text = script(compile_, "forward")
    compile(text, "program.py", "exec")
    assert "cpp_launcher(" in text
    assert "triton_launcher(" in text
    assert [t.reason for t in compile_.tunings] == ["PyTorch finds no GPU here, and what is tuned is timed"]
    assert why_not(program) == "CUDA graphs are of CUDA tensors only, and some here are on cpu"


def test_one_backend_alone_leaves_other_devices_to_pytorch() -> None:
    gm = graph_of(PROGRAMS["there and back"], (64, 5))
    for only, wanted in (({"cpu": "cpp"}, "cuda"), ({"cuda": "triton"}, "cpu")):
        program = kernels.as_printed(kernels.joined(lower(gm, "forward", only), Wishes()).program)  # type: ignore[arg-type]
        assert {program.device(s).type for s in loops_of(program)} == only.keys()
        reasons = {s.reason for s in program.steps if isinstance(s, ir.Call)}
        assert f"there are no kernels for {wanted}, only for {next(iter(only))}" in reasons


def test_what_the_default_backend_is_called() -> None:
    names = {name: backends.name_of(None, graph_of(program, (3, 5))) for name, program in PROGRAMS.items()}
    assert names["there and back"] == "cpp + triton"
    assert backends.name_of(None, graph_of(lambda x: x + 1, (3,))) == "cpp"
    assert backends.name_of("cpp", graph_of(PROGRAMS["moved"], (3,))) == "cpp"


def test_triton_alone_runs_pytorchs_operators_on_the_cpu() -> None:
    with compiler_core.record() as record:
        x = torch.randn(5)
        fast = compiler_core.compile(lambda x: x.sin() + 1, backend="triton", strict=True)
        torch.testing.assert_close(fast(x), x.sin() + 1)
    (compile_,) = record.compiles
    assert {k.language for k in compile_.kernels} == {"extern"}
    assert {k.reason for k in compile_.kernels} == {"there are no kernels for cpu, only for cuda"}


def test_the_current_gpu_is_guarded_where_tensors_are_made_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def captured(*call: Any, **given: Any) -> fx.Graph:
        graph = fx.Graph()
        x = graph.placeholder("x")
        x.meta["val"] = torch.empty(3)
        made = graph.call_function(torch.ones, (3,), given) if given else graph.call_method("cuda", (x, *call))
        with FakeTensorMode():
            made.meta["val"] = torch.empty(3, device="cuda:1")
        return graph

    assert torch_state.gpu_by_default(captured()) is None, "there is no other"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert torch_state.gpu_by_default(captured()) == 1
    assert torch_state.gpu_by_default(captured(device=torch.device("cuda"))) == 1
    for told in (captured(1), captured("cuda:1"), captured(device=torch.device("cuda:1"))):
        assert torch_state.gpu_by_default(told) is None
    spec = current_gpu_guard(1)
    current = iter((1, 0))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: next(current))
    assert [spec.check(None), spec.check(None)] == [None, ("GPU 1", "GPU 0")]  # type: ignore[arg-type]
