"""The tensors that a compiled graph holds itself, as plain data."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from compiler_core.errors import NotKeyed

LARGEST = 1 << 20
"""Bytes of one graph's constants that are kept on disk."""


@dataclass(frozen=True)
class Constant:
    """A tensor and what is in it."""

    dtype: str
    size: list[int]
    device: str
    content: str
    """Its bytes, in base 64."""


def written(constants: Mapping[str, Any]) -> dict[str, Constant]:
    """`constants` as plain data; NotKeyed where they are other than plain tensors, or large."""
    for value in constants.values():
        if type(value) is not torch.Tensor or value.layout is not torch.strided:
            raise NotKeyed(f"it holds a {type(value).__name__} of its own, which no file can")
        if value.is_meta:
            raise NotKeyed("it holds a tensor of its own that has no values")
        if not value.is_contiguous() or value.is_conj() or value.is_neg() or value.requires_grad:
            raise NotKeyed("it holds a tensor of its own that is no plain one")
    if (size := sum(value.nbytes for value in constants.values())) > LARGEST:
        raise NotKeyed(f"it holds {size:,} bytes of its own, and {LARGEST:,} are the most that is kept")
    return {name: _written(value) for name, value in constants.items()}


def _written(tensor: torch.Tensor) -> Constant:
    content = tensor.cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Constant(dtype, list(tensor.shape), str(tensor.device), base64.b64encode(content).decode())


def read(constants: Mapping[str, Constant]) -> dict[str, torch.Tensor]:
    return {name: _read(constant) for name, constant in constants.items()}


def _read(constant: Constant) -> torch.Tensor:
    content = bytearray(base64.b64decode(constant.content))
    memory = torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
    return memory.clone().view(getattr(torch, constant.dtype)).reshape(constant.size).to(constant.device)
