# mypy: ignore-errors
# ruff: noqa
"""Programs that choose the kernels of attention: ``torch.nn.attention.sdpa_kernel``.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import compiler_core as cc
from compiler_core.support.torch_state import attention_kernel_names
from compiler_core.tools.testing import same_as_eager


def heads():
    return (torch.randn(1, 2, 6, 4, requires_grad=True),)


one_graph = functools.partial(same_as_eager, graphs=1, breaks=[], inputs=heads)
attend = F.scaled_dot_product_attention


@one_graph()
def test_several_kernels_and_settings(q):
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]), torch.no_grad():
        y = attend(q, q, q)
        flash, efficient = torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled()
    return y + q, flash, efficient, torch.backends.cuda.mem_efficient_sdp_enabled()


@one_graph()
def test_kernels_within_kernels(q):
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        a = attend(q, q, q)
        with sdpa_kernel(SDPBackend.MATH):
            b = attend(a, q, q)
        c = attend(b, q, q)
    return a, b, c, torch.backends.cuda.flash_sdp_enabled()


@same_as_eager(breaks=["print"], inputs=heads)
def test_break_within(q):
    with sdpa_kernel(SDPBackend.MATH):
        y = attend(q, q, q)
        print(end="")
        y = attend(y, q, q) if not torch.backends.cuda.flash_sdp_enabled() else y
    return y, torch.backends.cuda.flash_sdp_enabled()


@same_as_eager(breaks=["unsupported call", "unsupported iteration", "unsupported iteration"], inputs=heads)
def test_order_of_kernels(q):
    y = q + 1
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        return attend(y, q, q)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "cpp"])
def test_callers_kernels_are_restored(backend):
    @functools.partial(cc.compile, backend=backend)
    def f(q):
        with sdpa_kernel(SDPBackend.MATH):
            return attend(q, q, q)

    (q,), before = heads(), attention_kernel_names()
    f(q)
    assert attention_kernel_names() == before
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        f(q)
        assert attention_kernel_names() == ("FLASH_ATTENTION", "MATH")
    f(q)
    assert attention_kernel_names() == before


def test_kernels_are_restored_if_the_graph_raises():
    @functools.partial(cc.compile, backend="eager")
    def f(q, i):
        with sdpa_kernel(SDPBackend.MATH):
            return attend(q, q, q)[i]

    (q,), before = heads(), attention_kernel_names()
    f(q, torch.tensor(0))
    with pytest.raises(IndexError):
        f(q, torch.tensor(7))
    assert attention_kernel_names() == before
