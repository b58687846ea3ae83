"""The costs of guards: consistent with each other and with the time of checking the guards, on both engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch._C._dynamo import guards as cpp

import compiler_core
from compiler_core.records import Compile, Guard
from compiler_core.tools.guard_times import measured_checks
from compiler_core.tools.stock.build.guard_costs import set_guard_costs
from tests.sampling import pairs

ENGINES = ["core", "torch"]


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 2, 1)
        self.bn = torch.nn.BatchNorm2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.bn(self.conv(x)).relu()
        return found


@dataclass
class Settings:
    scale: float = 2.0
    sizes: list[int] = field(default_factory=lambda: [1, 2, 3])
    options: dict[str, Any] = field(default_factory=lambda: {"a": 1, "b": {"c": (1, 2)}})


def with_settings(x: torch.Tensor, settings: Settings) -> torch.Tensor:
    constant = settings.scale + sum(settings.sizes) + settings.options["b"]["c"][1]
    found: torch.Tensor = x * constant
    return found


def several(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return x + y * z.shape[0] if x.shape[0] > 4 else z


def of_dict(x: torch.Tensor, values: dict[str, Any]) -> torch.Tensor:
    found: torch.Tensor = x + values["a"]
    return found


def broken_in_two(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    torch._dynamo.graph_break()
    return x.cos()


def modules(count: int) -> torch.nn.Module:
    return torch.nn.Sequential(*[Block() for _ in range(count)]).eval()


PROGRAMS: dict[str, Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]] = {
    "a dict": lambda: (of_dict, (torch.ones(2), {"a": 1}), {}),
    "an object": lambda: (with_settings, (torch.ones(2), Settings()), {}),
    "symbolic sizes": lambda: (several, tuple(torch.ones(6, 7) for _ in range(3)), {"dynamic": True}),
    "one module": lambda: (modules(1), (torch.ones(1, 2, 3, 3),), {}),
    "many modules": lambda: (modules(12), (torch.ones(1, 2, 3, 3),), {}),
    "a graph break": lambda: (broken_in_two, (torch.ones(2),), {}),
    "gradients": lambda: (modules(2).train(), (torch.ones(3, 2, 3, 3, requires_grad=True),), {}),
}


def compiled(engine: str, program: str) -> list[Compile]:
    function, args, options = PROGRAMS[program]()
    torch._dynamo.reset()
    with compiler_core.record(engine=engine) as record:  # type: ignore[arg-type]
        compile_ = torch.compile if engine == "torch" else compiler_core.compile
        compile_(function, backend="eager", **options)(*args)
    assert not record.notes
    return [each for each in record.compiles if each.guards]


@pytest.mark.parametrize(("program", "engine"), pairs(PROGRAMS, ENGINES, 2))
def test_costs_add_up_to_those_of_the_tree(engine: str, program: str) -> None:
    compiles = compiled(engine, program)
    assert compiles
    for each in compiles:
        costs = [guard.cost_ns for guard in each.guards if guard.cost_ns is not None]
        assert len(costs) == len(each.guards)
        assert each.guards_ns is not None
        assert sum(costs) == pytest.approx(each.guards_ns)
        assert 0 <= max(costs) <= each.guards_ns


def test_equal_checks_cost_the_same() -> None:
    (compile_,) = compiled("core", "symbolic sizes")
    assert len({guard.cost_ns for guard in compile_.guards if guard.kind == "TENSOR_MATCH"}) == 1
    assert len({guard.cost_ns for guard in compile_.guards if guard.kind == "CONDITION"}) == 1
    (compile_,) = compiled("core", "an object")
    assert len({guard.cost_ns for guard in compile_.guards if "sizes[" in guard.code}) == 1


def test_a_tree_that_does_not_hold_is_not_measured() -> None:
    root = cpp.RootGuardManager()
    root.add_lambda_guard(lambda f_locals: f_locals["x"] == 1, ["x is 1"], None)
    assert measured_checks(root, {"x": 2}) is None
    (check,) = measured_checks(root, {"x": 1}) or []
    assert check.parts == ["x is 1"]
    assert check.ns > 0


def test_without_a_measurement_the_logged_time_is_divided() -> None:
    guards = [Guard(f"g{i}", "TYPE_MATCH", f"L['self'].a[{i}]", "", "") for i in range(4)]
    assert set_guard_costs(guards, [], 100.0) == pytest.approx(100.0)
    assert {guard.cost_ns for guard in guards} == {25.0}
    assert set_guard_costs(guards, [], None) is None
    assert set_guard_costs(guards, [], 0.0) is None
    assert set_guard_costs(guards, [1.0, 2.0, 3.0, 4.0], 100.0) == 10.0
