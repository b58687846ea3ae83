"""What compiled code refers to and does not keep alive."""

from __future__ import annotations

import enum
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.guards.lifetimes import DEAD, Mortal, boxed, weak_cache


class Lasting:
    def method(self) -> None: ...


def a_class(factor: float) -> Any:
    class Scale:
        def go(self, x: torch.Tensor) -> torch.Tensor:
            return x * factor

    return Scale


@pytest.mark.parametrize("obj", [Lasting, Lasting.method, int, torch.nn.Linear, a_class, 1, enum.Enum])
def test_what_a_module_keeps_is_held(obj: Any) -> None:
    assert not isinstance(boxed(obj), Mortal)
    assert boxed(obj).value is obj


def test_what_a_function_made_is_not_held() -> None:
    made = a_class(2.0)
    box, of_method = boxed(made), boxed(made.go)
    assert box.value is made
    assert box.address == id(made)
    assert box.name == "a_class.<locals>.Scale"
    assert of_method.value is made.go
    del made
    gc.collect()
    assert box.value is DEAD
    assert of_method.value is DEAD


def test_weak_cache() -> None:
    calls = []

    @weak_cache
    def name(cls: Any) -> str:
        calls.append(cls.__name__)
        return str(cls.__name__)

    made = a_class(1.0)
    assert name(made) == name(made) == "Scale"
    assert calls == ["Scale"]
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None
    assert name(a_class(1.0)) == "Scale"
    assert calls == ["Scale", "Scale"]


def apply(x: torch.Tensor, scale: Any) -> torch.Tensor:
    return scale.go(x) + 1  # type: ignore[no-any-return]


@pytest.fixture
def compiled() -> Callable[..., Any]:
    made: Callable[..., Any] = cc.compile(apply, backend="eager", strict=True, recompile_limit=3)
    return made


def outcomes(compiled: Any) -> list[str]:
    return [compile_.outcome for compile_ in record_of(compiled).frames[0].compiles]


def test_a_class_at_the_address_of_a_dead_one_is_another(compiled: Any) -> None:
    x, addresses = torch.randn(3), set()
    for factor in (2.0, 3.0, 5.0):
        scale = a_class(factor)()
        addresses.add(id(type(scale)))
        for _ in range(2):
            assert torch.equal(compiled(x, scale), x * factor + 1)
        del scale
        gc.collect()
    assert len(outcomes(compiled)) == 3


def test_a_class_that_lives_is_compiled_once(compiled: Any) -> None:
    x, made = torch.randn(3), a_class(2.0)
    for _ in range(4):
        assert torch.equal(compiled(x, made()), x * 2 + 1)
        gc.collect()
    assert outcomes(compiled) == ["compiled"]


def test_compiles_for_dead_classes_count_towards_the_limit(compiled: Any) -> None:
    x = torch.randn(3)
    for factor in range(6):
        assert torch.equal(compiled(x, a_class(factor)()), x * factor + 1)
        gc.collect()
    assert len(outcomes(compiled)) == 3
    assert any("compiled 3 times, which is the limit" in note for note in record_of(compiled).notes)
