"""The random numbers of dropout on a GPU, tested without one; `test_cuda.py` compares them with eager's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from compiler_core.backends.cuda_graphs import replay_obstacle
from compiler_core.codegen.triton import module as triton_module
from compiler_core.codegen.triton import printer as triton
from compiler_core.codegen.wrapper import memory_plan
from compiler_core.codegen.wrapper.writer import print_wrapper
from compiler_core.loops import ir
from compiler_core.loops.ir import philox
from compiler_core.tools.machine_code import compiled_forms
from tests.cases import philox_cases
from tests.cases.interpreter import verdicts_of
from tests.cases.philox_cases import on_gpu

ONES = 2**32 - 1
X = torch.randn(64, 128)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES, ONES, ONES, ONES), -1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0A4093822,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers_of_philox(counter: tuple[int, ...], key: int, words: tuple[int, ...]) -> None:
    """The known answers of the paper's reference implementation (Random123)."""
    assert [int(w) for w in philox._philox([torch.tensor(c) for c in counter], key)] == list(words)


@pytest.mark.parametrize(
    ("dtype", "numel", "offset", "elements"),
    [
        (torch.float32, 4096, 0, 4),
        (torch.float32, 4098, 0, 2),
        (torch.float32, 4096, 6, 2),
        (torch.float64, 4096, 0, 2),
        (torch.bfloat16, 4096, 0, 8),
        (torch.float16, 4100, 8, 4),
        (torch.float16, 4096, 3, 1),
    ],
)
def test_vector_width(dtype: torch.dtype, numel: int, offset: int, elements: int) -> None:
    assert philox.vector_width(dtype, numel, offset) == elements


@pytest.fixture(scope="module")
def verdicts() -> dict[str, str]:
    return verdicts_of(philox_cases)


@pytest.mark.parametrize("name", philox_cases.CASES)
def test_a_kernel_draws_the_same_numbers(name: str, verdicts: dict[str, str]) -> None:
    assert verdicts[name] == "ok"


@pytest.mark.parametrize(
    "program",
    [
        lambda x: [F.dropout(x, 0.1)],
        lambda x: [*torch.native_dropout(x, 0.1, True)],
        lambda x: [*torch.native_dropout(x.relu(), 0.1, True), x.relu()],
    ],
)
def test_four_adjacent_elements_share_a_philox_block(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of our kernel computes eight elements, with two Philox blocks of ten rounds of two products."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    code = triton.generate(on_gpu(program, X))
    (kernel,) = triton_module.load(code.text).values()
    ptx = triton_module.compile_kernel(kernel, compiled_forms.triton_target("sm_90")).asm["ptx"]
    assert len(re.findall(r"mul\.hi\.u32|mul\.wide\.u32", ptx)) <= 40


def test_dropout_is_fused_and_the_mask_is_stored() -> None:
    def with_mask(x: torch.Tensor) -> list[torch.Tensor]:
        y, mask = torch.native_dropout(x.cos(), 0.1, True)
        return [y + 1, mask]

    for program, stores in ((on_gpu(lambda x: [F.dropout(x.cos(), 0.1) + 1], X), 1), (on_gpu(with_mask, X), 2)):
        call, kernel = program.steps
        assert isinstance(call, ir.Call)
        assert isinstance(kernel, ir.Loops)
        assert len(kernel.writes) == stores
        assert call.draws == kernel.scalars
        assert "draws random numbers" in replay_obstacle(program)


def test_the_wrapper_draws_in_order() -> None:
    def program(x: torch.Tensor) -> list[torch.Tensor]:
        late = F.dropout(x.narrow(0, 1, 63), 0.5)
        return [F.dropout(x.exp(), 0.5), late]

    lowered = on_gpu(program, X)
    text = print_wrapper(lowered, [triton.generate(lowered)], memory_plan.plan(lowered)).text
    assert re.findall(r"if (is_rec.*): raise CannotDraw", text) == ["is_recording() or x_1.data_ptr() % 16"]
    assert re.findall(r" = draw\((.*)\)", text) == ["8064, 0", "8192, 0"]


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: [F.dropout(x.t().exp(), 0.5)], "its elements are not contiguous"),
        (
            lambda x: [F.dropout(torch.topk(x, 2)[0], 0.5)],
            "the alignment of eager's tensor is not known",
        ),
        (lambda x: [torch.native_dropout(x, 1.0, True)[0]], "it draws no random numbers"),
    ],
)
def test_reasons_for_calls(function: Any, says: str) -> None:
    (call,) = [s for s in on_gpu(function, X).steps if isinstance(s, ir.Call) and "dropout" in s.name]
    assert not call.draws
    assert says in call.reason


def test_dropout_in_a_backward_is_a_call() -> None:
    program = on_gpu(lambda x: [F.dropout(x, 0.5)], X, name="backward")
    assert [s.draws for s in program.steps if isinstance(s, ir.Call) and "dropout" in s.name] == [()]
