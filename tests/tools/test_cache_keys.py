"""Why a cache missed: the fields in which the keys of two runs differ, live, from saved records and from logs."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import linecache
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config

import compiler_core
from compiler_core.codegen.build.compilers import toolchain
from compiler_core.records import Difference, Record
from compiler_core.records.kernels import CacheLookup, KeyField
from compiler_core.tools.questions.compare import compare
from compiler_core.tools.questions.key_differences import changed_fields
from compiler_core.tools.stock.hooks.trace_file import write_trace
from compiler_core.tools.stock.trace_logs import read_logs
from kernel_magics.command.main import main

pytestmark = pytest.mark.slow

SCALE = 2.0


def scaled(x: torch.Tensor) -> torch.Tensor:
    y = x * SCALE
    return y.cos()


@contextlib.contextmanager
def scale(value: float) -> Iterator[None]:
    global SCALE
    before, SCALE = SCALE, value
    try:
        yield
    finally:
        SCALE = before


@contextlib.contextmanager
def matmul_precision(value: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(value)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def recorded(engine: Literal["core", "torch"], x: torch.Tensor, title: str, **options: Any) -> Record:
    compiler_core.reset()
    torch._dynamo.reset()
    compile_: Callable[..., Any] = torch.compile if engine == "torch" else compiler_core.compile
    with compiler_core.record(title, engine=engine) as record:
        compile_(scaled, **options)(x)
    return record


def key_changes(before: Record, after: Record) -> list[Difference]:
    return [each for each in compare(before, after).lines if each.aspect == "cache key"]


def texts(changes: list[Difference]) -> tuple[str, str]:
    """What the keys of each side have where they differ."""
    return "\n".join(t for c in changes for t in c.before), "\n".join(t for c in changes for t in c.after)


X = torch.ones(6, 4)
CHANGES: dict[str, tuple[Any, torch.Tensor, dict[str, Any], str, str, str]] = {
    "constant": (scale(3.0), X, {}, "graph", "2.0", "3.0"),
    "shape": (contextlib.nullcontext(), torch.ones(6, 5), {}, "inputs[0]", "shape=(6, 4)", "shape=(6, 5)"),
    "stride": (contextlib.nullcontext(), torch.ones(4, 6).T, {}, "inputs[0]", "stride=(4, 1)", "stride=(1, 6)"),
    "dtype": (contextlib.nullcontext(), X.double(), {}, "inputs[0]", "float32", "float64"),
    "gradient": (contextlib.nullcontext(), torch.ones(6, 4, requires_grad=True), {}, "inputs[0]", "=False", "=True"),
    "option": (contextlib.nullcontext(), X, {"recompile_limit": 3}, "options[recompile_limit]", "8", "3"),
    "setting": (matmul_precision("high"), X, {}, "torch[float32_matmul_precision]", "highest", "high"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_the_field_of_our_key_that_differs_is_named(change: str, tmp_path: Path) -> None:
    context, x, options, name, was, now = CHANGES[change]
    before = recorded("core", X, "before")
    with context:
        after = recorded("core", x, "after", **options)
    assert after.compiles[0].cache_lookups[0].cache == "graph cache"
    saved = [Record.load(each.save(tmp_path / f"{each.title}.json")) for each in (before, after)]
    for pair in ((before, after), tuple(saved)):
        old, new = texts(key_changes(*pair))
        assert name in old
        assert name in new
        assert was in old
        assert now in new
    at = [each.text.strip() for each in key_changes(before, after) if name in each.before[0]]
    assert at == ["y = x * SCALE" if change == "constant" else "def scaled(x: torch.Tensor) -> torch.Tensor:"]


def test_the_field_of_a_kernels_key_that_differs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph is found, but its library was built by another compiler."""
    before = recorded("core", X, "before")
    monkeypatch.setenv("CXX", f"{' '.join(toolchain().command)} -DOTHER=1")
    after = recorded("core", X, "after")
    assert [(each.cache, each.name) for each in after.compiles[0].cache_lookups] == [
        ("graph cache", ""), ("kernel cache", "forward"),
    ]  # fmt: skip
    (change,) = key_changes(before, after)
    assert change.before[0].startswith("compiler = /")
    assert change.after[0].endswith("-DOTHER=1 (kernel cache, forward)")


def test_a_kernel_that_is_another_since_the_graph_is_says_nothing_of_itself() -> None:
    before = recorded("core", X, "before")
    with scale(4.25):
        after = recorded("core", X, "after")
    (change,) = key_changes(before, after)
    assert change.text.strip() == "y = x * SCALE"
    lookups = [each for record in (before, after) for each in record.compiles[0].cache_lookups]
    assert len({each.key for each in lookups if each.cache == "kernel cache"}) == 2


