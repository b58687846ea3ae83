"""Queries of PyTorch's state return the same in compiled code as in eager, also after the state has changed."""

from __future__ import annotations

import contextlib
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.api.compile import record_of

_NAMES = (
    "is_",
    "_is_",
    "are_",
    "get_",
    "_get_",
    "has_",
    "_has_",
    "in_",
    "_in_",
    "num_",
    "_len_",
    "maybe_current",
    "can_",
)
_CHANGES_OR_CRASHES = (
    *("init", "clear", "empty", "push", "pop", "seed", "dump", "enter", "create", "record", "has_torch_function"),
    *("alias_to_input", "test", "profil", "stack_at", "_ipc"),
)
_HOMES = (
    *("torch", "torch._C", "torch._C._functorch", "torch.jit", "torch.compiler", "torch.overrides", "torch.onnx"),
    *(
        "torch.cuda",
        "torch.xpu",
        "torch.mps",
        "torch.accelerator",
        "torch.cpu",
        "torch.amp",
        "torch.autograd",
        "torch.autograd.grad_mode",
    ),
    *("torch.autograd.forward_ad", "torch.fx._symbolic_trace", "torch.utils._python_dispatch", "torch.distributed"),
    *("torch._jit_internal", "torch.random", "torch.__future__", "torch.nn.attention"),
)
_PLAIN = (bool, int, float, str, types.NoneType, torch.dtype, torch.device, torch.layout)
# queries that return True in compiled code, as with torch.compile
_DIFFERENT = {"is_compiling", "is_dynamo_compiling"}


def _homes() -> Iterator[types.ModuleType]:
    for name in (*_HOMES, *sorted(n for n in sys.modules if n.startswith("torch.backends"))):
        home = sys.modules.get(name)
        if isinstance(home, types.ModuleType):
            yield home


def _is_plain(result: Any) -> bool:
    return isinstance(result, _PLAIN) or (type(result) in (tuple, list) and all(map(_is_plain, result)))


def _queries() -> dict[str, Callable[[], Any]]:
    """Returns the functions without arguments that return plain values, by name."""
    found: dict[int, tuple[str, Any]] = {}
    for home in _homes():
        for name, query in list(vars(home).items()):
            is_query = name.startswith(_NAMES) or "_enabled" in name or name.endswith("_available")
            if not is_query or name in _DIFFERENT or any(part in name for part in _CHANGES_OR_CRASHES):
                continue
            if isinstance(query, (types.FunctionType, types.BuiltinFunctionType)) and _is_repeatable(query):
                found.setdefault(id(query), (f"{home.__name__}.{name}", query))
    return dict(found.values())


def _is_repeatable(query: Any) -> bool:
    """Whether a query returns a plain value, the same one when it is repeated."""
    try:
        result = query()
        return _is_plain(result) and result == query()
    except (Exception, SystemExit):
        return False


def _program(expression: str) -> Any:
    space: dict[str, Any] = {"torch": torch}
    home = expression.rpartition(".")[0]
    text = f"import {home}\ndef program(x):\n    result = {expression}\n    return result, x + 1\n"
    exec(compile(text, f"<{expression}>", "exec"), space)
    return space["program"]


@contextlib.contextmanager
def _set(change: Callable[[Any], Any], value: Any, before: Any) -> Iterator[None]:
    change(value)
    try:
        yield
    finally:
        change(before)


def _states() -> dict[str, Any]:
    cudnn, mkldnn, cuda, mha = torch.backends.cudnn, torch.backends.mkldnn, torch.backends.cuda, torch.backends.mha
    deterministic: Any = torch.use_deterministic_algorithms
    return {
        "no_grad": torch.no_grad(),
        "inference": torch.inference_mode(),
        "autocast": torch.autocast("cpu", torch.bfloat16),
        "default dtype": _set(torch.set_default_dtype, torch.float64, torch.float32),
        "default device": _set(torch.set_default_device, "cpu", None),
        "deterministic": _set(deterministic, True, False),
        "debug mode": _set(torch.set_deterministic_debug_mode, 1, 0),
        "warn always": _set(torch.set_warn_always, True, False),
        "matmul": _set(torch.set_float32_matmul_precision, "high", "highest"),
        "flash": _set(cuda.enable_flash_sdp, False, True),
        "math": _set(cuda.enable_math_sdp, False, True),
        "cudnn": cudnn.flags(enabled=False, benchmark=True, deterministic=True, allow_tf32=False),
        "mkldnn": mkldnn.flags(enabled=False),
        "fast path": _set(mha.set_fastpath_enabled, False, True),
        "nothing": contextlib.nullcontext(),
    }


