"""Whichever stage fails, the program's results are right, the failure is recorded, and one warning is issued."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import typing
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.api import compile as api
from compiler_core.backends import cuda_graphs
from compiler_core.codegen.wrapper import executable
from compiler_core.errors import (
    BuildError,
    CompileWarning,
    FullGraphError,
    MissingTool,
    NotCacheable,
    RefusalWarning,
    StrictError,
    ToolWarning,
)
from compiler_core.hook.failures import NOT_KEPT, PLAIN
from compiler_core.records import Failure, Record, Stage
from tests import warm_python


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = (x @ w).sin()
    return y.softmax(-1)


FIRST = program.__code__.co_firstlineno

STAGES = {
    "capture": ("compiler_core.capture.interpreter.Interpreter.step", "capture", FIRST),
    "hand over the graph": ("compiler_core.capture.graph_builder.Capture.finish", "bytecode", FIRST),
    "guards": ("compiler_core.pipeline.frame.guards_text", "guards", FIRST),
    "guard tree": ("compiler_core.pipeline.frame.GuardTree.build", "guards", FIRST),
    "recompile": ("compiler_core.pipeline.compiled_region._recompile_cause", "guards", FIRST),
    "joint": ("compiler_core.autograd.joint._trace", "joint", FIRST),
    "functionalise": ("compiler_core.autograd.trace.functionalize.FunctionalRun._check_draw", "joint", FIRST + 1),
    "partition": ("compiler_core.autograd.partition.minimum_cut", "partition", FIRST),
    "lower": ("compiler_core.loops.lower.lowering.ir.check", "lower", FIRST + 1),
    "fuse": ("compiler_core.pipeline.graph.fuse", "fuse", FIRST),
    "codegen": ("compiler_core.codegen.cpp.printer.generate", "codegen", FIRST),
    "memory plan": ("compiler_core.pipeline.graph.memory_plan.plan", "codegen", FIRST),
    "wrapper": ("compiler_core.pipeline.graph.print_wrapper", "codegen", FIRST),
    "tune": ("compiler_core.pipeline.graph.tune", "codegen", FIRST),
    "build": ("compiler_core.codegen.build.compilers._find_or_build", "build", FIRST),
    "autograd source": ("compiler_core.autograd.autograd_function.write_text", "backend", FIRST),
    "bind": ("compiler_core.pipeline.graph.bind_source", "backend", FIRST),
    "reconstruct": ("compiler_core.resume.frame_codegen.FrameCode.generate", "bytecode", FIRST),
    "assemble": ("compiler_core.resume.frame_codegen.assemble", "bytecode", FIRST),
    "verify": ("compiler_core.pipeline.frame.verify", "bytecode", FIRST),
    "decompile": ("compiler_core.pipeline.frame.decompile", "bytecode", FIRST),
    "install": ("compiler_core.pipeline.frame.frame_hook.run_code", "bytecode", FIRST),
}
"""For each stage: the function that is broken, the stage that the failure names, and the user's line."""


