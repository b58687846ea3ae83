"""Collectives that an ``autograd.Function`` calls while its forward and backward are traced.

Those that write to their arguments are replaced by operators that return the result, and a copy, as capture does it
outside of such a Function (`capture/rules/torch/collectives.py`, which has checked the calls).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from compiler_core.torch_private import execution_engine, functional_collectives

_run_backward: Any = execution_engine.run_backward


class FunctionalCollectives(TorchFunctionMode):
    """A mode in which functions of ``torch.distributed`` call operators that return their result."""

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        functional: Any = functional_collectives
        given = dict(kwargs or {})
        if function is torch.autograd.grad:  # PyTorch turns the mode off while it handles a function
            outputs, inputs, tangents = map(tuple, (*args, given["grad_outputs"]))
            with self:
                return _run_backward(outputs, tangents, False, False, inputs, True, accumulate_grad=False)
        replacement = functional.traceable_collective_remaps.get(function)
        if replacement is None:
            return function(*args, **given)
        if given.get("op") in functional.REDUCE_OP_TO_STR:
            given["op"] = functional.REDUCE_OP_TO_STR[given["op"]]
        replacement(*args, **given)
        return None