@pytest.mark.filterwarnings("ignore")
def test_queries_without_arguments() -> None:
    """Compares all queries with eager; those that are captured are repeated in each changed state."""
    queries, wrong, x = _queries(), [], torch.ones(2)
    assert len(queries) > 120
    captured = {}
    for name, query in queries.items():
        program = compiler_core.compile(_program(f"{name}()"), backend="eager")
        if not _same(program(x)[0], query()):
            wrong.append(name)
        if not any(c.breaks for f in record_of(program).frames for c in f.compiles):
            captured[name] = program
    assert len(captured) > 40, sorted(captured)
    for state, change in _states().items():
        with change:
            wrong += [f"{n} ({state})" for n, p in captured.items() if not _same(p(x)[0], queries[n]())]
    assert not wrong


def _same(got: Any, wanted: Any) -> bool:
    return type(got) is type(wanted) and bool(got == wanted)


def _settings() -> Iterator[tuple[Any, str, Any]]:
    """Yields attributes of ``torch.backends`` with their current values."""
    for home in (m for m in _homes() if m.__name__.startswith("torch.backends")):
        parts = [v for v in vars(home).values() if type(v).__module__.startswith("torch.backends")]
        for owner in (home, *(p for p in parts if not isinstance(p, (type, types.ModuleType)))):
            for name in (
                "enabled",
                "benchmark",
                "deterministic",
                "allow_tf32",
                "fp32_precision",
                "_is_fastpath_enabled",
            ):
                with contextlib.suppress(Exception):
                    yield owner, name, getattr(owner, name)


@pytest.mark.filterwarnings("ignore")
def test_settings_of_backends() -> None:
    wrong, changed, x = [], 0, torch.ones(2)
    for owner, name, before in _settings():
        program = compiler_core.compile(_reader(owner, name), backend="eager")
        wrong += [] if _same(program(x)[0], before) else [f"{owner}.{name}"]
        other = (not before) if isinstance(before, bool) else "tf32" if before != "tf32" else "ieee"
        try:
            setattr(owner, name, other)
        except (RuntimeError, AttributeError):
            continue
        try:
            changed += 1
            wrong += [] if _same(program(x)[0], getattr(owner, name)) else [f"{owner}.{name}, changed"]
        finally:
            setattr(owner, name, before)
    assert changed > 3  # which attributes exist depends on the build
    assert not wrong


def _reader(owner: Any, name: str) -> Any:
    space = {"owner": owner}
    exec(f"def program(x):\n    return owner.{name}, x + 1\n", space)
    return space["program"]


_LEGACY = [
    cls
    for home in (torch, torch.cuda, torch.sparse)
    for name, cls in sorted(vars(home).items())
    if name.endswith("Tensor") and type(cls) is type(torch.FloatTensor)
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16])
def test_legacy_tensor_types(dtype: torch.dtype) -> None:
    """Legacy types such as ``torch.FloatTensor``: a tensor's dtype and device decide whether it is an instance."""
    assert len(_LEGACY) > 20

    def program(x: Any) -> Any:
        result = x.clone()
        answers = [(isinstance(x, t), isinstance(result, t), issubclass(type(x), t)) for t in _LEGACY]
        union = isinstance(result, (torch.LongTensor, torch.FloatTensor)), isinstance(result, int | torch.Tensor)
        return answers, union, result.type(torch.DoubleTensor), result.type(), result + 1

    compiled, x = compiler_core.compile(program, backend="eager", fullgraph=True), torch.ones(3, dtype=dtype)
    wanted, got = program(x), compiled(x)
    assert got[:2] == wanted[:2]
    assert got[2].dtype is torch.float64
    assert got[3] == wanted[3]


