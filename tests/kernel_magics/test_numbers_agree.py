"""Numbers that pages show together: each from one place, and the same wherever it is shown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.records import Record
from compiler_core.records.counts.counts import count
from compiler_core.records.ranks.facts import rank_facts
from compiler_core.records.timings.timings import time_text
from kernel_magics.display import static_html, summary
from kernel_magics.display.pictures.lines_and_kernels import lines_and_kernels


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.nn.functional.gelu(self.linear(x))


def training(layers: int, compile_: Callable[..., Any], backend: str) -> None:
    model = torch.nn.Sequential(*[Layer() for _ in range(layers)])
    compile_(model, backend=backend)(torch.randn(4, 8)).sum().backward()


def broken(compile_: Callable[..., Any], backend: str) -> None:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        x = x.sin() * 2
        print(x.shape, end="")
        return x.cos() + 1

    compiled = compile_(breaks, backend=backend)
    compiled(torch.ones(3)), compiled(torch.ones(4))


PROGRAMS: dict[str, Callable[..., None]] = {
    "a training step of 3 layers": lambda compile_, backend: training(3, compile_, backend),
    "a training step of 20 layers": lambda compile_, backend: training(20, compile_, backend),
    "a graph break": broken,
}


LARGE = "a training step of 20 layers"
CASES = [
    pytest.param((program, engine), id=f"{program}-{engine}", marks=[pytest.mark.sweep] if program == LARGE else [])
    for program in PROGRAMS
    for engine in ("core", "torch")
]


@pytest.fixture(scope="module", params=CASES)
def record(request: pytest.FixtureRequest) -> Record:
    program, engine = request.param
    torch._dynamo.reset()
    with compiler_core.record(engine=engine) as found:
        compile_: Any = torch.compile if engine == "torch" else compiler_core.compile
        PROGRAMS[program](compile_, "aot_eager" if engine == "torch" else "cpp")
    return found


def test_the_time_of_compiling_is_the_same_everywhere(record: Record) -> None:
    seconds = record.compile_ns / 1e9
    assert seconds > 0
    assert count(record).compile_seconds == seconds
    assert rank_facts(record, "one", 0).compile_seconds == seconds
    assert f"compiled in {seconds:.2f} s" in summary.headline(record)
    assert f"compiled in {time_text(seconds)}" in str(record.verdict)
    listed = re.findall(r"></span> ([\d,.]+) ms", static_html.html(record))
    parts = sum(float(ms.replace(",", "")) for ms in listed)
    assert parts / 1000 == pytest.approx(seconds, abs=1e-4 * len(record.compiles))


def test_kernels_are_counted_once(record: Record) -> None:
    kernels = sum(len(compile_.generated_kernels) for compile_ in record.compiles)
    calls = sum(len(compile_.kernels) for compile_ in record.compiles) - kernels
    assert count(record).kernels == kernels
    assert re.findall(r"(\d+) kernels?;", summary.headline(record)) == [str(kernels)]
    assert sum(map(int, re.findall(r"(\d+) C\+\+ kernel", summary.text(record)))) == kernels
    assert sum(map(int, re.findall(r"(\d+) PyTorch kernel call", summary.text(record)))) == calls
    picture = lines_and_kernels(record)
    if kernels:
        drawn = Counter(re.findall(r">(C\+\+|PyTorch&#x27;s)", picture))
        assert drawn["C++"] + _number(r"([\d,]+) more kernel", picture) == kernels
        assert drawn["PyTorch&#x27;s"] + _number(r"([\d,]+) more calls? of", picture) == calls
    else:
        assert not picture


def _number(pattern: str, text: str) -> int:
    """Returns the number that the pattern finds; 0 if it finds none."""
    found = re.search(pattern, text)
    return int(found[1].replace(",", "")) if found else 0
