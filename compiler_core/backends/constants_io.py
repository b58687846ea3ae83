"""Serializes the constant tensors of a compiled graph."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from compiler_core.errors import NotCacheable

MAX_BYTES = 1 << 20
"""The largest size, in bytes, of the constants of a graph in the cache."""


@dataclass(frozen=True)
class Constant:
    """A serialised tensor."""

    dtype: str
    size: list[int]
    device: str
    content: str
    """Its bytes in base64."""


def serialize(constants: Mapping[str, Any]) -> dict[str, Constant]:
    """Serializes constants to plain data.

    Raises:
        NotCacheable: one is not a plain tensor, or they are larger than `MAX_BYTES`.
    """
    for value in constants.values():
        if type(value) is not torch.Tensor or value.layout is not torch.strided:
            raise NotCacheable(f"it has a {type(value).__name__} as a constant, which cannot be saved")
        if value.is_meta:
            raise NotCacheable("it has a constant tensor without values")
        if not value.is_contiguous() or value.is_conj() or value.is_neg() or value.requires_grad:
            raise NotCacheable("it has a constant tensor that is not a plain contiguous one")
    if (size := sum(value.nbytes for value in constants.values())) > MAX_BYTES:
        raise NotCacheable(f"its constants have {size:,} bytes, and at most {MAX_BYTES:,} are saved")
    return {name: _serialize_tensor(value) for name, value in constants.items()}


def _serialize_tensor(tensor: torch.Tensor) -> Constant:
    content = tensor.cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Constant(dtype, list(tensor.shape), str(tensor.device), base64.b64encode(content).decode())


def deserialize(constants: Mapping[str, Constant]) -> dict[str, torch.Tensor]:
    """Restores the tensors that `serialize` was given, on their devices."""
    return {name: _deserialize_tensor(constant) for name, constant in constants.items()}


def _deserialize_tensor(constant: Constant) -> torch.Tensor:
    content = bytearray(base64.b64decode(constant.content))
    memory = torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
    return memory.clone().view(getattr(torch, constant.dtype)).reshape(constant.size).to(constant.device)
