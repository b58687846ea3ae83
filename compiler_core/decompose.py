"""Decompositions used while tracing: big operations into few small ones.

Operations are taken apart when the parts are pointwise, reductions or views, which fusion then
puts together again into one kernel, over as many of their neighbours as it can.  What ends in a
matrix product, a convolution, a sort, an index or a random draw stays whole and is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import get_decompositions

def table() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    return {}