def broken(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("by design\nand more")


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(5, 7, requires_grad=True), torch.randn(7, 3, requires_grad=True)


def trained(fn: Callable[..., torch.Tensor], *args: torch.Tensor) -> list[torch.Tensor | None]:
    """Returns the result and the gradients."""
    out = fn(*args)
    out.square().sum().backward()
    return [out.detach(), *(a.grad for a in args)]


def issued_warnings(run: Callable[[], Any], category: type[Warning] = CompileWarning) -> list[warnings.WarningMessage]:
    """Returns the warnings of a category that are shown with Python's default filters."""
    compiler_core.reset()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        run()
    return [w for w in caught if issubclass(w.category, category)]


def failures(record: Record) -> list[Failure]:
    return [failure for c in record.compiles for failure in c.failures]


@pytest.fixture
def _anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiles graphs and kernels instead of finding them on disk or in this process."""

    def no_key(*_: Any) -> str:
        raise NotCacheable("not in this test")

    monkeypatch.setattr("compiler_core.backends.graph_cache.graph_digest", no_key)
    monkeypatch.setattr("compiler_core.codegen.build.compilers._libraries", {})


@pytest.mark.usefixtures("_anew")
@pytest.mark.parametrize("name", STAGES)
def test_a_failing_stage_warns_once_and_the_program_is_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, stage, line = STAGES[name]
    x, w = inputs()
    want = trained(program, x.detach().requires_grad_(), w.detach().requires_grad_())
    monkeypatch.setattr(target, broken)
    with compiler_core.record() as record:
        compiled = compiler_core.compile(program, recompile_limit=3, tune=name == "tune")

        def calls() -> None:
            for dtype in (torch.float32, torch.float32, torch.float64):
                args = [a.detach().to(dtype).requires_grad_() for a in (x, w)]
                got = trained(compiled, *args)
                if dtype == torch.float32:
                    torch.testing.assert_close(got, want)

        (warning,) = issued_warnings(calls)
    assert (warning.filename, warning.lineno) == (__file__, line)
    first, *rest = str(warning.message).split("\n")
    assert first == f"Cutaway failed to compile this, in the stage {stage}: ZeroDivisionError: by design"
    assert rest[0].strip() == PLAIN
    failure = failures(record)[0]
    assert failure is warning.message.failure  # type: ignore[union-attr]
    assert (failure.stage, failure.kind, failure.meaning) == (stage, "bug", PLAIN)
    assert failure.line is None or failure.line.endswith(f"#{line}")
    assert "in broken" in failure.detail
    with pytest.raises(StrictError, match=f"failed in {stage}: ZeroDivisionError: by design"):
        compiler_core.compile(program, strict=True, tune=name == "tune")(x, w)


def test_every_stage_of_the_record_is_broken_above() -> None:
    assert {stage for _, stage, _ in STAGES.values()} == {*typing.get_args(Stage)} - {"run"}


def test_a_kernel_that_fails_at_its_first_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(name: str) -> Callable[..., None]:
        def launch(*_: Any) -> None:
            raise BuildError(f"cannot compile {name} for this device", name)

        return launch

    real = executable.launchers
    monkeypatch.setattr(executable, "launchers", lambda of: {name: failing(name) for name in real(of)})
    x, w = (a.detach() for a in inputs())
    compiled = compiler_core.compile(program)
    (warning,) = issued_warnings(lambda: [torch.testing.assert_close(compiled(x, w), program(x, w)) for _ in range(3)])
    assert str(warning.message).startswith("What Cutaway compiled here failed as it ran: cannot compile")
    assert warning.lineno in (FIRST + 1, FIRST + 2)
    with pytest.raises(StrictError, match="failed in run: cannot compile"):
        compiler_core.compile(program, strict=True)(x, w)


def test_an_index_that_only_the_kernel_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(name: str) -> Callable[..., int]:
        return lambda *_: 1

    def pick(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i] * 2

    real = executable.launchers
    monkeypatch.setattr(executable, "launchers", lambda of: {name: refuses(name) for name in real(of)})
    args = torch.randn(5), torch.tensor([1, 4])
    compiled = compiler_core.compile(pick, backend="cpp")
    (warning,) = issued_warnings(lambda: [torch.testing.assert_close(compiled(*args), pick(*args)) for _ in range(2)])
    assert "IndexOutOfRange" in str(warning.message)


def test_in_a_library_it_names_the_line_that_called_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        print(end="")
        return torch.nn.functional.softmax(x, dim=0)

    monkeypatch.setattr("compiler_core.pipeline.frame.verify", broken)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        compiler_core.compile(program)(torch.ones(3))
    first = program.__code__.co_firstlineno
    assert {(w.filename, w.lineno) for w in caught} == {(__file__, first), (__file__, first + 2)}


# ---- failures that are not bugs -------------------------------------------------------------


def test_a_missing_tool_is_named_once_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    x = torch.randn(9)

    def calls() -> None:
        for function in (lambda x: x.cos() * 7, lambda x: x.sin() * 11):
            assert torch.equal(compiler_core.compile(function, backend="cpp", strict=True)(x), function(x))

    (warning,) = issued_warnings(calls)
    assert warning.category is ToolWarning
    assert "apt install g++" in str(warning.message)


def test_a_refusal_says_why() -> None:
    def strided(x: torch.Tensor) -> torch.Tensor:
        window = x.as_strided((4, 2), (6, 1))
        x.add_(1)
        return window + 1

    x = torch.ones(4, 6)[:, ::2]
    (warning,) = issued_warnings(lambda: compiler_core.compile(strided, backend="aot_eager", strict=True)(x))
    assert warning.category is RefusalWarning
    assert "does not compile this, in the stage joint: the graph writes to memory that an as_str" in str(
        warning.message
    )


def test_explain_lists_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler_core.pipeline.frame.verify", broken)
    explanations: list[compiler_core.Explanation] = []
    assert len(issued_warnings(lambda: explanations.append(compiler_core.explain(program, *inputs())))) == 1
    assert (
        str(explanations[0]).split("\n")[1] == f"failure at {__file__}:{FIRST}, bytecode: ZeroDivisionError: by design"
    )


def test_graph_breaks_and_skipped_frames_are_no_failures() -> None:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        print(end="")
        y: torch.Tensor = next(generate(x)) + 1
        return y

    def generate(x: torch.Tensor) -> Any:
        yield x.sin()

    assert not issued_warnings(lambda: compiler_core.compile(breaks)(torch.ones(3)))


@pytest.mark.usefixtures("_anew")
@pytest.mark.parametrize("error", [MissingTool("no ptxas"), BuildError("ptxas failed"), KeyError("of ours")])
def test_machine_code_that_cannot_be_had_costs_nothing_else(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_code(*_: Any) -> Any:
        raise error

    monkeypatch.setattr("compiler_core.codegen.machine_code.compiled_forms.record_machine_code", no_code)
    with compiler_core.record() as record:
        compiled = compiler_core.compile(program, target="sm_90")
        (warning,) = issued_warnings(lambda: compiled(*inputs()))
    assert "The kernels run; their machine code for sm_90 is not in the record." in str(warning.message)
    assert record.compiles[0].kernels


@pytest.mark.parametrize(
    "broken_part", ["graph_digest", "to_plain", "from_plain", "disk_cache.write", "CachedFunction.load"]
)
def test_a_cache_that_fails_costs_no_kernels(broken_part: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(tmp_path))
    if broken_part in ("from_plain", "CachedFunction.load"):
        compiler_core.compile(program)(*inputs())
    monkeypatch.setattr(f"compiler_core.backends.graph_cache.{broken_part}", broken)
    with compiler_core.record() as record:
        compiled = compiler_core.compile(program)
        (warning,) = issued_warnings(lambda: compiled(*inputs()))
    assert NOT_KEPT in str(warning.message)
    assert record.compiles[0].kernels


@pytest.mark.usefixtures("_anew")
def test_a_cuda_graph_that_cannot_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_recorded(*_: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(cuda_graphs, "_Recording", not_recorded)
    monkeypatch.setattr(cuda_graphs, "replay_obstacle", lambda _: "")
    monkeypatch.setattr("torch.cuda.device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda: False)
    x, w = (a.detach() for a in inputs())
    compiled = compiler_core.compile(program, mode="reduce-overhead")
    (warning,) = issued_warnings(lambda: [torch.testing.assert_close(compiled(x, w), program(x, w)) for _ in range(4)])
    assert warning.category is RefusalWarning
    assert "a CUDA graph of the forward cannot be recorded: operation not permitted" in str(warning.message)
    assert "launched one by one" in str(warning.message)


# ---- Python's warning filters ----------------------------------------------------------------


def test_as_an_error_it_is_raised_at_each_call_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler_core.autograd.partition.minimum_cut", broken)
    compiled = compiler_core.compile(program, backend="aot_eager")
    x, w = inputs()
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileWarning)
        for _ in range(2):
            with pytest.raises(CompileWarning, match="in the stage partition"):
                compiled(x, w)
    monkeypatch.undo()
    torch.testing.assert_close(compiled(x, w), program(x, w))
    assert api.record_of(compiled).compiles[-1].outcome == "compiled"


@pytest.mark.parametrize("how", ["strict", "warning", "fullgraph"])
def test_what_is_raised_keeps_nothing_alive(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments are freed at once, not only by the next garbage collection."""

    def printing(x: torch.Tensor) -> torch.Tensor:
        print(end="")
        return x.sin()

    if how != "fullgraph":
        monkeypatch.setattr("compiler_core.autograd.partition.minimum_cut", broken)
    compiled = compiler_core.compile(
        printing if how == "fullgraph" else program,
        backend="aot_eager",
        strict=how == "strict",
        fullgraph=how == "fullgraph",
    )
    arguments = [torch.randn(5, 7)] if how == "fullgraph" else list(inputs())
    alive = weakref.ref(arguments[0])
    gc.collect()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", CompileWarning)
            try:
                compiled(*arguments)
            except (StrictError, CompileWarning, FullGraphError) as error:
                message = str(error)
        arguments.clear()
        assert message
        assert alive() is None
    finally:
        gc.enable()


def test_a_filter_on_the_kind_silences_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler_core.autograd.partition.minimum_cut", broken)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=compiler_core.CompileWarning)
        compiler_core.compile(program, backend="aot_eager")(*inputs())


def test_each_line_warns_once_until_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler_core.autograd.partition.minimum_cut", broken)

    other = lambda x: x.sin()  # noqa: E731
    compiled_other = compiler_core.compile(other, backend="aot_eager")

    def again() -> Any:
        return compiler_core.compile(program, backend="aot_eager")(*inputs())

    def twice() -> None:
        again()
        compiler_core.reset()
        again()

    assert len(issued_warnings(lambda: [again() for _ in range(3)])) == 1
    assert len(issued_warnings(twice)) == 2
    assert len(issued_warnings(lambda: [again(), compiled_other(torch.ones(3, requires_grad=True))])) == 2


def test_behind_stock_torch_compile(monkeypatch: pytest.MonkeyPatch, fresh_stock: None) -> None:
    monkeypatch.setattr("compiler_core.autograd.partition.minimum_cut", broken)
    x, w = inputs()
    (warning,) = issued_warnings(
        lambda: torch.testing.assert_close(torch.compile(program, backend="cutaway")(x, w), program(x, w))
    )
    assert warning.filename == __file__


def test_from_the_command_line() -> None:
    text = (
        "import torch, compiler_core\n"
        "def backend(gm, examples): raise ValueError('by design')\n"
        "compiler_core.compile(lambda x: x.sin(), backend=backend)(torch.ones(3))\n"
    )
    shown = warm_python.run(["-c", text])
    assert shown.returncode == 0, shown.stderr
    assert (
        "<string>:3: CompileWarning: Cutaway failed to compile this, in the stage backend: ValueError" in shown.stderr
    )
    raised = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", text], capture_output=True, text=True)
    assert raised.returncode == 1
    assert "\ncompiler_core.errors.CompileWarning: Cutaway failed to compile this" in raised.stderr
