"""The version of the installed PyTorch, for what tests expect of older ones."""

from __future__ import annotations

import torch

SINCE_2_13 = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
"""Before, functional transforms and distributions read values and weak references, where the graph breaks, and sparse
tensors cannot be traced for the backward, so they run as plain PyTorch."""