TRITON_CHANGES = {
    "constant": ("", {"BLOCK": 64}, {}, "constants", "BLOCK=128", "BLOCK=64"),
    "source": ("x + 1|x + 2", {}, {}, "source", "x + 1", "x + 2"),
    "global": ("FACTOR = 2|FACTOR = 3", {}, {}, "globals", "FACTOR=constexpr[2]", "FACTOR=constexpr[3]"),
    "option": ("", {}, {"num_warps": 8}, "options", "num_warps=4", "num_warps=8"),
}
TRITON_SOURCE = """
import triton
import triton.language as tl
FACTOR = 2
FACTOR = tl.constexpr(FACTOR)
@triton.jit
def plus(in_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(in_ptr + at)
    tl.store(out_ptr + at, (x + 1) * FACTOR)
"""


def triton_backend(edit: str, constants: dict[str, int], options: dict[str, Any]) -> Callable[..., Any]:
    """Returns a backend that compiles a kernel of Triton's while stock compiles, and runs the graph as it is."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = TRITON_SOURCE.replace(*(edit.split("|") if edit else ("plus", "plus")))
    name = f"kernel_{abs(hash(source))}.py"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "kernel"}
    exec(compile(source, name, "exec"), space)
    signature = {"in_ptr": "*fp32", "out_ptr": "*fp32", "BLOCK": "constexpr"}

    def backend(gm: Any, examples: Any) -> Any:
        kernel = ASTSource(space["plus"], signature, constexprs={"BLOCK": 128} | constants)
        # Triton 3.9 warns where the default of this option is taken
        triton.compile(kernel, target=GPUTarget("cuda", 90, 32), options={"enable_fp_fusion": True} | options)
        return gm

    return backend


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize("change", TRITON_CHANGES)
def test_the_field_of_tritons_key_that_differs_is_named(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    importlib.import_module("torch._inductor.runtime.triton_heuristics")
    edit, constants, options, name, was, now = TRITON_CHANGES[change]
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    before = recorded("torch", X, "before", backend=triton_backend("", {}, {}))
    again = recorded("torch", X, "again", backend=triton_backend("", {}, {}))
    after = recorded("torch", X, "after", backend=triton_backend(edit, constants, options))
    assert [[(c.cache, c.name, c.outcome) for c in r.compiles[0].cache_lookups] for r in (before, again, after)] == [
        [("Triton cache", "plus", "miss")], [("Triton cache", "plus", "hit")], [("Triton cache", "plus", "miss")],
    ]  # fmt: skip
    assert key_changes(before, again) == []
    changes = key_changes(before, after)
    assert [each.before[0].partition(" = ")[0] for each in changes] == [name]
    assert was in changes[0].before[0]
    assert now in changes[0].after[0]


def test_runs_with_the_same_keys_do_not_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether an entry was found makes no difference."""
    with scale(0.12345):
        before, after = recorded("core", X, "before"), recorded("core", X, "after")
    assert [r.compiles[0].cache_lookups[0].outcome for r in (before, after)][1] == "hit"
    assert key_changes(before, after) == []
    assert main(["diff", str(before.save(tmp_path / "a.json")), str(after.save(tmp_path / "b.json"))]) == 0


def test_a_graph_without_a_key_says_why() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g * 2

    with compiler_core.record() as record:
        compiler_core.compile(lambda x: Doubled.apply(x))(torch.ones(3, requires_grad=True))
    lookup, *_ = record.compiles[0].cache_lookups
    assert (lookup.outcome, lookup.fields) == ("not cached", [])
    assert "Doubled" in lookup.reason or "not a function of PyTorch" in lookup.reason


