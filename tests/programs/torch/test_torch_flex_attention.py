# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""``flex_attention`` and ``create_block_mask`` in one graph.  PyTorch has no gradient of it on a CPU."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention

import compiler_core as cc
from compiler_core.tools.testing import same_as_eager
from tests.sampling import always

BIAS, SLOPES = torch.randn(2, 16, 16), torch.tensor([0.5, 0.25])
DOCUMENTS = torch.tensor([0] * 5 + [1] * 11)


def causal(b, h, q, k):
    return q >= k


def same_document(b, h, q, k):
    return DOCUMENTS[q] == DOCUMENTS[k]


def mask(function):
    return create_block_mask(function, None, None, 16, 16, device="cpu", BLOCK_SIZE=8)


@pytest.fixture(autouse=True, scope="module")
def _warning_of_eager():
    """Eager PyTorch warns once that the function is not compiled, and that an argument is deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flex_attention(*[torch.ones(1, 1, 2, 2)] * 3, return_lse=True)


BY_EAGER = ("test_a_mask_made_inside", "test_half")
"""The captured graph, which is all that `eager` runs, is that of `cpp`, too."""


def whole(program):
    taken = ("cpp", "eager") if program.__name__ in BY_EAGER else ("cpp",)

    @pytest.mark.parametrize("backend", always(["eager", "cpp", "aot_eager"], taken.__contains__))
    def test(backend):
        given = {"backend": backend, "tolerance": 0.0 if backend == "eager" else 1e-5}
        same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.randn(2, 2, 16, 8),), **given)(program)()

    return test


@whole
def test_scores_changed_by_a_tensor_at_their_place(x):
    return flex_attention(x, x * 2, x.sin(), score_mod=lambda s, b, h, q, k: s + BIAS[h, q, k] * (q - k))


@whole
def test_a_mask_made_inside(x):
    documents = mask(and_masks(causal, same_document))
    out, sums = flex_attention(
        x,
        x.cos(),
        x,
        score_mod=lambda s, b, h, q, k: torch.tanh(s / 3) * 3 + SLOPES[h] * (k - q),
        block_mask=documents,
        return_lse=True,
    )
    return out * sums[..., None]


@whole
def test_the_order_of_memory_is_that_of_the_query(x):
    return flex_attention(x.transpose(1, 2).contiguous().transpose(1, 2), x, x.sin())


def test_wrong_shapes_raise_as_in_eager():
    compiled = cc.compile(lambda x: flex_attention(x, x[..., :4], x), strict=True)
    with pytest.raises(ValueError, match="same embedding dimension"):
        compiled(torch.randn(1, 1, 4, 8))


def test_a_gradient_on_a_cpu_raises_as_in_eager():
    compiled = cc.compile(lambda x: flex_attention(x, x, x), strict=True)
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        compiled(torch.randn(1, 1, 4, 8, requires_grad=True))
