"""The graph cache: hits restore the record, and keys of different graphs differ."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import compiler_core
from compiler_core import RefusalWarning, ToolWarning, config
from compiler_core.backends import graph_cache, graph_key
from compiler_core.codegen.build import disk_cache
from compiler_core.records import Compile, to_plain
from tests import kept_kernels, warm_python
from tests.sampling import sample

pytestmark = pytest.mark.slow

Make = Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
MADE, FOUND = "made now, and kept", "found: the stages below ran when it was made"
REFUSED = "not there"
"""The outcome for a graph that is not in the cache, and of which there is no joint graph."""


@pytest.fixture(scope="module")
def _caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the caches of this worker, with the kernels of earlier runs."""
    folder = tmp_path_factory.mktemp("caches")
    kept_kernels.take(folder / config.OWN_FOLDER / "cpp")
    yield folder
    kept_kernels.keep(folder / config.OWN_FOLDER / "cpp")


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch, _caches: Path) -> None:
    """Starts with an empty graph cache; kernels need not be built again."""
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(_caches))
    shutil.rmtree(config.cache_dir() / "graphs", ignore_errors=True)


def entries() -> list[Path]:
    return sorted(config.cache_dir().glob("graphs/*"))


def cache_outcomes(compiles: list[Compile]) -> list[str]:
    return [e.detail for c in compiles for e in c.events if (e.stage, e.name) == ("backend", "cache")]


def run(make: Make) -> tuple[list[str], list[Compile]]:
    """Compiles the program of `make`, compares values and gradients with eager; returns cache outcomes and compiles."""
    outcomes, compiles = [], []
    for compiled in (False, True):
        torch.manual_seed(0)
        fn, args = make()
        with compiler_core.record() as record:
            got = (compiler_core.compile(fn, strict=True) if compiled else fn)(*args)
            tensors = [got] if isinstance(got, torch.Tensor) else list(got)
            if sums := [t.sum() for t in tensors if t.requires_grad]:
                torch.stack(sums).sum().backward()
        outcomes.append([*tensors, *(a for a in args), *(getattr(a, "grad", None) for a in args)])
        compiles = record.compiles
    for want, got in zip(*outcomes, strict=True):
        if isinstance(want, torch.Tensor):
            assert (want.dtype, want.stride(), want.requires_grad) == (got.dtype, got.stride(), got.requires_grad)
        torch.testing.assert_close(got, want)
    return cache_outcomes(compiles), compiles


def recorded(compiles: list[Compile]) -> Any:
    """Returns the record without times and without the outcome of the cache."""
    plain = to_plain(compiles)
    for compile_ in plain:
        compile_["guards_ns"] = compile_["line_times"] = None
        compile_["events"] = [[e["stage"], e["name"]] for e in compile_["events"] if e["name"] != "cache"]
        for guard in compile_["guards"]:
            guard["cost_ns"] = None
        for lookup in compile_["cache_lookups"]:
            lookup["outcome"] = None
    return plain


# ---- hits ----------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.norm(self.conv(x)))
        return F.dropout(self.fc(x.mean((2, 3))), 0.5, self.training)


def net() -> Any:
    return Net(), (torch.randn(2, 3, 8, 8),)


def views() -> Any:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        y.add_(1)
        z = (x * 2).cos()
        return z.view(-1), z.t(), x[1:], y, F.unfold(z[None, None], 2).sum()

    return fn, (torch.randn(4, 4, requires_grad=True), torch.randn(4, 4))


