"""Classes and functions that compiled code refers to without keeping them alive."""

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
from compiler_core.guards.lifetimes import DEAD, WeakBox, make_box, weak_cache


class ModuleLevel:
    def method(self) -> None: ...


def make_class(factor: float) -> Any:
    class Scale:
        def go(self, x: torch.Tensor) -> torch.Tensor:
            return x * factor

    return Scale


@pytest.mark.parametrize("obj", [ModuleLevel, ModuleLevel.method, int, torch.nn.Linear, make_class, 1, enum.Enum])
def test_objects_of_modules_are_held_strongly(obj: Any) -> None:
    assert not isinstance(make_box(obj), WeakBox)
    assert make_box(obj).value is obj


def test_objects_made_in_functions_are_held_weakly() -> None:
    cls = make_class(2.0)
    box, method_box = make_box(cls), make_box(cls.go)
    assert box.value is cls
    assert box.address == id(cls)
    assert box.name == "make_class.<locals>.Scale"
    assert method_box.value is cls.go
    del cls
    gc.collect()
    assert box.value is DEAD
    assert method_box.value is DEAD


class Plain:
    pass


@pytest.mark.parametrize("make", [Plain, torch.nn.ReLU, lambda: torch.nn.Parameter(torch.ones(1))])
def test_an_object_whose_id_a_frame_has_read_is_freed(make: Callable[[], Any]) -> None:
    """Its code goes with it: the next object may have its address."""
    known: set[int] = set()
    compiled = cc.compile(lambda x, obj: x + (id(obj) in known), backend="eager", strict=True)
    for _ in range(3):
        obj = make()
        assert compiled(torch.zeros(1), obj).item() == 0
        known.add(id(obj))
        assert compiled(torch.zeros(1), obj).item() == 1
        known.clear()
        reference = weakref.ref(obj)
        del obj
        assert reference() is None


def test_weak_cache() -> None:
    calls = []

    @weak_cache
    def name(cls: Any) -> str:
        calls.append(cls.__name__)
        return str(cls.__name__)

    result = make_class(1.0)
    assert name(result) == name(result) == "Scale"
    assert calls == ["Scale"]
    gone = weakref.ref(result)
    del result
    gc.collect()
    assert gone() is None
    assert name(make_class(1.0)) == "Scale"
    assert calls == ["Scale", "Scale"]


def apply(x: torch.Tensor, scale: Any) -> torch.Tensor:
    return scale.go(x) + 1  # type: ignore[no-any-return]


@pytest.fixture
def compiled() -> Callable[..., Any]:
    result: Callable[..., Any] = cc.compile(apply, backend="eager", strict=True, recompile_limit=3)
    return result


def outcomes(compiled: Any) -> list[str]:
    return [compile_.outcome for compile_ in record_of(compiled).frames[0].compiles]


def test_a_class_at_the_address_of_a_dead_one_is_another(compiled: Any) -> None:
    x, addresses = torch.randn(3), set()
    for factor in (2.0, 3.0, 5.0):
        scale = make_class(factor)()
        addresses.add(id(type(scale)))
        for _ in range(2):
            assert torch.equal(compiled(x, scale), x * factor + 1)
        del scale
        gc.collect()
    assert len(outcomes(compiled)) == 3


def test_a_class_that_lives_is_compiled_once(compiled: Any) -> None:
    x, cls = torch.randn(3), make_class(2.0)
    for _ in range(4):
        assert torch.equal(compiled(x, cls()), x * 2 + 1)
        gc.collect()
    assert outcomes(compiled) == ["compiled"]


def test_compiles_for_dead_classes_count_towards_the_limit(compiled: Any) -> None:
    x = torch.randn(3)
    for factor in range(6):
        assert torch.equal(compiled(x, make_class(factor)()), x * factor + 1)
        gc.collect()
    assert len(outcomes(compiled)) == 3
    assert any("compiled 3 times, which is the limit" in note for note in record_of(compiled).notes)