def test_legacy_tensor_types_as_patterns() -> None:
    def program(x: torch.Tensor) -> Any:
        match x * 1:
            case torch.LongTensor():
                return "long", x + 1
            case torch.FloatTensor():
                return "float", x + 1
        return "other", x + 1

    compiled = compiler_core.compile(program, backend="eager", fullgraph=True)
    for dtype in (torch.float32, torch.int64, torch.float16):
        x = torch.ones(2, dtype=dtype)
        assert compiled(x)[0] == program(x)[0]


class _Symmetric(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.triu() + x.triu(1).mT


def test_parametrizations_that_are_kept() -> None:
    """``parametrize.cached()`` raises in traced code, but not in compiled code."""
    from torch.nn.utils import parametrize

    layer = torch.nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", _Symmetric())

    def program(x: torch.Tensor) -> Any:
        with parametrize.cached():
            return layer(x) + layer(x)

    x = torch.randn(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(compiler_core.compile(program, backend="eager")(x), program(x))


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch is built without torch.distributed")
def test_the_number_of_a_rank_and_of_all() -> None:
    from torch.testing._internal.distributed import fake_pg

    distributed: Any = torch.distributed

    def program(x: torch.Tensor) -> torch.Tensor:
        if distributed.get_rank() == 1:
            x = x * 2
        count: int = distributed.get_world_size()
        return x + count

    x, compiled = torch.ones(2), compiler_core.compile(program, backend="eager", strict=True)
    for rank in (1, 0, 1):
        distributed.init_process_group("fake", rank=rank, world_size=4, store=fake_pg.FakeStore())
        try:
            assert torch.equal(compiled(x), program(x))
        finally:
            distributed.destroy_process_group()
    assert not any(each.breaks for each in record_of(compiled).compiles)
    with pytest.raises(ValueError, match="has not been initialized"):
        compiled(x)


_DESCRIPTIONS = (
    *(torch.cuda.get_device_capability, torch.cuda.get_device_name, torch.xpu.get_device_name),
    lambda device: torch.cuda.get_device_properties(device).multi_processor_count,
    lambda device: torch.cuda.is_bf16_supported() and torch.cuda.is_tf32_supported(),
    lambda device: torch.cuda.current_device(),
)


@pytest.mark.parametrize("device", [None, 0, "cuda", torch.device("cuda", 0)])
@pytest.mark.parametrize("query", _DESCRIPTIONS)
def test_descriptions_of_a_gpu(query: Callable[..., Any], device: Any) -> None:
    """They are part of the graph, and so are the errors where there is no GPU."""

    def program(x: torch.Tensor) -> Any:
        try:
            found = query(device)
        except (RuntimeError, AssertionError) as error:
            found = type(error), str(error)
        return found, x + 1

    x = torch.ones(2)
    compiled = compiler_core.compile(program, backend="eager", fullgraph=True)
    assert compiled(x)[0] == program(x)[0]
    assert compiled(x)[0] == program(x)[0]


def test_an_error_of_the_way_that_compiled_code_takes() -> None:
    """A program that asks if it is compiled may raise only then.  Such a call runs as plain Python; others do not."""

    def masked(x: torch.Tensor, mask: Any) -> Any:
        x = x.sin()
        if mask is None and not torch.compiler.is_compiling():
            mask = torch.ones(3)
        return x * mask[None]

    compiled = compiler_core.compile(masked, backend="eager", strict=True)
    x, mask = torch.randn(2, 3), torch.randn(3)
    for given in (None, mask, *[None] * 20):
        assert torch.equal(compiled(x, given), masked(x, given))
    outcomes = [each.outcome for each in record_of(compiled).compiles]
    assert outcomes == ["skipped", "compiled", *["skipped"] * 8]
