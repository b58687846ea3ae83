"""Tensors without values, on which capture runs the operations that it meets."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import StatefulSymbolicContext

from compiler_core.errors import Unsupported


def fake_of(mode: FakeTensorMode, real: torch.Tensor, symbolic: StatefulSymbolicContext | None = None) -> torch.Tensor:
    """`real` without its values.  PyTorch looks at ``grad`` on the way, and warns where that is not kept."""
    source = None if symbolic is None else symbolic.tensor_source
    make = functools.partial(mode.from_tensor, static_shapes=symbolic is None, source=source, symbolic_context=symbolic)
    if real.is_inference():
        with torch.inference_mode(False):
            return make(_plain(real))
    if real.is_leaf:  # what it is a view of, and its gradient, would get symbols of their own
        return make(real if symbolic is None else _plain(real).requires_grad_(real.requires_grad))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(real)


def _plain(real: torch.Tensor) -> torch.Tensor:
    """A tensor of the same memory, and nothing else."""
    memory = real.untyped_storage(), real.storage_offset(), real.shape, real.stride()
    return torch.empty(0, dtype=real.dtype, device=real.device).set_(*memory)


@contextmanager
def left_to_eager(fn: Callable[..., Any]) -> Iterator[None]:
    """What an operation refuses on fake tensors is left to eager."""
    name = getattr(fn, "__name__", fn)
    try:
        yield
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise Unsupported("tensor value read", f"{name}: {error}") from None
    except (UnsupportedOperatorException, NotImplementedError) as error:
        raise Unsupported("unsupported call", f"{name}: {error}") from None
    except Unsupported:
        raise
    except Exception as error:
        raise Unsupported("exception", f"{type(error).__name__}: {error}") from None


@contextmanager
def quiet() -> Iterator[None]:
    """What goes wrong on fake tensors goes wrong again on real ones, where the user sees it."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