def test_the_field_of_stocks_key_that_differs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Live, from saved records and from PyTorch's logs; for a constant, an input and an option of Inductor."""
    runs: dict[str, tuple[contextlib.AbstractContextManager[Any], torch.Tensor]] = {
        "before": (contextlib.nullcontext(), X),
        "constant": (scale(3.0), X),
        "shape": (contextlib.nullcontext(), torch.ones(6, 5)),
        "option": (inductor_config.patch(max_fusion_size=3), X),
    }
    live: dict[str, Record] = {}
    logs: dict[str, Record] = {}
    for name, (context, x) in runs.items():
        (tmp_path / name).mkdir()
        stop = write_trace(tmp_path / name / "trace.log")
        try:
            with context:
                live[name] = recorded("torch", x, name)
        finally:
            stop()
        (logs[name],) = read_logs(tmp_path / name)
    for records in (live, logs):
        fx = [each for each in records["before"].compiles[0].cache_lookups if each.cache == "FX graph cache"]
        assert [each.name for each in fx] == ["forward"]
        assert len(fx[0].fields) > 100
        old, new = texts(key_changes(records["before"], records["constant"]))
        assert "aten.mul.Tensor" in old
        assert "2.0" in old
        assert "3.0" in new
        at = {each.text.strip() for each in key_changes(records["before"], records["constant"])}
        assert at == {"y = x * SCALE"}
        options = key_changes(records["before"], records["option"])  # of both caches, in the order of their lookups
        assert [each.before[0].partition(" =")[0] for each in options] == ["inductor_config[max_fusion_size]"] * 2
        (option,) = [each for each in options if "FX graph cache" in each.before[0]]
        assert option.before == ["inductor_config[max_fusion_size] = 64 (FX graph cache, forward)"]
        assert option.after == ["inductor_config[max_fusion_size] = 3 (FX graph cache, forward)"]
        old, new = texts(key_changes(records["before"], records["shape"]))
        assert "example_inputs[0]" in old
        assert "torch.Size([6, 4])" in old
        assert "torch.Size([6, 5])" in new
    paths = {name: str(record.save(tmp_path / f"{name}.json")) for name, record in live.items()}
    assert main(["diff", paths["before"], paths["option"]]) == 1
    assert "inductor_config[max_fusion_size] = 3" in capsys.readouterr().out
    assert main(["diff", paths["before"], str(tmp_path / "before")]) == 0


def test_the_field_of_the_aotautograd_key_that_differs_is_named(tmp_path: Path) -> None:
    """Its options one by one; PyTorch reports these fields only while its logger is at DEBUG."""
    contexts: dict[str, tuple[contextlib.AbstractContextManager[Any], str, str]] = {
        "grad_enabled": (torch.no_grad(), "True", "False"),
        "autograd_config[activation_memory_budget]": (
            functorch_config.patch(activation_memory_budget=0.5), "1.0", "0.5",
        ),
        # PyTorch 2.15 has the dtype in the key without autocast, too
        "autocast_state[cpu]": (torch.autocast("cpu"), "", "torch.bfloat16"),
    }  # fmt: skip
    before = recorded("torch", X, "before")
    for name, (context, was, now) in contexts.items():
        with context:
            after = recorded("torch", X, "after")
        saved = [Record.load(each.save(tmp_path / f"{each.title}.json")) for each in (before, after)]
        for pair in ((before, after), tuple(saved)):
            (change,) = key_changes(*pair)
            for (text,), value in ((change.before, was), (change.after, now)):
                assert text.startswith(f"{name} = ")
                assert text.endswith(" (AOTAutograd cache)")
                assert value in text


def test_fields_are_compared_by_what_the_key_holds() -> None:
    """Equal texts with other digests differ; texts with an address and the same digest do not."""
    one = [KeyField("code", "<function f at 0x1>", "a"), KeyField("data", "Tensor", "b"), KeyField("gone", "1")]
    other = [KeyField("code", "<function f at 0x2>", "a"), KeyField("data", "Tensor", "c"), KeyField("new", "2")]
    lookups = (CacheLookup("FX graph cache", "", "miss", fields=each) for each in (one, other))
    found = [(each.name, each.before, each.after) for each in changed_fields(*lookups)]
    assert found == [("data", ("b",), ("c",)), ("gone", ("1",), ()), ("new", (), ("2",))]


@pytest.mark.parametrize(
    ("before", "after", "different"),
    [
        ("Tensor(a=(1, 2), b=[3])", "Tensor(a=(1, 2), b=[4])", (("b=[3]",), ("b=[4]",))),
        ("Tensor(a=1)", "Other(a=1)", (("Tensor(a=1)",), ("Other(a=1)",))),
        ("f(1, 2)", "f(1, 3)", (("f(1, 2)",), ("f(1, 3)",))),
        ("x = 1\ny = 2", "x = 1\ny = 3", (("y = 2",), ("y = 3",))),
    ],
)
def test_only_what_differs_of_a_field_is_shown(before: str, after: str, different: Any) -> None:
    one, other = (CacheLookup("graph cache", "", "miss", fields=[KeyField("x", text)]) for text in (before, after))
    (change,) = changed_fields(one, other)
    assert (change.before, change.after) == different
