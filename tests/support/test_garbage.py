"""What Python frees while a compile runs: garbage of the program, in any thread."""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.codegen.build import compilers
from compiler_core.torch_private import convert_frame


class Garbage:
    """Calls a function when Python deletes it, which a garbage collection does, since it refers to itself."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.itself, self.call = self, call

    def __del__(self) -> None:
        self.call()


@pytest.fixture
def _often() -> Iterator[None]:
    """Lets Python collect young garbage often."""
    before = gc.get_threshold()
    gc.set_threshold(200, 2, 1000)
    yield
    gc.set_threshold(*before)


def model(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x.sin() @ x.T, (4,)).exp()


@pytest.mark.usefixtures("_often")
def test_what_the_program_deletes_during_a_compile_meets_no_fake_tensor() -> None:
    seen, calls = list[float](), itertools.count()

    def profile(frame: Any, event: str, arg: Any) -> None:
        if convert_frame.compile_lock._is_owned() and next(calls) % 1000 == 0:
            Garbage(lambda: seen.append(torch.ones(3).sum().item()))

    x = torch.randn(4, 4, requires_grad=True)
    sys.setprofile(profile)
    try:
        result = compiler_core.compile(lambda x: model(x), strict=True)(x)
    finally:
        sys.setprofile(None)
    torch.testing.assert_close(result, model(x))
    gc.collect()
    assert len(seen) > 20
    assert set(seen) == {3.0}


@pytest.mark.parametrize("enabled", [True, False])
def test_the_setting_of_the_program_holds_in_its_functions_and_afterwards(enabled: bool) -> None:
    seen = list[bool]()

    def backend(graph: Any, examples: Any) -> Any:
        seen.append(gc.isenabled())
        gc.enable() if not enabled else gc.disable()
        return graph

    try:
        gc.enable() if enabled else gc.disable()
        compiler_core.compile(lambda x: x.sin(), strict=True)(torch.ones(2))
        assert gc.isenabled() is enabled
        compiler_core.compile(lambda x: x.sin(), backend=backend, strict=True)(torch.ones(2))
        assert seen == [enabled]
        assert gc.isenabled() is not enabled
    finally:
        gc.enable()


def test_a_deleted_object_that_calls_a_compiled_function_in_the_thread_of_a_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """The compile waits for this thread, so nothing can be compiled in it."""
    other, build, seen = compiler_core.compile(lambda x: x + 1), compilers._build, list[torch.Tensor]()

    def built(*args: Any) -> bytes:
        Garbage(lambda: seen.append(other(torch.ones(2))))
        gc.collect()
        return build(*args)

    compilers.load(compilers.TRIVIAL_SOURCE)  # tries the compiler out
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compilers, "_libraries", {})
    monkeypatch.setattr(compilers, "_build", built)
    with compiler_core.record() as record:
        compiler_core.compile(lambda x: x.sin().exp(), strict=True)(torch.ones(2))
    assert [each.tolist() for each in seen] == [[2.0, 2.0]]
    assert any("a thread that builds kernels" in note for note in record.notes)