def inference() -> Any:
    def fn(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return x.softmax(-1).cumsum(0) @ x

    return fn, (torch.randn(4, 4),)


def constants() -> Any:
    def fn(x: torch.Tensor) -> torch.Tensor:
        table = torch.tensor([[1.5, -0.0], [float("inf"), 2.0]])
        return x.sin() * table + table[torch.tensor([1, 0])] + torch.tensor([], dtype=torch.float64).sum()

    return fn, (torch.randn(2, 2, requires_grad=True),)


def dtypes() -> Any:
    return lambda x: (x.exp().view(torch.int32), x.sum(0)), (torch.randn(4, 4),)


def sizes() -> Any:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        if x.shape[0] % 2 == 0:
            x = x * 2
        halves = F.gelu(x.view(-1, x.shape[-1]) @ y).reshape(x.shape[0] // 2, -1)
        return halves.softmax(0) + x.shape[0], torch.cat([x, x]).sum(0), x[1:].view(-1)

    return fn, (marked(6, 3, 8), torch.randn(8, 8, requires_grad=True))


def marked(*shape: int, **how: Any) -> torch.Tensor:
    x = torch.randn(shape, requires_grad=True)
    torch._dynamo.mark_dynamic(x, 0, **how)
    return x


@pytest.mark.parametrize("make", [net, views, inference, constants, dtypes, sizes])
def test_a_hit_runs_and_restores_the_record(make: Make) -> None:
    did, first = run(make)
    assert did == [MADE]
    did, again = run(make)
    assert did == [FOUND]
    assert recorded(again) == recorded(first)
    assert len(entries()) == 1


def test_a_hit_in_another_process(tmp_path: Path) -> None:
    program = (
        "from tests.backends import test_graph_cache as t\n"
        "import json; runs = [t.run(make) for make in (t.net, t.sizes)]\n"
        "print(json.dumps([[outcome for (outcome,), _ in runs], [t.recorded(compiles) for _, compiles in runs]]))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    did, first = json.loads(warm_python.run(["-c", program], env=environment).stdout)  # another seed of `hash`
    runs = [run(make) for make in (net, sizes)]
    assert (did, [outcome for (outcome,), _ in runs]) == ([MADE] * 2, [FOUND] * 2)
    plain = (json.dumps(each) for each in (first, [recorded(compiles) for _, compiles in runs]))
    first, second = (re.sub(r"\d{9,}", "address", text) for text in plain)
    assert first == second


def test_a_hit_by_a_compile_with_another_id() -> None:
    """The ids of items in the record are those of the compile that found the entry."""
    fn, args = net()
    with compiler_core.record() as record:
        for _ in range(2):
            compiler_core.compile(fn, strict=True)(*args)
    first, second = record.compiles
    assert cache_outcomes([first, second]) == [MADE, FOUND]
    assert (first.id, second.id) == ("0/0", "1/0")
    items = {a.id for a in second.artifacts} | {a.id for a in record.sources}
    assert {e.made.rpartition("#")[0] for e in second.edges} <= items
    assert {s.rpartition("#")[0] for e in second.edges for s in e.sources} <= items


def test_double_backward_and_batched_gradients_of_a_hit() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * x).cos()

    for expected in (MADE, FOUND):
        x = torch.randn(4, requires_grad=True)
        with compiler_core.record() as record:
            y, want = compiler_core.compile(fn, strict=True)(x), fn(x)
        assert cache_outcomes(record.compiles) == [expected]
        (first,), (of_eager,) = (torch.autograd.grad(out.sum(), x, create_graph=True) for out in (y, want))
        torch.testing.assert_close(torch.autograd.grad(first.sum(), x)[0], torch.autograd.grad(of_eager.sum(), x)[0])
        y, want = compiler_core.compile(fn, strict=True)(x), fn(x)
        got, of_eager = (torch.autograd.grad(o, x, torch.eye(4), is_grads_batched=True)[0] for o in (y, want))
        torch.testing.assert_close(got, of_eager)


# ---- keys ------------------------------------------------------------------------------------


def program(
    text: str, shape: tuple[int, ...] = (4, 4), around: Callable[[], Any] = contextlib.nullcontext, **how: Any
) -> Make:
    """Returns a function of x and y, created within the context `around`; `how` has arguments for its tensors."""

    def make() -> Any:
        scope: dict[str, Any] = {"torch": torch, "F": F, "nn": nn, "c": how.get("c", 2)}
        exec(f"def fn(x, y):\n    return {text}", scope)

        def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
            with around():
                return scope["fn"](x, y)

        fn = scope["fn"] if around is contextlib.nullcontext else fn
        x = torch.randn(shape).to(how.get("dtype", torch.float32))
        x = x.t() if how.get("turned") else x
        x = x[1:] if how.get("offset") else x
        y = x if how.get("same") else x.clone()
        y = x.view(-1)[: y.numel()].view(y.shape) if how.get("alias") else y
        return fn, (x.requires_grad_(how.get("grad", False)), y)

    return make


NEAR_MISSES = {
    "a constant": (program("x * 2.0 + y"), program("x * 2.5 + y")),
    "its type": (program("x.sum() * 1"), program("x.sum() * 1.0")),
    "its sign": (program("x * 0.0 - y"), program("x * -0.0 - y")),
    "a closed-over constant": (program("x * c", c=2), program("x * c", c=3)),
    "an operation": (program("x.sin() + y"), program("x.cos() + y")),
    "the order of arguments": (program("x.cos() - y"), program("y - x.cos()")),
    "an argument": (program("x.sum(0) + y"), program("x.sum(1) + y")),
    "a flag": (program("x.sum(0, keepdim=True) + y"), program("x.sum(0, keepdim=False) + y")),
    "approximation": (program("F.gelu(x)"), program("F.gelu(x, approximate='tanh')")),
    "dtype": (program("x.exp() + y"), program("x.exp() + y", dtype=torch.float64)),
    "half": (program("x.exp() + y", dtype=torch.float16), program("x.exp() + y", dtype=torch.bfloat16)),
    "the dtype of a cast": (program("x.to(torch.float64)"), program("x.to(torch.bfloat16)")),
    "shape": (program("x.exp() + y"), program("x.exp() + y", (4, 5))),
    "strides": (program("x.exp() + 1", (4, 5)), program("x.exp() + 1", (5, 4), turned=True)),
    "offset": (program("x.exp() + 1", (4, 4)), program("x.exp() + 1", (5, 4), offset=True)),
    "requires_grad": (program("x.exp() * y"), program("x.exp() * y", grad=True)),
    "one tensor twice": (program("(x.exp(), y * 2)"), program("(x.exp(), y * 2)", same=True)),
    "a write to what is shared": (program("(y.add_(1), x * 2)"), program("(y.add_(1), x * 2)", alias=True)),
    "what is returned": (program("(x + 1, y * 2)"), program("(y * 2, x + 1)")),
    "a view or a copy": (program("x.view(-1)"), program("x.view(-1).clone()")),
    "grad mode": (program("x.exp() * 2", grad=True), program("x.exp() * 2", around=torch.no_grad, grad=True)),
    "dropout": (program("F.dropout(x, 0.5, True)"), program("F.dropout(x, 0.5, False)")),
    "a constant tensor": (
        program("x + torch.tensor([1.0, 2.0, 3.0, 4.0])"),
        program("x + torch.tensor([1.0, 2, 3, 5])"),
    ),
    "its probability": (program("F.dropout(x, 0.5, True)"), program("F.dropout(x, 0.25, True)")),
}


@pytest.mark.parametrize("name", sample(NEAR_MISSES, 2))
def test_a_near_miss_is_a_miss(name: str) -> None:
    one, other = NEAR_MISSES[name]
    assert run(one)[0] == [MADE]
    if name == "a write to what is shared":
        with pytest.warns(RefusalWarning, match="shares memory with another input"):
            assert run(other)[0] == [REFUSED]
    else:
        assert run(other)[0] == [MADE]
    assert run(one)[0] == [FOUND]


SIZES = {
    "its value": (marked, lambda *shape: marked(shape[0] + 2, *shape[1:])),
    "its range": (marked, lambda *shape: marked(*shape, min=3, max=50)),
    "which is symbolic": (marked, lambda *shape: torch.randn(shape, requires_grad=True)),
}


@pytest.mark.parametrize("name", SIZES)
def test_knowledge_about_sizes_is_part_of_the_key(name: str) -> None:
    def of(marks: Callable[..., torch.Tensor]) -> Make:
        return lambda: (lambda x: x.cos().view(-1, 2), (marks(6, 4),))

    for results in (MADE, FOUND):
        for marks in SIZES[name]:
            assert run(of(marks))[0] == [results]


def test_size_guards_of_capture_are_part_of_the_key() -> None:
    """The graphs are equal, but after the comparison the size is known to be greater than 4."""

    def asks(x: torch.Tensor) -> Any:
        return x.exp() if x.shape[0] > 4 else None

    for results in (MADE, FOUND):
        assert run(lambda: (asks, (marked(6),)))[0] == [results]
        assert run(lambda: (lambda x: x.exp(), (marked(6),)))[0] == [results]


def windows(x: torch.Tensor, y: torch.Tensor, width: int, rate: float) -> Any:
    return x[: x.shape[0] - width].cumsum(0) * rate, (x.unfold(0, width, 1).sum(-1) if x.shape[0] > width else x) @ y[0]


def derived_windows(x: torch.Tensor, y: torch.Tensor) -> Any:
    return windows(x, y, x.shape[1], 0.1 * x.shape[0])


@pytest.mark.parametrize("fn", [sizes()[0], windows, pytest.param(derived_windows, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("lengths", sample([[6, 8, 2], [6, 8, 7, 2, 9]], 2), ids=str)
def test_assumptions_on_sizes_are_guarded_after_a_hit(fn: Any, lengths: list[int]) -> None:
    shows = []
    for expected in (MADE, FOUND):
        fast = compiler_core.compile(fn, strict=True)
        with compiler_core.record() as record:
            for length in lengths:
                x, y = torch.randn(length, 3, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
                more = (length // 2, 1.5 / length) if fn is windows else ()
                values, gradients = [], []
                for each in (fast, fn):
                    values.append(each(x, y, *more))
                    total = sum(t.sin().sum() for t in values[-1])
                    gradients.append(torch.autograd.grad(total, (x, y), allow_unused=True))
                torch.testing.assert_close(*values)
                torch.testing.assert_close(*gradients)
        assert {*cache_outcomes(record.compiles)} == {expected}
        shows.append(recorded(record.compiles))
    assert len(record.compiles) > 1
    assert json.dumps(shows[0]) == json.dumps(shows[1]).replace('"1/', '"0/')


def autocast() -> Any:
    return torch.autocast("cpu", torch.bfloat16)


@contextlib.contextmanager
def float64_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("around", [autocast, float64_by_default, deterministic, torch.no_grad])
def test_global_state_is_part_of_the_key(around: Callable[[], Any]) -> None:
    def make() -> Any:
        return lambda x: (x @ x) * torch.full((4, 4), 0.1).to(x.dtype), (torch.randn(4, 4, dtype=torch.float32),)

    assert run(make)[0] == [MADE]
    with around():
        assert run(make)[0] == [MADE]
        assert run(make)[0] == [FOUND]
    assert run(make)[0] == [FOUND]


def test_training_and_evaluation_are_two_graphs() -> None:
    def evaluated() -> Any:
        return Net().eval(), (torch.randn(2, 3, 8, 8),)

    assert run(net)[0] == run(evaluated)[0] == [MADE]
    assert run(net)[0] == run(evaluated)[0] == [FOUND]


def test_options_are_part_of_the_key() -> None:
    fn, args = net()
    options: Any
    for options in ({}, {"memory_budget": 0.5}, {"keep_apart": [("a", "b")]}):
        with compiler_core.record() as record:
            compiler_core.compile(fn, strict=True, **options)(*args)
        assert cache_outcomes(record.compiles) == [MADE]


def test_sources_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(net)[0] == [MADE]
    monkeypatch.setattr(graph_key, "_versions", lambda: {"torch": "another version"})
    assert run(net)[0] == [MADE]


# ---- not saved -------------------------------------------------------------------------------


def test_large_constants_are_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_cache, "MAX_BYTES", 15)
    for _ in range(2):
        (did,), _ = run(constants)
        assert did == "not kept: its constants have 32 bytes, and at most 15 are saved"
    assert entries() == []


def test_a_setting_without_a_single_value_has_no_key() -> None:
    setting: Any = torch.backends.cudnn
    before = setting.conv.fp32_precision
    setting.conv.fp32_precision = "ieee"  # while recurrent networks use TF32
    try:
        did, _ = run(inference)
    finally:
        setting.conv.fp32_precision = before
    assert "_get_cudnn_allow_tf32 has no single value" in did[0]
    assert not entries()


def test_an_operator_with_another_implementation_has_no_key() -> None:
    assert run(inference)[0] == [MADE]
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("cumsum", lambda x, dim, dtype=None: x * 7, "AutogradCPU")
        fn, args = inference()
        with compiler_core.record() as record:
            got = compiler_core.compile(fn)(*args)
        assert "has another implementation for" in cache_outcomes(record.compiles)[0]
        torch.testing.assert_close(got, args[0].softmax(-1) * 7 @ args[0])
    finally:
        library._destroy()
    assert run(inference)[0] == [FOUND]


@pytest.mark.filterwarnings("ignore::UserWarning:torch.library")  # that it overrides, once a process
def test_an_implementation_in_place_of_pytorchs_own_is_another_one() -> None:
    """PyTorch registers some operators again as it is imported, in a newer version more of them."""
    key = next((key for key in torch.library._impls if re.fullmatch(r"aten/.+/(CUDA|PythonTLSSnapshot)", key)), None)
    if key is None:
        pytest.skip("this PyTorch registers none again")
    _, operator, dispatch = key.split("/")
    assert run(inference)[0] == [MADE]
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl(operator, lambda *args, **kwargs: None, dispatch, allow_override=True)
        assert "has another implementation for" in run(inference)[0][0]
    finally:
        library._destroy()


def test_a_replaced_function_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(net)[0] == [MADE]
    monkeypatch.setattr(F, "_verify_batch_size", lambda size: None)
    (did,), _ = run(net)
    assert "batch_norm is not a function of PyTorch" in did


# ---- damaged ---------------------------------------------------------------------------------


def test_two_autograd_functions_of_one_name_are_two_graphs() -> None:
    def scaled(by: float) -> type:
        class Scaled(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                return x * 1

            @staticmethod
            def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
                return gradient * by

        return Scaled

    for by in (2.0, 3.0):
        function, x = scaled(by), torch.ones(3, requires_grad=True)
        compiler_core.compile(lambda x, function=function: function.apply(x).sin())(x).backward(torch.ones(3))
        assert x.grad is not None
        torch.testing.assert_close(x.grad, by * torch.ones(3).cos())
    assert not entries()


def test_a_damaged_entry_is_ignored() -> None:
    assert run(inference)[0] == [MADE]
    (path,) = entries()
    whole = path.read_bytes()
    foreign = [zlib.compress(text) for text in (b"{}", b"[]", b"nonsense", b'{"glue": 1}', b"\xff")]
    for damaged in (whole[:-1], b"", b"x" * len(whole), *map(disk_cache.with_checksum, [b"nonsense", *foreign])):
        path.write_bytes(damaged)
        assert run(inference)[0] == [MADE]
        assert run(inference)[0] == [FOUND]


def test_without_write_access_graphs_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, args = inference()
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(tmp_path))
    (tmp_path / "cutaway").mkdir()
    (tmp_path / "cutaway" / "graphs").write_text("in the way")
    with compiler_core.record() as record, pytest.warns(ToolWarning, match="is not kept on disk"):
        got = compiler_core.compile(fn, strict=True)(*args)
    assert cache_outcomes(record.compiles)[0].startswith("not kept: ")
    torch.testing.assert_close(got, fn(*args))
